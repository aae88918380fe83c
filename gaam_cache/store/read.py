"""Rows out of shard files, each of which is checked, all of it, before its first row is used.

N rows asked for.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.devices import cores
from gaam_cache.errors import CacheError
from gaam_cache.extraction.recorded import extract_again, repair_command
from gaam_cache.store.digest import chunks, digest_of, digest_of_stream, short_digest
from gaam_cache.store.dtypes import NUMPY_DTYPES, as_float32, first_not_finite, unpacked
from gaam_cache.store.files import (
    Identity,
    canonical_json,
    open_regular,
    raise_if_refused,
    read_bytes,
    write_file,
)
from gaam_cache.store.plan import SHARD_FOLDER, Plan, ShardSpec
from gaam_cache.store.shard import UNLABELLED, Receipt

MOST_MAPPED = 32
"""Files that are mapped at a time: each takes a descriptor, and a cache may have many shards."""
MAX_THREADS = 8
"""More wait for the disk."""
THREADS_FROM_BYTES = 4 * 2**20
"""Less is copied before threads have begun."""
CHECKS_VERSION = 3
"""To be raised with every change of what ``shard_fault`` asks for."""
RACY_NANOSECONDS = 2 * 10**9
"""A file that changed so recently may change again within a tick of the file system's clock."""
MAX_MEMORY_BYTES = 32 * 2**20
"""Half a million shards; beyond it all are forgotten."""


class CheckMemory:
    """Which shard files were checked before, so that the second training does not pay again.

    A set of hashes in the user's cache folder, each of a file's identity to the file system, of its
    receipt and of the checks. It can cost time and never trust; it never raises.
    """

    def __init__(self) -> None:
        given = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
        self._path = given / "gaam" / "checked-shards"
        self._known: set[bytes] | None = None
        self._new: list[bytes] = []

    def knows(self, identity: Identity, receipt: Receipt, plan: Plan) -> bool:
        """Whether just this file was checked by just these checks."""
        if self._known is None:
            self._known = set()
            with suppress(OSError, ValueError):
                self._known.update(read_bytes(self._path, max_bytes=MAX_MEMORY_BYTES).split())
        return _entry(identity, receipt, plan) in self._known

    def add(self, identity: Identity, receipt: Receipt, plan: Plan) -> None:
        """Keep that a file was right, whose identity was asked for before it was read."""
        if max(identity.mtime_ns, identity.ctime_ns) < time.time_ns() - RACY_NANOSECONDS:
            self._new.append(_entry(identity, receipt, plan))

    def save(self) -> None:
        """Write down what was added, if that can be."""
        new, self._new = self._new, []
        if new:
            with suppress(OSError):  # a StorageError is one
                old = b""
                with suppress(OSError, ValueError):
                    old = read_bytes(self._path, max_bytes=MAX_MEMORY_BYTES)
                write_file(self._path, old + b"".join(entry + b"\n" for entry in new))


def _entry(identity: Identity, receipt: Receipt, plan: Plan) -> bytes:
    about = [CHECKS_VERSION, *identity, receipt.digest, plan.fingerprint]
    return digest_of(canonical_json(about)).encode()


@lru_cache(MOST_MAPPED)
def _mapped(path: Path, identity: Identity) -> NDArray[np.uint8]:  # noqa: ARG001  of another file another map
    return np.memmap(path, np.uint8, "r")


def arrays_of(path: Path, receipt: Receipt) -> dict[str, NDArray[Any]]:
    """The arrays of a shard file that has the size of its receipt, mapped."""
    raw = _mapped(path, Identity.of(path.stat()))
    return {
        key: raw[spec.offset :][: spec.nbytes].view(NUMPY_DTYPES[spec.dtype]).reshape(spec.shape)
        for key, spec in receipt.datasets.items()
    }


