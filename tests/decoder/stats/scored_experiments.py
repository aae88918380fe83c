"""Simulated experiments of which every score is known.

The logit of a class is ``strength [it is right] + row + own row + noise``. Rows are
easy or hard for both of two mechanisms, and for each in its own way. The strength is
that of the mechanism and of its seed. A sharpness multiplies all logits: it makes
probabilities that are too sure. S seeds, N test rows, C classes, Z two mechanisms.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from gaam_cache.common import plugins
from gaam_decoder import stats
from gaam_decoder.stats.scored import Scored, claim_by_score, interval_by_score
from gaam_decoder.stats.scores import Answers, Score

Floats = NDArray[np.float64]
Logits = NDArray[np.float32]
Labels = NDArray[np.int64]
PACKAGE = "gaam_decoder.stats.scores"
SIZES = ((2, 50), (3, 300), (6, 50), (6, 300), (6, 2000), (20, 300))
"""Seeds and test rows."""
TRUTH_SEEDS = 16
TRUTH_ROWS = 30_000
ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """Shares of the classes, standard deviations, and what the first has more."""

    shares: tuple[float, ...]
    strength: float = 4.0
    own: float = 0.7
    seed: float = 0.2
    noise: float = 0.4
    sharpness: float = 1.0
    shift: float = 0.3
    """Strength that the first has more."""
    sharper: float = 1.3
    """How many times as sharp the first is, where they differ."""

    @property
    def task(self) -> str:
        """The task whose scores it has."""
        return "classification"

    def targets(self, generator: np.random.Generator, num_rows: int) -> Labels:
        """Classes of rows, drawn by their shares."""
        label_N: Labels = generator.choice(len(self.shares), num_rows, p=self.shares)
        return label_N

    def labels(self, label_N: Labels) -> Labels:
        """Targets as scores take them."""
        return label_N

    def many_targets(self, generator: np.random.Generator) -> Labels:  # noqa: ARG002
        """Classes of ``TRUTH_ROWS`` rows, in exact shares."""
        count_C = np.round(TRUTH_ROWS * np.array(self.shares)).astype(int)
        return np.repeat(np.arange(len(count_C)), count_C)

    def logits(
        self,
        generator: np.random.Generator,
        label_N: Labels,
        seed_ZS: Floats,
        differ: bool,
    ) -> tuple[Logits, Logits]:
        """Of both, (S, N, C)."""
        shape = (len(label_N), len(self.shares))
        row_NC = 1.5 * generator.standard_normal(shape)
        right_NC = np.eye(len(self.shares))[label_N]

        def logits_of_one(seed_S: Floats, shift: float, sharpness: float) -> Logits:
            strength_S = self.strength + self.seed * seed_S + shift
            own_NC = row_NC + self.own * generator.standard_normal(shape)
            noise_SNC = generator.standard_normal((len(seed_S), *shape))
            logits_SNC = own_NC + self.noise * noise_SNC
            logits_SNC += strength_S[:, None, None] * right_NC
            return (sharpness * logits_SNC).astype(np.float32)

        shift = self.shift if differ else 0.0
        sharper = self.sharper if differ else 1.0
        first_SNC = logits_of_one(seed_ZS[0], shift, self.sharpness * sharper)
        second_SNC = logits_of_one(seed_ZS[1], 0.0, self.sharpness)
        return first_SNC, second_SNC


@dataclass(frozen=True, kw_only=True, slots=True)
class Columns:
    """Numbers or label sets, and the errors of two mechanisms.

    The error of an output has a part of the row for both mechanisms, one for each, one
    of the seed and noise. Numbers are ``y``, a chi-squared and a normal column; the
    output is ``y + error``. A row has a label if a normal number is above its
    threshold; its logit is that number minus the threshold plus the error.
    """

    task: str
    shift: float = 0.15
    """By how much the errors of the first are smaller, where they differ."""
    own: float = 0.3
    seed: float = 0.05
    noise: float = 0.15
    thresholds: tuple[float, ...] = (-0.5, 0.0, 1.0)

    def targets(self, generator: np.random.Generator, num_rows: int) -> Floats:
        """Numbers (N, 2), or the numbers behind labels (N, K)."""
        if self.task == "regression":
            skewed_N = generator.chisquare(4, num_rows)
            return np.stack([skewed_N, generator.standard_normal(num_rows)], axis=1)
        shared_N1 = generator.standard_normal((num_rows, 1))
        shape = (num_rows, len(self.thresholds))
        number_NK = (shared_N1 + generator.standard_normal(shape)) / 2**0.5
        return number_NK - np.array(self.thresholds)

    def labels(self, number_NK: Floats) -> NDArray[Any]:
        """Targets as scores take them."""
        return number_NK if self.task == "regression" else number_NK > 0

    def many_targets(self, generator: np.random.Generator) -> Floats:
        """The same for ``TRUTH_ROWS`` rows."""
        return self.targets(generator, TRUTH_ROWS)

    def logits(
        self,
        generator: np.random.Generator,
        number_NK: Floats,
        seed_ZS: Floats,
        differ: bool,
    ) -> tuple[Logits, Logits]:
        """Of both, (S, N, K)."""
        normal = generator.standard_normal
        row_NK = 0.5 * normal(number_NK.shape)

        def logits_of_one(seed_S: Floats, factor: float) -> Logits:
            size_S = np.exp(self.seed * seed_S) * factor
            error_NK = row_NK + self.own * normal(number_NK.shape)
            noise_SNK = self.noise * normal((len(seed_S), *number_NK.shape))
            error_SNK = size_S[:, None, None] * (error_NK + noise_SNK)
            return (number_NK + error_SNK).astype(np.float32)

        first_SNK = logits_of_one(seed_ZS[0], 1 - self.shift if differ else 1.0)
        second_SNK = logits_of_one(seed_ZS[1], 1.0)
        return first_SNK, second_SNK


SCENARIOS: dict[str, Scenario | Columns] = {
    "four classes": Scenario(shares=(0.25,) * 4),
    "imbalanced": Scenario(shares=(0.8, 0.14, 0.04, 0.02)),
    "rare of two": Scenario(shares=(0.95, 0.05), strength=4.0),
    "twelve classes": Scenario(shares=(0.3, 0.2, 0.1, *[0.4 / 9] * 9), strength=5.0),
    "too sure": Scenario(shares=(0.4, 0.3, 0.3), sharpness=3.0, sharper=1.5),
    "nearly all right": Scenario(
        shares=(0.5, 0.3, 0.2), strength=7.0, own=0.3, shift=0.5
    ),
    "seeds matter": Scenario(shares=(0.6, 0.3, 0.1), seed=1.0, own=0.2),
    "two numbers": Columns(task="regression"),
    "three labels": Columns(task="multi-label", shift=0.3),
}


@cache
def score_named(name: str) -> Score:
    """The score with this name."""
    score: Score = plugins.load(PACKAGE, name, kind="score")()
    return score


def scores_of_task(task: str) -> tuple[str, ...]:
    """The names of all scores of a task."""
    names = plugins.names(PACKAGE)
    return tuple(name for name in names if task in score_named(name).tasks)


SCORES = scores_of_task("classification")


def score_of_seeds(score: Score, answers_by_seed: list[Answers]) -> Scored | None:
    """The score of all seeds; None if one of them has none."""
    seed_scores = []
    rows = []
    reason = ""
    for answers in answers_by_seed:
        seed_score = score.seed_score(answers)
        if seed_score is None:
            return None
        seed_scores.append(seed_score)
        if seed_score.by_row is not None:
            rows.append(seed_score.by_row)
        # the first reason is the one of all seeds
        reason = reason or score.why_no_claim(answers)
    by_row_SN = np.stack(rows) if rows else None
    return Scored.from_seeds(seed_scores, by_row_SN, reason)


@cache
def truth(name: str) -> dict[str, tuple[float, float]]:
    """Of every score the value of the first, where they differ, and of the second.

    Over seeds at the quantiles of their distribution, each on rows of its own.
    """
    scenario = SCENARIOS[name]
    generator = np.random.default_rng([*name.encode()])
    quantile_S = ndtri((np.arange(TRUTH_SEEDS) + 0.5) / TRUTH_SEEDS)
    target_N: Any = scenario.many_targets(generator)
    label_N = scenario.labels(target_N)
    sums = {score: np.zeros(2) for score in scores_of_task(scenario.task)}
    for quantile in quantile_S:
        seed_ZS = np.full((2, 1), quantile)
        first_SNC, second_SNC = scenario.logits(generator, target_N, seed_ZS, True)
        for score, sum_Z in sums.items():
            first = score_named(score).value(Answers(first_SNC[0], label_N))
            second = score_named(score).value(Answers(second_SNC[0], label_N))
            if first is not None and second is not None:
                sum_Z += np.array([first, second]) / TRUTH_SEEDS
    return {score: (float(sum_Z[0]), float(sum_Z[1])) for score, sum_Z in sums.items()}


@dataclass(kw_only=True, slots=True)
class Rates:
    """In how many of so many repetitions something was true."""

    repetitions: int = 0
    silent: int = 0
    """Nothing is claimed."""
    found: int = 0
    """A difference."""
    held: int = 0
    """The difference in its interval."""
    equivalent: int = 0
    """Equivalent within the true difference, which is false."""
    value_held: int = 0
    """The value of the second in its interval."""
    with_value: int = 0
    """The value of the second has an interval."""

    @property
    def claimed(self) -> int:
        """Repetitions with a claim."""
        return self.repetitions - self.silent

    def count_claim(self, claim: stats.Claim, difference: float) -> None:
        """Count a claim about mechanisms with this true difference."""
        self.repetitions += 1
        if claim.p is None or claim.interval is None or claim.p_equivalent is None:
            self.silent += 1
            return
        low, high = claim.interval
        self.found += claim.p < stats.ALPHA
        self.held += low - ROUNDING <= difference <= high + ROUNDING
        self.equivalent += claim.p_equivalent < stats.ALPHA

    def count_value(self, interval: tuple[float, float] | None, value: float) -> None:
        """Count the interval of the score of a mechanism with this true value."""
        if interval is not None:
            low, high = interval
            self.with_value += 1
            self.value_held += low <= value <= high


def simulate(
    name: str, size: tuple[int, int], repetitions: int, *, differ: bool
) -> dict[str, Rates]:
    """Repeat an experiment, always the same ones."""
    scenario = SCENARIOS[name]
    num_seeds, num_rows = size
    generator = np.random.default_rng([*name.encode(), *size, int(differ)])
    names = scores_of_task(scenario.task)
    rates = {score: Rates() for score in names}
    for _ in range(repetitions):
        target_N: Any = scenario.targets(generator, num_rows)
        label_N = scenario.labels(target_N)
        seed_ZS = generator.standard_normal((2, num_seeds))
        first_SNC, second_SNC = scenario.logits(generator, target_N, seed_ZS, differ)
        first_answers = [Answers(logits_NC, label_N) for logits_NC in first_SNC]
        second_answers = [Answers(logits_NC, label_N) for logits_NC in second_SNC]
        for name_of_score in names:
            score = score_named(name_of_score)
            first = score_of_seeds(score, first_answers)
            second = score_of_seeds(score, second_answers)
            if first is None or second is None:
                continue
            first_value, second_value = truth(name)[name_of_score]
            difference = first_value - second_value if differ else 0.0
            margin = max(abs(difference), 1e-6) if differ else score.margin
            claim = claim_by_score(score, first, second, margin=margin)
            rate = rates[name_of_score]
            rate.count_claim(claim, difference)
            rate.count_value(interval_by_score(score, second), second_value)
    return {score: rate for score, rate in rates.items() if rate.repetitions}
