"""Two splits out of one: ``test_fraction``."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from gaam_cache.config import ExtractConfig
from gaam_cache.errors import DataError
from gaam_cache.sources._base import Rows


class Divided:
    """The splits of what has none; it is read once, so that all are of the same content."""

    def __init__(self) -> None:
        self._parts: dict[str, Rows] = {}

    def read(self, config: ExtractConfig, split: str, whole: Callable[[], Rows]) -> Rows:
        """The rows of a split: of all that ``whole`` reads, where there is a ``test_fraction``."""
        if config.test_fraction is None:
            return whole()
        self._parts = self._parts or divide(whole(), config, config.test_fraction)
        return self._parts[split]


def divide(rows: Rows, config: ExtractConfig, fraction: float) -> dict[str, Rows]:
    """The splits 'train' and 'test'; rows keep their order.

    Of what is several rows, such as the pieces of a sound, all are in one split. Rows that were
    left out count as of 'train'.

    Raises:
        DataError: no class has two rows.
    """
    unit_N = np.asarray(rows.units or range(len(rows)), np.int64)
    _, first_U, of_N = np.unique(unit_N, return_index=True, return_inverse=True)
    labels = [rows.labels[row] for row in first_U.tolist()]
    test_N = held_out(labels, fraction, config.split_seed)[of_N]
    if not test_N.any():
        raise DataError(
            "there is nothing to hold out for testing",
            expected="a class with two rows at least",
            found=f"{len(labels):,} rows of as many classes",
            where=rows.origin,
        )
    parts = {}
    for split, chosen_N in (("train", ~test_N), ("test", test_N)):
        within_N = chosen_N & (np.cumsum(chosen_N) <= (config.limit or len(rows)))
        part = rows.chosen(within_N.tolist())
        parts[split] = replace(part, origin=f"{rows.origin}, {split}")
    return parts | {"test": replace(parts["test"], skipped=())}


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
