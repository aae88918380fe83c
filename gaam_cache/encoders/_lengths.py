"""Measures how a chain of convolutions, poolings or windows shortens a sequence.

The rule is found by counting the outputs of inputs of a few lengths. The model's
configuration is not read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
        """Number of outputs of n inputs; 0 if the inputs are too few.

        Formula: ``floor((n + offset) / stride)``. Each convolution of a chain has this
        form, and so has the whole chain: ``stride`` is the product of their strides.
        The layers cannot read inputs that would give fewer than ``least_output``.
        """
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

    The rule is ``outputs = floor((n + offset) / stride)`` for n inputs. The counts at
    ``low`` and ``high`` leave a few strides possible. An edge is a number of inputs at
    which an output is added; at the first edge above ``low``, each stride has one
    offset that fits. The first of these rules that also fits at other edges is the
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

    # Edges are one stride apart, and ``growth`` of them lie between low and high. So
    # high - low is at least growth - 1 strides, and less than growth + 1.
    shortest_stride = max(1, (high - low) // (growth + 1))
    longest_stride = (high - low) // (growth - 1)
    # The next output comes after one stride at most.
    edge = _find_edge(count, outputs_at_low, low, min(low + longest_stride, high))

    for stride in range(shortest_stride, longest_stride + 1):
        # With this offset, the rule adds an output exactly at the edge.
        rule = Downsampling(offset=stride * (outputs_at_low + 1) - edge, stride=stride)
        if rule(low) != outputs_at_low or rule(high) != outputs_at_high:
            continue

        middle_outputs = (outputs_at_low + outputs_at_high) // 2
        if _has_edges(count, rule, (outputs_at_high, middle_outputs)):
            return replace(rule, least_output=_find_least_output(count, rule, output))
    raise Unusable(
        f"{output} does not grow evenly: {outputs_at_low} for {low:,} inputs, "
        f"{outputs_at_high} for {high:,}"
    )


def _has_edges(
    count: Callable[[int], int], rule: Downsampling, numbers_of_outputs: Sequence[int]
) -> bool:
    """Whether layers reach some numbers of outputs at the inputs that a rule predicts.

    A rule with a wrong stride predicts wrong inputs. The outputs of each predicted
    number of inputs are counted, and those of one input fewer.

    Args:
        count: counts the outputs of a number of inputs.
        rule: the rule to check.
        numbers_of_outputs: the numbers of outputs.
    """
    for outputs in numbers_of_outputs:
        edge = rule.fewest_inputs(outputs)
        for n in (edge, edge - 1):
            if count(n) != rule(n):
                return False
    return True


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
    """Find the smallest number of outputs, other than 0, that layers yield.

    Layers may fail on inputs that are too short: a convolution with a kernel of 5
    cannot read 4 inputs. The shortest input on which they do not fail must follow the
    rule.

    Args:
        count: counts the outputs of a number of inputs; it raises an exception if the
            layers fail.
        rule: number of inputs -> number of outputs, as measured on longer inputs.
        output: the name of the output, for messages.

    Raises:
        Unusable: the shortest input does not follow the rule, or is not found.
    """
    # By the rule, no input has fewer outputs than an input of length 1.
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
