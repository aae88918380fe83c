"""Measures how a chain of convolutions, poolings or windows shortens a sequence.

The rule is found by counting the outputs of inputs of a few lengths. The model's
configuration is not read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from gaam_cache.encoders._forward import Unusable

MAX_LEAST_TRIED = 8
"""Number of output lengths that are tried as the smallest one.

Some layers need more than one position.
"""


@dataclass(frozen=True, slots=True)
class Downsampling:
    """The output length of a chain of layers as a function of its input length.

    Formula: ``y(n) = floor((n + offset) / stride)``; or 0 if that is below ``least``.

    A chain of convolutions, poolings and windows, each of which rounds down or up, has
    this form as a whole, whatever their sizes: ``floor((floor((n + a) / s) + b) / t)``
    is ``floor((n + a + b s) / (s t))``.
    """

    offset: int
    stride: int
    least: int = 1  # the smallest output length other than 0

    def __call__(self, n: int) -> int:
        """Output length of n inputs."""
        outputs = (n + self.offset) // self.stride
        if n <= 0 or outputs < self.least:
            return 0
        return outputs

    def first(self, y: int) -> int:
        """The smallest n with at least y outputs."""
        return max(1, self.stride * y - self.offset)

    def last(self, y: int) -> int:
        """The greatest n with y outputs."""
        return self.first(y + 1) - 1


def fit_downsampling(
    count: Callable[[int], int], low: int, high: int, output: str
) -> Downsampling:
    """Find the ``Downsampling`` of some layers, and check it at other lengths.

    Args:
        count: takes a number of inputs and counts their outputs. It may raise any
            exception if there are too few inputs.
        low: a number of inputs for which ``count`` raises no exception.
        high: a greater number of inputs.
        output: the name of the output, for messages: 'the output of the model'.

    Raises:
        Unusable: no ``Downsampling`` gives the counted outputs.
    """
    outputs_at_low = count(low)
    outputs_at_high = count(high)
    growth = outputs_at_high - outputs_at_low
    if growth <= 1:
        raise Unusable(f"{output} grows by {growth} from {low:,} to {high:,} inputs")

    # The growth takes at least growth - 1 whole strides, and fewer than growth + 1.
    shortest_stride = max(1, (high - low) // (growth + 1))
    longest_stride = (high - low) // (growth - 1)
    edge = _first_above(count, outputs_at_low, low, min(low + longest_stride, high))

    for stride in range(shortest_stride, longest_stride + 1):
        # This offset puts the first new output exactly at the edge.
        rule = Downsampling(offset=stride * (outputs_at_low + 1) - edge, stride=stride)
        if rule(low) != outputs_at_low or rule(high) != outputs_at_high:
            continue

        # A wrong rule is wrong just before or at an edge, where an output is added.
        middle_outputs = (outputs_at_low + outputs_at_high) // 2
        edges = [rule.first(outputs_at_high), rule.first(middle_outputs)]
        lengths = [n for edge in edges for n in (edge, edge - 1)]
        if all(count(n) == rule(n) for n in lengths):
            return replace(rule, least=_find_least(count, rule, output))
    raise Unusable(
        f"{output} does not grow evenly: {outputs_at_low} for {low:,} inputs, "
        f"{outputs_at_high} for {high:,}"
    )


def _first_above(count: Callable[[int], int], outputs: int, low: int, high: int) -> int:
    """The smallest number of inputs with more than ``outputs`` outputs.

    It is found by bisection between ``low`` and ``high`` inputs.
    """
    while high - low > 1:
        middle = (low + high) // 2
        if count(middle) > outputs:
            high = middle
        else:
            low = middle
    return high


def _find_least(count: Callable[[int], int], rule: Downsampling, output: str) -> int:
    """The smallest output length other than 0 that the layers yield."""
    smallest = max(1, rule(1))
    for least in range(smallest, smallest + MAX_LEAST_TRIED):
        try:
            outputs = count(rule.first(least))
        except Exception:  # noqa: BLE001 the layers cannot read so short an input
            continue
        if outputs == least:
            return least
        break
    raise Unusable(
        f"{output} for short inputs is not known: {rule.first(smallest):,} inputs and "
        "a few more do not follow the rule of long ones"
    )
