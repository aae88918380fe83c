"""Compare rows: with a baseline, with the linear probe, and in pairs along a setting.

``paired_difference`` pairs two rows by seed and test row. Each of the three kinds of
comparison is a family of its own: Holm corrects the comparisons of one head on the same
states and test rows, with those that filters left out. Other tables of a report are
other families.
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
from gaam_decoder.reports.entries import Comparison, Entry
from gaam_decoder.runs.tuning import TUNED
from gaam_decoder.specs import Settings
from gaam_decoder.stats.scored import Scored, claim_by_score

DEFAULT_BASELINE = "none"
# Rows of a group that are compared each with each: people can read a matrix of 66.
MOST_VALUES = 12
# Groups of a table that are compared, the largest first.
MOST_GROUPS = 8
# A recipe without one of these settings uses all layers, or all training rows.
MEAN_ALL = ("layers", *DRAWN_BY)
ALL = "all"  # the value of such a setting
ALL_HEADS = "all heads"

SettingPairs = tuple[tuple[str, str], ...]  # sorted names and values
RowsBySettings = dict[SettingPairs, list[Entry]]
Places = tuple[int, int]  # of two rows in their group


def paired_difference(row: Entry, other: Entry, margin: float) -> Comparison | None:
    """Subtract another row from a row, seed by seed.

    A head that is fitted at once has no seeds: the same predictions stand beside each
    seed. None without a common seed, without the score, and if the probabilities of
    only one of the two were scaled.
    """
    score = row.chosen.unit
    seeds = tuple(
        seed for seed in row.finished if other.fitted or seed in other.finished
    )
    is_scored = row.chosen.mean is not None and other.chosen.mean is not None
    if not seeds or not is_scored:
        return None
    is_one_scaled = (row.temperatures is None) != (other.temperatures is None)
    if score.of_sizes and is_one_scaled:
        return None

    places = [row.finished.index(seed) for seed in seeds]
    other_places = [0] * len(seeds)
    if not other.fitted:
        other_places = [other.finished.index(seed) for seed in seeds]
    return Comparison(
        baseline=other.attention,
        seeds=seeds,
        dropped=tuple(sorted({*row.seeds, *other.seeds} - {*seeds})),
        claim=claim_by_score(
            score,
            _scored(row, places),
            _scored(other, other_places),
            margin=margin,
        ),
        other_training=_over_folds(row, other, places, other_places),
        other_grid=_tuning_grids(row) != _tuning_grids(other),
    )


def _over_folds(
    row: Entry, other: Entry, places: list[int], other_places: list[int]
) -> stats.CorrectedT | None:
    """The difference over the folds, with the t test for overlapping training sets."""
    by_part = (row.by_part[places] - other.by_part[other_places]).mean(0)
    if row.folds <= 1 or not np.isfinite(by_part).all():
        return None

    # Test rows of a fold for every training or validation row.
    ratio = 1 / (row.folds - 1)
    if row.drawn is not None:
        first = row.runs[0]
        split_rows = first.cache.rows[first.recipe.train_split]
        ratio = split_rows / row.folds / row.drawn
    return stats.corrected_resampled_t(by_part, ratio, most=row.chosen.unit.highest)


def _tuning_grids(row: Entry) -> list[list[Any]]:
    """The values of all candidates, for every tuning of a row."""
    return [
        [candidate.values for candidate in tuning.candidates] for tuning in row.tunings
    ]


def _scored(row: Entry, places: list[int]) -> Scored:
    # The variance of a mean over parts, from the doubt of the choice in each part.
    variance = sum(choice.variance for choice in row.choices)
    choice_variance = variance / row.by_part.shape[1] ** 2
    return replace(
        row.chosen.scored.chosen(places),
        choice=choice_variance,
        train_rows=row.train_rows,
    )


def _correct_by_holm(
    comparisons: Mapping[Any, Comparison],
    beside: Mapping[Any, Comparison] | None = None,
    untested: int = 0,
) -> dict[Any, Comparison]:
    """Give comparisons Holm's p-values, corrected for all of their family.

    The family has these comparisons, those ``beside`` them, and ``untested`` more that
    count as if they had shown nothing. The tests of a difference and of equivalence are
    a family each.
    """
    claims = [comparison.claim for comparison in comparisons.values()]
    for key, comparison in (beside or {}).items():
        if key not in comparisons:
            claims.append(comparison.claim)

    # The corrected claims of ``comparisons`` come first.
    corrected_claims = stats.holm_corrected(claims, untested)
    return {
        key: replace(comparison, claim=claim)
        for (key, comparison), claim in zip(
            comparisons.items(), corrected_claims, strict=False
        )
    }


def compare_all(
    rows: Sequence[Entry],
    beside: Sequence[Entry],
    margin: float,
    other_of: Callable[[Entry, Sequence[Entry]], Entry | None],
) -> dict[Any, Comparison]:
    """Compare every row of a table with its counterpart, corrected for its head.

    Args:
        rows: rows of one table.
        beside: all rows of that table, with those that filters left out; only the
            correction uses the latter.
        margin: largest difference that does not matter.
        other_of: finds the counterpart of a row among the rows of its table.

    Returns:
        The comparison of each row with a counterpart, by the key of the row.
    """
    compared: dict[Any, Comparison] = {}
    for head in dict.fromkeys(row.head for row in rows):
        differences = _differences(rows, head, margin, other_of)
        left_out = _differences(beside, head, margin, other_of)
        compared |= _correct_by_holm(differences, left_out)
    return {row_key: comparison for (row_key, _), comparison in compared.items()}


def _differences(
    rows: Sequence[Entry],
    head: str,
    margin: float,
    other_of: Callable[[Entry, Sequence[Entry]], Entry | None],
) -> dict[tuple[Any, Any], Comparison]:
    """Every row of a head minus its counterpart, by the keys of both."""
    differences = {}
    for row in rows:
        if row.head != head:
            continue
        other = other_of(row, rows)
        if other is None:
            continue
        difference = paired_difference(row, other, margin)
        if difference is not None:
            differences[row.key, other.key] = difference
    return differences


def counts_by_head(
    rows: Sequence[Entry], compared: Mapping[Any, Comparison]
) -> dict[str, int]:
    """Number of comparisons in Holm's correction, for each head with a claim."""
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


