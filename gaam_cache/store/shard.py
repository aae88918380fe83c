"""One shard: an HDF5 file, and the receipt that makes it exist and says where every array lies.

The file is built in memory and written by us: libhdf5 itself would crash the interpreter at exit
when the disk is full. The receipt is linked into place last; see FORMAT.md.
"""

import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.errors import CacheError, OutOfReachError, StorageError
from gaam_cache.store import files as disk
from gaam_cache.store.dtypes import NUMPY_DTYPES
from gaam_cache.store.plan import (
    FORMAT_VERSION,
    PLAN_FILE,
    SHARD_FOLDER,
    Plan,
    ShardSpec,
)

ROW_DATASETS = {
    "label": "int64",
    "row": "int64",
    "num_tokens": "int32",
}  # one number per row
UNLABELLED = -1  # the label of every row of a split without labels
MOST_MAPPED = (
    32  # files at a time: each takes a descriptor, and a cache may have many shards
)
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, kw_only=True, slots=True)
class DatasetSpec:
    """Where one array lies inside the file."""

    offset: int
    shape: tuple[int, ...]
    dtype: str


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
    truncated: int  # rows that were cut at the maximum length
    datasets: dict[str, DatasetSpec]


def receipt_path(root: Path, name: str) -> Path:
    return root / f"{SHARD_FOLDER}/{name}.json"


def embeddings_key(plan: Plan, pooling: str) -> str:
    return "embeddings" if pooling == plan.pooling[0] else f"embeddings_{pooling}"


def column_key(name: str) -> str:
    return f"column_{name}"


def _place(plan: Plan, shard: ShardSpec) -> dict[str, Any]:
    rows = {"split": shard.split, "start": shard.start, "stop": shard.stop}
    return {"fingerprint": plan.fingerprint, **rows}


def shard_attributes(plan: Plan, shard: ShardSpec) -> dict[str, Any]:
    about = {"format": "gaam-shard", "format_version": FORMAT_VERSION}
    return {**about, **_place(plan, shard), "pooling": ",".join(plan.pooling)}


def read_receipt(root: Path, plan: Plan, shard: ShardSpec) -> Receipt:
    """The receipt of a planned shard; CacheError where plan, receipt and file do not agree."""
    path = receipt_path(root, shard.name)
    try:
        content = disk.unsealed(disk.read_json(path))
        specs = {
            key: DatasetSpec(**spec | {"shape": tuple(spec["shape"])})
            for key, spec in content.pop("datasets").items()
        }
        receipt = Receipt(datasets=specs, **content)
        if receipt.fingerprint != plan.fingerprint:
            raise _of_another(path, receipt.fingerprint, plan.fingerprint)
        if not _place(plan, shard).items() <= content.items():
            raise ValueError("it is of other rows")
        count = shard.stop - shard.start
        states = (count, plan.num_layers, plan.hidden_size), plan.storage_dtype
        planned = {
            **{embeddings_key(plan, one): states for one in plan.pooling},
            **{key: ((count,), dtype) for key, dtype in ROW_DATASETS.items()},
            **{
                column_key(name): ((count, width), "utf8")
                for name, width in plan.columns.items()
            },
        }
        if planned != {key: (one.shape, one.dtype) for key, one in specs.items()}:
            raise ValueError("it does not hold the arrays that the plan says")
        name = f"{shard.name}-{receipt.sha256[:8]}.h5"
        if receipt.file != name or not _SHA256.fullmatch(receipt.sha256):
            raise ValueError(f"bad file name {receipt.file!r}")
        disk.check_size(path.with_name(name), receipt.bytes)
        return receipt
    except disk.ElsewhereError as error:
        raise error.refusal(f"the shard '{shard.name}'", path) from error
    except disk.DAMAGE as error:
        found = f"no key {error}" if isinstance(error, KeyError) else str(error)
        raise damaged_shard_error(root, plan, shard.name, found) from error


def _of_another(receipt: Path, found: str, expected: str) -> OutOfReachError:
    return OutOfReachError(
        f"the shard '{receipt.stem}' is of another cache",
        expected=f"the fingerprint {disk.short_digest(expected)}",
        found=f"the fingerprint {disk.short_digest(str(found))}",
        where=str(receipt.absolute()),
        hint=f"bring back the {PLAN_FILE} of these shards, or move them to where it is",
    )


def check_no_other_cache(root: Path, fingerprint: str) -> None:
    """Refuse a folder without a plan in which shards of another cache lie."""
    for receipt in sorted((root / SHARD_FOLDER).glob("*.json")):
        with suppress(*disk.DAMAGE):
            found = disk.read_json(receipt)["fingerprint"]
            if found != fingerprint:
                raise _of_another(receipt, found, fingerprint)
            return


def damaged_shard_error(root: Path, plan: Plan, name: str, found: str) -> CacheError:
    """The refusal of a shard that is not what it must be."""
    path, what = receipt_path(root, name).absolute(), f"the shard '{name}' is damaged"
    hint = (
        "copy the shard and its receipt again from where they are whole; else delete "
    )
    hint += f"{path} and run the {plan.maker} that made the cache again, which makes it anew"
    return CacheError(
        what, found=found or "it cannot be read", where=str(path), hint=hint
    )