def shard_fault(path: Path, plan: Plan, shard: ShardSpec, receipt: Receipt) -> str | None:
    """In what a shard file is not what its receipt and the plan say.

    Raises:
        OSError: it cannot be read.
        ValueError: not a regular file.
    """
    with open_regular(path) as file:
        if (size := os.fstat(file.fileno()).st_size) != receipt.bytes:
            return f"{receipt.file} has {size} bytes, the receipt says {receipt.bytes}"
        if (found := digest_of_stream(chunks(file))) != receipt.sha256:
            what = f"its SHA-256 is {short_digest(found)}..., its receipt says "
            return f"the file was changed: {what}{short_digest(receipt.sha256)}..."
    arrays = arrays_of(path, receipt)
    longest, classes = plan.fingerprint_fields["encoder"]["max_length"], len(plan.class_names)
    label_N, tokens_N = arrays["label"], arrays["num_tokens"]
    right_N = (label_N >= 0) & (label_N < classes)
    if shard.split in plan.unlabelled:
        right_N = label_N == UNLABELLED
    for name, right in (
        ("label", right_N),
        ("row", arrays["row"] == np.arange(shard.start, shard.stop)),
        ("num_tokens", (tokens_N >= 1) & (tokens_N <= longest)),
    ):
        if not right.all():
            at = int(right.argmin())
            return f"'{name}' of row {shard.start + at} is {arrays[name][at]}, which cannot be"
    for name, spec in receipt.datasets.items():
        if spec.dtype == "utf8":
            with suppress(UnicodeDecodeError):
                if not any("\0" in text for text in set(unpacked(arrays[name]))):
                    continue
            return f"'{name}' holds what is no text in UTF-8 that zeros fill"
        if spec.dtype == plan.storage_dtype:
            bad = first_not_finite(arrays[name], spec.dtype)
            if bad is not None:
                row, layer = shard.start + bad[0], plan.first_layer + bad[1]
                place = f"row {row}, layer {layer}, feature {bad[2]}"
                return f"'{name}' is not finite in {place}"
    return None


class ShardReader:
    """The shards of one split."""

    def __init__(
        self, root: Path, plan: Plan, split: str, receipts: Sequence[Receipt], memory: CheckMemory
    ) -> None:
        """Use ``EmbeddingCache``, which has checked the receipts."""
        self._root = root
        self._plan = plan
        self._specs = list(plan.shards(split))
        self._receipts = receipts
        self._memory = memory
        self._folder = (root / SHARD_FOLDER).absolute()
        self._checked = [False] * len(receipts)

    def read(
        self,
        key: str,
        row_N: NDArray[np.int64],
        raw: NDArray[np.uint8],
        keep: slice | NDArray[np.int64] | None = None,
    ) -> None:
        """Copy rows of an array, in the order asked for.

        Args:
            key: name of the array.
            row_N: row numbers, not negative.
            raw: where their bytes go, (N, bytes of a row in the result).
            keep: positions of the second axis that are wanted; None: all.

        Raises:
            CacheError: a shard is damaged; it names the shard and the repair.
            StorageError: its file may not be read.
        """
        order = np.argsort(row_N, kind="stable")
        shard_N = row_N[order] // self._plan.shard_rows
        starts = [0, *(np.flatnonzero(np.diff(shard_N)) + 1).tolist()]
        shards = shard_N[starts].tolist()

        def copy(shard: int, place_N: NDArray[np.int64]) -> None:
            if not self._checked[shard]:
                self._check(shard)
            table = arrays_of(self._path(shard), self._receipts[shard])[key]
            rows = _span(row_N[place_N] - self._specs[shard].start)
            places = _span(place_N)
            if keep is None:
                raw[places] = table.view(np.uint8).reshape(len(table), -1)[rows]
                return
            entries = table.view(np.uint8).reshape(*table.shape[:2], -1)
            if not isinstance(rows, slice) and not isinstance(keep, slice):
                rows = rows[:, None]
            found = entries[rows, keep]
            raw[places] = found.reshape(len(found), -1)

        workers = min(MAX_THREADS, len(cores()), len(shards))
        if raw.nbytes < THREADS_FROM_BYTES and all(self._checked[shard] for shard in shards):
            workers = 1
        places = np.split(order, starts[1:])
        if workers == 1:
            for task in zip(shards, places, strict=True):
                copy(*task)
        else:
            with ThreadPoolExecutor(workers, "read") as pool:
                try:
                    list(pool.map(copy, shards, places))
                finally:
                    pool.shutdown(cancel_futures=True)
        self._memory.save()

    def _check(self, shard: int) -> None:
        """Make sure of one shard: what is remembered of it, else every byte and number."""
        path, receipt = self._path(shard), self._receipts[shard]
        try:
            identity, fault = Identity.of(path.lstat()), None
            if not self._memory.knows(identity, receipt, self._plan):
                fault = shard_fault(path, self._plan, self._specs[shard], receipt)
        except (OSError, ValueError) as error:
            raise_if_refused(error, path)
            fault = f"the file cannot be read: {error}"
        if fault is not None:
            name = self._specs[shard].name
            repair = repair_command(self._root, name, extract_again(self._root, self._plan))
            raise CacheError(
                f"the shard '{name}' is damaged",
                expected="the bytes that its receipt names, and numbers that can be right",
                found=fault,
                where=str(path),
                hint=f"{repair} (gaam verify lists all damage)",
            )
        self._memory.add(identity, receipt, self._plan)
        self._checked[shard] = True

    def _path(self, shard: int) -> Path:
        return self._folder / self._receipts[shard].file