def same_recipe(first: Settings, second: Settings, apart: Iterable[str] = ()) -> bool:
    """Whether two recipes agree in all settings except those in ``apart``.

    A missing setting is the same as None.
    """
    keys = (first.keys() | second.keys()) - set(apart)
    return all(first.get(key) == second.get(key) for key in keys)


def choose_baseline(rows: Sequence[Entry], asked: str | None) -> str | None:
    """Choose the mechanism to compare with: the requested one, else ``none``.

    Raises:
        ConfigError: no row has the requested mechanism.
    """
    evaluated = sorted({row.attention for row in rows if not row.shuffled})
    if asked is None:
        # A linear probe has no counterparts among decoders that are trained by steps.
        stepped = {row.attention for row in rows if not (row.fitted or row.shuffled)}
        candidates = stepped or set(evaluated)
        return DEFAULT_BASELINE if DEFAULT_BASELINE in candidates else None
    if asked in evaluated:
        return asked
    raise ConfigError(
        f"no run of the baseline '{asked}' was evaluated",
        expected=f"one of: {', '.join(evaluated)}",
        hint=f"gaam train --attn {asked}, or a filter that does not leave it out",
    )


def is_of(row: Entry, baseline: str | None) -> bool:
    """Whether a row is one of the baseline; a check with shuffled labels is not."""
    return row.attention == baseline and not row.shuffled


def counterpart(
    row: Entry, rows: Sequence[Entry], baseline: str | None
) -> Entry | None:
    """Find the row of the baseline with the same head and recipe.

    If both rows were tuned, their tuned settings may differ. None for the baseline
    itself and for checks, and if more than the mechanism would differ.
    """
    if row.shuffled or row.attention == baseline:
        return None
    of_baseline = [
        other for other in rows if is_of(other, baseline) and other.head == row.head
    ]
    for other in of_baseline:
        if same_recipe(row.recipe, other.recipe):
            return other
    if not row.tunings:
        return None
    for other in of_baseline:
        if other.tunings and same_recipe(row.recipe, other.recipe, TUNED):
            return other
    return None


