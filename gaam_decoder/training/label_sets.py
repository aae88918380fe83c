"""Divide rows with sets of labels: every part has nearly the same share of each label.

N rows, K labels.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gaam_decoder.decoder import stream_seed

Rows = NDArray[np.int64]
Flags = NDArray[np.bool_]


def add_no_label_column(label_NK: Flags) -> Flags:
    """Add a last column to the labels: whether a row has no label, (N, K + 1)."""
    has_no_label_N1 = ~label_NK.any(1, keepdims=True)
    return np.concatenate([label_NK, has_no_label_N1], axis=1)


def iterative_parts(label_NK: Flags, shares: Sequence[float], seed: int) -> list[Rows]:
    """Divide rows into parts of these shares, by iterative stratification.

    The rows of the rarest label are dealt first, each to the part that is furthest
    below its share of this label. Rows without labels count as rows of one more label.
    The outcome depends on the labels, shares and seed alone: neither on the machine nor
    on NumPy's version.

    Args:
        label_NK: whether each row has each of K labels.
        shares: of the parts.
        seed: of the division.

    Returns:
        The rows of every part, ascending.

    Source: Sechidis, Tsoumakas and Vlahavas 2011, "On the stratification of multi-label
        data", as the package iterative-stratification implements it.
    """
    flag_NK = np.ascontiguousarray(label_NK, np.bool_)
    # bytes and a tuple, because the cache looks the division up by them
    part_N = _part_of_rows(
        np.packbits(flag_NK).tobytes(), flag_NK.shape, tuple(shares), seed
    )
    return [np.flatnonzero(part_N == part) for part in range(len(shares))]


@lru_cache(maxsize=32)
def _part_of_rows(
    bits: bytes, shape: tuple[int, int], shares: tuple[float, ...], seed: int
) -> Rows:
    """The index of the part of every row, (N,), as ``iterative_parts`` divides them.

    It is cached, because every experiment of a sweep divides the same rows.

    Args:
        bits: whether each row has each label, packed into bytes.
        shape: (rows, labels).
        shares: of the parts.
        seed: of the division.
    """
    # imported late: scikit-learn takes a second, and other tasks do without
    from iterstrat.ml_stratifiers import IterativeStratification

    num_rows, num_labels = shape
    flags = np.unpackbits(np.frombuffer(bits, np.uint8), count=num_rows * num_labels)
    flag_NK = add_no_label_column(flags.reshape(shape).astype(np.bool_))
    # the stream of this legacy generator never changes
    generator = np.random.RandomState(np.random.MT19937(np.random.SeedSequence(seed)))
    order_N = generator.permutation(num_rows)
    part_of_shuffled_N = IterativeStratification(
        labels=flag_NK[order_N], r=np.array(shares), random_state=generator
    )
    part_N = np.empty(num_rows, np.int64)
    part_N[order_N] = part_of_shuffled_N
    # all callers share the cached array
    part_N.flags.writeable = False
    return part_N


def rows_by_label(label_NK: Flags, shots: int, split_seed: int) -> list[Rows]:
    """Draw rows until every label that occurs has ``shots`` of them.

    In round k every label in turn, the rarest first, draws a row if fewer than k drawn
    rows have it. So the rows for k shots are among those for k + 1. Rows without labels
    count as rows of one more label.

    Args:
        label_NK: whether each row has each of K labels.
        shots: number of rows of a label, which every label that occurs must have.
        split_seed: decides the rows.

    Returns:
        The rows that each label drew, in the order of drawing; a row stands in one
        list.
    """
    flag_NK = add_no_label_column(label_NK)
    labels = [
        label
        for label in np.argsort(flag_NK.sum(0), kind="stable").tolist()
        if flag_NK[:, label].any()
    ]
    # the rows of each label in a random order; a label goes through them once
    shuffled_rows: dict[int, Iterator[int]] = {}
    for label in labels:
        generator = np.random.default_rng(stream_seed(split_seed, "rows", label))
        row_M = generator.permutation(np.flatnonzero(flag_NK[:, label]))
        shuffled_rows[label] = iter(row_M.tolist())

    drawn: dict[int, list[int]] = {label: [] for label in labels}
    is_drawn_N = np.zeros(len(flag_NK), dtype=bool)
    count_K = np.zeros(flag_NK.shape[1], dtype=np.int64)
    for round_number in range(1, shots + 1):
        for label in labels:
            if count_K[label] >= round_number:
                continue
            # the next of its rows that no label has drawn
            row = next(row for row in shuffled_rows[label] if not is_drawn_N[row])
            drawn[label].append(row)
            is_drawn_N[row] = True
            count_K += flag_NK[row]
    return [np.array(rows, dtype=np.int64) for rows in drawn.values()]
