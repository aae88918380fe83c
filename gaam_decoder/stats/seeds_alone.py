"""Two mechanisms compared over their seeds, the test rows taken as given; and what is a verdict.

S seeds that both have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr

from gaam_decoder.stats.limits import ALPHA
from gaam_decoder.stats.paired import SignFlip, sign_flip
from gaam_decoder.stats.seeds import (
    minimum_detectable_difference,
    seeds_needed,
    standard_deviation,
    t_interval,
    within,
)

Verdict = Literal["better", "worse", "equivalent", "undecided", "no claim"]
NO_CLAIM: Verdict = "no claim"
"""The verdict where the score or the data allow no test, which more seeds or rows would not change
as they change what is undecided."""
LEAST_SEEDS = seeds_needed(1, alpha=ALPHA)
"""With fewer, no sign-flip test can give p < 0.05, whatever the seeds say."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OnTheseRows:
    """The comparison over seeds alone: the test rows are taken as given."""

    std: float | None
    """Of the differences of the seeds."""
    interval: tuple[float, float] | None
    """95% t interval."""
    sign_flip: SignFlip | None
    """None for fewer than 6 seeds."""
    p_equivalent: float | None
    """Of two one-sided paired t tests against the margin."""
    detectable: float | None
    """Smallest true difference that so many seeds find with a power of 80%."""
    verdict: Verdict


def on_these_rows(
    difference_S: NDArray[np.float64],
    margin: float,
    *,
    most: float = 1.0,
    larger_is_better: bool = True,
) -> OnTheseRows:
    """What the differences of S seeds say, against zero and against the margin.

    Args:
        difference_S: of every seed.
        margin: largest that does not matter.
        most: largest that can be; of two accuracies 1.
        larger_is_better: False of losses.
    """
    num_seeds, mean = len(difference_S), float(difference_S.mean())
    sd = standard_deviation(difference_S)
    flipped = sign_flip(difference_S) if num_seeds >= LEAST_SEEDS else None
    equivalent = None
    if sd is not None:
        error = sd / num_seeds**0.5
        inside = margin - abs(mean)
        equivalent = float(stdtr(num_seeds - 1, -inside / error)) if error else float(inside <= 0)
    detectable = minimum_detectable_difference(difference_S, alpha=ALPHA)
    return OnTheseRows(
        std=sd,
        interval=within(t_interval(difference_S), -most, most),
        sign_flip=flipped,
        p_equivalent=equivalent,
        # two scores are never further apart: then no difference would be found
        detectable=None if detectable is None or detectable > most else detectable,
        verdict=verdict_of(
            num_seeds,
            mean if larger_is_better else -mean,
            flipped.p if flipped else None,
            equivalent,
        ),
    )


def verdict_of(num_seeds: int, mean: float, p: float | None, equivalent: float | None) -> Verdict:
    """Which it is, by the p of a difference and that of equivalence."""
    if num_seeds < LEAST_SEEDS:
        return "undecided"
    if p is not None and p < ALPHA:
        return "better" if mean > 0 else "worse"
    return "equivalent" if equivalent is not None and equivalent < ALPHA else "undecided"
