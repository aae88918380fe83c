"""How a length becomes a shorter one, measured on whatever makes it shorter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from gaam_cache.encoders._model.forward import Unusable

FEWEST = 8
"""Outputs that the shortest input may have to yield: some layers need more than one."""


@dataclass(frozen=True, slots=True)
class Steps:
    """Formula: ``y(n) = floor((n + offset) / stride)``; 0 below ``least`` and of nothing.

    A chain of convolutions, poolings and windows, each of which rounds down or up, has this form
    as a whole, whatever their sizes: ``floor((floor((n + a) / s) + b) / t)`` is
    ``floor((n + a + b s) / (s t))``.
    """

    offset: int
    stride: int
    least: int = 1
    """The smallest y that there is."""

    def __call__(self, n: int) -> int:
        """Outputs of n inputs."""
        found = (n + self.offset) // self.stride
        return found if n > 0 and found >= self.least else 0

    def first(self, y: int) -> int:
        """The smallest n of at least y outputs."""
        return max(1, self.stride * y - self.offset)

    def last(self, y: int) -> int:
        """The greatest n of y outputs."""
        return self.first(y + 1) - 1


def measure(count: Callable[[int], int], low: int, high: int, what: str) -> Steps:
    """Find the two numbers of ``Steps`` from some lengths between two, and try them on others.

    Args:
        count: outputs of n inputs; fails, with any exception, where they are too few.
        low: inputs that surely have some outputs.
        high: many inputs, at most as many as there will be.
        what: it is that has outputs, for messages.

    Raises:
        Unusable: no such numbers.
    """
    at_low, at_high = count(low), count(high)
    if at_high <= at_low + 1:
        raise Unusable(f"{what} grows by {at_high - at_low} from {low:,} to {high:,}")
    # the first length after low at which there is one more
    longest = (high - low) // (at_high - at_low - 1)
    below, above = low, min(low + longest, high)
    while above - below > 1:
        middle = (below + above) // 2
        if count(middle) > at_low:
            above = middle
        else:
            below = middle
    for stride in range(max(1, (high - low) // (at_high - at_low + 1)), longest + 1):
        steps = Steps(offset=stride * (at_low + 1) - above, stride=stride)
        if (steps(low), steps(high)) != (at_low, at_high):
            continue
        edges = [steps.first(y) for y in (at_high, (at_low + at_high) // 2)]
        if all(count(n) == steps(n) for edge in edges for n in (edge, edge - 1)):
            return Steps(steps.offset, stride, _least(count, steps, what))
    raise Unusable(f"{what} does not grow evenly: {at_low} of {low:,}, {at_high} of {high:,}")


def _least(count: Callable[[int], int], steps: Steps, what: str) -> int:
    fewest = max(1, steps(1))
    for least in range(fewest, fewest + FEWEST):
        try:
            found = count(steps.first(least))
        except Exception:  # noqa: BLE001, S112 of others; too short for them
            continue
        if found != least:
            raise Unusable(f"{what} of {steps.first(least):,} is {found}, not {least}")
        return least
    raise Unusable(f"{what} of {steps.first(fewest + FEWEST - 1):,} cannot be told")
