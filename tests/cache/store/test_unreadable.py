"""A file that may not be read now is no damaged file: nothing of it is taken away or made again."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from itertools import product
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
    extract = ("extract", "--encoder", tiny_config.encoder, "--dataset", tiny_config.dataset)
    settings = ("--out", cache, "--set", "shard-rows=10", "--set", "batch-tokens=64", "-q")
    commands = {"verify": ("verify", cache), "extract": (*extract, *settings)}
    for (kind, start), (name, command) in product(FILES.items(), commands.items()):

        def refusing(path: Any, *flags: int, start: str = start) -> int:
            if Path(path).name.startswith(start):
                raise PermissionError(errno.EACCES, "Permission denied", str(path))
            return opened(path, *flags)

        if (kind, name) == ("shard", "extract"):
            continue
        with monkeypatch.context() as patched:
            patched.setattr(os, "open", refusing)
            outcome = gaam(*command)
        case = (name, kind, outcome)
        assert (shard_bytes(cache), outcome.code) == (before, 1), case
        said = outcome.out + outcome.err.replace("nothing is known to be damaged", "")
        for wrong in ("damaged", "DAMAGED", "rm ", "delete", "move ", "made again"):
            assert wrong not in said, case
