"""Simulated experiments of which every score is known: two mechanisms, seeds, and test rows.

The logit of a class is ``strength [it is right] + row + own row + noise``: rows are easy or hard
for both mechanisms and for each in its own way; the strength is that of the mechanism and of its
seed. A sharpness multiplies all logits: probabilities that are too sure. S seeds, N test rows, C
classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from scipy.special import ndtri

from gaam_cache.common import plugins
from gaam_decoder.stats.claims import Claim
from gaam_decoder.stats.scored import Scored, claim_by_score, interval_by_score
from gaam_decoder.stats.scores import Answers, Score

PACKAGE = "gaam_decoder.stats.scores"
SIZES = ((2, 50), (3, 300), (6, 50), (6, 300), (6, 2000), (20, 300))
"""Seeds and test rows."""
TRUTH_SEEDS, TRUTH_ROWS = 16, 30_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """Shares of the classes, standard deviations, and what is better of the first mechanism."""

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
        """Whose scores it has."""
        return "classification"

    def targets(self, generator: np.random.Generator, num_rows: int) -> np.ndarray:
        """Classes of rows, drawn by their shares."""
        return generator.choice(len(self.shares), num_rows, p=self.shares)

    def labels(self, label_N: np.ndarray) -> np.ndarray:
        """Targets as scores take them."""
        return label_N

    def many_targets(self, generator: np.random.Generator) -> np.ndarray:  # noqa: ARG002
        """Classes of ``TRUTH_ROWS`` rows, in exact shares."""
        count_C = np.round(TRUTH_ROWS * np.array(self.shares)).astype(int)
        return np.repeat(np.arange(len(count_C)), count_C)

    def logits(
        self,
        generator: np.random.Generator,
        label_N: np.ndarray,
        seed_ZS: np.ndarray,
        differ: bool,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Of both, (S, N, C)."""
        shape = len(label_N), len(self.shares)
        normal = generator.standard_normal
        row_NC = 1.5 * normal(shape)
        right_NC = np.eye(shape[1])[label_N]
        found = []
        for first, seed_S in zip((True, False), seed_ZS, strict=True):
            strength_S = (
                self.strength
                + self.seed * seed_S
                + (self.shift if first and differ else 0)
            )
            own_NC = row_NC + self.own * normal(shape)
            logits = own_NC + self.noise * normal((len(seed_S), *shape))
            logits += strength_S[:, None, None] * right_NC
            sharp = self.sharpness * (self.sharper if first and differ else 1.0)
            found.append((sharp * logits).astype(np.float32))
        return found[0], found[1]


