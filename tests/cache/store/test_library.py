"""An HDF5 whose files HDF5 refuses is told before anything is computed."""

from __future__ import annotations

from pathlib import Path

import pytest

from gaam_cache.errors import StorageError
from gaam_cache.store import shard

CHECKSUM = range(44, 48)
"""Where it lies in a superblock of version 2: what HDF5 1.14 left wrong in images in memory."""


@pytest.mark.parametrize("at", CHECKSUM)
def test_a_library_that_writes_a_wrong_checksum_is_refused(
    at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard.prepare_folder(tmp_path / "with this one")
    image, specs = shard.build_image({}, {})
    wrong = image[:at] + bytes([image[at] ^ 1]) + image[at + 1 :]
    monkeypatch.setattr(shard, "build_image", lambda *_: (wrong, specs))
    with pytest.raises(StorageError, match=r"h5py>=3\.16"):
        shard.prepare_folder(tmp_path / "cache")
    assert not (tmp_path / "cache").exists()