def probe_of(row: Entry, rows: Sequence[Entry]) -> Entry | None:
    """Find the linear probe on the same states and splits.

    None for a fit, for a check, and for a row with too few seeds.
    """
    if row.fitted or row.shuffled or len(row.finished) < stats.LEAST_SEEDS:
        return None
    for probe in rows:
        # The recipe of a fit has only settings of states, splits and validation.
        required = dict.fromkeys(DRAWN_BY) | probe.recipe
        is_same = all(row.recipe.get(name) == value for name, value in required.items())
        if probe.fitted and not probe.shuffled and is_same:
            return probe
    return None


class Group(NamedTuple):
    """Rows that differ in one setting alone, the best first, and all pairs of them."""

    name: str  # the settings that distinguish it from other groups; may be empty
    labels: tuple[str, ...]  # the value of the setting, for each row
    rows: tuple[Entry, ...]
    pairs: dict[Places, Comparison]  # the row at the first place minus the second

    @property
    def references(self) -> tuple[int, ...]:
        """Places of the rows compared with every other: the best, and that of all."""
        return _references(self.labels)


class Pairs(NamedTuple):
    """The pairs of one table."""

    axis: str
    num_tests: dict[str, int]
    """Pairs in Holm's correction, those with enough seeds, by head or of all heads."""
    groups: list[Group]
    asked: bool  # whether the user named this axis


def _references(labels: Sequence[str]) -> tuple[int, ...]:
    places = {place for place, label in enumerate(labels) if label == ALL}
    return tuple(sorted({0} | places))


def every_pair(
    tables: Sequence[tuple[Sequence[Entry], Sequence[Entry]]],
    axis: str | None,
    margin: float,
) -> list[Pairs]:
    """Compare all pairs of rows of every table that differ in one setting alone.

    Of many rows, the best are compared each with each; all others are compared with the
    best row and with the row of all layers, if there is one. Holm corrects for all
    possible pairs of a table and head, as if the omitted pairs had shown nothing.

    Args:
        tables: the rows of each table, and all its rows with those that filters left
            out.
        axis: the setting; None: the mechanism.
        margin: largest difference that does not matter.

    Raises:
        ConfigError: no two rows differ in the setting alone.
    """
    setting = (axis or "attn").strip().lower().replace("-", "_")
    shown_sets = [_group_by_settings(rows, setting) for rows, _ in tables]
    if axis is not None and not any(shown_sets):
        raise ConfigError(
            f"no two rows differ in '{axis}' alone",
            expected="attn, head, layers, lr or another setting in which some do",
            hint="--all shows every candidate of what validation chose",
        )

    pairs = []
    for shown, (_, all_rows) in zip(shown_sets, tables, strict=True):
        all_sets = _group_by_settings(all_rows, setting)
        table_pairs = _compare_table(shown, all_sets, setting, margin, axis is not None)
        pairs.append(table_pairs)
    return pairs


def _compare_table(
    shown: RowsBySettings,
    all_sets: RowsBySettings,
    axis: str,
    margin: float,
    asked: bool,
) -> Pairs:
    """Compare the pairs of one table, and correct them for all pairs of their head."""
    testable = _testable_pairs([*shown.values(), *all_sets.values()], axis)
    groups = _compare_groups(shown, axis, margin)
    num_tests: dict[str, int] = {}
    for family in dict.fromkeys(_family(group.rows, axis) for group in groups):
        family_groups = [
            group for group in groups if _family(group.rows, axis) == family
        ]
        _correct_groups(family_groups, len(testable[family]))
        num_tests[family] = len(testable[family])
    return Pairs(axis, num_tests, groups, asked)


def _family(rows: Sequence[Entry], axis: str) -> str:
    """The head of these rows, whose pairs Holm corrects for one another."""
    return ALL_HEADS if axis == "head" else rows[0].head


def _testable_pairs(
    sets: Iterable[Sequence[Entry]], axis: str
) -> dict[str, set[frozenset[Any]]]:
    """Pairs of row keys with enough seeds and test rows for a claim, by family."""
    testable: dict[str, set[frozenset[Any]]] = {}
    for rows in sets:
        pairs = {
            frozenset({first.key, second.key})
            for first, second in combinations(rows, 2)
            if _is_testable(first, second)
        }
        testable.setdefault(_family(rows, axis), set()).update(pairs)
    return testable


