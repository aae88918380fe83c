"""Estimates which share of their rows two data sets have in common.

A sketch of a set is the ``SKETCH_SIZE`` smallest hashes of its members (a bottom-k
sketch: Cohen and Kaplan 2007). Hashes below a limit are a random sample of the members.
"""

import heapq
from collections.abc import Iterable, Sequence

SKETCH_SIZE = 128
"""Hashes of a sketch. Where two large sets of one size have half of their members in
common, the estimate has a standard error of 0.045."""
FEWEST_COMPARED = 8
"""A share of fewer members says too little: one common text may stand for all."""
HASH_BYTES = 6
"""Bytes of a hash: any two of a million rows share a hash with a probability of 0.002.
"""


def sketch(digests: Iterable[bytes]) -> str:
    """The sketch of a set, as hexadecimal digits.

    Args:
        digests: a hash of every member, of ``HASH_BYTES`` or more; equal ones count
            once.
    """
    hashes = {digest[:HASH_BYTES] for digest in digests}
    return b"".join(heapq.nsmallest(SKETCH_SIZE, hashes)).hex()


def joined(sketches: Iterable[str]) -> list[str]:
    """The hashes in the sketch of the union of some sets, in ascending order."""
    hashes = {value for text in sketches for value in _hashes(text)}
    return heapq.nsmallest(SKETCH_SIZE, hashes)


def common_share(first: Sequence[str], second: Sequence[str]) -> float:
    """Estimate which share of the smaller of two sets the other one has, too.

    Args:
        first: the hashes in the sketch of one set, from ``joined``.
        second: those of the other set.

    Returns:
        A number from 0 to 1; 0 also where the sketches say too little.
    """
    # up to the end of the shorter sketch, both sketches have all hashes of their sets
    ends = [hashes[-1] for hashes in (first, second) if len(hashes) == SKETCH_SIZE]
    shares = [0.0]
    for hashes, hashes_of_other_set in ((first, second), (second, first)):
        compared = [value for value in hashes if not ends or value <= min(ends)]
        if len(compared) >= FEWEST_COMPARED:
            num_common = len(set(compared) & set(hashes_of_other_set))
            shares.append(num_common / len(compared))
    return max(shares)


def _hashes(text: str) -> list[str]:
    """The hashes of a sketch, as hexadecimal digits."""
    width = 2 * HASH_BYTES
    return [text[start : start + width] for start in range(0, len(text), width)]
