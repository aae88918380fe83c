"""Differences to a baseline, paired by seed and test row, and what may be said of them.

A row is compared with the row of the baseline that has the same cache, test rows, head and recipe;
where there is none, it is not compared, because something else than the mechanism would differ too.
What was tuned may differ: each has what was best for it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from gaam_cache.errors import ConfigError
from gaam_decoder import stats
from gaam_decoder.number_lists import DRAWN_BY
from gaam_decoder.reports.table.rows import Row
from gaam_decoder.reports.table.scaled import same_scale
from gaam_decoder.reports.table.scores import Floats
from gaam_decoder.runs.tuning import TUNED
from gaam_decoder.stats.scored import claim_by_score

DEFAULT_BASELINE = "none"
CONTROLS = ("none", "scalar-mix")


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """A row minus its baseline over the seeds that both finished. Fractions, not percent."""

    baseline: str
    seeds: tuple[int, ...]
    dropped: tuple[int, ...]
    """Seeds that one of the two lacks, or in which one failed."""
    claim: stats.Claim
    other_training: stats.CorrectedT | None
    """Of a cross-validation: over its folds, what another training set would give."""
    other_grid: bool
    """Whether more or other values were tried for one than for the other."""
    mcnemar: stats.McNemar | None
    """Of the majority votes of all finished seeds of each; None for fewer than 6 pairs, and where
    rows are tested several times."""
    mcnemar_p_holm: float | None = None

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        votes = self.mcnemar
        return {
            "baseline": self.baseline,
            "paired_seeds": list(self.seeds),
            "dropped_seeds": list(self.dropped),
            **claim_values(self.claim),
            "other_training_sets": self.other_training and self.other_training.to_dict(),
            "other_grid": self.other_grid,
            "mcnemar": {
                "only_this_right": votes.only_first,
                "only_baseline_right": votes.only_second,
                "p": votes.p,
                "p_holm": self.mcnemar_p_holm,
            }
            if votes
            else None,
        }


def claim_values(claim: stats.Claim) -> dict[str, Any]:
    """A claim as JSON values."""
    here = claim.on_these_rows
    test = here.sign_flip
    return {
        "difference": claim.difference,
        "difference_points": 100 * claim.difference,
        "verdict": claim.verdict,
        "significant": claim.significant,
        "margin": claim.margin,
        "within_margin": claim.negligible,
        "ci95_seeds_and_rows": list(claim.interval) if claim.interval else None,
        "p": claim.p,
        "p_holm": claim.p_holm,
        "p_equivalent": claim.p_equivalent,
        "p_equivalent_holm": claim.p_equivalent_holm,
        "seeds_to_decide": claim.seeds_to_decide,
        "rows_to_decide": claim.rows_to_decide,
        "on_these_test_rows": {
            "verdict": here.verdict,
            "std": here.std,
            "ci95": list(here.interval) if here.interval else None,
            "p_sign_flip": test.p if test else None,
            "p_sign_flip_exact": test.exact if test else None,
            "p_equivalent": here.p_equivalent,
            "minimum_detectable_difference": here.detectable,
        },
    }


def same_recipe(first: dict[str, Any], second: dict[str, Any], apart: Sequence[str] = ()) -> bool:
    """Whether two recipes mean the same but for what is ``apart``.

    A setting that one leaves out is left at nothing.
    """
    keys = (first.keys() | second.keys()) - set(apart)
    return all(first.get(key) == second.get(key) for key in keys)


def choose_baseline(
    rows: Sequence[Row], asked: str | None, unevaluated: Collection[str] = ()
) -> str | None:
    """The mechanism to compare with: the one asked for, else the control ``none`` if there is one.

    Args:
        rows: of all tables.
        asked: by somebody.
        unevaluated: mechanisms of which there are final models.

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
        final = asked in unevaluated
        raise ConfigError(
            f"of the baseline '{asked}' there is a final model alone"
            if final
            else f"no run of the baseline '{asked}'",
            expected=f"one of: {', '.join(there)}" if there else "a run that was evaluated",
            found="a final model, which is not evaluated and cannot be compared with"
            if final
            else f"--baseline {asked}",
            where=f"--baseline {asked}" if final else None,
            hint=f"{'evaluate' if final else 'train'} it: gaam train --attn {asked}",
        )
    return asked


def compare(rows: Sequence[Row], baseline: str, margin: float) -> list[Comparison | None]:
    """A comparison for every row of a table; None for the baseline, checks, and without a match."""
    return [
        None
        if row.shuffled
        or row.attention == baseline
        or (other := counterpart(row, rows, baseline)) is None
        else _compared(row, other, margin)
        for row in rows
    ]


def is_of(row: Row, baseline: str | None) -> bool:
    """Whether a row is one of the baseline; no check is."""
    return row.attention == baseline and not row.shuffled


def counterpart(row: Row, rows: Sequence[Row], baseline: str) -> Row | None:
    """The row of the baseline with the same head and recipe; what was tuned of both may differ."""
    alike = [other for other in rows if is_of(other, baseline) and other.head == row.head]
    same = [other for other in alike if same_recipe(row.recipe, other.recipe)]
    if row.tunings:
        same += [
            other
            for other in alike
            if other.tunings and same_recipe(row.recipe, other.recipe, apart=TUNED)
        ]
    return same[0] if same else None


