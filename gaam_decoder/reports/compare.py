"""Rows compared with rows: with a baseline, with the linear probe, and all pairs along an axis.

A difference is paired by seed and test row, and ``minus`` makes every one. Holm corrects each of
the three kinds in a family of its own, for what filters left out of the report too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from gaam_cache.errors import ConfigError
from gaam_cache.messages import brief
from gaam_decoder import stats
from gaam_decoder.number_lists import DRAWN_BY
from gaam_decoder.reports.rows import Comparison, Floats, Row
from gaam_decoder.reports.unit import numbered
from gaam_decoder.runs.tuning import TUNED
from gaam_decoder.stats.scored import Scored, claim_by_score

DEFAULT_BASELINE = "none"
DEFAULT_AXIS = "attn"
MOST_VALUES = 12
"""Rows of a group that are compared, 66 pairs: a matrix that can be read, in a second."""
MOST_GROUPS = 8
"""Groups of a table that are compared, those of most rows first."""
ALL = ("layers", *DRAWN_BY)
"""Settings that mean all of them where a recipe has none."""
Same = tuple[tuple[str, str], ...]


class Minus(NamedTuple):
    """One row minus another over the seeds that both finished."""

    seeds: tuple[int, ...]
    claim: stats.Claim
    by_part: Floats
    """Mean difference in every part, (P,)."""


def minus(row: Row, other: Row, margin: float) -> Minus | None:
    """One row minus another.

    A head that is fitted at once has no seeds: its answers are the same beside each. None without
    a seed in common, without the score, and where the probabilities of one alone were scaled.
    """
    one, two = row.scores, other.scores
    score, scaled = one.chosen.score, {one.temperatures is None, two.temperatures is None}
    seeds = tuple(seed for seed in one.seeds if other.fitted or seed in two.seeds)
    lacking = one.chosen.mean is None or two.chosen.mean is None
    if not seeds or lacking or (score.of_sizes and len(scaled) > 1):
        return None
    mine = [one.seeds.index(seed) for seed in seeds]
    theirs = [0 if other.fitted else two.seeds.index(seed) for seed in seeds]
    claim = claim_by_score(score, _scored(row, mine), _scored(other, theirs), margin=margin)
    return Minus(seeds, claim, (one.part_value[mine] - two.part_value[theirs]).mean(0))


def _scored(row: Row, places: list[int]) -> Scored:
    """Of some seeds, with what the doubt of its choices adds to the variance."""
    choice = sum(one.variance for one in row.choices) / row.scores.part_value.shape[1] ** 2
    return replace(row.scores.chosen.scored.chosen(places), choice=choice)


def same_recipe(first: dict[str, Any], second: dict[str, Any], apart: Iterable[str] = ()) -> bool:
    """Whether two recipes mean the same but for what is ``apart``; left out is left at nothing."""
    keys = (first.keys() | second.keys()) - set(apart)
    return all(first.get(key) == second.get(key) for key in keys)


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
    if asked in there:
        return asked
    raise ConfigError(
        f"no run of the baseline '{asked}' was evaluated",
        expected=f"one of: {', '.join(there)}",
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
        over_folds = None
        if row.folds > 1 and np.isfinite(made.by_part).all():
            # test rows of a fold for every row that was learned from or chose
            ratio = 1 / (row.folds - 1)
            if row.drawn is not None:
                first = row.runs[0]
                ratio = first.cache["rows"][first.recipe["train_split"]] / row.folds / row.drawn
            most = row.scores.chosen.score.highest
            over_folds = stats.corrected_resampled_t(made.by_part, ratio, most=most)
        compared = Comparison(
            baseline=other.attention,
            seeds=made.seeds,
            dropped=tuple(sorted({*row.seeds, *other.seeds} - {*made.seeds})),
            claim=made.claim,
            other_training=over_folds,
            other_grid=[t.grid for t in row.tunings] != [t.grid for t in other.tunings],
        )
        found.append(compared)
    return found


def against_probe(rows: Sequence[Row], margin: float) -> list[stats.Claim | None]:
    """Every row of steps minus the linear probe on the same states and splits, if there is one."""
    found: list[stats.Claim | None] = []
    for row in rows:
        stepped = not (row.fitted or row.shuffled) and len(row.scores.seeds) >= stats.LEAST_SEEDS
        # a fit's recipe holds what plays a part: states, splits, what chooses
        made = [
            minus(row, probe, margin)
            for probe in rows
            if stepped and probe.fitted and not probe.shuffled
            and all(row.recipe.get(name) == value
                    for name, value in {**dict.fromkeys(DRAWN_BY), **probe.recipe}.items())
        ]  # fmt: skip
        found.append(next((one.claim for one in made if one), None))
    return found


def corrected(
    made: Sequence[stats.Claim | None], others: Sequence[stats.Claim | None] = ()
) -> tuple[stats.Claim | None, ...]:
    """Claims with Holm's p-values, corrected for one another.

    The tests of a difference and of equivalence are a family each. Of the ``others``, which filters
    left out, those that are among the claims too (of the same numbers) count once.
    """

    def numbers(claim: stats.Claim) -> tuple[Any, ...]:
        return claim.difference, claim.p, claim.p_equivalent, claim.interval

    claims, further = [claim for claim in made if claim is not None], []
    there = Counter(map(numbers, claims))
    for other in filter(None, others):
        there[numbers(other)] -= 1
        if there[numbers(other)] < 0:
            further.append(other)
    told = iter(stats.holm_corrected([*claims, *further]))
    return tuple(None if claim is None else next(told) for claim in made)


class Pair(NamedTuple):
    """One row minus another, by their places in the group."""

    first: int
    second: int
    seeds: tuple[int, ...]
    claim: stats.Claim


class Group(NamedTuple):
    """Rows that differ in one setting alone, the best first, and all pairs of them."""

    name: str
    """What they share and other groups do not; may be ''."""
    labels: tuple[str, ...]
    """Their values of the setting."""
    rows: tuple[Row, ...]
    pairs: tuple[Pair, ...]


class Pairs(NamedTuple):
    """The pairs of one table."""

    axis: str
    num_tests: int
    """Pairs of the whole report with seeds enough for a claim: what Holm corrects for."""
    groups: tuple[Group, ...]


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
        if len({*one.scores.seeds} & {*other.scores.seeds}) >= stats.LEAST_SEEDS
        and one.scores.accuracy.scored.by_row.shape[1] > 1  # type: ignore[union-attr]
    }
    made = [_groups(of, along, margin) for of in sets]
    claims = [pair.claim for groups in made for group in groups for pair in group.pairs]
    counted = sum(claim.testable or claim.silent for claim in claims)
    told = iter(stats.holm_corrected(claims, max(0, len(tested) - counted)))
    settled = [
        tuple(g._replace(pairs=tuple(p._replace(claim=next(told)) for p in g.pairs)) for g in of)
        for of in made
    ]
    return [Pairs(along, len(tested), groups) for groups in settled]


def _groups(sets: dict[Same, list[Row]], axis: str, margin: float) -> list[Group]:
    """Compared, and not corrected yet."""
    shared, found = set.intersection(*map(set, sets)) if sets else set(), []
    some = {key for same in sets for key, _ in same} & set(ALL)
    for same, rows in sorted(sets.items(), key=lambda item: -len(item[1]))[:MOST_GROUPS]:
        sign = -1 if rows[0].scores.chosen.score.larger_is_better else 1
        best = sorted(rows, key=lambda row: sign * (row.scores.chosen.mean or 0.0))[:MOST_VALUES]
        own = [(k, value) for k, value in same if k == "attn" or (k, value) not in shared]
        told = [brief(value if key == "attn" else f"{key}={value}") for key, value in own]
        told += [f"{key}=all" for key in sorted(some - {key for key, _ in same})]
        labels = numbered([brief(_value(row, axis), 60) for row in best])
        pairs = (
            Pair(first, second, made.seeds, made.claim)
            for first, second in combinations(range(len(best)), 2)
            if (made := minus(best[first], best[second], margin))
        )
        found.append(Group(", ".join(told), tuple(labels), tuple(best), tuple(pairs)))
    return found


def _key(row: Row) -> str:
    """What tells a row from every other of all reports."""
    fingerprint = row.runs[0].cache["fingerprint"]
    return repr((fingerprint, row.attention, row.head, sorted(row.recipe.items())))


def _value(row: Row, axis: str) -> str:
    """What a row has of the settings; of what its recipe does not name, the default."""
    of = {name: row.recipe.get(name, row.runs[0].setting(name)) for name in axis.split(",")}
    of |= {name: "all" for name in ALL if of.get(name, "") is None}
    return ", ".join(str({"attn": row.attention, "head": row.head}.get(n, of[n])) for n in of)


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
        scaled = row.scores.temperatures is not None
        same["scaled logits"] = row.scores.chosen.score.of_sizes and scaled
        key = sorted((k, str(v)) for k, v in same.items() if k not in apart and v is not None)
        found.setdefault(tuple(key), []).append(row)
    return {key: of for key, of in found.items() if len({_value(row, axis) for row in of}) > 1}
