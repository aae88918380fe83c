"""Simulated verdicts over many data sets, of which the truth is known.

Seven mechanisms are compared with one baseline on K data sets. The true difference of a
mechanism varies from data set to data set. The estimates err by the test rows of each
data set, which all mechanisms share in part, and their standard errors are estimates,
too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gaam_decoder.stats.across import (
    Across,
    SetDifference,
    across_corrected,
    combine_sets,
)

Floats = NDArray[np.float64]
MECHANISMS = 7
MARGIN = 0.01
SMALLEST_ERROR = 0.002
LARGEST_ERROR = 0.015
"""Range of the standard errors within data sets: 0.2 to 1.5 points."""
FREEDOM = 30  # of the estimates of the squared standard errors
SHARED = 0.5  # correlation of the errors of two mechanisms on one data set
NUMBERS_OF_SETS = (5, 10, 20)
BETWEEN = (0.0, 0.005, 0.01, 0.02)
"""Standard deviations of the true differences of data sets."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rates:
    """In how many of so many repetitions something was true."""

    repetitions: int
    found_any: int  # a difference of any mechanism, where no mechanism differs
    equivalent_any: int
    """Equivalence of any mechanism, where all differ by just the margin."""
    held: int  # the mean of the first mechanism in its interval
    other_held: int  # its true difference on another data set in the interval of that


def draw_answers(
    generator: np.random.Generator, num_sets: int, between: float, mean: float
) -> tuple[list[Across], Floats]:
    """The corrected answers of all mechanisms, and true differences on another set."""
    shape = (MECHANISMS, num_sets)
    error_K = generator.uniform(SMALLEST_ERROR, LARGEST_ERROR, num_sets)
    common_K = generator.normal(size=num_sets)
    own_MK = generator.normal(size=shape)
    noise_MK = SHARED**0.5 * common_K + (1 - SHARED) ** 0.5 * own_MK
    true_MK = mean + between * generator.normal(size=shape)
    estimate_MK = true_MK + error_K * noise_MK
    variance_MK = error_K**2 * generator.chisquare(FREEDOM, shape) / FREEDOM
    answers = []
    for estimate_K, variance_K in zip(estimate_MK, variance_MK, strict=True):
        sets = [
            SetDifference(name=str(place), difference=estimate, variance=variance)
            for place, (estimate, variance) in enumerate(
                zip(estimate_K.tolist(), variance_K.tolist(), strict=True)
            )
        ]
        answers.append(combine_sets(sets, margin=MARGIN))
    other_M = mean + between * generator.normal(size=MECHANISMS)
    return across_corrected(answers), other_M


def simulate(num_sets: int, between: float, repetitions: int, seed: int = 0) -> Rates:
    """Count false verdicts and intervals that hold the truth."""
    generator = np.random.default_rng(seed)
    found_any = 0
    equivalent_any = 0
    held = 0
    other_held = 0
    for _ in range(repetitions):
        same, other_M = draw_answers(generator, num_sets, between, 0.0)
        found_any += any(entry.verdict in ("better", "worse") for entry in same)
        first = same[0]
        assert first.interval is not None
        assert first.prediction is not None
        held += first.interval[0] <= 0 <= first.interval[1]
        other_held += first.prediction[0] <= other_M[0] <= first.prediction[1]
        different, _ = draw_answers(generator, num_sets, between, MARGIN)
        equivalent_any += any(entry.verdict == "equivalent" for entry in different)
    return Rates(
        repetitions=repetitions,
        found_any=found_any,
        equivalent_any=equivalent_any,
        held=held,
        other_held=other_held,
    )
