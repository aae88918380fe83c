"""Rows compared with rows: with a baseline, with the linear probe, and all pairs along an axis.

A difference is paired by seed and test row, and ``minus`` makes every one. Holm corrects each of
the three kinds in a family of its own, for what filters left out of the report too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import Any

import numpy as np

from gaam_cache.errors import ConfigError
from gaam_cache.messages import brief
from gaam_decoder import stats
from gaam_decoder.number_lists import DRAWN_BY
from gaam_decoder.reports.labels import numbered
from gaam_decoder.reports.rows import Row
from gaam_decoder.runs.tuning import TUNED
from gaam_decoder.stats.scored import claim_by_score

DEFAULT_BASELINE = "none"
DEFAULT_AXIS = "attn"
MOST_VALUES = 12
"""Rows of a group that are compared, 66 pairs: a matrix that can be read, in a second."""
MOST_GROUPS = 8
"""Groups of a table that are compared, those of most rows first."""
ALL = ("layers", *DRAWN_BY)
"""Settings that mean all of them where a recipe has none."""
Same = tuple[tuple[str, str], ...]


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

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "baseline": self.baseline,
            "paired_seeds": list(self.seeds),
            "dropped_seeds": list(self.dropped),
            **claim_values(self.claim),
            "other_training_sets": self.other_training and self.other_training.to_dict(),
            "other_grid": self.other_grid,
        }


def claim_values(claim: stats.Claim) -> dict[str, Any]:
    """A claim as JSON values."""
    here = claim.on_these_rows
    return {
        "difference": claim.difference,
        "difference_points": 100 * claim.difference,
        "verdict": claim.verdict,
        "significant": claim.significant,
        "margin": claim.margin,
        "within_margin": claim.negligible,
        **_tested(claim),
        "seeds_to_decide": claim.seeds_to_decide,
        "rows_to_decide": claim.rows_to_decide,
        "on_these_test_rows": {
            "verdict": here.verdict,
            "std": here.std,
            "ci95": here.interval,
            "p_sign_flip": here.sign_flip.p if here.sign_flip else None,
            "p_sign_flip_exact": here.sign_flip.exact if here.sign_flip else None,
            "p_equivalent": here.p_equivalent,
            "minimum_detectable_difference": here.detectable,
        },
    }


def _tested(claim: stats.Claim) -> dict[str, Any]:
    """Intervals and p of a claim, alone and corrected."""
    return {
        "ci95_seeds_and_rows": claim.interval,
        "ci95_corrected": claim.interval_corrected,
        "p": claim.p,
        "p_holm": claim.p_holm,
        "p_equivalent": claim.p_equivalent,
        "p_equivalent_holm": claim.p_equivalent_holm,
    }


def minus(
    row: Row, other: Row, margin: float
) -> tuple[tuple[int, ...], list[int], list[int], stats.Claim] | None:
    """One row minus another: the seeds that both finished, their places in both, and the claim.

    A head that is fitted at once has no seeds: its answers are the same beside each. None without
    a seed in common, without the score, and where the probabilities of one alone were scaled.
    """
    one, two = row.scores, other.scores
    scaled = {one.temperatures is None, two.temperatures is None}
    seeds = tuple(seed for seed in one.seeds if other.fitted or seed in two.seeds)
    lacking = one.chosen.mean is None or two.chosen.mean is None
    if not seeds or lacking or (row.score.of_sizes and len(scaled) > 1):
        return None
    mine = [one.seeds.index(seed) for seed in seeds]
    theirs = [0 if other.fitted else two.seeds.index(seed) for seed in seeds]
    values = one.chosen.scored.chosen(mine), two.chosen.scored.chosen(theirs)
    return seeds, mine, theirs, claim_by_score(row.score, *values, margin=margin)


def same_recipe(first: dict[str, Any], second: dict[str, Any], apart: Iterable[str] = ()) -> bool:
    """Whether two recipes mean the same but for what is ``apart``.

    A setting that one leaves out is left at nothing.
    """
    keys = (first.keys() | second.keys()) - set(apart)
    return all(first.get(key) == second.get(key) for key in keys)


def choose_baseline(
    rows: Sequence[Row], asked: str | None, unevaluated: Collection[str] = ()
) -> str | None:
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
    if asked in there:
        return asked
    final = f"of the baseline '{asked}' there is a final model alone"
    raise ConfigError(
        final if asked in unevaluated else f"no run of the baseline '{asked}'",
        expected=f"one of: {', '.join(there)}" if there else "a run that was evaluated",
        found=f"--baseline {asked}",
        hint=f"train it: gaam train --attn {asked}",
    )


def is_of(row: Row, baseline: str | None) -> bool:
    """Whether a row is one of the baseline; no check is."""
    return row.attention == baseline and not row.shuffled


def counterpart(row: Row, rows: Sequence[Row], baseline: str) -> Row | None:
    """The row of the baseline with the same head and recipe; what was tuned of both may differ."""
    alike = [other for other in rows if is_of(other, baseline) and other.head == row.head]
    same = [other for other in alike if same_recipe(row.recipe, other.recipe)]
    if row.tunings:
        same += [o for o in alike if o.tunings and same_recipe(row.recipe, o.recipe, TUNED)]
    return same[0] if same else None


def against_baseline(
    rows: Sequence[Row], baseline: str | None, margin: float
) -> list[Comparison | None]:
    """A comparison for every row of a table; None for the baseline, checks, and without a match.

    With the row of the baseline that has the same head and recipe: where there is none, something
    else than the mechanism would differ too.
    """
    found: list[Comparison | None] = []
    for row in rows:
        alone = baseline is None or row.shuffled or row.attention == baseline
        other = None if alone else counterpart(row, rows, str(baseline))
        made = None if other is None else minus(row, other, margin)
        if other is None or made is None:
            found.append(None)
            continue
        seeds, mine, theirs, claim = made
        one, two = row.scores, other.scores
        difference_P = (one.part_value[mine] - two.part_value[theirs]).mean(0)
        folded = row.folds > 1 and np.isfinite(difference_P).all()
        found.append(
            Comparison(
                baseline=other.attention,
                seeds=seeds,
                dropped=tuple(sorted((set(row.seeds) | set(other.seeds)) - set(seeds))),
                claim=claim,
                other_training=stats.corrected_resampled_t(
                    difference_P, _test_per_train(row), most=row.score.highest
                )
                if folded
                else None,
                other_grid=[t.grid for t in row.tunings] != [t.grid for t in other.tunings],
            )
        )
    return found


def _test_per_train(row: Row) -> float:
    """Test rows of a fold for every row that was learned from or chose."""
    if row.drawn is None:
        return 1 / (row.folds - 1)
    rows: int = row.runs[0].cache["rows"][row.runs[0].recipe["train_split"]]
    return rows / row.folds / row.drawn


def against_probe(rows: Sequence[Row], margin: float) -> list[stats.Claim | None]:
    """Every row of steps minus the linear probe on the same states and splits, if there is one."""
    made: list[stats.Claim | None] = []
    for row in rows:
        stepped = not (row.fitted or row.shuffled) and len(row.scores.seeds) >= stats.LEAST_SEEDS
        found = None
        for probe in rows if stepped else ():
            # a fit's recipe holds what plays a part: states, splits, what chooses
            playing = {**dict.fromkeys(DRAWN_BY), **probe.recipe}
            alike = all(row.recipe.get(name) == value for name, value in playing.items())
            if found is None and alike and probe.fitted and not probe.shuffled:
                found = minus(row, probe, margin)
        made.append(found and found[-1])
    return made


def corrected(
    made: Sequence[stats.Claim | None], others: Sequence[stats.Claim | None] = ()
) -> list[stats.Claim | None]:
    """Claims with Holm's p-values, corrected for one another.

    The tests of a difference and of equivalence are a family each. Of the ``others``, which filters
    left out, those that are among the claims too count once.
    """
    claims = [claim for claim in made if claim is not None]
    told = iter(stats.holm_corrected([*claims, *_further(claims, others)]))
    return [None if claim is None else next(told) for claim in made]


def _further(
    made: Sequence[stats.Claim], others: Sequence[stats.Claim | None]
) -> list[stats.Claim]:
    """The other claims that are not among these: of the same numbers they are."""

    def numbers(claim: stats.Claim) -> tuple[Any, ...]:
        return claim.difference, claim.p, claim.p_equivalent, claim.interval

    there, found = Counter(map(numbers, made)), []
    for other in filter(None, others):
        there[numbers(other)] -= 1
        if there[numbers(other)] < 0:
            found.append(other)
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """One row minus another; ``first`` and ``second`` are places in the group."""

    first: int
    second: int
    seeds: tuple[int, ...]
    claim: stats.Claim

    def to_dict(self, labels: Sequence[str]) -> dict[str, Any]:
        """JSON values, fractions."""
        claim = self.claim
        return {
            "first": labels[self.first],
            "second": labels[self.second],
            "paired_seeds": list(self.seeds),
            "difference": claim.difference,
            **_tested(claim),
            "verdict": claim.verdict,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Group:
    """Rows that differ in one setting alone, the best first, and all pairs of them."""

    name: str
    """What they share and other groups do not; may be ''."""
    labels: tuple[str, ...]
    """Their values of the setting."""
    rows: tuple[Row, ...] = field(repr=False)
    pairs: tuple[Pair, ...]
    left_out: int
    """Rows that are not as good, which are compared with nothing."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Pairs:
    """The pairs of one table."""

    axis: str
    num_tests: int
    """Pairs of the whole report with seeds enough for a claim: what Holm corrects for."""
    groups: tuple[Group, ...]
    groups_left_out: int
    """Beyond ``MOST_GROUPS``."""


