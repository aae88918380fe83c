"""Which rows ``--limit`` takes: of every class its share, the first ones."""

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray


def shares(rows_by_class: Mapping[str, int], limit: int) -> dict[str, int]:
    """How many of ``limit`` rows every class has, by largest remainders.

    A class with less than one row by its share has one row where the limit is at least the
    number of classes; the other classes share the rest. Of equal remainders the larger class
    wins, then the name that sorts first, so that train and test choose alike.
    """
    if sum(rows_by_class.values()) <= limit:
        return dict(rows_by_class)
    taken: dict[str, int] = {}
    sharing, rows = dict(rows_by_class), limit
    total = sum(sharing.values())
    while limit >= len(rows_by_class):
        small = [name for name, count in sharing.items() if count * rows < total]
        if not small:
            break
        # the rest is less than before: another class may fall below one row of it
        for name in small:
            taken[name] = 1
            total -= sharing.pop(name)
            rows -= 1
    remainders = {name: count * rows % total for name, count in sharing.items()}
    for name, count in sharing.items():
        taken[name] = count * rows // total
    by_remainder = sorted(
        sharing, key=lambda name: (-remainders[name], -sharing[name], name)
    )
    for name in by_remainder[: limit - sum(taken.values())]:
        taken[name] += 1
    return taken


def limited(labels: Sequence[str], limit: int) -> NDArray[np.bool_]:
    """For every row, (N,), whether a limit takes it: the first of its class, up to its share."""
    left = shares(Counter(labels), limit)
    taken_N = np.zeros(len(labels), np.bool_)
    for row, label in enumerate(labels):
        if left[label]:
            left[label] -= 1
            taken_N[row] = True
    return taken_N
