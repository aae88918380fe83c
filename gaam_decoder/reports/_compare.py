"""Differences to a baseline, paired by seed, and what may be said of them.

A row is compared with the row of the baseline that has the same cache, test rows, head and recipe;
where there is none, it is not compared, because something else than the mechanism would differ too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gaam_cache.errors import ConfigError
from gaam_decoder import stats
from gaam_decoder.reports._rows import Row

ALPHA = 0.05
LEAST_SEEDS = stats.seeds_needed(1, alpha=ALPHA)
"""With fewer, no sign-flip test can give p < 0.05, whatever the seeds say."""
DEFAULT_BASELINE = "none"
CONTROLS = ("none", "scalar-mix")


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """A row minus its baseline over the seeds that both finished. Fractions, not percent."""

    baseline: str
    seeds: tuple[int, ...]
    dropped: tuple[int, ...]
    """Seeds that one of the two lacks, or in which one failed."""
    difference: float
    std: float | None
    interval: tuple[float, float] | None
    """95% t interval over seeds."""
    bootstrap: tuple[float, float] | None
    """95% interval over seeds and test rows."""
    detectable: float | None
    """Smallest true difference that so many seeds find with a power of 80%, without Holm."""
    sign_flip: stats.SignFlip | None
    """None for fewer than 6 pairs: no claim."""
    mcnemar: stats.McNemar | None
    """Of the majority votes of all finished seeds of each; None for fewer than 6 pairs."""
    p_holm: float | None = None
    mcnemar_p_holm: float | None = None

    @property
    def significant(self) -> bool:
        """Whether the corrected sign-flip test finds a difference."""
        return self.p_holm is not None and self.p_holm < ALPHA

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        test, votes = self.sign_flip, self.mcnemar
        return {
            "baseline": self.baseline,
            "paired_seeds": list(self.seeds),
            "dropped_seeds": list(self.dropped),
            "difference": self.difference,
            "difference_points": 100 * self.difference,
            "std": self.std,
            "ci95": list(self.interval) if self.interval else None,
            "bootstrap_ci95": list(self.bootstrap) if self.bootstrap else None,
            "minimum_detectable_difference": self.detectable,
            "p_sign_flip": test.p if test else None,
            "p_sign_flip_exact": test.exact if test else None,
            "p_holm": self.p_holm,
            "mcnemar": {
                "only_this_right": votes.only_first,
                "only_baseline_right": votes.only_second,
                "p": votes.p,
                "p_holm": self.mcnemar_p_holm,
            }
            if votes
            else None,
            "significant": self.significant if test else None,
        }


def same_recipe(first: dict[str, Any], second: dict[str, Any]) -> bool:
    """Whether two recipes mean the same; a setting that one leaves out is left at nothing."""
    return all(first.get(key) == second.get(key) for key in first.keys() | second.keys())


def choose_baseline(rows: Sequence[Row], asked: str | None) -> str | None:
    """The mechanism to compare with: the one asked for, else the control ``none`` if there is one.

    Raises:
        ConfigError: the one asked for is not among the rows.
    """
    rows = [row for row in rows if not row.shuffled]
    there = sorted({row.attention for row in rows})
    if asked is None:
        # a linear probe has no counterparts among what is trained by steps
        stepped = {row.attention for row in rows if not row.fitted} or set(there)
        return DEFAULT_BASELINE if DEFAULT_BASELINE in stepped else None
    if asked not in there:
        raise ConfigError(
            f"no run of the baseline '{asked}'",
            expected=f"one of: {', '.join(there)}",
            found=f"--baseline {asked}",
            hint=f"train it: gaam train --attn {asked}",
        )
    return asked


def compare(rows: Sequence[Row], baseline: str) -> list[Comparison | None]:
    """A comparison for every row of a table; None for the baseline, checks, and without a match."""
    return [
        None
        if row.shuffled
        or row.attention == baseline
        or (other := counterpart(row, rows, baseline)) is None
        else _compared(row, other)
        for row in rows
    ]


def is_of(row: Row, baseline: str | None) -> bool:
    """Whether a row is one of the baseline; no check is."""
    return row.attention == baseline and not row.shuffled


def counterpart(row: Row, rows: Sequence[Row], baseline: str) -> Row | None:
    """The row of the baseline with the same head and recipe."""
    for other in rows:
        alike = is_of(other, baseline) and other.head == row.head
        if alike and same_recipe(row.recipe, other.recipe):
            return other
    return None


def _compared(row: Row, other: Row) -> Comparison | None:
    paired = [seed for seed in row.scores.seeds if seed in other.scores.seeds]
    if not paired:
        return None
    mine = [row.scores.seeds.index(seed) for seed in paired]
    theirs = [other.scores.seeds.index(seed) for seed in paired]
    difference_S = row.scores.accuracy[mine] - other.scores.accuracy[theirs]
    enough = len(paired) >= LEAST_SEEDS
    detectable = stats.minimum_detectable_difference(difference_S, alpha=ALPHA)
    return Comparison(
        baseline=other.attention,
        seeds=tuple(paired),
        dropped=tuple(sorted((set(row.seeds) | set(other.seeds)) - set(paired))),
        difference=float(difference_S.mean()),
        std=stats.standard_deviation(difference_S),
        interval=stats.within(stats.t_interval(difference_S), -1, 1),
        bootstrap=stats.two_level_interval(row.resampled[mine] - other.resampled[theirs]),
        # two accuracies are never further apart: then no difference would be found
        detectable=None if detectable is None or detectable > 1 else detectable,
        sign_flip=stats.sign_flip(difference_S) if enough else None,
        mcnemar=stats.mcnemar(row.scores.vote_right, other.scores.vote_right) if enough else None,
    )


def correct(tables: Sequence[Sequence[Comparison | None]]) -> list[tuple[Comparison | None, ...]]:
    """Add Holm's p-values over all comparisons of a report that make a claim.

    The tests over seeds and those of the majority votes are a family each.
    """
    tested = [c for table in tables for c in table if c is not None and c.sign_flip and c.mcnemar]
    seeds_p = stats.holm(np.array([c.sign_flip.p for c in tested if c.sign_flip]))
    votes_p = stats.holm(np.array([c.mcnemar.p for c in tested if c.mcnemar]))
    adjusted = {
        id(c): replace(c, p_holm=float(p), mcnemar_p_holm=float(v))
        for c, p, v in zip(tested, seeds_p, votes_p, strict=True)
    }
    return [tuple(adjusted.get(id(c), c) for c in table) for table in tables]