def every_pair(
    row_lists: Sequence[Sequence[Row]],
    axis: str | None,
    margin: float,
    beside: Sequence[Sequence[Row]] = (),
) -> list[Pairs]:
    """All pairs of rows of every table that differ in a setting, or in several with commas.

    Of many rows the best are compared, and Holm corrects for all pairs that there are, those of
    ``beside`` (what filters left out) too, as if those that were not compared had shown nothing: so
    choosing them makes no p too small.

    Raises:
        ConfigError: no rows differ in that setting alone.
    """
    names = [name.strip().lower().replace("-", "_") for name in (axis or "").split(",")]
    along = ",".join(dict.fromkeys(filter(None, names))) or DEFAULT_AXIS
    sets = [together(rows, along) for rows in row_lists]
    if axis is not None and not any(sets):
        raise ConfigError(
            f"no two rows differ in '{axis}' alone",
            expected="attn, head, layers, lr or another setting in which some do",
            found=f"--pairs {axis}",
            hint="--all shows every candidate of what validation chose",
        )
    tested = {
        frozenset({_key(one), _key(other)})
        for of in [*sets, *(together(rows, along) for rows in beside)]
        for rows in of.values()
        for one, other in combinations(rows, 2)
        if len(set(one.scores.seeds) & set(other.scores.seeds)) >= stats.LEAST_SEEDS
        and one.scores.accuracy.scored.by_row.shape[1] > 1  # type: ignore[union-attr]
    }
    made = [_groups(of, along, margin) for of in sets]
    claims = [pair.claim for groups in made for group in groups for pair in group.pairs]
    counted = sum(claim.testable or claim.silent for claim in claims)
    told = iter(stats.holm_corrected(claims, max(0, len(tested) - counted)))
    return [
        Pairs(
            axis=along,
            num_tests=len(tested),
            groups=tuple(
                replace(group, pairs=tuple(replace(p, claim=next(told)) for p in group.pairs))
                for group in groups
            ),
            groups_left_out=len(of) - len(groups),
        )
        for of, groups in zip(sets, made, strict=True)
    ]


