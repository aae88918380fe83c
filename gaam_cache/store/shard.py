"""Write and read one shard: an HDF5 file, and a receipt that makes the shard exist.

The receipt records the file's size and hash and the position of every array. gaam
builds the file in memory and writes it itself, because libhdf5 crashes the interpreter
at exit if the disk is full. The receipt is published last; see the page of
the cache format.
"""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.errors import CacheError, OutOfReachError, StorageError
from gaam_cache.store import files as disk
from gaam_cache.store.dtypes import NUMPY_DTYPES
from gaam_cache.store.plan import (
    PLAN_FILE,
    SHARD_FOLDER,
    Plan,
    ShardSpec,
)

ROW_DATASETS = {"row": "int64", "num_tokens": "int32"}
"""Arrays with one number per row beside its label, and their types."""

# Most files that are mapped at a time. Each takes a descriptor, and a cache may have
# many shards.
MAX_MAPPED_FILES = 32
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetSpec:
    """Where one array is in the file of a shard."""

    offset: int
    """First byte of the array in the file."""
    shape: tuple[int, ...]
    dtype: str
    """Name of the type, such as bfloat16 or utf8."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Receipt:
    """The record that makes a shard exist: its file, size, hash, rows and arrays."""

    file: str
    bytes: int
    sha256: str
    fingerprint: str
    split: str
    start: int
    stop: int
    truncated: int
    """Number of rows that were cut at the maximum length."""
    datasets: dict[str, DatasetSpec]


class TypedArray(NamedTuple):
    """An array for a shard, and the name of the type in which the shard stores it."""

    dtype: str  # such as bfloat16 or utf8
    values: NDArray[Any]
    """(n, ...). bfloat16 is passed as its bits in uint16, strings as (n, width) bytes
    padded with zeros."""


class WrittenShard(NamedTuple):
    """The result of writing a shard."""

    num_bytes: int  # of the file
    is_published: bool
    """Whether this process has published the shard. If not, another worker was first:
    its receipt stays, and this file is removed."""


def receipt_path(root: Path, name: str) -> Path:
    """Path of the receipt of the shard ``name`` of the cache in the folder ``root``."""
    return root / f"{SHARD_FOLDER}/{name}.json"


def embeddings_key(plan: Plan, pooling: str) -> str:
    """Name of the array that holds the states of a pooling.

    The first pooling of a plan has the short name, as in a cache of one pooling.
    """
    return "embeddings" if pooling == plan.pooling[0] else f"embeddings_{pooling}"


def column_key(name: str) -> str:
    """Name of the array that holds a kept column."""
    return f"column_{name}"


def shard_attributes(plan: Plan, shard: ShardSpec) -> dict[str, object]:
    """Attributes of the root group of a shard's HDF5 file, in the order of writing."""
    return {
        "format": "gaam-shard",
        "format_version": plan.format_version,
        "fingerprint": plan.fingerprint,
        "split": shard.split,
        "start": shard.start,
        "stop": shard.stop,
        "pooling": ",".join(plan.pooling),
    }


def read_receipt(root: Path, plan: Plan, shard: ShardSpec) -> Receipt:
    """Read the receipt of a planned shard, and check it against the plan and the file.

    The receipt is the small file that makes a shard exist; it records the shard's file,
    size and hash. The bytes of the shard's file are not read: it must be a regular file
    of the right size.

    Raises:
        OutOfReachError: the shard is not on this machine, or belongs to another cache.
        CacheError: plan, receipt and file do not agree.
    """
    path = receipt_path(root, shard.name)
    try:
        receipt = _parse_receipt(disk.unsealed(disk.read_json(path)))
        if receipt.fingerprint != plan.fingerprint:
            raise _other_cache_error(path, receipt.fingerprint, plan.fingerprint)
        _check_receipt(receipt, plan, shard)
        disk.check_size(path.with_name(receipt.file), receipt.bytes)
        return receipt
    except disk.ElsewhereError as error:
        raise error.out_of_reach_error(f"the shard '{shard.name}'", path) from error
    except disk.DAMAGE as error:
        reason = disk.describe_damage(error)
        raise damaged_shard_error(root, plan, shard.name, reason) from error


