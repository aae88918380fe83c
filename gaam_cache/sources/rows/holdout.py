"""Chooses the rows that become 'test', where a data set has no splits.

``held_out_rows`` chooses single rows, ``held_out_numbers`` does so where labels are
numbers, and ``held_out_groups`` chooses whole groups of rows.

Shapes: N rows, M rows of one class, G groups, C classes.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from gaam_cache.targets.base import Target

MILLION = 10**6  # shares are in millionths: integers compare without rounding


def held_out_rows(
    labels: Sequence[str], fraction: float, seed: int
) -> NDArray[np.bool_]:
    """The rows to hold out for testing, as a mask (N,): the same share of every class.

    The rule never changes. It depends on no library's random numbers, so anyone who
    has the labels in order can repeat it in any language.

    Of a class with n rows, ``round(fraction * n)`` rows are held out, halves rounded
    to the even number. A class of two or more rows gives at least one row and never
    all of them; a class of one row gives none. The rows with the smallest digests are
    held out. The digest of a row is the first eight bytes, big-endian, of the SHA-256
    of '<seed> <row>' in ASCII, rows counted from 0. Of equal digests, the earlier row
    is the smaller.
    """
    rows_by_class: dict[str, list[int]] = {}
    for row, label in enumerate(labels):
        rows_by_class.setdefault(label, []).append(row)

    digest_N = _row_digests(len(labels), seed)
    is_test_N = np.zeros(len(labels), np.bool_)
    for class_rows in rows_by_class.values():
        row_M = np.array(class_rows)

        # a class gives at least one test row, but keeps one row for training
        num_test_rows = max(1, round(fraction * len(row_M)))
        num_test_rows = min(len(row_M) - 1, num_test_rows)

        order_M = np.argsort(digest_N[row_M], kind="stable")
        is_test_N[row_M[order_M[:num_test_rows]]] = True
    return is_test_N


def held_out_numbers(
    ranked_N: NDArray[np.int64], fraction: float, seed: int
) -> NDArray[np.bool_]:
    """The rows to hold out for testing, as a mask (N,), where labels are numbers.

    The rule never changes. Of N rows, ``k = round(fraction * N)`` are held out, halves
    rounded to the even number; at least one of two or more rows, and never all. The
    ranking of the rows by their numbers is cut into k blocks: block b has the places
    from ``floor(b N / k)`` to before ``floor((b + 1) N / k)``, counted from 0. Of every
    block the row with the smallest digest is held out, see ``held_out_rows``.

    Args:
        ranked_N: the rows in the order of their numbers; of equal numbers the earlier
            row is first.
        fraction: the share of the rows to hold out.
        seed: draws the rows.
    """
    num_rows = len(ranked_N)
    num_test_rows = min(num_rows - 1, max(1, round(fraction * num_rows)))
    digest_N = _row_digests(num_rows, seed)
    is_test_N = np.zeros(num_rows, np.bool_)
    for block in range(num_test_rows):
        start = block * num_rows // num_test_rows
        end = (block + 1) * num_rows // num_test_rows
        row_M = np.sort(ranked_N[start:end])
        is_test_N[row_M[digest_N[row_M].argmin()]] = True
    return is_test_N


def held_out_of_target(
    target: type[Target], labels: Sequence[str], fraction: float, seed: int
) -> NDArray[np.bool_]:
    """The rows to hold out for testing, as a mask (N,), by the kind of their labels."""
    ranked_N = target.ranking(labels)
    if ranked_N is not None:
        return held_out_numbers(ranked_N, fraction, seed)
    return held_out_rows(target.strata(labels), fraction, seed)


def _row_digests(num_rows: int, seed: int) -> NDArray[np.uint64]:
    """The first eight bytes of the SHA-256 of '<seed> <row>' of every row, (N,)."""
    digests = [
        hashlib.sha256(f"{seed} {row}".encode()).digest()[:8] for row in range(num_rows)
    ]
    return np.frombuffer(b"".join(digests), ">u8")


def held_out_groups(
    labels: Sequence[str], groups: Sequence[str], fraction: float, seed: int
) -> NDArray[np.bool_]:
    """The rows to hold out for testing, as a mask (N,): all rows of a group or none.

    Groups are added one by one, so that of every class about the fraction is held out.
    The rule never changes, like that of ``held_out_rows``:

    - The order of the groups is that of their digests, the SHA-256 of '<seed> <name of
      the group>' in UTF-8.
    - A class has n rows, of which h are held out; f is the fraction in millionths,
      rounded. The distance from the fraction is ``|1,000,000 h - f n|``, summed over
      the classes.
    - No group is held out if a class would be left without a row for training.
    - First, every group in order is held out that leaves ``1,000,000 h <= f n`` in each
      class.
    - Then, again and again, the group is held out that reduces the distance most, the
      first of equal ones, until no group reduces it.
    """
    # number groups by digest and classes by name, and count the rows of each pair
    group_number = _number_groups(groups, seed)
    class_number = {name: number for number, name in enumerate(sorted(set(labels)))}
    group_N = np.array([group_number[name] for name in groups])
    class_N = np.array([class_number[label] for label in labels])
    count_GC = np.zeros((len(group_number), len(class_number)), np.int64)
    np.add.at(count_GC, (group_N, class_N), 1)

    is_test_G = _choose_groups(count_GC, round(1e6 * fraction))
    is_test_N: NDArray[np.bool_] = is_test_G[group_N]
    return is_test_N


def _number_groups(groups: Sequence[str], seed: int) -> dict[str, int]:
    """The number of every group, counted from 0 in the order of their digests."""
    digests = {
        name: hashlib.sha256(f"{seed} {name}".encode()).digest() for name in set(groups)
    }
    ordered = sorted(digests, key=digests.__getitem__)
    return {name: number for number, name in enumerate(ordered)}


def _choose_groups(count_GC: NDArray[np.int64], millionths: int) -> NDArray[np.bool_]:
    """Choose the groups that are held out for testing, by the rule of the caller.

    The distance of a choice is the sum of ``|1,000,000 h - f n|`` over the classes,
    where h of the n rows of a class are held out, and f is ``millionths``.

    Args:
        count_GC: number of rows of every group and class.
        millionths: the share of the rows to hold out.

    Returns:
        Whether each group is held out, (G,).
    """
    total_C = count_GC.sum(0)
    share_C = millionths * total_C  # rows to hold out of every class, in millionths
    test_C = np.zeros_like(total_C)
    is_test_G = np.zeros(len(count_GC), np.bool_)

    # take every group that fits into the shares of all classes, and leaves rows of each
    # for training
    for group, count_C in enumerate(count_GC):
        new_test_C = test_C + count_C
        fits = (MILLION * new_test_C <= share_C).all()
        if fits and (new_test_C < total_C).all():
            test_C = new_test_C
            is_test_G[group] = True

    # a group that exceeds the share of a class may still bring the choice nearer to it
    while True:
        new_test_GC = test_C + count_GC
        distance_G = abs(MILLION * new_test_GC - share_C).sum(1)
        # a group may be the last one of a class: then no row is left for training
        empties_class_G = ((new_test_GC >= total_C) & (count_GC > 0)).any(1)
        # the largest distance keeps a group from being the nearest
        distance_G[is_test_G | empties_class_G] = np.iinfo(np.int64).max

        nearest = int(distance_G.argmin())
        if distance_G[nearest] >= abs(MILLION * test_C - share_C).sum():
            return is_test_G
        test_C = new_test_GC[nearest]
        is_test_G[nearest] = True