def _groups(sets: dict[Same, list[Row]], axis: str, margin: float) -> list[Group]:
    """Compared, and not corrected yet."""
    shared, found = set.intersection(*map(set, sets)) if sets else set(), []
    some = {key for same in sets for key, _ in same} & set(ALL)
    for same, rows in sorted(sets.items(), key=lambda item: -len(item[1]))[:MOST_GROUPS]:
        sign = -1 if rows[0].score.larger_is_better else 1
        best = sorted(rows, key=lambda row: sign * (row.scores.chosen.mean or 0.0))[:MOST_VALUES]
        own = [(k, value) for k, value in same if k == "attn" or (k, value) not in shared]
        told = [brief(value if key == "attn" else f"{key}={value}") for key, value in own]
        told += [f"{key}=all" for key in sorted(some - {key for key, _ in same})]
        pairs = [
            Pair(first=first, second=second, seeds=made[0], claim=made[-1])
            for first, second in combinations(range(len(best)), 2)
            if (made := minus(best[first], best[second], margin))
        ]
        found.append(
            Group(
                name=", ".join(told),
                labels=tuple(numbered([brief(_value(row, axis), 60) for row in best])),
                rows=tuple(best),
                pairs=tuple(pairs),
                left_out=len(rows) - len(best),
            )
        )
    return found


def _key(row: Row) -> str:
    """What tells a row from every other of all reports."""
    fingerprint = row.runs[0].cache["fingerprint"]
    return repr((fingerprint, row.attention, row.head, sorted(row.recipe.items())))


def _value(row: Row, axis: str) -> str:
    """What a row has of the settings; of what its recipe does not name, the default."""

    def one(name: str) -> Any:
        if name in ("attn", "head"):
            return row.head if name == "head" else row.attention
        value = row.recipe.get(name, row.runs[0].setting(name))
        return "all" if value is None and name in ALL else value

    return ", ".join(str(one(name)) for name in axis.split(","))


def together(rows: Sequence[Row], axis: str) -> dict[Same, list[Row]]:
    """Rows by all that they share; those of one row alone are not there.

    What was tuned of rows may differ. Rows of a fit, of shuffled labels and without a finished seed
    are of none.
    """
    names = set(axis.split(","))
    found: dict[Same, list[Row]] = {}
    for row in rows:
        alone = row.fitted or row.shuffled or row.scores.chosen.mean is None
        if alone or (row.tunings and names & set(TUNED)):
            continue
        apart = {*names, *(TUNED if row.tunings else ())}
        same = {"attn": row.attention, "head": row.head, "tuned": bool(row.tunings)} | row.recipe
        same["scaled logits"] = row.score.of_sizes and row.scores.temperatures is not None
        key = sorted((k, str(v)) for k, v in same.items() if k not in apart and v is not None)
        found.setdefault(tuple(key), []).append(row)
    return {key: of for key, of in found.items() if len({_value(row, axis) for row in of}) > 1}
