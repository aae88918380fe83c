"""Every kind of file x every damage: no reader takes it, and ``verify`` finds it.

The contract has what commands say of it; here readers meet damage in every place.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import gaam_cache
from gaam_cache.common.errors import CacheError, OutOfReachError
from tests.cache.published import write_kept_cache

FILES = {
    "plan": "cache.json",
    "receipt": "shards/train-00001.json",
    "shard": "shards/train-00001-*.h5",
}


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """Four shards, two columns, a split without labels."""
    folder = tmp_path / "cache"
    write_kept_cache(folder)
    return folder


@pytest.fixture
def file(cache: Path, kind: str) -> Path:
    """A file of this kind in the cache."""
    [file] = cache.glob(FILES[kind])
    return file


def read(cache: Path) -> list[Any]:
    """Every number and text."""
    opened = gaam_cache.open_cache(cache)
    values: list[Any] = []
    for split in opened.values():
        values.append(split.embeddings[:].tolist())
        values.append(split.labels.tolist())
        values.append(split.num_tokens.tolist())
        values += [split.column(name) for name in opened.columns]
    return values


def check_refused(cache: Path, case: object) -> None:
    with pytest.raises(CacheError):
        pytest.fail(f"{case}: {read(cache)}")
    # a damaged plan is no cache to verify
    with suppress(CacheError):
        assert not gaam_cache.verify(cache).good, case


@pytest.mark.parametrize("kind", FILES)
def test_a_file_with_another_bit_is_refused(file: Path, cache: Path) -> None:
    content = file.read_bytes()
    for place in range(0, len(content), max(1, len(content) // 20)):
        changed = bytearray(content)
        changed[place] ^= 1
        file.write_bytes(changed)
        check_refused(cache, place)
    file.write_bytes(content)
    assert read(cache)


def put_a_pipe(file: Path) -> None:
    """A reader that opens it waits for ever."""
    os.mkfifo(file)


def link_to_a_pipe(file: Path) -> None:
    pipe = file.with_name("pipe")
    os.mkfifo(pipe)
    file.symlink_to(pipe)


def link_to_a_device(file: Path) -> None:
    file.symlink_to("/dev/zero")


def link_to_a_folder(file: Path) -> None:
    file.symlink_to(file.parent)


def link_to_another_file(file: Path) -> None:
    file.symlink_to(__file__)


def put_a_file_of_a_terabyte(file: Path) -> None:
    file.touch()
    os.truncate(file, 10**12)


@pytest.mark.parametrize(
    "put",
    [
        put_a_pipe,
        link_to_a_pipe,
        link_to_a_device,
        link_to_a_folder,
        link_to_another_file,
        put_a_file_of_a_terabyte,
    ],
)
@pytest.mark.parametrize("kind", FILES)
def test_what_is_put_in_the_place_of_a_file_is_refused(
    put: Callable[[Path], None], file: Path, cache: Path
) -> None:
    file.unlink()
    put(file)
    check_refused(cache, put)


def the_file(file: Path, away: Path) -> Path:
    return away


def a_link_to_it(file: Path, away: Path) -> Path:
    link = away.with_name("again")
    link.symlink_to(away)
    return link


def a_relative_path(file: Path, away: Path) -> Path:
    return Path(os.path.relpath(away, file.parent))


@pytest.mark.parametrize("target_of", [the_file, a_link_to_it, a_relative_path])
@pytest.mark.parametrize("kind", FILES)
def test_a_link_is_the_file_that_it_leads_to(
    target_of: Callable[[Path, Path], Path], file: Path, cache: Path, tmp_path: Path
) -> None:
    expected = read(cache)
    away = file.rename(tmp_path / "away")
    file.symlink_to(target_of(file, away))
    assert read(cache) == expected
    assert gaam_cache.verify(cache).good


def nothing(file: Path, away: Path) -> Path:
    return Path("/mnt/not-mounted/file")


def itself(file: Path, away: Path) -> Path:
    return file


def a_file_in_a_file(file: Path, away: Path) -> Path:
    return away / "file"


@pytest.mark.parametrize("target_of", [nothing, itself, a_file_in_a_file])
@pytest.mark.parametrize("kind", FILES)
def test_a_link_that_leads_nowhere_is_out_of_reach(
    target_of: Callable[[Path, Path], Path],
    kind: str,
    file: Path,
    cache: Path,
    tmp_path: Path,
) -> None:
    away = file.rename(tmp_path / "away")
    target = target_of(file, away)
    file.symlink_to(target)
    check_out_of_reach(cache, kind, f"a link to '{target}', and nothing is there")


POINTERS = {
    "Git LFS": (
        "version https://git-lfs.github.com/spec/v1\noid sha256:1f9c\nsize 283888\n"
    ),
    "git-annex": "/annex/objects/SHA256E-s283888--1f9c.h5\n",
    "Git Xet": "# xet version 0\nfilesize = 283888\nhash = '1f9c'\n",
}


@pytest.mark.parametrize("tool", POINTERS)
@pytest.mark.parametrize("kind", FILES)
def test_a_pointer_of_a_file_that_was_not_fetched_is_no_damage(
    tool: str, kind: str, file: Path, cache: Path
) -> None:
    file.write_text(POINTERS[tool])
    check_out_of_reach(cache, kind, f"a pointer of {tool}")


def check_out_of_reach(cache: Path, kind: str, reason: str) -> None:
    """Check that a file is called elsewhere, and that nobody is told to delete it."""
    with pytest.raises(OutOfReachError) as refusal:
        read(cache)
    message = str(refusal.value)
    assert reason in message
    assert "damaged" not in message
    assert "delete" not in message
    # without a plan there is nothing to verify
    if kind == "plan":
        return
    result = gaam_cache.verify(cache)
    assert not result.good
    assert result.bad == ()
    assert len(result.out_of_reach) == 1
    assert "DAMAGED" not in result.in_words()
