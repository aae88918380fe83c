"""The receipt of a shard: what makes it exist, and where every array lies in its file."""

from __future__ import annotations

import math
import os
import re
import stat
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from gaam_cache.errors import CacheError
from gaam_cache.format.refusals import raise_if_refused
from gaam_cache.format.sealed import SEAL, sealed_text, unsealed
from gaam_cache.format.strict_json import read_json

SHARD_FOLDER = "shards"
ITEM_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}
"""Storage types of embeddings; bfloat16 lies on disk as raw bits in uint16."""
NUMPY_DTYPES = {
    "float16": "<f2",
    "bfloat16": "<u2",
    "float32": "<f4",
    "int64": "<i8",
    "int32": "<i4",
    "utf8": "|u1",
}
"""How items lie in a file; of texts of a fixed width their bytes, filled with zeros."""
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


def read_receipt(root: Path, name: str) -> Receipt:
    """Read a receipt and check it against itself and the size of its file.

    Raises:
        CacheError: unreadable, out of bounds, or the file is missing or of another size.
        StorageError: it may not be read, which says nothing of what it holds.
    """
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
            raise ValueError(size_fault(receipt, status.st_size))
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


def size_fault(receipt: Receipt, size: int) -> str:
    """What to say of a shard file that has another size than its receipt says."""
    return f"{receipt.file} has {size} bytes, the receipt says {receipt.bytes}"


def _check(receipt: Receipt, name: str) -> None:
    if not re.fullmatch(r"[0-9a-f]{64}", receipt.sha256):
        raise ValueError("bad sha256")
    if not (isinstance(receipt.fingerprint, str) and isinstance(receipt.split, str)):
        raise ValueError("fingerprint and split must be strings")
    if receipt.file != f"{name}-{receipt.sha256[:8]}.h5":
        raise ValueError(f"bad file name {receipt.file!r}")
    numbers = [receipt.bytes, receipt.start, receipt.stop, receipt.truncated]
    for spec in receipt.datasets.values():
        numbers += [spec.offset, *spec.shape]
        if spec.dtype not in NUMPY_DTYPES:
            raise ValueError(f"unknown dtype {spec.dtype!r}")
        if len(spec.shape) > 3:
            raise ValueError(f"an array of {len(spec.shape)} dimensions")
    if not all(type(n) is int and 0 <= n < 2**48 for n in numbers):
        raise ValueError("offsets and sizes must be whole numbers")
    end = 0
    for key, spec in sorted(receipt.datasets.items(), key=lambda item: item[1].offset):
        if spec.offset + spec.nbytes > receipt.bytes:
            raise ValueError(f"'{key}' reaches beyond the end of the file")
        if spec.offset < end:
            raise ValueError(f"'{key}' overlaps another array")
        if spec.shape[:1] != (receipt.stop - receipt.start,):
            raise ValueError(f"'{key}' has not one entry per row")
        end = spec.offset + spec.nbytes
    if receipt.truncated > receipt.stop - receipt.start:
        raise ValueError("more rows truncated than there are")
