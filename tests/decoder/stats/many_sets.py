"""Simulated verdicts over many data sets, of which the truth is known.

Seven mechanisms are compared with one baseline on K data sets. The true difference of a
mechanism varies from data set to data set. The estimates err by the test rows of each
data set, which all mechanisms share in part, and their standard errors are estimates,
too. With several encoders, those of a data set err independently, as their average
supposes, or all alike, which is the worst that rows and tuning could do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gaam_decoder.stats.across import (
    Across,
    SetDifference,
    across_corrected,
    average_over_encoders,
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
FROM_ROWS = 0.1
"""Share of the variance of a data set that counts as shared by its encoders.

In the cells of the study of ten data sets it is 0.07 to 0.10 in the median."""
ENCODERS = {
    "one": (1, FROM_ROWS),
    "three, as counted": (3, FROM_ROWS),
    "three that err alike": (3, 1.0),
}
"""Name -> number of encoders, and the correlation of their errors on a data set."""
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
    generator: np.random.Generator,
    num_sets: int,
    between: float,
    mean: float,
    num_encoders: int = 1,
    alike: float = FROM_ROWS,
) -> tuple[list[Across], Floats]:
    """The corrected answers of all mechanisms, and true differences on another set.

    Args:
        generator: of random numbers.
        num_sets: K.
        between: standard deviation of the true differences of data sets.
        mean: of these differences.
        num_encoders: E, of every data set.
        alike: correlation of the errors of two encoders on one data set.
    """
    shape = (MECHANISMS, num_sets)
    error_K = generator.uniform(SMALLEST_ERROR, LARGEST_ERROR, num_sets)
    true_MK = mean + between * generator.normal(size=shape)
    noise_of_set_MK = _draw_noise(generator, num_sets)
    sets_MK: list[list[list[SetDifference]]] = [
        [[] for _ in range(num_sets)] for _ in range(MECHANISMS)
    ]
    for _ in range(num_encoders):
        own_noise_MK = _draw_noise(generator, num_sets)
        noise_MK = alike**0.5 * noise_of_set_MK + (1 - alike) ** 0.5 * own_noise_MK
        estimate_MK = true_MK + error_K * noise_MK
        variance_MK = error_K**2 * generator.chisquare(FREEDOM, shape) / FREEDOM
        for mechanism, place in np.ndindex(shape):
            variance = float(variance_MK[mechanism, place])
            sets_MK[mechanism][place].append(
                SetDifference(
                    name=str(place),
                    difference=float(estimate_MK[mechanism, place]),
                    variance=variance,
                    shared_variance=FROM_ROWS * variance,
                )
            )
    answers = []
    for sets_K in sets_MK:
        sets = [
            average_over_encoders(str(place), encoders)
            for place, encoders in enumerate(sets_K)
        ]
        answers.append(combine_sets(sets, margin=MARGIN))
    other_M = mean + between * generator.normal(size=MECHANISMS)
    return across_corrected(answers), other_M


def _draw_noise(generator: np.random.Generator, num_sets: int) -> Floats:
    """Errors of variance 1, (M, K), which mechanisms share in part on a data set."""
    common_K = generator.normal(size=num_sets)
    own_MK = generator.normal(size=(MECHANISMS, num_sets))
    noise_MK: Floats = SHARED**0.5 * common_K + (1 - SHARED) ** 0.5 * own_MK
    return noise_MK


def simulate(
    num_sets: int,
    between: float,
    repetitions: int,
    *,
    num_encoders: int = 1,
    alike: float = FROM_ROWS,
) -> Rates:
    """Count false verdicts and intervals that hold the truth, as ``draw_answers``."""
    generator = np.random.default_rng(0)
    encoders = (num_encoders, alike)
    found_any = 0
    equivalent_any = 0
    held = 0
    other_held = 0
    for _ in range(repetitions):
        same, other_M = draw_answers(generator, num_sets, between, 0.0, *encoders)
        found_any += any(entry.verdict in ("better", "worse") for entry in same)
        first = same[0]
        assert first.interval is not None
        assert first.prediction is not None
        held += first.interval[0] <= 0 <= first.interval[1]
        other_held += first.prediction[0] <= other_M[0] <= first.prediction[1]
        different, _ = draw_answers(generator, num_sets, between, MARGIN, *encoders)
        equivalent_any += any(entry.verdict == "equivalent" for entry in different)
    return Rates(
        repetitions=repetitions,
        found_any=found_any,
        equivalent_any=equivalent_any,
        held=held,
        other_held=other_held,
    )
