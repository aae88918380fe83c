"""A file that may not be read now is no damaged file: nothing of it is taken away or made again."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gaam_cache
from gaam_cache.config import ExtractConfig
from tests.conftest import Outcome, shard_bytes

FILES = {"plan": "cache.json", "receipt": "test-00001.json", "shard": "test-00001-"}


def test_what_may_not_be_read_now_is_not_called_damaged_and_stays(
    tiny_config: ExtractConfig,
    tmp_path: Path,
    gaam: Callable[..., Outcome],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gaam_cache.extract(tiny_config)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "nothing is remembered"))
    cache, before, opened = tiny_config.out, shard_bytes(tiny_config.out), os.open
    recipe = ("--attn", "scalar-mix", "--epochs", 1, "--seeds", 1, "--set", "compile=off", "-q")
    commands: dict[str, tuple[object, ...]] = {
        "verify": ("verify", cache),
        "inspect": ("inspect", cache),
        "train": ("train", "--cache", cache, "--runs", tmp_path / "runs", *recipe),
        "extract": ("extract", "--encoder", tiny_config.encoder, "--dataset", tiny_config.dataset,
                    "--out", cache, "--set", "shard-rows=10", "--set", "batch-tokens=64", "-q"),
    }  # fmt: skip
    for kind, start in FILES.items():
        for number, name in ((n, name) for n in (errno.EACCES, errno.EIO) for name in commands):

            def refusing(path: Any, *flags: int, start: str = start, number: int = number) -> int:
                if Path(path).name.startswith(start):
                    raise OSError(number, os.strerror(number), str(path))
                return opened(path, *flags)

            broken = number == errno.EIO  # a broken disk is damage
            if (kind, name) == ("shard", "extract") or (broken and name != "verify"):
                continue
            with monkeypatch.context() as patched:
                patched.setattr(os, "open", refusing)
                outcome = gaam(*commands[name])
            case = (name, kind, number, outcome)
            assert shard_bytes(cache) == before, case
            assert outcome.code == (3 if broken else 1), case
            said = outcome.out + outcome.err.replace("nothing is known to be damaged", "")
            for wrong in ("damaged", "DAMAGED", "rm ", "delete", "move ", "made again"):
                assert broken or wrong not in said, case
