"""Rows compared with rows: with a baseline, with the linear probe, and all pairs along an axis.

A difference is paired by seed and test row, and ``minus`` makes every one. Each of the three kinds
is a family of its own, which Holm corrects: the comparisons of one head on the same states and test
rows, and those that filters left out of them. Other tables of a report are other families.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from gaam_cache.common.errors import ConfigError
from gaam_cache.common.messages import brief
from gaam_decoder import stats
from gaam_decoder.number_lists import DRAWN_BY
from gaam_decoder.reports.rows import Comparison, Row
from gaam_decoder.runs.tuning import TUNED
from gaam_decoder.stats.scored import Scored, claim_by_score

DEFAULT_BASELINE = "none"
MOST_VALUES = (
    12  # rows of a group of which all pairs are made: a matrix of 66 can be read
)
MOST_GROUPS = 8  # groups of a table that are compared, those of most rows first
MEAN_ALL = (
    "layers",
    *DRAWN_BY,
)  # settings that mean all of them where a recipe has none
ALL = "all"  # their value then
Same = tuple[tuple[str, str], ...]
Sets = dict[Same, list[Row]]


def minus(row: Row, other: Row, margin: float) -> Comparison | None:
    """One row minus another.

    A head that is fitted at once has no seeds: its answers are the same beside each. None without
    a seed in common, without the score, and where the probabilities of one alone were scaled.
    """
    score, scaled = (
        row.chosen.unit,
        {row.temperatures is None, other.temperatures is None},
    )
    seeds = tuple(
        seed for seed in row.finished if other.fitted or seed in other.finished
    )
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
            ratio = (
                first.cache["rows"][first.recipe["train_split"]] / row.folds / row.drawn
            )
        over_folds = stats.corrected_resampled_t(by_part, ratio, most=score.highest)
    grids = [
        [[c.values for c in t.candidates] for t in of.tunings] for of in (row, other)
    ]
    return Comparison(
        baseline=other.attention,
        seeds=seeds,
        dropped=tuple(sorted({*row.seeds, *other.seeds} - {*seeds})),
        claim=claim_by_score(
            score, _scored(row, mine), _scored(other, theirs), margin=margin
        ),
        other_training=over_folds,
        other_grid=grids[0] != grids[1],
    )


def _scored(row: Row, places: list[int]) -> Scored:
    # what the doubt of its choices adds to the variance
    choice = sum(one.variance for one in row.choices) / row.by_part.shape[1] ** 2
    return replace(
        row.chosen.scored.chosen(places), choice=choice, train_rows=row.train_rows
    )


def corrected(
    found: Mapping[Any, Comparison],
    beside: Mapping[Any, Comparison] | None = None,
    more: int = 0,
) -> dict[Any, Comparison]:
    """Comparisons with Holm's p-values, corrected for one another and for those ``beside`` them.

    The tests of a difference and of equivalence are a family each. ``more`` were not even made,
    and count as if they had shown nothing.
    """
    others = [one.claim for key, one in (beside or {}).items() if key not in found]
    told = stats.holm_corrected([*(one.claim for one in found.values()), *others], more)
    both = zip(found.items(), told, strict=False)
    return {key: replace(one, claim=claim) for (key, one), claim in both}


def compare_all(
    rows: Sequence[Row],
    beside: Sequence[Row],
    margin: float,
    other_of: Callable[[Row, Sequence[Row]], Row | None],
) -> dict[Any, Comparison]:
    """Every row of a table minus its counterpart, by the key of the row, corrected for its head.

    Args:
        rows: those of one table.
        beside: all rows of that table, those that filters left out too; of these only Holm knows.
        margin: largest difference that does not matter.
        other_of: the counterpart of a row among the rows of its table.
    """
    compared: dict[Any, Comparison] = {}
    for head in dict.fromkeys(row.head for row in rows):
        differences = _differences(rows, head, margin, other_of)
        left_out = _differences(beside, head, margin, other_of)
        compared |= corrected(differences, left_out)
    return {row_key: comparison for (row_key, _), comparison in compared.items()}


def _differences(
    rows: Sequence[Row],
    head: str,
    margin: float,
    other_of: Callable[[Row, Sequence[Row]], Row | None],
) -> dict[tuple[Any, Any], Comparison]:
    """Every row of a head minus its counterpart, by the keys of both."""
    differences = {}
    for row in rows:
        other = other_of(row, rows) if row.head == head else None
        difference = minus(row, other, margin) if other else None
        if other and difference:
            differences[row.key, other.key] = difference
    return differences


def counts_by_head(
    rows: Sequence[Row], compared: Mapping[Any, Comparison]
) -> dict[str, int]:
    """For how many comparisons Holm corrects, by head; nothing of a head without a claim."""
    counts: dict[str, int] = {}
    for row in rows:
        comparison = compared.get(row.key)
        if comparison and comparison.claim.testable:
            counts[row.head] = comparison.claim.num_tests
    return counts


def counts_in_words(counts: Mapping[str, int]) -> str:
    """Such as ``3``, or of several heads ``3 of head linear and 1 of head mlp``."""
    if len(counts) < 2:
        return f"{sum(counts.values())}"
    return " and ".join(
        f"{count} of head {brief(head)}" for head, count in counts.items()
    )


def same_recipe(
    first: dict[str, Any], second: dict[str, Any], apart: Iterable[str] = ()
) -> bool:
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
    alike = [
        other for other in rows if is_of(other, baseline) and other.head == row.head
    ]
    same = [other for other in alike if same_recipe(row.recipe, other.recipe)]
    if row.tunings:
        same += [
            o for o in alike if o.tunings and same_recipe(row.recipe, o.recipe, TUNED)
        ]
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
    pairs: dict[
        tuple[int, int], Comparison
    ]  # the row at the first place minus the other

    @property
    def references(self) -> tuple[int, ...]:
        """Places of the rows that every other is compared with: the best, and that of all."""
        return _references(self.labels)


class Pairs(NamedTuple):
    """The pairs of one table."""

    axis: str
    num_tests: dict[str, int]
    """Pairs with seeds enough for a claim, by head, or of all heads: what Holm corrects for."""
    groups: list[Group]
    asked: bool  # whether the report was asked for this axis


def _references(labels: Sequence[str]) -> tuple[int, ...]:
    return tuple(
        sorted({0, *(place for place, one in enumerate(labels) if one == ALL)})
    )


ALL_HEADS = "all heads"


def every_pair(
    tables: Sequence[tuple[Sequence[Row], Sequence[Row]]],
    axis: str | None,
    margin: float,
) -> list[Pairs]:
    """All pairs of rows of every table that differ in a setting.

    Of many rows the best are compared each with each, all others with the best and with the row of
    all layers, where there is one. Holm corrects for all pairs that there are of a table and head,
    as if those that were not compared had shown nothing.

    Args:
        tables: of each its rows, and all rows of it, those that filters left out too.
        axis: the setting; None: the mechanism.
        margin: largest difference that does not matter.

    Raises:
        ConfigError: no two rows differ in the setting alone.
    """
    name = (axis or "attn").strip().lower().replace("-", "_")
    sets = [together(rows, name) for rows, _ in tables]
    if axis is not None and not any(sets):
        raise ConfigError(
            f"no two rows differ in '{axis}' alone",
            expected="attn, head, layers, lr or another setting in which some do",
            hint="--all shows every candidate of what validation chose",
        )
    return [
        _pairs(shown, together(beside, name), name, margin, axis is not None)
        for shown, (_, beside) in zip(sets, tables, strict=True)
    ]


def _pairs(shown: Sets, beside: Sets, axis: str, margin: float, asked: bool) -> Pairs:
    """The pairs of one table, corrected for all pairs of their head."""

    def family(rows: Sequence[Row]) -> str:
        return ALL_HEADS if axis == "head" else rows[0].head

    tested: dict[str, set[frozenset[Any]]] = {}
    for rows in (*shown.values(), *beside.values()):
        pairs = {
            frozenset({a.key, b.key})
            for a, b in combinations(rows, 2)
            if _testable(a, b)
        }
        tested.setdefault(family(rows), set()).update(pairs)
    groups = _groups(shown, axis, margin)
    counts: dict[str, int] = {}
    for head in dict.fromkeys(family(group.rows) for group in groups):
        mine = [group for group in groups if family(group.rows) == head]
        found = {
            (number, places): comparison
            for number, group in enumerate(mine)
            for places, comparison in group.pairs.items()
        }
        compared = sum(one.claim.testable or one.claim.silent for one in found.values())
        more = max(0, len(tested[head]) - compared)
        for (number, places), comparison in corrected(found, more=more).items():
            mine[number].pairs[places] = comparison
        counts[head] = len(tested[head])
    return Pairs(axis, counts, groups, asked)


def _testable(row: Row, other: Row) -> bool:
    """Whether two rows have seeds and test rows enough for a claim."""
    seeds = {*row.finished} & {*other.finished}
    num_rows: int = row.accuracy.scored.by_row.shape[1]  # type: ignore[union-attr]
    return len(seeds) >= stats.LEAST_SEEDS and num_rows > 1


def _groups(sets: Sets, axis: str, margin: float) -> list[Group]:
    shared, found = set.intersection(*map(set, sets)) if sets else set(), []
    for same, rows in sorted(sets.items(), key=lambda item: -len(item[1]))[
        :MOST_GROUPS
    ]:
        own = [
            (k, value) for k, value in same if k == "attn" or (k, value) not in shared
        ]
        told = [
            brief(value if key == "attn" else f"{key}={value}") for key, value in own
        ]
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


def together(rows: Sequence[Row], axis: str) -> Sets:
    """Rows by all that they share but for what was tuned, where two or more differ along the axis.

    Rows of a fit, of shuffled labels and without a finished seed are of none.
    """
    found: dict[Same, list[Row]] = {}
    for row in rows:
        alone = row.fitted or row.shuffled or row.chosen.mean is None
        if alone or (row.tunings and axis in TUNED):
            continue
        apart = {axis, *(TUNED if row.tunings else ())}
        same = {
            "attn": row.attention,
            "head": row.head,
            "tuned": bool(row.tunings),
        } | row.recipe
        same["scaled logits"] = (
            row.chosen.unit.of_sizes and row.temperatures is not None
        )
        key = sorted(
            (k, str(v)) for k, v in same.items() if k not in apart and v is not None
        )
        found.setdefault(tuple(key), []).append(row)
    return {
        key: of
        for key, of in found.items()
        if len({_value(row, axis) for row in of}) > 1
    }
