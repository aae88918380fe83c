"""Simulated experiments of which the truth is known: two mechanisms, their seeds, and test rows.

A mechanism is right on a row where ``row + own row + seed + noise + constant`` is above 0: rows are
easy or hard for both (standard deviation 2), for each in its own way, seeds are better or worse on
all rows, and the rest is luck. S seeds, N test rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np
import scipy.optimize
from scipy.special import ndtr

from gaam_decoder import stats

ROW = 2.0
SEEDS = (2, 3, 6, 20)
ROWS = (50, 300, 2000)
DIFFERENCES = (0.0, 0.005, 0.02)
_NODES, _WEIGHTS = np.polynomial.laguerre.laggauss(80)


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
        seed = self._seed(first=first)
        at = self.constant + shift
        spread = np.sqrt(
            ROW**2 + self.own**2 + self.noise**2 + (0 if self.skewed else seed**2)
        )
        if not self.skewed:
            return float(ndtr(at / spread))
        return float(_WEIGHTS @ ndtr((at - seed * (_NODES - 1)) / spread))

    def _seed(self, *, first: bool) -> float:
        return self.first_seed if first and self.first_seed is not None else self.seed

    def hits(
        self,
        generator: np.random.Generator,
        num_seeds: int,
        num_rows: int,
        shift: float,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Hits of both, the first better by ``shift`` before it is right or wrong."""
        normal = generator.standard_normal
        row_N = ROW * normal(num_rows, np.float32)

        def one(constant: float, first: bool) -> np.ndarray:
            of_seed = generator.exponential(size=num_seeds) - 1 if self.skewed else None
            seed_S = -of_seed if of_seed is not None else normal(num_seeds)
            seed_S = constant + self._seed(first=first) * seed_S
            own_N = row_N + self.own * normal(num_rows, np.float32)
            latent_SN = own_N + seed_S.astype(np.float32)[:, None]
            if self.noise:
                latent_SN += self.noise * normal((num_seeds, num_rows), np.float32)
            return latent_SN > 0

        return one(self.constant + shift, True), one(self.constant, False)


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
    """By how much the first has to be better to be right on such a share of rows more."""
    scenario = SCENARIOS[name]
    right = scenario.accuracy(0.0, first=False)

    def too_much(shift: float) -> float:
        return scenario.accuracy(shift, first=True) - right - difference

    return float(scipy.optimize.brentq(too_much, -20.0, 20.0, xtol=1e-10))


def differences_of(name: str) -> list[float]:
    """Those that can be: nothing is right on more than all rows."""
    most = 1 - SCENARIOS[name].accuracy(0.0, first=False)
    return [difference for difference in DIFFERENCES if difference < most - 1e-4]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rates:
    """How many of so many repetitions said what."""

    repetitions: int
    found: int
    """p below 0.05."""
    found_by_seeds: int
    """p of the sign-flip test over seeds alone below 0.05."""
    held: int
    """The difference in its interval."""
    equivalent: int
    """Equivalent within the true difference, which is false."""
    accuracy_held: int
    """The accuracy of the second in its interval."""

    def __add__(self, other: Rates) -> Rates:
        """Of both together."""
        return Rates(
            **{n: getattr(self, n) + getattr(other, n) for n in Rates.__slots__}
        )


def simulate(
    name: str, difference: float, num_seeds: int, num_rows: int, repetitions: int
) -> Rates:
    """Repeat an experiment, always the same ones."""
    scenario, shift = SCENARIOS[name], shift_of(name, difference)
    key = [*name.encode(), int(1000 * difference), num_seeds, num_rows]
    generator = np.random.default_rng(key)
    right = scenario.accuracy(0.0, first=False)
    counts = dict.fromkeys(Rates.__slots__, 0) | {"repetitions": repetitions}
    for _ in range(repetitions):
        hits = scenario.hits(generator, num_seeds, num_rows, shift)
        claim = stats.claim(*hits, margin=difference or stats.MARGIN)
        accuracy = stats.two_level_interval(hits[1])
        assert claim.p is not None
        assert claim.interval is not None
        assert claim.p_equivalent is not None
        assert accuracy is not None
        by_seeds = claim.on_these_rows.sign_flip
        counts["found"] += claim.p < stats.ALPHA
        counts["found_by_seeds"] += by_seeds is not None and by_seeds.p < stats.ALPHA
        counts["held"] += (
            claim.interval[0] - 1e-9 <= difference <= claim.interval[1] + 1e-9
        )
        counts["equivalent"] += claim.p_equivalent < stats.ALPHA
        counts["accuracy_held"] += accuracy[0] <= right <= accuracy[1]
    return Rates(**counts)


def cells(name: str) -> Iterator[tuple[float, int, int]]:
    """Differences, seeds and rows that a scenario is tried with."""
    for difference in differences_of(name):
        for num_seeds in SEEDS:
            for num_rows in ROWS:
                yield difference, num_seeds, num_rows


def swapped(name: str, num_seeds: int, num_rows: int, repetitions: int) -> Rates:
    """Of one pair of mechanisms, on every row which is called which is drawn by lot.

    Then there is no difference, however much their answers differ. The accuracies are not asked.
    """
    generator = np.random.default_rng([*name.encode(), num_seeds, num_rows])
    shift = shift_of(name, differences_of(name)[-1])
    one, other = SCENARIOS[name].hits(generator, num_seeds, num_rows, shift)
    counts = dict.fromkeys(Rates.__slots__, 0) | {"repetitions": repetitions}
    for _ in range(repetitions):
        swap_N = generator.random(num_rows) < 0.5
        claim = stats.claim(np.where(swap_N, other, one), np.where(swap_N, one, other))
        assert claim.p is not None
        assert claim.interval is not None
        by_seeds = claim.on_these_rows.sign_flip
        counts["found"] += claim.p < stats.ALPHA
        counts["found_by_seeds"] += by_seeds is not None and by_seeds.p < stats.ALPHA
        counts["held"] += claim.interval[0] <= 0 <= claim.interval[1]
    return Rates(**counts)