@dataclass(frozen=True, kw_only=True, slots=True)
class Columns:
    """Numbers or label sets: an error of the row for both, one of each, of seed and noise.

    Numbers are ``y``, a chi-squared and a normal column; the output is ``y + error``. A
    label is there where a normal number is above its threshold; its logit is that number
    minus the threshold plus the error.
    """

    task: str
    shift: float = 0.15
    """By how much the errors of the first are smaller, where they differ."""
    own: float = 0.3
    seed: float = 0.05
    noise: float = 0.15
    thresholds: tuple[float, ...] = (-0.5, 0.0, 1.0)

    def targets(self, generator: np.random.Generator, num_rows: int) -> np.ndarray:
        """Numbers (N, 2) or labels (N, K), with the number behind every label."""
        if self.task == "regression":
            skewed_N = generator.chisquare(4, num_rows)
            return np.stack([skewed_N, generator.standard_normal(num_rows)], axis=1)
        shared_N1 = generator.standard_normal((num_rows, 1))
        shape = (num_rows, len(self.thresholds))
        number_NK = (shared_N1 + generator.standard_normal(shape)) / 2**0.5
        return number_NK - np.array(self.thresholds)

    def many_targets(self, generator: np.random.Generator) -> np.ndarray:
        """The same for ``TRUTH_ROWS`` rows."""
        return self.targets(generator, TRUTH_ROWS)

    def logits(
        self,
        generator: np.random.Generator,
        number_NK: np.ndarray,
        seed_ZS: np.ndarray,
        differ: bool,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Of both, (S, N, K)."""
        normal = generator.standard_normal
        row_NK = 0.5 * normal(number_NK.shape)
        found = []
        for first, seed_S in zip((True, False), seed_ZS, strict=True):
            size_S = np.exp(self.seed * seed_S)
            if first and differ:
                size_S = size_S * (1 - self.shift)
            error_NK = row_NK + self.own * normal(number_NK.shape)
            noise_SNK = self.noise * normal((len(seed_S), *number_NK.shape))
            error_SNK = size_S[:, None, None] * (error_NK + noise_SNK)
            found.append((number_NK + error_SNK).astype(np.float32))
        return found[0], found[1]

    def labels(self, number_NK: np.ndarray) -> np.ndarray:
        """Targets as scores take them."""
        return number_NK if self.task == "regression" else number_NK > 0


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


def scores_of(task: str) -> dict[str, Score]:
    """Every score of a task, by name."""
    scores = {
        name: plugins.load(PACKAGE, name, kind="score")()
        for name in plugins.names(PACKAGE)
    }
    return {name: score for name, score in scores.items() if task in score.tasks}


SCORES = scores_of("classification")


def scored(score: Score, answers: list[Answers]) -> Scored | None:
    """Of all seeds."""
    found = [score.of(one) for one in answers]
    if any(one is None for one in found):
        return None
    why = next((why for one in answers if (why := score.why_no_claim(one))), "")
    rows = [one.by_row for one in found]
    return Scored.of(found, None if rows[0] is None else np.stack(rows), why)


@cache
def truth(name: str) -> dict[str, tuple[float, float]]:
    """Of every score its value of the first, where they differ, and of the second.

    Over seeds at the quantiles of their distribution, each on rows of its own.
    """
    scenario = SCENARIOS[name]
    generator = np.random.default_rng([*name.encode()])
    quantile_S = ndtri((np.arange(TRUTH_SEEDS) + 0.5) / TRUTH_SEEDS)
    scores = scores_of(scenario.task)
    sums = {score: np.zeros(2) for score in scores}
    target_N = scenario.many_targets(generator)
    label_N = scenario.labels(target_N)
    for quantile in quantile_S:
        both = scenario.logits(generator, target_N, np.full((2, 1), quantile), True)
        answers = [Answers(logits[0], label_N) for logits in both]
        for key, score in scores.items():
            values = [score.value(one) for one in answers]
            if values[0] is not None:
                sums[key] += np.array(values) / TRUTH_SEEDS
    return {key: (float(a), float(b)) for key, (a, b) in sums.items()}


@dataclass(kw_only=True, slots=True)
class Rates:
    """How many of so many repetitions said what; those that claim nothing are ``silent``."""

    repetitions: int = 0
    silent: int = 0
    found: int = 0
    held: int = 0
    equivalent: int = 0
    value_held: int = 0
    with_value: int = 0

    @property
    def claimed(self) -> int:
        """Repetitions with a claim."""
        return self.repetitions - self.silent


def simulate(
    name: str, size: tuple[int, int], repetitions: int, *, differ: bool
) -> dict[str, Rates]:
    """Repeat an experiment, always the same ones."""
    scenario, (num_seeds, num_rows) = SCENARIOS[name], size
    generator = np.random.default_rng([*name.encode(), *size, int(differ)])
    scores = scores_of(scenario.task)
    rates = {key: Rates() for key in scores}
    for _ in range(repetitions):
        target_N = scenario.targets(generator, num_rows)
        label_N = scenario.labels(target_N)
        seed_ZS = generator.standard_normal((2, num_seeds))
        both = [
            [Answers(logits_NC, label_N) for logits_NC in logits_SNC]
            for logits_SNC in scenario.logits(generator, target_N, seed_ZS, differ)
        ]
        for key, score in scores.items():
            mine, theirs = (scored(score, answers) for answers in both)
            if mine is None or theirs is None:
                continue
            a, b = truth(name)[key]
            difference = a - b if differ else 0.0
            margin = max(abs(difference), 1e-6) if differ else score.margin
            made: Claim = claim_by_score(score, mine, theirs, margin=margin)
            rate = rates[key]
            rate.repetitions += 1
            if (held := interval_by_score(score, theirs)) is not None:
                rate.with_value += 1
                rate.value_held += held[0] <= b <= held[1]
            if made.p is None or made.interval is None or made.p_equivalent is None:
                rate.silent += 1
                continue
            rate.found += made.p < 0.05
            rate.held += (
                made.interval[0] - 1e-9 <= difference <= made.interval[1] + 1e-9
            )
            rate.equivalent += made.p_equivalent < 0.05
    return {key: rate for key, rate in rates.items() if rate.repetitions}
