"""Checks the shards of a cache on disk: every byte, and what an HDF5 library finds."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

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

ArrayFacts = tuple[tuple[int, ...], str, int, dict[str, object]]
"""Facts of an array in an HDF5 file: shape, type, first byte, and attributes."""


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
    expected = (shard_attributes(plan, shard), _recorded_arrays(receipt))
    structure: object
    try:
        structure = _read_structure(root / SHARD_FOLDER / receipt.file)
        # this may raise, too: values from a damaged file may refuse to be compared
        if structure == expected:
            return
    except Exception as error:  # noqa: BLE001 whatever h5py raises, this is no shard
        structure = f"{type(error).__name__}: {error}"
    raise damaged_shard_error(
        root, plan, shard.name, f"h5py finds {structure}; must be {expected}"
    )


def _recorded_arrays(receipt: Receipt) -> dict[str, ArrayFacts]:
    """Facts of the arrays of a receipt, in the form in which h5py shows arrays.

    Returns:
        Name of an array -> its facts.
    """
    arrays: dict[str, ArrayFacts] = {}
    for name, spec in receipt.datasets.items():
        shape = spec.shape
        stored_dtype = NUMPY_DTYPES[spec.dtype]
        if spec.dtype == "utf8":
            # h5py shows the bytes of each row as one string of fixed length
            shape = spec.shape[:1]
            stored_dtype = f"|S{spec.shape[1]}"
        arrays[name] = (shape, stored_dtype, spec.offset, {"dtype": spec.dtype})
    return arrays


def _read_structure(path: Path) -> tuple[dict[str, object], dict[str, ArrayFacts]]:
    """What h5py finds in a file.

    Returns:
        The attributes of the file; and name of each array -> its facts.
    """
    import h5py

    with h5py.File(path, "r", locking=False) as file:
        arrays: dict[str, ArrayFacts] = {}
        for name, dataset in file.items():
            arrays[name] = (
                dataset.shape,
                dataset.dtype.str,
                dataset.id.get_offset(),
                dict(dataset.attrs),
            )
        return dict(file.attrs), arrays
