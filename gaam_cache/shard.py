"""One shard: arrays <-> bytes on disk, published atomically, read through a memory map.

A shard is an HDF5 file plus a JSON receipt. The file is built in memory and written by us:
libhdf5 itself would crash the interpreter at exit when the disk is full. The receipt is linked
into place last and makes the shard exist; see FORMAT.md.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from gaam_cache.errors import GaamError, StorageError
from gaam_cache.receipt import (
    NUMPY_DTYPES,
    SHARD_FOLDER,
    DatasetSpec,
    Receipt,
    read_receipt,
    receipt_path,
)


def build_image(
    arrays: Mapping[str, tuple[str, NDArray[Any]]], attributes: Mapping[str, Any]
) -> tuple[bytes, dict[str, DatasetSpec]]:
    """An HDF5 file in memory: contiguous, uncompressed, the same bytes for the same input.

    Args:
        arrays: name -> (dtype name, array); bfloat16 comes as its bits in uint16.
        attributes: attributes of the root group.

    Returns:
        The bytes, and where each array lies in them.
    """
    options: dict[str, Any] = {"libver": ("v108", "v108"), "alignment_threshold": 1}
    with h5py.File(
        "image", "w", driver="core", backing_store=False, alignment_interval=64, **options
    ) as file:
        file.attrs.update(attributes)
        specs = {}
        for name, (dtype, array) in arrays.items():
            stored = np.ascontiguousarray(array, dtype=NUMPY_DTYPES[dtype])
            dataset = file.create_dataset(name, data=stored, track_times=False)
            dataset.attrs["dtype"] = dtype
            offset = dataset.id.get_offset()
            specs[name] = DatasetSpec(offset=offset, shape=stored.shape, dtype=dtype)
        file.flush()
        return file.id.get_file_image(), specs


def prepare_folder(root: Path) -> None:
    """Make the folder of the shards, and learn before anything is spent whether it can be used.

    Raises:
        StorageError: no permission, read-only, full, a file in the way, or no hard links.
    """
    folder = root / SHARD_FOLDER
    with storage_errors(folder):
        _make_folder(folder)
        with _temporary(folder, "probe", b"can a shard be published here?") as temporary:
            second = temporary.with_name(f"{temporary.name}.link.tmp")
            try:
                _link(temporary, second)
            finally:
                second.unlink(missing_ok=True)


def publish(root: Path, name: str, image: bytes, receipt: dict[str, Any]) -> bool:
    """Put a shard on disk so that it exists either completely or not at all.

    Returns:
        False where another worker's receipt was there first; ours is dropped then.

    Raises:
        StorageError: the file system refused; published shards are untouched.
    """
    folder = root / SHARD_FOLDER
    digest = hashlib.sha256(image).hexdigest()
    path = folder / f"{name}-{digest[:8]}.h5"
    with storage_errors(path):
        _make_folder(folder)
        with _temporary(folder, path.name, image) as temporary:
            temporary.rename(path)
        _sync_folder(folder)
    # If the receipt fails, the file stays: under that name it may by now be another worker's too.
    filled = Receipt(file=path.name, bytes=len(image), sha256=digest, **receipt)
    if write_exclusive(receipt_path(root, name), filled.to_json().encode()):
        return True
    if read_receipt(root, name).file != path.name:
        path.unlink(missing_ok=True)
    return False


def write_exclusive(path: Path, content: bytes) -> bool:
    """Create ``path`` with its whole content, or return False if it exists already.

    The link is the one exclusive step: whoever comes first wins, and no reader ever sees a part.

    Raises:
        StorageError: the file system refused.
    """
    with storage_errors(path):
        _make_folder(path.parent)
        with _temporary(path.parent, path.name, content) as temporary:
            try:
                _link(temporary, path)
            except FileExistsError:
                return False
        _sync_folder(path.parent)
    return True


@contextmanager
def _temporary(folder: Path, name: str, content: bytes) -> Iterator[Path]:
    """A synced file that is gone afterwards, unless it was renamed."""
    temporary = folder / f".{name}.{os.getpid()}.{secrets.token_hex(4)}.tmp"
    try:
        with temporary.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _link(temporary: Path, path: Path) -> None:
    try:
        os.link(temporary, path)
    except OSError as error:
        if error.errno not in NO_HARD_LINKS:
            raise
        raise StorageError(
            "the file system has no hard links",
            expected="hard links: the one step that publishes a file whole, and only once",
            found=error.strerror,
            where=str(path.parent.absolute()),
            hint="choose a folder on another file system with --out (ext4, xfs, btrfs and NFS "
            "have them); a finished cache can be copied anywhere",
        ) from error


def _make_folder(folder: Path) -> None:
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


NO_HARD_LINKS = {errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}
"""How file systems say so; a missing permission is EACCES."""
_REMEDIES = {
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT, errno.EFBIG), "make room"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "get the right to write there"),
    **dict.fromkeys((errno.EEXIST, errno.ENOTDIR), "move the file away that is in the way"),
}


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Turn a refusal of the file system into one message.

    Raises:
        StorageError: disk full, no permission, read-only, a file where a folder must be.
    """
    try:
        yield
    except GaamError:
        raise  # said already; some are OSErrors too
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, "look at the disk and its mount")
        raise StorageError(
            f"cannot write '{path.name}'",
            found=error.strerror or str(error),
            where=str(path.parent.absolute()),
            hint=f"{remedy}, or choose another folder with --out; "
            "what is finished is kept, and the same command goes on from there",
        ) from error


def map_array(root: Path, receipt: Receipt, key: str) -> NDArray[Any]:
    """A read-only memory map of one array of a shard; the HDF5 parser is not involved."""
    spec = receipt.datasets[key]
    return np.memmap(
        root / SHARD_FOLDER / receipt.file,
        dtype=NUMPY_DTYPES[spec.dtype],
        mode="r",
        offset=spec.offset,
        shape=spec.shape,
    )
