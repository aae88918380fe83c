"""One shard: an HDF5 file, and the receipt that makes it exist and says where every array lies.

The file is built in memory and written by us: libhdf5 itself would crash the interpreter at exit
when the disk is full. The receipt is linked into place last; see FORMAT.md.
"""

from __future__ import annotations

import io
import math
import os
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.errors import CacheError, StorageError
from gaam_cache.store.digest import SEAL, digest_of, sealed_text, unsealed
from gaam_cache.store.dtypes import NUMPY_DTYPES
from gaam_cache.store.files import (
    link,
    make_folder,
    raise_if_refused,
    read_json,
    storage_errors,
    temporary_file,
    write_file,
)
from gaam_cache.store.plan import FORMAT_VERSION, SHARD_FOLDER, Plan, ShardSpec

ROW_DATASETS = {"label": "int64", "row": "int64", "num_tokens": "int32"}
"""Arrays with one number per row, and their types."""
UNLABELLED = -1
"""The label of every row of a split without labels."""
MAX_RECEIPT_BYTES = 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetSpec:
    """Where one array lies inside the file."""

    offset: int
    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return math.prod(self.shape) * np.dtype(NUMPY_DTYPES[self.dtype]).itemsize


@dataclass(frozen=True, kw_only=True, slots=True)
class Receipt:
    """What makes a shard exist: its file, size, hash, and the place of every array."""

    file: str
    bytes: int
    sha256: str
    fingerprint: str
    split: str
    start: int
    stop: int
    truncated: int
    """Rows that were cut at the maximum length."""
    datasets: dict[str, DatasetSpec]
    digest: str = field(default="", compare=False)
    """Of all the above, as the receipt file has it; empty before there is one."""

    def to_json(self) -> str:
        """The text of the receipt file."""
        content = asdict(self)
        del content["digest"]
        return sealed_text(content)


def receipt_path(root: Path, name: str) -> Path:
    """The receipt file of the shard called ``name``."""
    return root / f"{SHARD_FOLDER}/{name}.json"


def embeddings_key(plan: Plan, pooling: str) -> str:
    """Name of the HDF5 dataset of a pooling."""
    return "embeddings" if pooling == plan.pooling[0] else f"embeddings_{pooling}"


def column_key(name: str) -> str:
    """Name of the HDF5 dataset of a kept column."""
    return f"column_{name}"


def expected_arrays(plan: Plan, shard: ShardSpec) -> dict[str, tuple[tuple[int, ...], str]]:
    """Shape and dtype of every array of a shard."""
    rows = shard.stop - shard.start
    states = (rows, plan.num_layers, plan.hidden_size)
    return {
        **{embeddings_key(plan, one): (states, plan.storage_dtype) for one in plan.pooling},
        **{key: ((rows,), dtype) for key, dtype in ROW_DATASETS.items()},
        **{column_key(name): ((rows, width), "utf8") for name, width in plan.columns.items()},
    }


def shard_attributes(plan: Plan, shard: ShardSpec) -> dict[str, Any]:
    """Attributes of the root group of a shard file."""
    return {
        "format": "gaam-shard",
        "format_version": FORMAT_VERSION,
        "fingerprint": plan.fingerprint,
        "split": shard.split,
        "start": shard.start,
        "stop": shard.stop,
        "pooling": ",".join(plan.pooling),
    }


def read_receipt(root: Path, name: str) -> Receipt:
    """Read a receipt and check it against itself and the size of its file."""
    path = receipt_path(root, name)
    try:
        sealed = read_json(path, max_bytes=MAX_RECEIPT_BYTES)
        content = unsealed(sealed)
        specs = {
            key: DatasetSpec(**{**spec, "shape": tuple(spec["shape"])})
            for key, spec in content.pop("datasets").items()
        }
        receipt = Receipt(datasets=specs, **content | {"digest": sealed[SEAL]})
        _check(receipt, name)
        status = os.lstat(f"{os.path.dirname(path)}/{receipt.file}")  # noqa: PTH120 ten times faster
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{receipt.file} is not a regular file")
        if status.st_size != receipt.bytes:
            raise ValueError(
                f"{receipt.file} has {status.st_size} bytes, the receipt says {receipt.bytes}"
            )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise_if_refused(error, path)
        found = f"no key {error}" if isinstance(error, KeyError) else str(error)
        if isinstance(error, FileNotFoundError) and path.exists():
            found = "the file that the receipt names is not there"
        raise CacheError(
            f"the shard '{name}' is damaged",
            expected="a receipt and a file that agree",
            found=found,
            where=str(path.absolute()),
            hint=f"delete {path} and run gaam extract again",
        ) from error
    return receipt