def _span(numbers: NDArray[np.int64]) -> slice | NDArray[np.int64]:
    """Numbers that rise by one as a slice, which NumPy copies in one go."""
    if len(numbers) and (np.diff(numbers) == 1).all():
        return slice(int(numbers[0]), int(numbers[-1]) + 1)
    return numbers


class ShardedArray:
    """Arrays of several shards, indexed as one along the first axis.

    Indexing takes integers, slices, arrays of numbers, a mask of rows and ``...``, means what it
    means in NumPy, and returns a NumPy array; only the rows asked for are read. bfloat16 comes back
    as float32, which holds it exactly. A shard is checked, all of it, when its first row is read.
    """

    def __init__(
        self,
        shards: ShardReader,
        key: str,
        shape: tuple[int, ...],
        dtype: str,
        keep: NDArray[np.int64] | None = None,
    ) -> None:
        """Use ``Split``; ``dtype`` as in receipts, ``keep`` as in ``keeping``."""
        self._shards = shards
        self._key = key
        self._whole_shape = shape
        self.stored = dtype
        """Type on disk: float16, bfloat16, float32, or of labels and tokens."""
        self._keep = keep
        self.shape = shape if keep is None else (shape[0], len(keep), *shape[2:])
        stored = np.dtype(NUMPY_DTYPES[dtype])
        self.dtype: np.dtype[Any] = np.dtype(np.float32) if dtype == "bfloat16" else stored

    def __repr__(self) -> str:
        """Shape and type."""
        return f"<ShardedArray {self.shape} {self.dtype}>"

    def __len__(self) -> int:
        """Number of rows."""
        return self.shape[0]

    def keeping(self, positions: Sequence[int]) -> ShardedArray:
        """The same rows with only these positions of the second axis (layers, from 0).

        Nothing is read yet; later only the bytes at these positions are.
        """
        there = np.arange(self.shape[1]) if self._keep is None else self._keep
        keep = there[np.asarray(positions, dtype=np.int64)]
        return ShardedArray(self._shards, self._key, self._whole_shape, self.stored, keep)

    def __getitem__(self, index: Any) -> NDArray[Any]:
        """Rows, in the order asked for.

        Raises:
            CacheError: a shard is damaged; it names the shard and the repair.
            IndexError: more axes than there are, or a new one.
        """
        items = index if isinstance(index, tuple) else (index,)
        if any(one is None or isinstance(one, bool | np.bool_) for one in items):
            raise IndexError("rows, layers and features are named by numbers, slices or arrays")
        gaps = [place for place, one in enumerate(items) if one is ...]
        if len(gaps) > 1 or len(items) - len(gaps) > len(self.shape):
            raise IndexError(f"{len(items)} indices for the {len(self.shape)} axes of {self!r}")
        if gaps == [0]:  # that of rows is needed by itself
            items = items[1:] if len(items) > len(self.shape) else (slice(None), *items)
        first, *others = items or (slice(None),)
        plain = all(isinstance(one, int | np.integer | slice) for one in others)
        if others and plain and not isinstance(others[0], slice) and len(self.shape) > 1:
            layer, *features = others  # only its bytes are read
            found = self.keeping([range(self.shape[1])[layer]])[first]
            return found[(..., 0, *(features or [slice(None)]))]
        row_N: Any = first
        in_range = isinstance(first, np.ndarray) and first.ndim == 1 and first.dtype.kind == "i"
        if not in_range or (first.size and (first.min() < 0 or first.max() >= len(self))):
            row_N = np.arange(len(self))[first]
        flat_N = np.ravel(row_N)
        out = np.empty((len(flat_N), *self.shape[1:]), NUMPY_DTYPES[self.stored])
        if out.size:
            self.read_into(flat_N, out.reshape(len(flat_N), -1).view(np.uint8))
        if self.stored == "bfloat16":
            out = as_float32(out)
        rows: Any = slice(None)
        if not isinstance(first, slice):  # as NumPy has it, arrays of numbers go in step
            rows = np.arange(len(out)).reshape(np.shape(row_N))
        return out[(rows, *others)]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """The whole array in memory."""
        return np.asarray(self[:], dtype=dtype)

    def read_into(self, row_N: NDArray[np.int64], raw: NDArray[np.uint8]) -> None:
        """Copy rows as they are stored, without a second copy on the way.

        Args:
            row_N: row numbers, not negative; ascending ones are read in large pieces.
            raw: where their bytes go, (N, bytes of a row), C-contiguous; bfloat16 as its bits.

        Raises:
            CacheError: a shard is damaged; it names the shard and the repair.
        """
        if raw.size:
            keep = None if self._keep is None else _span(self._keep)
            self._shards.read(self._key, row_N, raw, keep)
