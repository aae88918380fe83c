"""Chooses the rows that ``--limit`` takes: the first ones of every class.

Shapes: N rows.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray


def shares(rows_by_class: Mapping[str, int], limit: int) -> dict[str, int]:
    """Divide ``limit`` rows among the classes in proportion to their sizes.

    Shares are rounded by the method of largest remainders. If the limit is at least the
    number of classes, a class whose share is below one row gets exactly one row, and
    the other classes share the rest. Of equal remainders that of the larger class wins,
    then that of the name that sorts first: the order of the mapping decides nothing.

    Args:
        rows_by_class: class -> number of its rows, at least 1.
        limit: number of rows to take in all.

    Returns:
        Class -> number of rows to take.
    """
    if sum(rows_by_class.values()) <= limit:
        return dict(rows_by_class)
    share_by_class: dict[str, int] = {}
    # the classes that have no share yet, and the rows that are left for them
    counts = dict(rows_by_class)
    rows_left = limit

    # Give one row to every class whose share is below one. Fewer rows are left for the
    # others then, so the share of another class may fall below one, too.
    if limit >= len(rows_by_class):
        while small_classes := _classes_below_one_row(counts, rows_left):
            for name in small_classes:
                share_by_class[name] = 1
                rows_left -= 1
                del counts[name]

    # round the shares of the other classes down, and hand out the rest by remainder
    total_count = sum(counts.values())
    remainders = {
        name: count * rows_left % total_count for name, count in counts.items()
    }
    for name, count in counts.items():
        share_by_class[name] = count * rows_left // total_count
    by_remainder = sorted(
        counts, key=lambda name: (-remainders[name], -counts[name], name)
    )
    for name in by_remainder[: limit - sum(share_by_class.values())]:
        share_by_class[name] += 1
    return share_by_class


def _classes_below_one_row(counts: Mapping[str, int], rows_left: int) -> list[str]:
    """The classes that get less than one of ``rows_left`` rows in proportion.

    ``counts`` has the number of rows of every class.
    """
    total_count = sum(counts.values())
    return [name for name, count in counts.items() if count * rows_left < total_count]


def rows_within_limit(labels: Sequence[str], limit: int) -> NDArray[np.bool_]:
    """Whether a limit takes each row, (N,): the first rows of a class, up to its share.

    Args:
        labels: the class of every row.
        limit: number of rows to take in all.
    """
    # class -> number of its rows that are still to be taken
    rows_left = shares(Counter(labels), limit)
    is_taken_N = np.zeros(len(labels), np.bool_)
    for row, label in enumerate(labels):
        if rows_left[label]:
            rows_left[label] -= 1
            is_taken_N[row] = True
    return is_taken_N
