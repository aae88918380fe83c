"""Checks the shards of a cache on disk: every byte, and what an HDF5 library finds."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from gaam_cache.common.devices import cores
from gaam_cache.common.errors import CacheError
from gaam_cache.common.terminal import ReportProgress
from gaam_cache.store.dtypes import NUMPY_DTYPES
from gaam_cache.store.plan import SHARD_FOLDER, Plan, ShardSpec
from gaam_cache.store.reader import MAX_THREADS
from gaam_cache.store.shard import (
    Receipt,
    check_content,
    damaged_shard_error,
    missing_shards,
    read_receipt,
    shard_attributes,
)


class ArrayFacts(NamedTuple):
    """An array in an HDF5 file, as h5py shows it."""

    shape: tuple[int, ...]
    dtype: str  # as NumPy spells types, such as <f2
    offset: int  # its first byte in the file
    attributes: dict[str, object]


class FileFacts(NamedTuple):
    """An HDF5 file, as h5py shows it."""

    attributes: dict[str, object]
    arrays: dict[str, ArrayFacts]


@dataclass(frozen=True, kw_only=True, slots=True)
class CheckedShards:
    """Result of the check of all planned shards."""

    present: Sequence[ShardSpec]  # shards with a receipt
    missing: Sequence[str]  # names of planned shards without a receipt
    sizes: dict[str, int]  # name of each good shard -> bytes of its file
    faults: dict[str, CacheError]  # name of each bad shard -> what is wrong with it

    @property
    def good(self) -> list[ShardSpec]:
        """The shards whose every byte is right."""
        return [shard for shard in self.present if shard.name in self.sizes]


def check_shards(root: Path, plan: Plan, report: ReportProgress) -> CheckedShards:
    """Hash the file of every shard, and compare hash and arrays with the receipt.

    The receipt of a shard is a small file beside it, which records both. A fault does
    not stop the check. The memory that it takes does not grow with the cache.

    Args:
        root: folder of the cache.
        plan: of the cache.
        report: called with (shards done, shards in all, which shard).
    """
    missing = missing_shards(root, plan)
    missing_names = set(missing)
    present = [shard for shard in plan.shards() if shard.name not in missing_names]

    # returns the error of a shard: an error that is raised would end the whole check
    def size_or_error(shard: ShardSpec) -> int | CacheError:
        try:
            return check_shard(root, plan, shard)
        except CacheError as error:
            return error

    # hashing releases Python's lock, so threads keep the disk busy
    sizes: dict[str, int] = {}
    faults: dict[str, CacheError] = {}
    num_threads = min(MAX_THREADS, len(cores()))
    with ThreadPoolExecutor(num_threads, "verify") as pool:
        results = zip(present, pool.map(size_or_error, present), strict=True)
        for num_done, (shard, result) in enumerate(results, start=1):
            if isinstance(result, CacheError):
                faults[shard.name] = result
            else:
                sizes[shard.name] = result
            report(num_done, len(present), f"shard {shard.name}")
    return CheckedShards(present=present, missing=missing, sizes=sizes, faults=faults)


def check_shard(root: Path, plan: Plan, shard: ShardSpec) -> int:
    """Check one shard, and return the size of its file in bytes.

    Raises:
        CacheError: the receipt, the bytes or the arrays of the shard are wrong.
    """
    receipt = read_receipt(root, plan, shard)
    check_content(root, plan, receipt)
    _check_hdf5(root, plan, shard, receipt)
    return receipt.bytes


def _check_hdf5(root: Path, plan: Plan, shard: ShardSpec, receipt: Receipt) -> None:
    """Read a shard file by h5py, and refuse attributes or arrays other than planned.

    Raises:
        CacheError: the message shows what h5py finds, and what it must find.
    """
    expected = FileFacts(shard_attributes(plan, shard), _recorded_arrays(receipt))
    facts_of_file: object
    try:
        facts_of_file = _read_facts(root / SHARD_FOLDER / receipt.file)
        # this may raise, too: values from a damaged file may refuse to be compared
        if facts_of_file == expected:
            return
    except Exception as error:  # noqa: BLE001 whatever h5py raises, this is no shard
        facts_of_file = f"{type(error).__name__}: {error}"
    raise damaged_shard_error(
        root, plan, shard.name, f"h5py finds {facts_of_file}; must be {expected}"
    )


def _recorded_arrays(receipt: Receipt) -> dict[str, ArrayFacts]:
    """The arrays of a receipt by name, in the form in which h5py shows arrays."""
    arrays: dict[str, ArrayFacts] = {}
    for name, spec in receipt.datasets.items():
        shape = spec.shape
        stored_dtype = NUMPY_DTYPES[spec.dtype]
        if spec.dtype == "utf8":
            # h5py shows the bytes of each row as one string of fixed length
            num_rows, width = spec.shape
            shape = (num_rows,)
            stored_dtype = f"|S{width}"
        arrays[name] = ArrayFacts(
            shape=shape,
            dtype=stored_dtype,
            offset=spec.offset,
            attributes={"dtype": spec.dtype},
        )
    return arrays


def _read_facts(path: Path) -> FileFacts:
    """What h5py finds in a file."""
    import h5py

    with h5py.File(path, "r", locking=False) as file:
        arrays: dict[str, ArrayFacts] = {}
        for name, dataset in file.items():
            arrays[name] = ArrayFacts(
                shape=dataset.shape,
                dtype=dataset.dtype.str,
                offset=dataset.id.get_offset(),
                attributes=dict(dataset.attrs),
            )
        return FileFacts(dict(file.attrs), arrays)
