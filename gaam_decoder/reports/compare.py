"""Rows compared with rows: with a baseline, with the linear probe, and all pairs along an axis.

A difference is paired by seed and test row, and ``minus`` makes every one. Holm corrects each of
the three kinds in a family of its own, for what filters left out of the report too.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from gaam_cache.errors import ConfigError
from gaam_cache.messages import brief
from gaam_decoder import stats
from gaam_decoder.number_lists import DRAWN_BY
from gaam_decoder.reports.rows import Comparison, Row
from gaam_decoder.runs.tuning import TUNED
from gaam_decoder.stats.scored import Scored, claim_by_score

DEFAULT_BASELINE = "none"
MOST_VALUES = 12  # rows of a group of which all pairs are made: a matrix of 66 can be read
MOST_GROUPS = 8  # groups of a table that are compared, those of most rows first
MEAN_ALL = ("layers", *DRAWN_BY)  # settings that mean all of them where a recipe has none
ALL = "all"  # their value then
Same = tuple[tuple[str, str], ...]


def minus(row: Row, other: Row, margin: float) -> Comparison | None:
    """One row minus another.

    A head that is fitted at once has no seeds: its answers are the same beside each. None without
    a seed in common, without the score, and where the probabilities of one alone were scaled.
    """
    score, scaled = row.chosen.unit, {row.temperatures is None, other.temperatures is None}
    seeds = tuple(seed for seed in row.finished if other.fitted or seed in other.finished)
    lacking = row.chosen.mean is None or other.chosen.mean is None
    if not seeds or lacking or (score.of_sizes and len(scaled) > 1):
        return None
    mine = [row.finished.index(seed) for seed in seeds]
    theirs = [0 if other.fitted else other.finished.index(seed) for seed in seeds]
    by_part = (row.by_part[mine] - other.by_part[theirs]).mean(0)
    over_folds = None
    if row.folds > 1 and np.isfinite(by_part).all():
        # test rows of a fold for every row that was learned from or chose
        ratio = 1 / (row.folds - 1)
        if row.drawn is not None:
            first = row.runs[0]
            ratio = first.cache["rows"][first.recipe["train_split"]] / row.folds / row.drawn
        over_folds = stats.corrected_resampled_t(by_part, ratio, most=score.highest)
    grids = [[[c.values for c in t.candidates] for t in of.tunings] for of in (row, other)]
    return Comparison(
        baseline=other.attention,
        seeds=seeds,
        dropped=tuple(sorted({*row.seeds, *other.seeds} - {*seeds})),
        claim=claim_by_score(score, _scored(row, mine), _scored(other, theirs), margin=margin),
        other_training=over_folds,
        other_grid=grids[0] != grids[1],
    )


def _scored(row: Row, places: list[int]) -> Scored:
    # what the doubt of its choices adds to the variance
    choice = sum(one.variance for one in row.choices) / row.by_part.shape[1] ** 2
    return replace(row.chosen.scored.chosen(places), choice=choice, train_rows=row.train_rows)


def corrected(
    found: Mapping[Any, Comparison], beside: Mapping[Any, Comparison] | None = None, more: int = 0
) -> dict[Any, Comparison]:
    """Comparisons with Holm's p-values, corrected for one another and for those ``beside`` them.

    The tests of a difference and of equivalence are a family each. ``more`` were not even made,
    and count as if they had shown nothing.
    """
    others = [one.claim for key, one in (beside or {}).items() if key not in found]
    told = stats.holm_corrected([*(one.claim for one in found.values()), *others], more)
    both = zip(found.items(), told, strict=False)
    return {key: replace(one, claim=claim) for (key, one), claim in both}


def against(
    lists: Iterable[Sequence[Row]],
    margin: float,
    other_of: Callable[[Row, Sequence[Row]], Row | None],
) -> dict[tuple[Any, Any], Comparison]:
    """Every row minus its counterpart among the rows of its list, by the keys of both."""
    pairs = [(row, other) for rows in lists for row in rows if (other := other_of(row, rows))]
    made = {(row.key, other.key): minus(row, other, margin) for row, other in pairs}
    return {key: one for key, one in made.items() if one}


def same_recipe(first: dict[str, Any], second: dict[str, Any], apart: Iterable[str] = ()) -> bool:
    """Whether two recipes mean the same but for what is ``apart``; left out is left at nothing."""
    keys = (first.keys() | second.keys()) - set(apart)
    return all(first.get(key) == second.get(key) for key in keys)


def choose_baseline(rows: Sequence[Row], asked: str | None) -> str | None:
    """The mechanism to compare with: the one asked for, else ``none`` if it is there."""
    there = sorted({row.attention for row in rows if not row.shuffled})
    if asked is None:
        # a linear probe has no counterparts among what is trained by steps
        stepped = {row.attention for row in rows if not (row.fitted or row.shuffled)}
        return DEFAULT_BASELINE if DEFAULT_BASELINE in (stepped or there) else None
    if asked in there:
        return asked
    raise ConfigError(
        f"no run of the baseline '{asked}' was evaluated",
        expected=f"one of: {', '.join(there)}",
        hint=f"gaam train --attn {asked}, or a filter that does not leave it out",
    )


def is_of(row: Row, baseline: str | None) -> bool:
    """Whether a row is one of the baseline; no check is."""
    return row.attention == baseline and not row.shuffled


def counterpart(row: Row, rows: Sequence[Row], baseline: str | None) -> Row | None:
    """The row of the baseline with the same head and recipe; what was tuned of both may differ.

    None for the baseline itself and for checks, and where something else than the mechanism would
    differ too.
    """
    if row.shuffled or row.attention == baseline:
        return None
    alike = [other for other in rows if is_of(other, baseline) and other.head == row.head]
    same = [other for other in alike if same_recipe(row.recipe, other.recipe)]
    if row.tunings:
        same += [o for o in alike if o.tunings and same_recipe(row.recipe, o.recipe, TUNED)]
    return same[0] if same else None


def probe_of(row: Row, rows: Sequence[Row]) -> Row | None:
    """The linear probe on the same states and splits, of a row of steps with seeds enough."""
    if row.fitted or row.shuffled or len(row.finished) < stats.LEAST_SEEDS:
        return None
    for probe in rows:
        # a fit's recipe holds what plays a part: states, splits, what chooses
        due = dict.fromkeys(DRAWN_BY) | probe.recipe
        same = all(row.recipe.get(name) == value for name, value in due.items())
        if probe.fitted and not probe.shuffled and same:
            return probe
    return None


class Group(NamedTuple):
    """Rows that differ in one setting alone, the best first, and all pairs of them."""

    name: str  # what they share and other groups do not; may be ''
    labels: tuple[str, ...]  # their values of the setting
    rows: tuple[Row, ...]
    pairs: dict[tuple[int, int], Comparison]  # the row at the first place minus the other

    @property
    def references(self) -> tuple[int, ...]:
        """Places of the rows that every other is compared with: the best, and that of all."""
        return _references(self.labels)


class Pairs(NamedTuple):
    """The pairs of one table."""

    axis: str
    num_tests: int  # pairs of the report with seeds enough for a claim: what Holm corrects for
    groups: list[Group]
    asked: bool  # whether the report was asked for this axis


def _references(labels: Sequence[str]) -> tuple[int, ...]:
    return tuple(sorted({0, *(place for place, one in enumerate(labels) if one == ALL)}))


def every_pair(
    row_lists: Sequence[Sequence[Row]],
    axis: str | None,
    margin: float,
    beside: Sequence[Sequence[Row]] = (),
) -> list[Pairs]:
    """All pairs of rows of every table that differ in a setting.

    Of many rows the best are compared each with each, all others with the best and with the row of
    all layers, where there is one. Holm corrects for all pairs that there are, those of ``beside``
    (what filters left out) too, as if those that were not compared had shown nothing.
    """
    name = (axis or "attn").strip().lower().replace("-", "_")
    sets = [together(rows, name) for rows in row_lists]
    if axis is not None and not any(sets):
        raise ConfigError(
            f"no two rows differ in '{axis}' alone",
            expected="attn, head, layers, lr or another setting in which some do",
            hint="--all shows every candidate of what validation chose",
        )
    tested = {
        frozenset({one.key, other.key})
        for of in [*sets, *(together(rows, name) for rows in beside)]
        for rows in of.values()
        for one, other in combinations(rows, 2)
        if len({*one.finished} & {*other.finished}) >= stats.LEAST_SEEDS
        and one.accuracy.scored.by_row.shape[1] > 1  # type: ignore[union-attr]
    }
    made = [_groups(of, name, margin) for of in sets]
    every = [group for groups in made for group in groups]
    found = {(i, place): one for i, g in enumerate(every) for place, one in g.pairs.items()}
    counted = sum(one.claim.testable or one.claim.silent for one in found.values())
    for (i, place), one in corrected(found, more=max(0, len(tested) - counted)).items():
        every[i].pairs[place] = one
    return [Pairs(name, len(tested), groups, axis is not None) for groups in made]


def _groups(sets: dict[Same, list[Row]], axis: str, margin: float) -> list[Group]:
    shared, found = set.intersection(*map(set, sets)) if sets else set(), []
    for same, rows in sorted(sets.items(), key=lambda item: -len(item[1]))[:MOST_GROUPS]:
        own = [(k, value) for k, value in same if k == "attn" or (k, value) not in shared]
        told = [brief(value if key == "attn" else f"{key}={value}") for key, value in own]
        labels = tuple(numbered([brief(_value(row, axis), 60) for row in rows]))
        references = _references(labels)
        made: dict[tuple[int, int], Comparison] = {}
        for first, second in combinations(range(len(rows)), 2):
            if second < MOST_VALUES or first in references or second in references:
                comparison = minus(rows[first], rows[second], margin)
                if comparison is not None:
                    made[first, second] = comparison
        found.append(Group(", ".join(told), labels, tuple(rows), made))
    return found


def numbered(names: list[str]) -> list[str]:
    """The names, those that are there several times with their place behind them."""
    return [n + f" #{place}" * (names.count(n) > 1) for place, n in enumerate(names, 1)]


def _value(row: Row, axis: str) -> str:
    """What a row has of the setting; of what its recipe does not name, the default."""
    if axis in ("attn", "head"):
        return row.attention if axis == "attn" else row.head
    found = row.recipe.get(axis, row.runs[0].setting(axis))
    return ALL if found is None and axis in MEAN_ALL else str(found)


def together(rows: Sequence[Row], axis: str) -> dict[Same, list[Row]]:
    """Rows by all that they share but for what was tuned, where two or more differ along the axis.

    Rows of a fit, of shuffled labels and without a finished seed are of none.
    """
    found: dict[Same, list[Row]] = {}
    for row in rows:
        alone = row.fitted or row.shuffled or row.chosen.mean is None
        if alone or (row.tunings and axis in TUNED):
            continue
        apart = {axis, *(TUNED if row.tunings else ())}
        same = {"attn": row.attention, "head": row.head, "tuned": bool(row.tunings)} | row.recipe
        same["scaled logits"] = row.chosen.unit.of_sizes and row.temperatures is not None
        key = sorted((k, str(v)) for k, v in same.items() if k not in apart and v is not None)
        found.setdefault(tuple(key), []).append(row)
    return {key: of for key, of in found.items() if len({_value(row, axis) for row in of}) > 1}
