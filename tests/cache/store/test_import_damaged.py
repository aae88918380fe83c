"""Files that are cut, changed or no files of arrays are refused, and nothing is unpickled."""

from __future__ import annotations

import os
from pathlib import Path

import h5py
import numpy as np
import pytest

import gaam_cache
from gaam_cache.errors import GaamError
from tests.cache.store.making import FORMATS, labels, run, save, states

GIVEN = {"embeddings": states(30, 3, 40), "labels": labels(30)}


def refused(file: Path, tmp_path: Path) -> None:
    with pytest.raises(GaamError) as caught:
        run(file, out=tmp_path / "c")
    assert caught.value.exit_code in (2, 3)
    assert not list(tmp_path.glob("c/shards/*"))


@pytest.mark.parametrize("suffix", FORMATS)
def test_a_file_that_was_cut_is_refused(suffix: str, tmp_path: Path) -> None:
    whole = save(tmp_path / f"train.{suffix}", GIVEN).read_bytes()
    for size in (0, 1, 100, len(whole) // 2, len(whole) - 1):
        (tmp_path / f"train.{suffix}").write_bytes(whole[:size])
        refused(tmp_path / f"train.{suffix}", tmp_path)


@pytest.mark.parametrize("suffix", FORMATS)
def test_no_changed_byte_is_a_traceback(suffix: str, tmp_path: Path) -> None:
    """Formats without checksums give other numbers, or a refusal; nothing else."""
    file = save(tmp_path / f"train.{suffix}", GIVEN)
    whole = file.read_bytes()
    for number, at in enumerate(np.linspace(0, len(whole) - 1, 60).astype(int)):
        changed = bytearray(whole)
        changed[at] ^= 0xFF
        file.write_bytes(changed)
        out = tmp_path / str(number)
        try:
            run(file, out=out)
        except GaamError:
            assert not list(out.glob("shards/*"))
        else:
            assert gaam_cache.verify(out, recompute_rows=30).good


def test_what_was_never_written_is_not_taken_for_zeros(tmp_path: Path) -> None:
    for chunks in (None, (5, 3, 40)):
        with h5py.File(tmp_path / "train.h5", "w") as file:
            file["labels"] = GIVEN["labels"]
            made = file.create_dataset("embeddings", (30, 3, 40), "f4", chunks=chunks)
            if chunks:
                made[:20] = 1
        refused(tmp_path / "train.h5", tmp_path)


def test_links_of_hdf5_are_not_followed(tmp_path: Path) -> None:
    save(tmp_path / "other.h5", GIVEN)
    with h5py.File(tmp_path / "train.h5", "w") as file:
        file["labels"] = GIVEN["labels"]
        file["embeddings"] = h5py.ExternalLink("other.h5", "embeddings")
    refused(tmp_path / "train.h5", tmp_path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.npz")
    (tmp_path / "folder.npz").mkdir()
    (tmp_path / "train.txt").write_text("1")
    for name in ("pipe.npz", "folder.npz", "train.txt", "nothing.npz"):
        refused(tmp_path / name, tmp_path)
