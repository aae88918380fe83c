"""Simulated experiments of which the truth is known.

A mechanism is right on a row where ``row + own row + seed + noise + constant`` is above
0. Rows are easy or hard for both of two mechanisms (standard deviation 2), and for each
in its own way. Seeds are better or worse on all rows, and the rest is luck. S seeds,
N test rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import scipy.optimize
from numpy.typing import NDArray
from scipy.special import ndtr

from gaam_decoder import stats

Hits = NDArray[np.bool_]
ROW = 2.0
SEEDS = (2, 3, 6, 20)
ROWS = (50, 300, 2000)
DIFFERENCES = (0.0, 0.005, 0.02)
ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """Standard deviations of what makes a mechanism right, and how often it is."""

    own: float
    """Of rows, for each mechanism apart."""
    seed: float
    constant: float = 3.0
    """3 is an accuracy of about 91%."""
    first_seed: float | None = None
    """Of the seeds of the first mechanism; None: as of the other."""
    noise: float = 1.0
    skewed: bool = False
    """Seeds: most are a little better than the mean, few much worse."""

    def accuracy(self, shift: float, *, first: bool) -> float:
        """On all rows over all seeds."""
        constant = self.constant + shift
        seed = self._seed(first=first)
        row_variance = ROW**2 + self.own**2 + self.noise**2
        if self.skewed:
            # the mean over seeds, whose effect is exponentially distributed
            nodes, weights = np.polynomial.laguerre.laggauss(80)
            return float(
                weights @ ndtr((constant - seed * (nodes - 1)) / np.sqrt(row_variance))
            )
        return float(ndtr(constant / np.sqrt(row_variance + seed**2)))

    def _seed(self, *, first: bool) -> float:
        return self.first_seed if first and self.first_seed is not None else self.seed

    def hits(
        self,
        generator: np.random.Generator,
        num_seeds: int,
        num_rows: int,
        shift: float,
    ) -> tuple[Hits, Hits]:
        """Hits of both, the first better by ``shift`` before it is right or wrong."""
        row_N = ROW * generator.standard_normal(num_rows, np.float32)
        first_SN = self._hits_of_one(
            generator, row_N, num_seeds, self.constant + shift, self._seed(first=True)
        )
        second_SN = self._hits_of_one(
            generator, row_N, num_seeds, self.constant, self._seed(first=False)
        )
        return first_SN, second_SN

    def _hits_of_one(
        self,
        generator: np.random.Generator,
        row_N: NDArray[np.float32],
        num_seeds: int,
        constant: float,
        seed: float,
    ) -> Hits:
        num_rows = len(row_N)
        if self.skewed:
            effect_S = -(generator.exponential(size=num_seeds) - 1)
        else:
            effect_S = generator.standard_normal(num_seeds)
        seed_S = (constant + seed * effect_S).astype(np.float32)
        own_N = self.own * generator.standard_normal(num_rows, np.float32)
        latent_SN = row_N + own_N + seed_S[:, None]
        if self.noise:
            noise_SN = generator.standard_normal((num_seeds, num_rows), np.float32)
            latent_SN += self.noise * noise_SN
        return np.asarray(latent_SN > 0)


SCENARIOS = {
    "rows and seeds": Scenario(own=1.5, seed=0.4),
    "rows alone": Scenario(own=0.7, seed=0.0),
    "mostly rows": Scenario(own=0.5, seed=0.1),
    "seeds alone": Scenario(own=0.0, seed=0.4),
    "strong seeds": Scenario(own=0.3, seed=1.5),
    "seeds of one": Scenario(own=0.3, seed=0.3, first_seed=0.03),
    "skewed seeds": Scenario(own=0.2, seed=0.4, skewed=True),
    "nearly the same": Scenario(own=0.02, seed=0.0, noise=0.02),
    "without noise": Scenario(own=0.1, seed=0.0, noise=0.0),
    "97% right": Scenario(own=0.5, seed=0.1, constant=4.3),
    "99% right": Scenario(own=0.5, seed=0.1, constant=5.35),
}


@cache
def shift_of(name: str, difference: float) -> float:
    """By how much the first has to be better to be right on such a share more."""
    scenario = SCENARIOS[name]
    accuracy = scenario.accuracy(0.0, first=False)

    def excess(shift: float) -> float:
        return scenario.accuracy(shift, first=True) - accuracy - difference

    return float(scipy.optimize.brentq(excess, -20.0, 20.0, xtol=1e-10))


def differences_of(name: str) -> list[float]:
    """Those that can be: nothing is right on more than all rows."""
    most = 1 - SCENARIOS[name].accuracy(0.0, first=False)
    return [difference for difference in DIFFERENCES if difference < most - 1e-4]


@dataclass(kw_only=True, slots=True)
class Rates:
    """In how many of so many repetitions something was true."""

    repetitions: int
    found: int = 0
    """p below 0.05."""
    found_by_seeds: int = 0
    """p of the sign-flip test over seeds alone below 0.05."""
    held: int = 0
    """The difference in its interval."""
    equivalent: int = 0
    """Equivalent within the true difference, which is false."""
    accuracy_held: int = 0
    """The accuracy of the second in its interval."""

    def count(self, claim: stats.Claim, difference: float) -> None:
        """Count a claim about mechanisms with this true difference."""
        assert claim.p is not None
        assert claim.interval is not None
        low, high = claim.interval
        sign_flip = claim.on_these_rows.sign_flip
        self.found += claim.p < stats.ALPHA
        self.found_by_seeds += sign_flip is not None and sign_flip.p < stats.ALPHA
        self.held += low - ROUNDING <= difference <= high + ROUNDING


def simulate(
    name: str, difference: float, num_seeds: int, num_rows: int, repetitions: int
) -> Rates:
    """Repeat an experiment, always the same ones."""
    scenario = SCENARIOS[name]
    shift = shift_of(name, difference)
    key = [*name.encode(), int(1000 * difference), num_seeds, num_rows]
    generator = np.random.default_rng(key)
    true_accuracy = scenario.accuracy(0.0, first=False)
    rates = Rates(repetitions=repetitions)
    for _ in range(repetitions):
        first_SN, second_SN = scenario.hits(generator, num_seeds, num_rows, shift)
        claim = stats.claim(first_SN, second_SN, margin=difference or stats.MARGIN)
        rates.count(claim, difference)
        assert claim.p_equivalent is not None
        rates.equivalent += claim.p_equivalent < stats.ALPHA
        interval = stats.two_level_interval(second_SN)
        assert interval is not None
        low, high = interval
        rates.accuracy_held += low <= true_accuracy <= high
    return rates


def cells(name: str) -> Iterator[tuple[float, int, int]]:
    """Differences, seeds and rows that a scenario is tried with."""
    for difference in differences_of(name):
        for num_seeds in SEEDS:
            for num_rows in ROWS:
                yield difference, num_seeds, num_rows


def swapped(name: str, num_seeds: int, num_rows: int, repetitions: int) -> Rates:
    """Rates of one pair of mechanisms that are swapped on rows drawn by lot.

    Then there is no difference, however much their answers differ. Accuracies and
    equivalence are not counted.
    """
    generator = np.random.default_rng([*name.encode(), num_seeds, num_rows])
    shift = shift_of(name, differences_of(name)[-1])
    first_SN, second_SN = SCENARIOS[name].hits(generator, num_seeds, num_rows, shift)
    rates = Rates(repetitions=repetitions)
    for _ in range(repetitions):
        swap_N = generator.random(num_rows) < 0.5
        one_SN: Any = np.where(swap_N, second_SN, first_SN)
        other_SN: Any = np.where(swap_N, first_SN, second_SN)
        rates.count(stats.claim(one_SN, other_SN), 0.0)
    return rates
