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
from gaam_cache.errors import CacheError
from tests.cache.published import write_kept_cache
from tests.cache.store.forgery import edit_json, replace_shard

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
        path.write_bytes(content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :])
        refused(cache, place)
    path.write_bytes(content)
    assert read(cache)
    make: dict[str, Callable[[Path, Path], object]] = {
        "a link": lambda path, away: path.symlink_to(away),
        "a pipe": lambda path, away: os.mkfifo(path),  # reading one would wait for ever
        "a file of a terabyte": lambda path, away: path.touch() or os.truncate(path, 10**12),
    }
    for name, put in make.items():
        copy = Path(shutil.copytree(cache, tmp_path / name))
        (path,) = copy.glob(FILES[kind])
        put(path, path.rename(tmp_path / "away"))
        refused(copy, name)


def test_quick_reads_receipts_and_sizes_alone(cache: Path) -> None:
    (path,) = cache.glob(FILES["shard"])
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert gaam_cache.verify(cache, quick=True).good
    assert not gaam_cache.verify(cache).good
    path.write_bytes(content[:-1])
    assert not gaam_cache.verify(cache, quick=True).good


WRONG: dict[str, dict[str, Callable[[dict[str, Any]], object]]] = {
    "plan": {
        "another version": lambda plan: plan.update(format_version=2),
        "a key of no version": lambda plan: plan.update(more=1),
        "other rows": lambda plan: plan["rows"].update(train=7),
        "other classes": lambda plan: plan.update(class_names=["b", "a"]),
        "another column": lambda plan: plan["columns"].update(more=3),
        "a split that is a path": lambda plan: [
            one["rows"].update({"../x": 3}) for one in (plan, plan["fingerprint_fields"])
        ],
        "a billion shards": lambda plan: [
            plan.update(shard_rows=1),
            *(one["rows"].update(train=10**9) for one in (plan, plan["fingerprint_fields"])),
        ],
    },
    "receipt": {
        "another cache": lambda receipt: receipt.update(fingerprint="0" * 64),
        "other rows": lambda receipt: receipt.update(start=2),
        "a file elsewhere": lambda receipt: receipt.update(file="../../secret.h5"),
        "an array beyond the end": lambda receipt: receipt["datasets"]["row"].update(offset=10**9),
        "an array of another type": lambda receipt: receipt["datasets"]["row"].update(dtype="utf8"),
        "an array less": lambda receipt: receipt["datasets"].pop("row"),
    },
}


def test_what_does_not_fit_together_is_refused(cache: Path, tmp_path: Path) -> None:
    for kind, changes in WRONG.items():
        for name, change in changes.items():
            copy = Path(shutil.copytree(cache, tmp_path / kind / name))
            edit_json(copy / FILES[kind], change)
            refused(copy, name)
    (path,) = cache.glob(FILES["shard"])
    content = path.read_bytes()
    for old, new in ((b"num_tokens", b"num_tokenz"), (b"gaam-shard", b"gaam-shart")):
        assert old in content
        replace_shard(cache, "train-00001", content.replace(old, new))
        assert len(gaam_cache.verify(cache).bad) == 1  # h5py finds what the receipt does not say