def _correct_groups(groups: Sequence[Group], num_testable: int) -> None:
    """Replace the comparisons of these groups by corrected ones."""
    comparisons = {
        (number, places): comparison
        for number, group in enumerate(groups)
        for places, comparison in group.pairs.items()
    }
    tested = [
        comparison
        for comparison in comparisons.values()
        if comparison.claim.testable or comparison.claim.silent
    ]
    untested = max(0, num_testable - len(tested))
    corrected = _correct_by_holm(comparisons, untested=untested)
    for (number, places), comparison in corrected.items():
        groups[number].pairs[places] = comparison


def _is_testable(row: Entry, other: Entry) -> bool:
    """Whether two rows have seeds and test rows enough for a claim."""
    seeds = {*row.finished} & {*other.finished}
    num_rows: int = row.accuracy.scored.by_row.shape[1]  # type: ignore[union-attr]
    return len(seeds) >= stats.LEAST_SEEDS and num_rows > 1


def _compare_groups(sets: RowsBySettings, axis: str, margin: float) -> list[Group]:
    """Compare the rows of the largest groups, and name each group."""
    if not sets:
        return []
    shared = set.intersection(*map(set, sets))
    largest_first = sorted(sets.items(), key=lambda item: -len(item[1]))
    groups = []
    for settings, rows in largest_first[:MOST_GROUPS]:
        values = [brief(_axis_value(row, axis), 60) for row in rows]
        labels = tuple(numbered(values))
        pairs = _compare_rows(rows, _references(labels), margin)
        name = _group_name(settings, shared)
        groups.append(Group(name, labels, tuple(rows), pairs))
    return groups


def _group_name(settings: SettingPairs, shared: set[tuple[str, str]]) -> str:
    """The mechanism, and the settings that not all groups of the table share."""
    parts = []
    for name, value in settings:
        if name == "attn":
            parts.append(brief(value))
        elif (name, value) not in shared:
            parts.append(brief(f"{name}={value}"))
    return ", ".join(parts)


def _compare_rows(
    rows: Sequence[Entry], references: Sequence[int], margin: float
) -> dict[Places, Comparison]:
    """Compare the best rows with each other, and all rows with the references."""
    pairs: dict[Places, Comparison] = {}
    for first, second in combinations(range(len(rows)), 2):
        if second < MOST_VALUES or first in references or second in references:
            comparison = paired_difference(rows[first], rows[second], margin)
            if comparison is not None:
                pairs[first, second] = comparison
    return pairs


def numbered(names: list[str]) -> list[str]:
    """Put its place behind each name that occurs several times."""
    numbered_names = []
    for place, name in enumerate(names, 1):
        is_repeated = names.count(name) > 1
        numbered_names.append(f"{name} #{place}" if is_repeated else name)
    return numbered_names


def _axis_value(row: Entry, axis: str) -> str:
    """The value of the setting in a row; the default if its recipe has none."""
    if axis == "attn":
        return row.attention
    if axis == "head":
        return row.head
    value = row.recipe.get(axis, row.runs[0].setting(axis))
    if value is None and axis in MEAN_ALL:
        return ALL
    return str(value)


def _group_by_settings(rows: Sequence[Entry], axis: str) -> RowsBySettings:
    """Group rows that agree in all but tuned settings, if two differ along the axis.

    A fit, a check with shuffled labels and a row without the score are in no group.
    """
    sets: RowsBySettings = {}
    for row in rows:
        if row.fitted or row.shuffled or row.chosen.mean is None:
            continue
        if row.tunings and axis in TUNED:
            continue
        sets.setdefault(_settings(row, axis), []).append(row)
    return {
        settings: members
        for settings, members in sets.items()
        if len({_axis_value(row, axis) for row in members}) > 1
    }


def _settings(row: Entry, axis: str) -> SettingPairs:
    """The settings of a row, without the axis and without tuned settings."""
    left_out = {axis}
    if row.tunings:
        left_out.update(TUNED)
    is_scaled = row.chosen.unit.of_sizes and row.temperatures is not None
    settings: dict[str, Any] = {
        "attn": row.attention,
        "head": row.head,
        "tuned": bool(row.tunings),
        **row.recipe,
        "scaled logits": is_scaled,
    }
    pairs = []
    for name, value in settings.items():
        if name not in left_out and value is not None:
            pairs.append((name, str(value)))
    return tuple(sorted(pairs))
