"""What may be said of two mechanisms by any score.

S seeds that both have, N test rows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_decoder.stats.claims import Claim, claim, too_few
from gaam_decoder.stats.crossed import crossed, two_level_interval
from gaam_decoder.stats.groups import RowGroups
from gaam_decoder.stats.limits import ALPHA, MeanLimits
from gaam_decoder.stats.paired import NO_CLAIM, on_these_rows
from gaam_decoder.stats.scores.base import Found, Score

Floats = NDArray[np.float64]
UNSEEN = 3.33
"""Makes the one-sided limit of what was never seen in N rows ``3 / N``, as is exact (rule of three:
-ln 0.05 = 3.00; its square over that of the normal quantile 1.645)."""
SKEWED = 25
"""Rows per squared skewness, with fewer of which the limits of a mean hold less often than they
say: Cochran 1977, "Sampling techniques", section 2.15."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scored:
    """A score of every seed of a mechanism, and of every row."""

    values: Floats
    by_row: NDArray[np.bool_] | Floats | None
    """The mean over the rows is the value; None where the score is no mean of rows."""
    unseen: float = 0.0  # largest of the seeds: see ``Found``
    no_claim: str = ""  # why nothing may be claimed from it
    choice: float = (
        0.0  # variance that comes from what was chosen by validation: see ``choice_of``
    )
    train_rows: float = math.inf  # that were learned from: see ``claim``
    groups: RowGroups | None = (
        None  # rows that belong together; None: every row is a unit
    )

    @classmethod
    def of(
        cls,
        found: list[Found],
        by_row_SN: Any,
        no_claim: str = "",
        groups: RowGroups | None = None,
    ) -> Scored:
        """From the scores of all seeds."""
        return cls(
            values=np.array([one.value for one in found]),
            by_row=by_row_SN,
            unseen=max((one.unseen for one in found), default=0.0),
            no_claim=no_claim,
            groups=groups,
        )

    def chosen(self, places: list[int]) -> Scored:
        """Of some of the seeds, by their places."""
        by_row = None if self.by_row is None else self.by_row[places]
        return replace(self, values=self.values[places], by_row=by_row)


def claim_by_score(
    score: Score, mine: Scored, theirs: Scored, *, margin: float
) -> Claim:
    """What S seeds on N test rows say of a mechanism and a baseline.

    Where a row is right or wrong (accuracy, top-5), ``claim``. Else the same analysis of crossed
    seeds and rows, of what every row adds: t tests with the variance that ``crossed`` gives and
    that of one row of every kind that may be rare and not among those that were seen. No claim
    where the score allows none, and where what rows add is so skewed that their mean is not yet
    normal.

    Args:
        score: by which they are compared.
        mine: of the mechanism.
        theirs: of the baseline, under the same seeds on the same rows.
        margin: largest difference that does not matter, in the unit of the score (a fraction,
            where it is shown in percent).

    Raises:
        ValueError: no margin above 0, NaN or infinity, or not the same seeds and rows.

    Source: see ``crossed``; scores that are no means of rows: Efron 1982, "The jackknife, the
        bootstrap and other resampling plans", chapter 6 (infinitesimal jackknife); equivalence:
        Schuirmann 1987.
    """
    if not 0 < margin < score.highest:
        raise ValueError(
            "a margin is above 0 and below the largest difference there can be"
        )
    if mine.values.shape != theirs.values.shape or not len(mine.values):
        raise ValueError("values of the same seeds, one at least")
    groups = mine.groups
    why = mine.no_claim or theirs.no_claim or too_few(groups)
    one, other = mine.by_row, theirs.by_row
    doubt: dict[str, Any] = {"train_rows": min(mine.train_rows, theirs.train_rows)}
    doubt["choice"] = mine.choice + theirs.choice
    if one is not None and other is not None and not why and score.hits:
        return claim(one, other, margin=margin, groups=groups, **doubt)
    difference_S = mine.values - theirs.values
    about: dict[str, Any] = {
        "num_seeds": len(difference_S),
        "num_rows": 0 if one is None else one.shape[1],
        "num_groups": groups and len(groups),
        "margin": margin,
        "difference": float(difference_S.mean()),
        "larger_is_better": score.larger_is_better,
        "on_these_rows": on_these_rows(
            difference_S,
            margin,
            most=score.highest,
            larger_is_better=score.larger_is_better,
        ),
    }
    if score.no_claim:
        about["on_these_rows"] = replace(about["on_these_rows"], verdict=NO_CLAIM)
    if one is None or other is None or why or min(one.shape) < 2:
        return Claim(interval=None, p=None, p_equivalent=None, no_claim=why, **about)
    difference_SN = one.astype(np.float64) - other.astype(np.float64)
    limits = MeanLimits(
        found=crossed(difference_SN, groups)._replace(**doubt),
        unseen=UNSEEN * max(mine.unseen, theirs.unseen),
        highest=score.highest,
    )
    if score.highest == float("inf") and _skewed(difference_SN.mean(0)):
        why = f"what rows add is too skewed for {len(difference_SN[0]):,} of them"
        return Claim(interval=None, p=None, p_equivalent=None, no_claim=why, **about)
    return Claim(
        interval=limits.interval(),
        p=limits.p,
        p_equivalent=limits.p_equivalent(margin),
        limits=limits,
        **about,
    )


def interval_by_score(
    score: Score, scored: Scored, *, without_seeds: bool = False
) -> tuple[float, float] | None:
    """95% interval of a score over seeds and test rows; None where ``claim_by_score`` has none."""
    by_row_SN = scored.by_row
    if by_row_SN is None or scored.no_claim:
        return None
    groups = scored.groups
    if score.hits:
        return two_level_interval(by_row_SN, without_seeds=without_seeds, groups=groups)
    num_seeds, num_rows = by_row_SN.shape
    num_units = num_rows if groups is None else len(groups)
    if num_units < 2 or num_seeds < (1 if without_seeds else 2):
        return None
    if score.highest == float("inf") and _skewed(by_row_SN.mean(0)):
        return None
    found = crossed(by_row_SN, groups)
    half = found.distance(ALPHA / 2, UNSEEN * scored.unseen)
    # as of accuracies, never less than the rows of one seed would have: few may not show all
    alone = float(by_row_SN.var(axis=1).mean()) / num_rows
    if groups is not None:
        of_groups_S = np.sum(groups.beyond_share(by_row_SN) ** 2, axis=1)
        alone = max(alone, float(of_groups_S.mean()))
    if 0 < found.variance < alone:
        half *= (alone / found.variance) ** 0.5
    return max(0.0, found.mean - half), min(score.highest, found.mean + half)


def _skewed(value_N: Floats) -> bool:
    """Whether so few rows have a mean that is not yet normal."""
    from_mean_N = value_N - value_N.mean()
    variance = float(np.mean(from_mean_N**2))
    if variance < 1e-300:
        return False
    skewness = float(np.mean((from_mean_N / variance**0.5) ** 3))
    return len(value_N) < SKEWED * skewness**2
