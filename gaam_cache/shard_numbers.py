"""Whether the numbers of a shard can be right, read piece by piece so that memory stays flat.

R rows of a piece.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from io import BufferedReader
from typing import TYPE_CHECKING, Any

import numpy as np

from gaam_cache.layout import ROW_DATASETS
from gaam_cache.plan import Plan, ShardSpec
from gaam_cache.receipt import NUMPY_DTYPES, DatasetSpec, Receipt

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHUNK_BYTES = 4 * 2**20
"""A multiple of every item size; what a check of numbers holds in memory."""
EXPONENT_BITS = {"float16": 0x7C00, "bfloat16": 0x7F80, "float32": 0x7F800000}
"""All set: infinity or NaN."""


def _chunks(
    file: BufferedReader, spec: DatasetSpec, stored: str
) -> Iterator[tuple[int, NDArray[Any]]]:
    """An array piece by piece, flat, each with the index of its first item."""
    item = np.dtype(stored).itemsize
    for start in range(0, spec.nbytes, CHUNK_BYTES):
        wanted = min(CHUNK_BYTES, spec.nbytes - start)
        raw = os.pread(file.fileno(), wanted, spec.offset + start)
        if len(raw) != wanted:
            raise ValueError("it became shorter while it was read")
        yield start // item, np.frombuffer(raw, dtype=stored)


def numbers_fault(
    file: BufferedReader, plan: Plan, shard: ShardSpec, receipt: Receipt
) -> str | None:
    """Why the numbers of a shard cannot be right, or None."""
    for name in sorted(receipt.datasets.keys() - ROW_DATASETS.keys()):
        spec = receipt.datasets[name]
        bits = EXPONENT_BITS[spec.dtype]
        for first, chunk in _chunks(file, spec, f"<u{np.dtype(NUMPY_DTYPES[spec.dtype]).itemsize}"):
            wrong = (chunk & bits) == bits
            if wrong.any():
                place = np.unravel_index(first + int(wrong.argmax()), spec.shape)
                row, layer, feature = (int(n) for n in place)
                return (
                    f"'{name}' is not finite in row {shard.start + row}, layer {layer + 1}, "
                    f"feature {feature}"
                )
    longest = plan.fingerprint_fields["encoder"]["max_length"]
    full = 0
    for name, dtype in ROW_DATASETS.items():
        for first, chunk in _chunks(file, receipt.datasets[name], NUMPY_DTYPES[dtype]):
            row_R = np.arange(shard.start + first, shard.start + first + len(chunk))
            right_R, must_be = {
                "label": ((chunk >= 0) & (chunk < len(plan.class_names)), "a class number"),
                "row": (chunk == row_R, "the row's number"),
                "num_tokens": ((chunk >= 1) & (chunk <= longest), f"1 to {longest}"),
            }[name]
            if not right_R.all():
                at = int(right_R.argmin())
                return f"'{name}' of row {row_R[at]} is {chunk[at]}, must be {must_be}"
            full += int((chunk == longest).sum()) if name == "num_tokens" else 0
    if receipt.truncated > full:
        return f"{receipt.truncated} rows truncated, but only {full} have {longest} tokens"
    return None