def check_content(root: Path, plan: Plan, receipt: Receipt) -> None:
    """Hash the whole file of a shard; CacheError where it is not that of its receipt."""
    path, name = root / SHARD_FOLDER / receipt.file, receipt.file.rpartition("-")[0]
    try:
        disk.regular_file(path)
        digest = disk.hash_file(path)
    except disk.ElsewhereError as error:
        raise error.refusal(f"the shard '{name}'", path) from error
    except FileNotFoundError as error:
        if not root.is_dir():  # it was moved while it was in use
            raise disk.moved_away_error("cache", root) from error
        raise damaged_shard_error(root, plan, name, f"{path.name} is gone") from error
    if digest != receipt.sha256:
        found = f"{receipt.file} was changed: its SHA-256 is not that of its receipt"
        raise damaged_shard_error(root, plan, name, found)


@lru_cache(MOST_MAPPED)
def _mapped(path: Path) -> NDArray[np.uint8]:
    return np.memmap(path, np.uint8, "r")


def map_arrays(root: Path, receipt: Receipt) -> dict[str, NDArray[Any]]:
    """The arrays of a shard whose file was hashed, mapped."""
    raw = _mapped(
        root / SHARD_FOLDER / receipt.file
    )  # of other content it has another name
    return {
        key: np.ndarray(spec.shape, NUMPY_DTYPES[spec.dtype], raw, spec.offset)
        for key, spec in receipt.datasets.items()
    }


def missing_shards(root: Path, plan: Plan) -> list[str]:
    # one listing: a shard a stat would be slow for a plan of many shards
    folder = root / SHARD_FOLDER
    if folder.is_symlink() and not folder.is_dir():  # its disk is not mounted
        away = disk.ElsewhereError.from_link(folder)
        raise away.refusal("the folder of the shards", folder)
    there = set(os.listdir(folder)) if folder.is_dir() else set()  # noqa: PTH208 names are enough
    return [shard.name for shard in plan.shards() if f"{shard.name}.json" not in there]


def prepare_folder(root: Path) -> None:
    """Make the folder of the shards, and learn before anything is spent whether it can be used.

    Raises:
        StorageError: nothing can be published there.
    """
    folder = root / SHARD_FOLDER
    probe = disk.temporary_path(folder, "probe")
    try:
        disk.write_file(probe, b"can a shard be published here?", exclusive=True)
        probe.unlink()
    except StorageError:
        raise
    except OSError as error:
        raise StorageError(
            "no shard can be written",
            found=error.strerror,
            where=str(folder),
            hint="choose another --out; nothing was encoded yet",
        ) from error


def remove_locks(root: Path) -> None:
    """Tidy up a cache that is complete."""
    disk.remove_lock(root)
    disk.remove_lock(root / SHARD_FOLDER)


def write_shard(
    root: Path,
    plan: Plan,
    shard: ShardSpec,
    arrays: Mapping[str, tuple[str, NDArray[Any]]],
    *,
    truncated: int = 0,
) -> tuple[int, bool]:
    """Put a shard on disk so that it exists either completely or not at all: the one writer.

    ``arrays``: name -> (dtype name, array); bfloat16 comes as its bits in uint16, strings as
    (n, width) bytes filled with zeros. The same input makes the same bytes. Returns how many; and
    False where another's receipt was there first: ours is dropped then.
    """
    import h5py

    specs = {}
    options: Any = {
        "libver": ("v108", "v108"),
        "alignment_threshold": 1,
        "alignment_interval": 64,
    }
    with h5py.File("image", "w", driver="core", backing_store=False, **options) as file:
        file.attrs.update(shard_attributes(plan, shard))
        for name, (dtype, array) in arrays.items():
            data = stored = np.ascontiguousarray(array, dtype=NUMPY_DTYPES[dtype])
            if dtype == "utf8":  # so that whoever opens the file sees strings
                data = stored.view(h5py.string_dtype("utf-8", stored.shape[1]))[:, 0]
            dataset = file.create_dataset(name, data=data, track_times=False)
            dataset.attrs["dtype"] = dtype
            offset = dataset.id.get_offset()
            specs[name] = DatasetSpec(offset=offset, shape=stored.shape, dtype=dtype)
        file.flush()
        image = file.id.get_file_image()
    digest, receipt = disk.digest_of(image), receipt_path(root, shard.name)
    path = receipt.with_name(f"{shard.name}-{digest[:8]}.h5")
    disk.write_file(path, image)
    # If the receipt fails, the file stays: under that name it may by now be another worker's too.
    content = Receipt(
        file=path.name,
        bytes=len(image),
        sha256=digest,
        truncated=truncated,
        datasets=specs,
        **_place(plan, shard),
    )
    ours = disk.write_file(
        receipt, disk.sealed_text(asdict(content)).encode(), exclusive=True
    )
    if not ours:
        with suppress(*disk.DAMAGE):  # a damaged one may name ours
            if disk.read_json(receipt)["file"] != path.name:
                path.unlink(missing_ok=True)
    return len(image), ours