def _parse_receipt(content: dict[str, Any]) -> Receipt:
    """Make a receipt of its JSON values.

    Damaged values make this raise one of the errors of ``files.DAMAGE``.
    """
    specs = {}
    for key, spec in content["datasets"].items():
        # JSON has an array where the receipt has a tuple.
        fields = spec | {"shape": tuple(spec["shape"])}
        specs[key] = DatasetSpec(**fields)
    return Receipt(**(content | {"datasets": specs}))


def _check_receipt(receipt: Receipt, plan: Plan, shard: ShardSpec) -> None:
    """Refuse a receipt whose rows, arrays or file name are not those of the plan.

    Raises:
        ValueError: the text says what differs.
    """
    recorded_rows = (receipt.split, receipt.start, receipt.stop)
    if recorded_rows != (shard.split, shard.start, shard.stop):
        raise ValueError("it describes other rows")

    recorded_arrays = {
        key: _PlannedArray(spec.shape, spec.dtype)
        for key, spec in receipt.datasets.items()
    }
    if recorded_arrays != _planned_arrays(plan, shard):
        raise ValueError("its arrays are not those of the plan")

    file_name = f"{shard.name}-{receipt.sha256[:8]}.h5"
    if receipt.file != file_name or not _SHA256.fullmatch(receipt.sha256):
        raise ValueError(f"bad file name {receipt.file!r}")


class _PlannedArray(NamedTuple):
    """What a plan says of an array of a shard."""

    shape: tuple[int, ...]
    dtype: str  # name of the type, such as bfloat16 or utf8


def _planned_arrays(plan: Plan, shard: ShardSpec) -> dict[str, _PlannedArray]:
    """The arrays that the plan requires in a shard, by name."""
    num_rows = shard.num_rows  # of every array
    states = _PlannedArray(
        (num_rows, plan.num_layers, plan.hidden_size), plan.storage_dtype
    )
    arrays = {embeddings_key(plan, pooling): states for pooling in plan.pooling}
    target = plan.target
    arrays[target.array_key] = _PlannedArray(target.shape(num_rows), target.dtype)
    for key, dtype in ROW_DATASETS.items():
        arrays[key] = _PlannedArray((num_rows,), dtype)
    for name, width in plan.columns.items():
        arrays[column_key(name)] = _PlannedArray((num_rows, width), "utf8")
    return arrays


def _other_cache_error(receipt: Path, recorded: str, planned: str) -> OutOfReachError:
    """Build the error for a receipt with the fingerprint of another cache.

    Args:
        receipt: path of the receipt.
        recorded: fingerprint in the receipt.
        planned: fingerprint of the cache.
    """
    return OutOfReachError(
        f"the shard '{receipt.stem}' belongs to another cache",
        expected=f"the fingerprint {disk.short_digest(planned)}",
        found=f"the fingerprint {disk.short_digest(str(recorded))}",
        where=str(receipt.absolute()),
        hint=f"bring back the {PLAN_FILE} of these shards, or move them to its folder",
    )


def check_no_other_cache(root: Path, fingerprint: str) -> None:
    """Refuse to begin a cache in a folder that has shards of another cache.

    The folder ``root`` has no plan, and ``fingerprint`` is that of the new cache.

    Raises:
        OutOfReachError: the first readable receipt has another fingerprint.
    """
    # A damaged receipt does not say whose it is: the next one is read.
    for receipt in sorted((root / SHARD_FOLDER).glob("*.json")):
        with suppress(*disk.DAMAGE):
            recorded = disk.read_json(receipt)["fingerprint"]
            if recorded != fingerprint:
                raise _other_cache_error(receipt, recorded, fingerprint)
            return


