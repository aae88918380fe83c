"""Every kind of file of a cache x every damage: nothing is read from it, and ``verify`` finds it.

What the commands say of it is the contract's; here the readers are asked, and every place in turn.
"""

from __future__ import annotations

import os
import shutil
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
    write_kept_cache(tmp_path / "cache")
    return tmp_path / "cache"


def read(cache: Path) -> list[Any]:
    """Every number and text."""
    opened = gaam_cache.open_cache(cache)
    return [
        [one.embeddings[:].tolist(), one.labels.tolist(), one.num_tokens.tolist()]
        + [one.column(name) for name in opened.columns]
        for one in opened.values()
    ]


def refused(cache: Path, case: object) -> None:
    with pytest.raises(CacheError):
        pytest.fail(f"{case}: {read(cache)}")
    with suppress(CacheError):  # of the plan
        assert not gaam_cache.verify(cache).good, case


@pytest.mark.parametrize("kind", FILES)
def test_a_file_that_is_not_what_was_written_is_refused(
    kind: str, cache: Path, tmp_path: Path
) -> None:
    (path,) = cache.glob(FILES[kind])
    content = path.read_bytes()
    for place in range(0, len(content), max(1, len(content) // 20)):
        path.write_bytes(
            content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]
        )
        refused(cache, place)
    path.write_bytes(content)
    assert read(cache)
    make: dict[str, Callable[[Path, Path], object]] = {
        "a pipe": lambda path, away: os.mkfifo(path),  # reading one would wait for ever
        "a link to a pipe": lambda path, away: (
            os.mkfifo(away.with_name("p")) or path.symlink_to(away.with_name("p"))
        ),
        "a link to a device": lambda path, away: path.symlink_to("/dev/zero"),
        "a link to a folder": lambda path, away: path.symlink_to(away.parent),
        "a link to another file": lambda path, away: path.symlink_to(__file__),
        "a file of a terabyte": lambda path, away: (
            path.touch() or os.truncate(path, 10**12)
        ),
    }
    for name, put in make.items():
        copy = Path(shutil.copytree(cache, tmp_path / name))
        (path,) = copy.glob(FILES[kind])
        put(path, path.rename(tmp_path / "away"))
        refused(copy, name)


LEADS_TO: dict[str, Callable[[Path, Path], Any]] = {
    "the file": lambda path, away: away,
    "a link to it": lambda path, away: away.with_name("again"),
    "it, by a relative path": lambda path, away: os.path.relpath(away, path.parent),
    "nothing": lambda path, away: "/mnt/not-mounted/file",
    "itself": lambda path, away: path,
    "a file in a file": lambda path, away: f"{away}/file",
}


@pytest.mark.parametrize("leads_to", LEADS_TO)
@pytest.mark.parametrize("kind", FILES)
def test_a_link_is_the_file_that_it_leads_to_or_is_out_of_reach_and_never_damaged(
    kind: str, leads_to: str, cache: Path, tmp_path: Path
) -> None:
    whole, away = read(cache), tmp_path / "away"
    (path,) = cache.glob(FILES[kind])
    path.rename(away)
    (tmp_path / "again").symlink_to(away)
    target = LEADS_TO[leads_to](path, away)
    path.symlink_to(target)
    if list(LEADS_TO).index(leads_to) < 3:
        assert read(cache) == whole
        assert gaam_cache.verify(cache).good
        return
    out_of_reach(cache, kind, f"a link to '{target}', and nothing is there")


POINTERS = {
    "Git LFS": "version https://git-lfs.github.com/spec/v1\noid sha256:1f9c\nsize 283888\n",
    "git-annex": "/annex/objects/SHA256E-s283888--1f9c.h5\n",
}


@pytest.mark.parametrize("tool", POINTERS)
@pytest.mark.parametrize("kind", FILES)
def test_a_pointer_of_a_file_that_was_not_fetched_is_no_damage(
    kind: str, tool: str, cache: Path
) -> None:
    (path,) = cache.glob(FILES[kind])
    path.write_text(POINTERS[tool])
    out_of_reach(cache, kind, f"a pointer of {tool}")


def out_of_reach(cache: Path, kind: str, why: str) -> None:
    """It is said that a file is elsewhere, and nobody is told to delete anything."""
    with pytest.raises(OutOfReachError) as refusal:
        read(cache)
    said = str(refusal.value)
    assert why in said
    assert "damaged" not in said
    assert "delete" not in said
    if kind != "plan":
        found = gaam_cache.verify(cache)
        assert (found.good, found.bad, len(found.out_of_reach)) == (False, (), 1)
        assert "DAMAGED" not in found.in_words()
