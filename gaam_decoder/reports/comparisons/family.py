"""What Holm corrects for beside what is shown: tests of the runs that filters left out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from gaam_decoder import stats

T = TypeVar("T")


def further(
    made: Sequence[T], others: Sequence[T | None], same: Callable[[T], tuple[Any, ...]]
) -> list[T]:
    """The others that are not among what was made: of the same numbers they are the same."""
    there = Counter(map(same, made))
    found = []
    for other in others:
        if other is None:
            continue
        there[same(other)] -= 1
        if there[same(other)] < 0:
            found.append(other)
    return found


def numbers(claim: stats.Claim) -> tuple[Any, ...]:
    """What makes a claim the same as another."""
    return claim.difference, claim.p, claim.p_equivalent, claim.interval
