"""One shard: arrays -> bytes on disk, published atomically.

A shard is an HDF5 file plus a JSON receipt. The file is built in memory and written by us:
libhdf5 itself would crash the interpreter at exit when the disk is full. The receipt is linked
into place last and makes the shard exist; see FORMAT.md.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from gaam_cache.errors import StorageError
from gaam_cache.format.digest import digest_of
from gaam_cache.format.files import link, make_folder, temporary_file, write_file
from gaam_cache.format.receipt import (
    NUMPY_DTYPES,
    SHARD_FOLDER,
    DatasetSpec,
    Receipt,
    read_receipt,
    receipt_path,
)
from gaam_cache.format.refusals import storage_errors


def build_image(
    arrays: Mapping[str, tuple[str, NDArray[Any]]], attributes: Mapping[str, Any]
) -> tuple[bytes, dict[str, DatasetSpec]]:
    """An HDF5 file in memory: contiguous, uncompressed, the same bytes for the same input.

    Args:
        arrays: name -> (dtype name, array); bfloat16 comes as its bits in uint16, strings as
            (n, width) bytes filled with zeros.
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
            data = stored
            if dtype == "utf8":  # so that whoever opens the file sees strings
                data = stored.view(h5py.string_dtype("utf-8", stored.shape[1]))[:, 0]
            dataset = file.create_dataset(name, data=data, track_times=False)
            dataset.attrs["dtype"] = dtype
            offset = dataset.id.get_offset()
            specs[name] = DatasetSpec(offset=offset, shape=stored.shape, dtype=dtype)
        file.flush()
        return file.id.get_file_image(), specs


def prepare_folder(root: Path) -> None:
    """Make the folder of the shards, and learn before anything is spent whether it can be used.

    Raises:
        StorageError: no permission, read-only, full, a file in the way, or no hard links; or an
            HDF5 that makes files which it refuses itself.
    """
    _check_library()
    folder = root / SHARD_FOLDER
    with storage_errors(folder):
        make_folder(folder)
        try:
            with temporary_file(folder, "probe", b"can a shard be published here?") as temporary:
                second = temporary.with_name(f"{temporary.name}.link.tmp")
                try:
                    link(temporary, second)
                finally:
                    second.unlink(missing_ok=True)
        except OSError:
            with suppress(OSError):  # others may be at work in it
                folder.rmdir()
            raise


def _check_library() -> None:
    """HDF5 before 2 gives images in memory away with the checksum of what they were before."""
    image, _ = build_image({}, {})
    try:
        h5py.File(io.BytesIO(image), "r").close()
    except OSError as error:
        raise StorageError(
            "this HDF5 makes files that it refuses itself",
            expected="h5py built with HDF5 2.0 or newer, as pip's h5py 3.16 is",
            found=f"h5py {h5py.__version__} with HDF5 {h5py.version.hdf5_version}: {error}",
            hint="pip install 'h5py>=3.16'",
        ) from error


def publish(root: Path, name: str, image: bytes, receipt: dict[str, Any]) -> bool:
    """Put a shard on disk so that it exists either completely or not at all.

    Returns:
        False where another worker's receipt was there first; ours is dropped then.

    Raises:
        StorageError: the file system refused; published shards are untouched.
    """
    folder = root / SHARD_FOLDER
    digest = digest_of(image)
    path = folder / f"{name}-{digest[:8]}.h5"
    write_file(path, image)
    # If the receipt fails, the file stays: under that name it may by now be another worker's too.
    filled = Receipt(file=path.name, bytes=len(image), sha256=digest, **receipt)
    if write_file(receipt_path(root, name), filled.to_json().encode(), exclusive=True):
        return True
    if read_receipt(root, name).file != path.name:
        path.unlink(missing_ok=True)
    return False
