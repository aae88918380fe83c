"""Whether the bytes of a shard are those that were written, and whether its numbers can be right.

One pass over the file, piece by piece, so that memory stays flat; the hash of a piece is taken
while the piece is in the processor's cache for its numbers.

R rows of a piece, W bytes of a string.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from io import BufferedReader
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gaam_cache.format.digest import digest_of_stream, short_digest
from gaam_cache.format.finite import EXPONENT_BITS
from gaam_cache.format.layout import ROW_DATASETS, UNLABELLED
from gaam_cache.format.plan import Plan, ShardSpec
from gaam_cache.format.receipt import NUMPY_DTYPES, Receipt, size_fault
from gaam_cache.format.strings import string_fault

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHUNK_BYTES = 2**20
"""A multiple of every item size; what a check holds in memory."""


class Fault(NamedTuple):
    """What is wrong with a shard file."""

    changed: str | None = None
    """It is not what was written: another size or hash."""
    numbers: str | None = None
    """Writer and receipt agree, but the writer wrote what cannot be right."""


class _Piece(NamedTuple):
    array: str
    """Name; empty between arrays."""
    start: int
    """Bytes of the array before it."""
    offset: int
    bytes: int


def shard_fault(file: BufferedReader, plan: Plan, shard: ShardSpec, receipt: Receipt) -> Fault:
    """In what a shard file is not what its receipt and the plan say.

    Raises:
        OSError: it cannot be read.
    """
    size = os.fstat(file.fileno()).st_size
    if size != receipt.bytes:
        return Fault(changed=size_fault(receipt, size))
    numbers = _Numbers(plan, shard, receipt)

    def parts() -> Iterator[memoryview]:
        buffer: Any = np.empty(min(CHUNK_BYTES, receipt.bytes), np.uint8)
        for piece in _pieces(receipt):
            part = buffer[: piece.bytes]
            if os.preadv(file.fileno(), [part], piece.offset) != piece.bytes:
                raise EOFError
            if piece.array and numbers.fault is None:
                numbers.look_at(piece, part)
            yield part.data

    try:
        found = digest_of_stream(parts())
    except EOFError:
        return Fault(changed="it became shorter while it was read")
    if found != receipt.sha256:
        what = f"its SHA-256 is {short_digest(found)}..., its receipt says "
        return Fault(changed=f"the file was changed: {what}{short_digest(receipt.sha256)}...")
    return Fault(numbers=numbers.fault or numbers.fault_in_all())


def _pieces(receipt: Receipt) -> Iterator[_Piece]:
    """All of the file, in order, nothing twice."""
    end = 0
    for name, spec in sorted(receipt.datasets.items(), key=lambda item: item[1].offset):
        yield from _cut("", end, spec.offset)
        end = spec.offset + spec.nbytes
        yield from _cut(name, spec.offset, end, spec.shape[1] if spec.dtype == "utf8" else 1)
    yield from _cut("", end, receipt.bytes)


def _cut(array: str, start: int, stop: int, width: int = 1) -> Iterator[_Piece]:
    """Pieces of whole strings, where there are strings of so many bytes."""
    step = CHUNK_BYTES // width * width
    for offset in range(start, stop, step):
        yield _Piece(array, offset - start, offset, min(step, stop - offset))


class _Numbers:
    """Looks at every number of a shard."""

    def __init__(self, plan: Plan, shard: ShardSpec, receipt: Receipt) -> None:
        self.fault: str | None = None
        """The first that was found."""
        self._plan = plan
        self._shard = shard
        self._receipt = receipt
        self._longest = plan.fingerprint_fields["encoder"]["max_length"]
        self._full = 0

    def look_at(self, piece: _Piece, raw: NDArray[np.uint8]) -> None:
        """Set ``fault`` where a number of an array cannot be right."""
        spec = self._receipt.datasets[piece.array]
        stored = np.dtype(NUMPY_DTYPES[spec.dtype])
        first = piece.start // stored.itemsize
        if spec.dtype == "utf8":
            self._look_at_strings(piece.array, raw.reshape(-1, spec.shape[1]), piece.start)
        elif piece.array in ROW_DATASETS:
            self._look_at_rows(piece.array, first, raw.view(stored))
        else:
            self._look_at_states(piece.array, first, raw.view(f"<u{stored.itemsize}"))

    def _look_at_states(self, name: str, first: int, bits: NDArray[Any]) -> None:
        spec = self._receipt.datasets[name]
        mask = EXPONENT_BITS[spec.dtype]
        exponents = bits & bits.dtype.type(mask)
        if exponents.max() == mask:
            index = np.unravel_index(first + int((exponents == mask).argmax()), spec.shape)
            row, place, feature = (int(n) for n in index)
            layer = place + self._plan.first_layer
            self.fault = (
                f"'{name}' is not finite in row {self._shard.start + row}, layer {layer}, "
                f"feature {feature}"
            )

    def _look_at_strings(self, name: str, value_RW: NDArray[np.uint8], start: int) -> None:
        row = string_fault(value_RW)
        if row is not None:
            place = self._shard.start + start // value_RW.shape[1] + row
            self.fault = f"'{name}' of row {place} is no text in UTF-8 that zeros fill"

    def _look_at_rows(self, name: str, first: int, value_R: NDArray[Any]) -> None:
        if name == "label":
            right_R = (value_R >= 0) & (value_R < len(self._plan.class_names))
            must_be = "a class number"
            if self._shard.split in self._plan.unlabelled:
                right_R, must_be = value_R == UNLABELLED, f"{UNLABELLED}: the split has no labels"
        elif name == "row":
            start = self._shard.start + first
            right_R = value_R == np.arange(start, start + len(value_R))
            must_be = "the row's number"
        else:
            right_R = (value_R >= 1) & (value_R <= self._longest)
            must_be = f"1 to {self._longest}"
            self._full += int((value_R == self._longest).sum())
        if not right_R.all():
            at = int(right_R.argmin())
            row = self._shard.start + first + at
            self.fault = f"'{name}' of row {row} is {value_R[at]}, must be {must_be}"

    def fault_in_all(self) -> str | None:
        """What only the whole tells."""
        truncated = self._receipt.truncated
        if truncated > self._full:
            return f"{truncated} rows truncated, but only {self._full} have {self._longest} tokens"
        return None
