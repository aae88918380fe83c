"""Which rows of a split that is divided are held out for testing."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def held_out(labels: Sequence[str], fraction: float, seed: int) -> NDArray[np.bool_]:
    """Rows to test on, of every class the same share.

    The rule is for ever: it depends on no library's random numbers, and who has the labels in order
    can follow it in any language. Of a class with n rows, ``round(fraction * n)`` are held out
    (halves to the even number), at least one and not all where there are two or more; a single one
    is not. They are those with the smallest digests: the first eight bytes, big-endian, of the
    SHA-256 of '<seed> <row>' in ASCII, rows counted from 0; of equal digests the earlier row is the
    smaller.

    Args:
        labels: class of every row.
        fraction: share that is held out, > 0 and < 1.
        seed: decides which rows.

    Returns:
        For every row, (N,), whether it is held out.
    """
    rows: dict[str, list[int]] = {}
    for row, label in enumerate(labels):
        rows.setdefault(label, []).append(row)
    digests = b"".join(
        hashlib.sha256(f"{seed} {row}".encode()).digest()[:8] for row in range(len(labels))
    )
    digest_N = np.frombuffer(digests, ">u8")
    held_N = np.zeros(len(labels), np.bool_)
    for members in rows.values():
        row_N = np.array(members)
        count = min(len(row_N) - 1, max(1, round(fraction * len(row_N))))
        held_N[row_N[np.argsort(digest_N[row_N], kind="stable")[:count]]] = True
    return held_N
