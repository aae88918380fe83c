"""Measures how a chain of convolutions, poolings or windows shortens a sequence.

The rule is found by counting the outputs of inputs of a few lengths. The model's
configuration is not read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from gaam_cache.encoders._forward import Unusable

MAX_LEAST_TRIED = 8
"""Number of output lengths that are tried as the least one that the layers yield.

Some layers cannot read an input that would give them a single position.
"""


@dataclass(frozen=True, slots=True)
class Downsampling:
    """The output length of a chain of layers as a function of its input length.

    Formula: ``y(n) = floor((n + offset) / stride)`` outputs for n inputs; or 0 if that
    is below ``least_output``.

    A chain of convolutions, poolings and windows, each of which rounds down or up, has
    this form as a whole, whatever their sizes: ``floor((floor((n + a) / s) + b) / t)``
    is ``floor((n + a + b s) / (s t))``.
    """

    offset: int
    stride: int
    least_output: int = 1  # the smallest output length other than 0

    def __call__(self, n: int) -> int:
        """Number of outputs of n inputs; 0 if the inputs are too few."""
        outputs = (n + self.offset) // self.stride
        if n <= 0 or outputs < self.least_output:
            return 0
        return outputs

    def fewest_inputs(self, outputs: int) -> int:
        """The smallest input length with ``outputs`` outputs or more."""
        return max(1, self.stride * outputs - self.offset)

    def most_inputs(self, outputs: int) -> int:
        """The greatest input length with ``outputs`` outputs."""
        return self.fewest_inputs(outputs + 1) - 1


def fit_downsampling(
    count: Callable[[int], int], low: int, high: int, output: str
) -> Downsampling:
    """Find the ``Downsampling`` of some layers by counting their outputs.

    The numbers of outputs at ``low`` and ``high`` limit the stride. An edge is a number
    of inputs at which an output is added. One edge gives the offset that belongs to
    each possible stride. The first stride whose rule holds at other edges too is the
    right one.

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
    # The next output comes after one stride at most.
    edge = _find_edge(count, outputs_at_low, low, min(low + longest_stride, high))

    for stride in range(shortest_stride, longest_stride + 1):
        # With this offset, the rule adds an output exactly at the edge.
        rule = Downsampling(offset=stride * (outputs_at_low + 1) - edge, stride=stride)
        if rule(low) != outputs_at_low or rule(high) != outputs_at_high:
            continue

        # A rule with a wrong stride has its other edges at wrong lengths: outputs are
        # counted at two edges, and one input before each.
        middle_outputs = (outputs_at_low + outputs_at_high) // 2
        other_edges = [
            rule.fewest_inputs(outputs_at_high),
            rule.fewest_inputs(middle_outputs),
        ]
        lengths = [
            n for other_edge in other_edges for n in (other_edge, other_edge - 1)
        ]
        if all(count(n) == rule(n) for n in lengths):
            return replace(rule, least_output=_find_least_output(count, rule, output))
    raise Unusable(
        f"{output} does not grow evenly: {outputs_at_low} for {low:,} inputs, "
        f"{outputs_at_high} for {high:,}"
    )


def _find_edge(count: Callable[[int], int], outputs: int, low: int, high: int) -> int:
    """Find the smallest number of inputs that gives more than ``outputs`` outputs.

    Bisection finds it: more inputs never give fewer outputs.

    Args:
        count: number of inputs -> number of outputs, such as the positions that a model
            makes of a sound's samples.
        outputs: a number of outputs.
        low: a number of inputs that gives exactly ``outputs``.
        high: a number of inputs that gives more.
    """
    while high - low > 1:
        middle = (low + high) // 2
        if count(middle) > outputs:
            high = middle
        else:
            low = middle
    return high


def _find_least_output(
    count: Callable[[int], int], rule: Downsampling, output: str
) -> int:
    """Find the smallest output length other than 0 that the layers yield.

    Layers may fail on inputs that are too short. The shortest input on which they do
    not fail must follow the rule; otherwise ``Unusable`` is raised.

    Args:
        count: counts the outputs of a number of inputs.
        rule: the rule of longer inputs.
        output: the name of the output, for messages.
    """
    # The shortest possible input has one position, and no input has fewer outputs.
    smallest = max(1, rule(1))
    for least_output in range(smallest, smallest + MAX_LEAST_TRIED):
        try:
            outputs = count(rule.fewest_inputs(least_output))
        except Exception:  # noqa: BLE001 the layers cannot read so short an input
            continue
        if outputs == least_output:
            return least_output
        # the layers can read this input, but give another number of outputs
        break
    shortest_input = rule.fewest_inputs(smallest)
    raise Unusable(
        f"{output} for short inputs is not known: {shortest_input:,} inputs and "
        "a few more do not follow the rule of long ones"
    )