def damaged_shard_error(root: Path, plan: Plan, name: str, reason: str) -> CacheError:
    """Build the error for a shard that is not what gaam wrote.

    Args:
        root: folder of the cache.
        plan: of the cache.
        name: of the shard.
        reason: what is wrong with it; may be empty.
    """
    receipt = receipt_path(root, name).absolute()
    return CacheError(
        f"the shard '{name}' is damaged",
        found=reason or "it cannot be read",
        where=str(receipt),
        hint="copy the shard and its receipt again from an intact copy of the cache; "
        f"else delete {receipt} and run the '{plan.maker}' command of this cache "
        "again, which makes the shard anew",
    )


def check_content(root: Path, plan: Plan, receipt: Receipt) -> None:
    """Hash the whole file of a shard, and compare the hash with that of its receipt.

    The receipt is the small file that makes a shard exist; it records the hash.

    Raises:
        OutOfReachError: the file or the whole cache is not on this machine any more.
        CacheError: the hashes differ, or the file is gone.
    """
    path = root / SHARD_FOLDER / receipt.file
    # the name of the file is that of the shard, '-' and part of the hash
    name = receipt.file.rpartition("-")[0]
    try:
        disk.regular_file_status(path)
        digest = disk.hash_file(path)
    except disk.ElsewhereError as error:
        raise error.out_of_reach_error(f"the shard '{name}'", path) from error
    except FileNotFoundError as error:
        # The whole cache may have been moved while it was in use.
        if not root.is_dir():
            raise disk.moved_away_error("cache", root) from error
        raise damaged_shard_error(root, plan, name, f"{path.name} is gone") from error

    if digest != receipt.sha256:
        reason = f"{receipt.file} was changed: its SHA-256 is not that of its receipt"
        raise damaged_shard_error(root, plan, name, reason)


@lru_cache(MAX_MAPPED_FILES)
def _map_file(path: Path) -> NDArray[np.uint8]:
    """The bytes of a file as a memory map; the last ``MAX_MAPPED_FILES`` are kept."""
    return np.memmap(path, np.uint8, "r")


def map_arrays(root: Path, receipt: Receipt) -> dict[str, NDArray[Any]]:
    """The arrays of a shard by name; a byte of them is read only when it is used.

    The file must have been hashed before. bfloat16 comes as uint16 of its bits.

    Args:
        root: folder of the cache.
        receipt: records the file of the shard, and where each array is in it.
    """
    # ``_map_file`` keeps its maps. This is safe: the name of a file has a hash of its
    # content, so that other content has another name.
    raw = _map_file(root / SHARD_FOLDER / receipt.file)
    return {
        key: np.ndarray(spec.shape, NUMPY_DTYPES[spec.dtype], raw, spec.offset)
        for key, spec in receipt.datasets.items()
    }


def missing_shards(root: Path, plan: Plan) -> list[str]:
    """Names of the planned shards that have no receipt, in the order of the plan.

    A shard does not exist before its receipt, a small file beside it, is written.

    Raises:
        OutOfReachError: the folder of the shards is a link that leads to nothing.
    """
    folder = root / SHARD_FOLDER
    if folder.is_symlink() and not folder.is_dir():
        broken_link = disk.ElsewhereError.from_link(folder)
        raise broken_link.out_of_reach_error("the folder of the shards", folder)

    # One listing of the folder: a look-up for each shard of a large plan would be slow.
    file_names: set[str] = set()
    if folder.is_dir():
        file_names.update(os.listdir(folder))  # noqa: PTH208 names are enough
    return [
        shard.name for shard in plan.shards() if f"{shard.name}.json" not in file_names
    ]


def prepare_folder(root: Path) -> None:
    """Make the folder of the shards, and try to publish there before any work is done.

    Raises:
        StorageError: nothing can be published there.
    """
    folder = root / SHARD_FOLDER
    test_file = disk.temporary_path(folder, "probe")
    try:
        disk.write_file(test_file, b"can a shard be published here?", exclusive=True)
        test_file.unlink()
    except StorageError:
        # Such an error is an OSError, too, but already says what to do.
        raise
    except OSError as error:
        raise StorageError(
            "no shard can be written",
            found=error.strerror,
            where=str(folder),
            hint="choose another --out; nothing was encoded yet",
        ) from error


