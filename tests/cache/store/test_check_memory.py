"""What was hashed is remembered: it saves time, and no damage to it makes a wrong number right."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gaam_cache
from gaam_cache.errors import CacheError
from gaam_cache.store import read as reading
from tests.cache.published import write_random_cache


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One shard; its files count as old."""
    write_random_cache(tmp_path / "cache", 8, 2, 4)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "user"))
    monkeypatch.setattr(reading, "RACY_NANOSECONDS", -(10**12))
    return tmp_path / "cache"


def read(cache: Path) -> int:
    return int(gaam_cache.open_cache(cache)["train"].labels.sum())


def test_a_file_is_hashed_once_and_again_after_whatever_happened_to_it(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks: list[Any] = []
    digest = hashlib.file_digest
    monkeypatch.setattr(
        hashlib, "file_digest", lambda *given: checks.append(given) or digest(*given)
    )
    split = gaam_cache.open_cache(cache)["train"]
    assert checks == []  # opening reads no shard
    split.labels, split.embeddings[:], split.num_tokens  # noqa: B018
    assert read(cache) == 4
    assert len(checks) == 1
    changes: list[Callable[[Path], object]] = [
        lambda path: path.write_bytes(path.read_bytes()),
        lambda path: path.rename(path.with_name("x")).rename(path),
        lambda path: os.utime(path, ns=(1, 1)),
    ]
    for number, change in enumerate(changes, start=2):
        change(next(cache.glob("shards/*.h5")))
        assert read(cache) == read(cache) == 4
        assert len(checks) == number
    path, memory = next(cache.glob("shards/*.h5")), tmp_path / "user/gaam/checked-shards"
    content = path.read_bytes()
    for damage in (b"", b"\xff\n" * 9, memory.read_bytes()):
        memory.write_bytes(damage)
        path.write_bytes(content)
        assert read(cache) == 4
        path.write_bytes(content[:-1] + b"\xff")
        with pytest.raises(CacheError, match="was changed"):
            read(cache)
    path.write_bytes(content)
    checks.clear()
    monkeypatch.setattr(reading, "RACY_NANOSECONDS", 10**15)  # it has just changed
    assert read(cache) == read(cache) == 4
    assert len(checks) == 2