def _compared(row: Row, other: Row, margin: float) -> Comparison | None:
    paired = [seed for seed in row.scores.seeds if seed in other.scores.seeds]
    if (
        not same_scale(row, other)
        or not paired
        or row.chosen_mean is None
        or other.chosen_mean is None
    ):
        return None
    mine = [row.scores.seeds.index(seed) for seed in paired]
    theirs = [other.scores.seeds.index(seed) for seed in paired]
    enough = len(paired) >= stats.LEAST_SEEDS
    return Comparison(
        baseline=other.attention,
        seeds=tuple(paired),
        dropped=tuple(sorted((set(row.seeds) | set(other.seeds)) - set(paired))),
        claim=claim_by_score(
            row.score,
            row.scores.chosen.scored.chosen(mine),
            other.scores.chosen.scored.chosen(theirs),
            margin=margin,
        ),
        other_training=_other_training(
            row, row.scores.chosen.part_value[mine], other.scores.chosen.part_value[theirs]
        ),
        other_grid=[t.grid for t in row.tunings] != [t.grid for t in other.tunings],
        mcnemar=stats.mcnemar(row.scores.vote_right, other.scores.vote_right)
        if enough and row.repeats == 1 and row.score.title == "accuracy"
        else None,
    )


def _other_training(row: Row, mine_SP: Floats, theirs_SP: Floats) -> stats.CorrectedT | None:
    """Over the folds; None of one, and where a fold has no such score."""
    difference_P = (mine_SP - theirs_SP).mean(0)
    if row.folds == 1 or not np.isfinite(difference_P).all():
        return None
    return stats.corrected_resampled_t(difference_P, _test_per_train(row), most=row.score.highest)


def _test_per_train(row: Row) -> float:
    """Test rows of a fold for every row that was learned from or chose."""
    if row.drawn is None:
        return 1 / (row.folds - 1)
    rows: int = row.runs[0].cache["rows"][row.runs[0].recipe["train_split"]]
    return rows / row.folds / row.drawn


def correct(
    tables: Sequence[Sequence[Comparison | None]], others: Sequence[Comparison | None] = ()
) -> tuple[list[tuple[Comparison | None, ...]], int]:
    """Add Holm's p-values over all comparisons of a report that make a claim.

    The tests of a difference, of equivalence and of the majority votes are a family each.

    Args:
        tables: what is reported.
        others: of runs that filters left out. Those that are in a table too count once.

    Returns:
        The tables, and for how many comparisons was corrected.
    """
    made = [c for table in tables for c in table if c is not None]
    family = [*made, *further(made, others, lambda c: (c.seeds, c.mcnemar, *numbers(c.claim)))]
    voted = [c for c in family if c.claim.testable and c.mcnemar]
    votes = stats.holm(np.array([c.mcnemar.p for c in voted if c.mcnemar]))
    vote_of = dict(zip(map(id, voted), votes.tolist(), strict=True))
    claims = stats.holm_corrected([c.claim for c in family])
    adjusted = {
        id(c): replace(c, claim=claim, mcnemar_p_holm=vote_of.get(id(c)))
        for c, claim in zip(family, claims, strict=True)
    }
    counted = max((claim.num_tests for claim in claims if claim.testable), default=0)
    return [tuple(c and adjusted[id(c)] for c in table) for table in tables], counted


T = TypeVar("T")


def further(
    made: Sequence[T], others: Sequence[T | None], same: Callable[[T], tuple[Any, ...]]
) -> list[T]:
    """The others that are not among what was made: of the same numbers they are the same."""
    there = Counter(map(same, made))
    found = []
    for other in others:
        if other is None:
            continue
        there[same(other)] -= 1
        if there[same(other)] < 0:
            found.append(other)
    return found


def numbers(claim: stats.Claim) -> tuple[Any, ...]:
    """What makes a claim the same as another."""
    return claim.difference, claim.p, claim.p_equivalent, claim.interval


def against_probe(
    rows: Sequence[Row], margin: float, others: Sequence[stats.Claim | None] = ()
) -> tuple[stats.Claim | None, ...]:
    """Every row of steps minus the linear probe on the same states and splits, if there is one.

    The probe has no seeds: its answers are the same beside each. Corrected by Holm in a family of
    their own, with ``others``, of which those that are in this one count once.
    """
    made = [_minus_probe(row, rows, margin) for row in rows]
    claims = [claim for claim in made if claim is not None]
    corrected = iter(stats.holm_corrected([*claims, *further(claims, others, numbers)]))
    return tuple(None if claim is None else next(corrected) for claim in made)


def _minus_probe(row: Row, rows: Sequence[Row], margin: float) -> stats.Claim | None:
    if row.fitted or row.shuffled or len(row.scores.seeds) < stats.LEAST_SEEDS:
        return None
    for probe in rows:
        # a fit's recipe holds what plays a part: states, splits, what chooses
        playing = {**dict.fromkeys(DRAWN_BY), **probe.recipe}
        alike = all(row.recipe.get(name) == value for name, value in playing.items())
        there = row.chosen_mean is not None and probe.chosen_mean is not None
        if probe.fitted and not probe.shuffled and there and alike and same_scale(row, probe):
            theirs = probe.scores.chosen.scored.chosen([0] * len(row.scores.seeds))
            return claim_by_score(row.score, row.scores.chosen.scored, theirs, margin=margin)
    return None