def _check(receipt: Receipt, name: str) -> None:
    if not re.fullmatch(r"[0-9a-f]{64}", receipt.sha256):
        raise ValueError("bad sha256")
    if receipt.file != f"{name}-{receipt.sha256[:8]}.h5":
        raise ValueError(f"bad file name {receipt.file!r}")
    numbers = [receipt.bytes, receipt.start, receipt.stop, receipt.truncated]
    for spec in receipt.datasets.values():
        numbers += [spec.offset, *spec.shape]
    if not all(type(n) is int and 0 <= n < 2**48 for n in numbers):
        raise ValueError("offsets and sizes must be whole numbers")
    end = 0
    for key, spec in sorted(receipt.datasets.items(), key=lambda item: item[1].offset):
        if spec.dtype not in NUMPY_DTYPES or len(spec.shape) > 3:
            raise ValueError(f"'{key}' is of a type or shape that no array has")
        if spec.shape[:1] != (receipt.stop - receipt.start,):
            raise ValueError(f"'{key}' has not one entry per row")
        if spec.offset < end:
            raise ValueError(f"'{key}' overlaps another array")
        end = spec.offset + spec.nbytes
        if end > receipt.bytes:
            raise ValueError(f"'{key}' reaches beyond the end of the file")
    if receipt.truncated > receipt.stop - receipt.start:
        raise ValueError("more rows truncated than there are")


def planned_receipt(root: Path, plan: Plan, shard: ShardSpec) -> Receipt:
    """Read the receipt of a planned shard and check it against the plan."""
    receipt = read_receipt(root, shard.name)
    belongs = (plan.fingerprint, shard.split, shard.start, shard.stop)
    said = (receipt.fingerprint, receipt.split, receipt.start, receipt.stop)
    arrays = expected_arrays(plan, shard)
    there = {key: (spec.shape, spec.dtype) for key, spec in receipt.datasets.items()}
    if said == belongs and there == arrays:
        return receipt
    message = f"the shard '{shard.name}' does not hold what the plan says"
    expected, found = (
        ", ".join(f"{key!r} {dtype} {shape}" for key, (shape, dtype) in sorted(one.items()))
        for one in (arrays, there)
    )
    if said != belongs:
        message = f"the shard '{shard.name}' belongs to another cache"
        expected, found = (
            "fingerprint {!s:.12}, rows {} {} to {}".format(*one) for one in (belongs, said)
        )
    raise CacheError(
        message,
        expected=expected,
        found=found,
        where=str(receipt_path(root, shard.name).absolute()),
        hint="delete the receipt and run gaam extract again",
    )


def missing_shards(root: Path, plan: Plan) -> list[str]:
    """Names of the planned shards that have no receipt."""
    try:
        # one listing: a shard a stat would be slow for a plan of many shards
        there = set(os.listdir(root / SHARD_FOLDER))  # noqa: PTH208 names are all we need
    except (FileNotFoundError, NotADirectoryError):
        there = set()
    except OSError as error:
        raise StorageError(
            "the shards of the cache cannot be listed",
            expected=f"a readable folder '{SHARD_FOLDER}'",
            found=error.strerror,
            where=str((root / SHARD_FOLDER).absolute()),
            hint="get the right to read there, or choose another folder with --out or --cache",
        ) from error
    return [shard.name for shard in plan.shards() if f"{shard.name}.json" not in there]


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
    import h5py

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
    """Make the folder of the shards, and learn before anything is spent whether it can be used."""
    import h5py

    image, _ = build_image({}, {})
    try:  # HDF5 before 2 gives images away with the checksum of what they were before
        h5py.File(io.BytesIO(image), "r").close()
    except OSError as error:
        raise StorageError(
            "this HDF5 makes files that it refuses itself",
            expected="h5py built with HDF5 2.0 or newer, as pip's h5py 3.16 is",
            found=f"h5py {h5py.__version__} with HDF5 {h5py.version.hdf5_version}: {error}",
            hint="pip install 'h5py>=3.16'",
        ) from error
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


def publish(root: Path, name: str, image: bytes, receipt: dict[str, Any]) -> bool:
    """Put a shard on disk so that it exists either completely or not at all.

    Returns:
        False where another worker's receipt was there first; ours is dropped then.
    """
    digest = digest_of(image)
    path = root / SHARD_FOLDER / f"{name}-{digest[:8]}.h5"
    write_file(path, image)
    # If the receipt fails, the file stays: under that name it may by now be another worker's too.
    filled = Receipt(file=path.name, bytes=len(image), sha256=digest, **receipt)
    if write_file(receipt_path(root, name), filled.to_json().encode(), exclusive=True):
        return True
    if read_receipt(root, name).file != path.name:
        path.unlink(missing_ok=True)
    return False
