"""Which rows ``--limit`` takes: the first rows of every class, up to its share."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray


def shares(rows_by_class: Mapping[str, int], limit: int) -> dict[str, int]:
    """How many of ``limit`` rows every class has, by largest remainders.

    A class whose share is less than one row has one row, if the limit is at least the
    number of classes; the other classes share the rest. Of equal remainders the larger
    class wins, then the name that sorts first, so that train and test choose alike.
    """
    if sum(rows_by_class.values()) <= limit:
        return dict(rows_by_class)
    share_by_class: dict[str, int] = {}
    counts = dict(rows_by_class)  # of the classes that share the rows left
    rows_left = limit
    total = sum(counts.values())

    # give one row to every class whose share is smaller
    while limit >= len(rows_by_class):
        small = [name for name, count in counts.items() if count * rows_left < total]
        if not small:
            break
        # now fewer rows are left, so that the share of another class may be too small
        for name in small:
            share_by_class[name] = 1
            total -= counts.pop(name)
            rows_left -= 1

    # round the shares of the others down, and hand out the rest by remainder
    remainders = {name: count * rows_left % total for name, count in counts.items()}
    for name, count in counts.items():
        share_by_class[name] = count * rows_left // total
    by_remainder = sorted(
        counts, key=lambda name: (-remainders[name], -counts[name], name)
    )
    for name in by_remainder[: limit - sum(share_by_class.values())]:
        share_by_class[name] += 1
    return share_by_class


def limited(labels: Sequence[str], limit: int) -> NDArray[np.bool_]:
    """Whether a limit takes each row, (N,): the first of its class, up to its share."""
    rows_left = shares(Counter(labels), limit)
    is_taken_N = np.zeros(len(labels), np.bool_)
    for row, label in enumerate(labels):
        if rows_left[label]:
            rows_left[label] -= 1
            is_taken_N[row] = True
    return is_taken_N
