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
from gaam_cache.errors import StorageError
from gaam_cache.store.files import raise_if_refused
from gaam_cache.terminal import as_refusal
from tests.conftest import Outcome, shard_bytes

OF_THIS_MOMENT = ["EACCES", "EPERM", "EMFILE", "ENFILE", "ENOMEM", "ESTALE", "ETIMEDOUT"]
FILES = {"plan": "cache.json", "receipt": "test-00001.json", "shard": "test-00001-"}
READ_THE_SHARD = {"verify", "inspect", "train"}


def commands(config: ExtractConfig, folder: Path) -> dict[str, list[object]]:
    """All that read a cache."""
    cache, runs = config.out, folder / "runs"
    again = ["--encoder", config.encoder, "--dataset", config.dataset, "--out", cache]
    again += ["--set", "shard-rows=10", "--set", "batch-tokens=64", "--quiet"]
    recipe = [
        "--attn",
        "scalar-mix",
        "--epochs",
        1,
        "--seeds",
        1,
        "--set",
        "compile=off",
        "--no-probe",
        "--quiet",
    ]
    return {
        "verify": ["verify", cache],
        "inspect": ["inspect", cache],
        "train": ["train", "--cache", cache, "--runs", runs, *recipe],
        "extract": ["extract", *again],
    }


@pytest.mark.parametrize("reason", OF_THIS_MOMENT)
def test_a_refusal_of_this_moment_says_nothing_of_the_file(reason: str) -> None:
    number = getattr(errno, reason)
    with pytest.raises(StorageError):
        raise_if_refused(OSError(number, os.strerror(number)), Path("a"))


@pytest.mark.parametrize("reason", ["ENOENT", "EIO", "EISDIR", "ELOOP"])
def test_what_is_said_of_the_file_itself_is_left_to_the_caller(reason: str) -> None:
    raise_if_refused(OSError(getattr(errno, reason), "as it is"), Path("a"))
    raise_if_refused(ValueError("no JSON"), Path("a"))


@pytest.mark.parametrize("reason", ["EACCES", "EMFILE", "ESTALE"])
def test_what_may_not_be_read_now_is_not_called_damaged_and_stays(
    reason: str,
    tiny_config: ExtractConfig,
    tmp_path: Path,
    gaam: Callable[..., Outcome],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gaam_cache.extract(tiny_config)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "nothing is remembered"))
    before = shard_bytes(tiny_config.out)
    opened = os.open
    for kind, start in FILES.items():

        def refusing(path: Any, *flags: int, start: str = start) -> int:
            if Path(path).name.startswith(start):
                number = getattr(errno, reason)
                raise OSError(number, os.strerror(number), str(path))
            return opened(path, *flags)

        for name, words in commands(tiny_config, tmp_path).items():
            if kind == "shard" and name not in READ_THE_SHARD:
                continue
            case = f"{name}, {kind}"
            monkeypatch.setattr(os, "open", refusing)
            outcome = gaam(*words)
            monkeypatch.setattr(os, "open", opened)
            assert outcome.code == 1, (case, outcome)
            assert outcome.err.count("error:") == 1, (case, outcome)
            said = outcome.out + outcome.err.replace("nothing is known to be damaged", "")
            for wrong in ("damaged", "DAMAGED", "rm ", "delete", "move ", "made again"):
                assert wrong not in said, (case, outcome)
            assert shard_bytes(tiny_config.out) == before, case


def test_a_broken_disk_is_still_found_by_verify(
    tiny_config: ExtractConfig, gaam: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    gaam_cache.extract(tiny_config)
    opened = os.open

    def failing(path: Any, *flags: int) -> int:
        if Path(path).name.startswith("test-00001-"):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return opened(path, *flags)

    monkeypatch.setattr(os, "open", failing)
    outcome = gaam("verify", tiny_config.out)
    assert outcome.code == 3
    assert "bad: test-00001" in outcome.out


@pytest.mark.parametrize(
    "said",
    [
        "libtorch_cpu.so: failed to map segment from shared object",
        "libscipy_openblas.so: cannot allocate memory in static TLS block",
    ],
)
def test_a_library_that_finds_no_memory_to_be_loaded_is_no_bug_of_ours(said: str) -> None:
    refused = as_refusal(ImportError(said))
    assert refused is not None
    assert refused.message == "not enough memory"
