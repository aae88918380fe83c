"""What was checked is remembered: it saves time, and no damage to it makes a wrong number right."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

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


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the files whose bytes were read to check them."""
    checked: list[str] = []
    check = reading.shard_fault
    monkeypatch.setattr(
        reading, "shard_fault", lambda path, *rest: checked.append(path.name) or check(path, *rest)
    )
    return checked


def read(cache: Path) -> int:
    return int(gaam_cache.open_cache(cache)["train"].labels.sum())


def test_only_the_first_reading_checks(cache: Path, checks: list[str]) -> None:
    split = gaam_cache.open_cache(cache)["train"]
    assert checks == []  # opening reads no shard
    split.labels, split.embeddings[:], split.num_tokens  # noqa: B018
    assert len(checks) == 1
    assert read(cache) == 4
    assert len(checks) == 1


@pytest.mark.parametrize(
    "change",
    [
        lambda path: path.write_bytes(path.read_bytes()),
        lambda path: path.rename(path.with_name("x")).rename(path),
        lambda path: os.utime(path, ns=(1, 1)),
    ],
)
def test_whatever_happened_to_the_file_it_is_checked_again(
    change: Callable[[Path], object], cache: Path, checks: list[str]
) -> None:
    read(cache)
    change(next((cache / "shards").glob("*.h5")))
    assert read(cache) == 4
    assert len(checks) == 2


def test_a_file_that_has_just_changed_is_not_remembered(
    cache: Path, checks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "RACY_NANOSECONDS", 10**15)
    assert read(cache) == read(cache)
    assert len(checks) == 2


@pytest.mark.parametrize("content", [b"", b"x" * 999, b"\xff\n" * 9, b"0" * 64 + b"\n"])
def test_no_damage_to_what_is_remembered_makes_a_wrong_number_right(
    content: bytes, cache: Path, tmp_path: Path
) -> None:
    read(cache)
    (tmp_path / "user/gaam/checked-shards").write_bytes(content)
    assert read(cache) == 4
    path = next((cache / "shards").glob("*.h5"))
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    with pytest.raises(CacheError, match="was changed"):
        read(cache)


def test_nowhere_to_write_is_no_error(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "user").write_text("a file")
    assert read(cache) == 4
