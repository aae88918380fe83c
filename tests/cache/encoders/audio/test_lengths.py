"""Lengths are measured, whatever shortens a sound."""

from __future__ import annotations

from contextlib import suppress
from itertools import count

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from gaam_cache.encoders._forward import Unusable
from gaam_cache.encoders._lengths import fit_downsampling

CHAINS = st.lists(
    st.tuples(st.integers(1, 12), st.integers(1, 6), st.integers(0, 5), st.booleans()),
    min_size=1,
    max_size=6,
)
"""Kernel, stride, padding and whether it rounds up, of every convolution."""


def through(chain: list[tuple[int, int, int, bool]], n: int) -> int:
    for kernel, stride, padding, up in chain:
        inner = n + 2 * padding - kernel
        if inner < 0:
            raise ValueError("too short for a kernel")
        n = (-(-inner // stride) if up else inner // stride) + 1
    return n


def shortest(chain: list[tuple[int, int, int, bool]]) -> int:
    """Outputs of the shortest input that yields any."""
    for n in count(1):
        with suppress(ValueError):
            return through(chain, n)
    raise AssertionError


@given(chain=CHAINS)
@example(chain=[(9, 1, 0, False), (1, 1, 2, False), (1, 1, 2, False)])
def test_any_chain_of_convolutions_is_two_numbers(
    chain: list[tuple[int, int, int, bool]],
) -> None:
    total = int(np.prod([stride for _, stride, _, _ in chain]))
    low = 40 * total + 200
    try:
        steps = fit_downsampling(lambda n: through(chain, n), low, 6 * low, "a chain")
    except Unusable:  # for one reason alone
        assert shortest(chain) >= 8
        return
    assert steps.stride == total
    for n in [*range(low, low + 2 * total + 2), *range(7 * low, 7 * low + total + 1)]:
        assert steps(n) == through(chain, n)
    for y in (steps.least_output, steps.least_output + 1, steps.least_output + 50):
        assert steps(steps.fewest_inputs(y)) == y == steps(steps.most_inputs(y))
        assert steps(steps.most_inputs(y) + 1) == y + 1
    assert steps(steps.fewest_inputs(steps.least_output)) == through(
        chain, steps.fewest_inputs(steps.least_output)
    )
    assert steps(steps.fewest_inputs(steps.least_output) - 1) == 0