def remove_locks(root: Path) -> None:
    """Remove the lock files of a complete cache, in which nothing is published now."""
    disk.remove_lock(root)
    disk.remove_lock(root / SHARD_FOLDER)


def write_shard(
    root: Path,
    plan: Plan,
    shard: ShardSpec,
    arrays: Mapping[str, TypedArray],
    *,
    truncated: int = 0,
) -> WrittenShard:
    """Write a shard, which exists either completely or not at all.

    It exists as soon as its receipt is there, a small file that is written last. The
    same input makes the same bytes.

    Args:
        root: the folder of the cache.
        plan: its plan.
        shard: the rows to write.
        arrays: name -> array, in the order of the file.
        truncated: number of rows that were cut at the maximum length.
    """
    image, specs = _build_file(plan, shard, arrays)
    digest = disk.digest_of(image)

    # The file comes first: once a receipt exists, readers rely on its file.
    receipt_file = receipt_path(root, shard.name)
    shard_file = receipt_file.with_name(f"{shard.name}-{digest[:8]}.h5")
    disk.write_file(shard_file, image)

    # If writing the receipt fails, the file stays: another worker may have written the
    # same file by now.
    receipt = Receipt(
        file=shard_file.name,
        bytes=len(image),
        sha256=digest,
        fingerprint=plan.fingerprint,
        split=shard.split,
        start=shard.start,
        stop=shard.stop,
        truncated=truncated,
        datasets=specs,
    )
    text = disk.sealed_text(asdict(receipt))
    is_published = disk.write_file(receipt_file, text.encode(), exclusive=True)
    if not is_published:
        _drop_unpublished(shard_file, receipt_file)
    return WrittenShard(num_bytes=len(image), is_published=is_published)


def _build_file(
    plan: Plan, shard: ShardSpec, arrays: Mapping[str, TypedArray]
) -> tuple[bytes, dict[str, DatasetSpec]]:
    """Build the HDF5 file of a shard in memory.

    Returns:
        The bytes of the file, and name of each array -> where it is in the file.
    """
    import h5py

    specs = {}
    # The same input must make the same bytes: so the version of the file is fixed, and
    # no times are recorded. Every array begins at a multiple of 64 bytes.
    with h5py.File(
        "image",  # a name in memory: the driver 'core' writes no file
        "w",
        driver="core",
        backing_store=False,
        libver=("v108", "v108"),
        alignment_threshold=1,
        alignment_interval=64,
    ) as file:
        file.attrs.update(shard_attributes(plan, shard))
        for name, (dtype, array) in arrays.items():
            stored = np.ascontiguousarray(array, dtype=NUMPY_DTYPES[dtype])
            data = stored
            if dtype == "utf8":
                # Written as strings of fixed length, so that HDF5 readers show text:
                # the bytes (n, width) become one string a row, (n, 1).
                width = stored.shape[1]
                strings = stored.view(h5py.string_dtype("utf-8", width))
                data = strings[:, 0]
            dataset = file.create_dataset(name, data=data, track_times=False)
            dataset.attrs["dtype"] = dtype
            offset = dataset.id.get_offset()
            specs[name] = DatasetSpec(offset=offset, shape=stored.shape, dtype=dtype)
        file.flush()
        image: bytes = file.id.get_file_image()
    return image, specs


def _drop_unpublished(shard_file: Path, receipt_file: Path) -> None:
    """Remove a shard file, unless the receipt of another worker names it.

    The file is named in that receipt if both workers have written the same bytes.
    """
    # A receipt that cannot be read may name the file: then the file stays.
    with suppress(*disk.DAMAGE):
        if disk.read_json(receipt_file)["file"] != shard_file.name:
            shard_file.unlink(missing_ok=True)
