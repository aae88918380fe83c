"""Compare entries with a baseline, with the linear probe, and in pairs along a setting.

``paired_difference`` pairs two entries by seed and test row. Each of the three kinds of
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
# Entries of a group that are compared each with each: people can read a matrix of 66.
MOST_VALUES = 12
# Groups of a table that are compared, the largest first.
MOST_GROUPS = 8
# A recipe without one of these settings uses all layers, or all training rows.
MEAN_ALL = ("layers", *DRAWN_BY)
ALL = "all"  # the value of such a setting
ALL_HEADS = "all heads"

SettingPairs = tuple[tuple[str, str], ...]  # sorted names and values
EntriesBySettings = dict[SettingPairs, list[Entry]]
Places = tuple[int, int]  # of two entries in their group


def paired_difference(entry: Entry, other: Entry, margin: float) -> Comparison | None:
    """Subtract another entry from an entry, seed by seed.

    A head that is fitted at once has no seeds: the same predictions stand beside each
    seed. None without a common seed, without the score, and if the probabilities of
    only one of the two were scaled.
    """
    score = entry.compared_score.score
    seeds = tuple(
        seed for seed in entry.finished if other.fitted or seed in other.finished
    )
    is_scored = (
        entry.compared_score.mean is not None and other.compared_score.mean is not None
    )
    if not seeds or not is_scored:
        return None
    is_one_scaled = (entry.temperatures is None) != (other.temperatures is None)
    if score.of_sizes and is_one_scaled:
        return None

    places = [entry.finished.index(seed) for seed in seeds]
    other_places = [0] * len(seeds)
    if not other.fitted:
        other_places = [other.finished.index(seed) for seed in seeds]
    return Comparison(
        baseline=other.attention,
        seeds=seeds,
        dropped=tuple(sorted({*entry.seeds, *other.seeds} - {*seeds})),
        claim=claim_by_score(
            score,
            _scored(entry, places),
            _scored(other, other_places),
            margin=margin,
        ),
        other_training=_over_folds(entry, other, places, other_places),
        other_grid=_tuning_grids(entry) != _tuning_grids(other),
    )


def _over_folds(
    entry: Entry, other: Entry, places: list[int], other_places: list[int]
) -> stats.CorrectedT | None:
    """The difference over the folds, with the t test for overlapping training sets."""
    by_part = (entry.score_SP[places] - other.score_SP[other_places]).mean(0)
    if entry.folds <= 1 or not np.isfinite(by_part).all():
        return None

    # Test rows of a fold for every training or validation row.
    ratio = 1 / (entry.folds - 1)
    if entry.num_drawn_rows is not None:
        first = entry.runs[0]
        split_rows = first.cache.rows[first.recipe.train_split]
        ratio = split_rows / entry.folds / entry.num_drawn_rows
    most = entry.compared_score.score.largest_difference
    return stats.corrected_resampled_t(by_part, ratio, most=most)


def _tuning_grids(entry: Entry) -> list[list[Any]]:
    """The values of all candidates, for every tuning of an entry."""
    return [
        [candidate.values for candidate in tuning.candidates]
        for tuning in entry.tunings
    ]


def _scored(entry: Entry, places: list[int]) -> Scored:
    # The variance of a mean over parts, from the doubt of the choice in each part.
    variance = sum(choice.variance for choice in entry.choices)
    choice_variance = variance / entry.score_SP.shape[1] ** 2
    return replace(
        entry.compared_score.scored.chosen(places),
        choice=choice_variance,
        train_rows=entry.train_rows,
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
    entries: Sequence[Entry],
    beside: Sequence[Entry],
    margin: float,
    other_of: Callable[[Entry, Sequence[Entry]], Entry | None],
) -> dict[Any, Comparison]:
    """Compare every entry of a table with its counterpart, corrected for its head.

    Args:
        entries: entries of one table.
        beside: all entries of that table, with those that filters left out; only the
            correction uses the latter.
        margin: largest difference that does not matter.
        other_of: finds the counterpart of an entry among the entries of its table.

    Returns:
        The comparison of each entry with a counterpart, by the key of the entry.
    """
    compared: dict[Any, Comparison] = {}
    for head in dict.fromkeys(entry.head for entry in entries):
        differences = _differences(entries, head, margin, other_of)
        left_out = _differences(beside, head, margin, other_of)
        compared |= _correct_by_holm(differences, left_out)
    return {entry_key: comparison for (entry_key, _), comparison in compared.items()}


def _differences(
    entries: Sequence[Entry],
    head: str,
    margin: float,
    other_of: Callable[[Entry, Sequence[Entry]], Entry | None],
) -> dict[tuple[Any, Any], Comparison]:
    """Every entry of a head minus its counterpart, by the keys of both."""
    differences = {}
    for entry in entries:
        if entry.head != head:
            continue
        other = other_of(entry, entries)
        if other is None:
            continue
        difference = paired_difference(entry, other, margin)
        if difference is not None:
            differences[entry.key, other.key] = difference
    return differences


def counts_by_head(
    entries: Sequence[Entry], compared: Mapping[Any, Comparison]
) -> dict[str, int]:
    """Number of comparisons in Holm's correction, for each head with a claim."""
    counts: dict[str, int] = {}
    for entry in entries:
        comparison = compared.get(entry.key)
        if comparison and comparison.claim.testable:
            counts[entry.head] = comparison.claim.num_tests
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


def choose_baseline(entries: Sequence[Entry], asked: str | None) -> str | None:
    """Choose the mechanism to compare with: the requested one, else ``none``.

    Raises:
        ConfigError: no entry has the requested mechanism.
    """
    evaluated = sorted({entry.attention for entry in entries if not entry.shuffled})
    if asked is None:
        # A linear probe has no counterparts among decoders that are trained by steps.
        stepped = {
            entry.attention for entry in entries if not (entry.fitted or entry.shuffled)
        }
        candidates = stepped or set(evaluated)
        return DEFAULT_BASELINE if DEFAULT_BASELINE in candidates else None
    if asked in evaluated:
        return asked
    raise ConfigError(
        f"no run of the baseline '{asked}' was evaluated",
        expected=f"one of: {', '.join(evaluated)}",
        hint=f"gaam train --attn {asked}, or a filter that does not leave it out",
    )


def is_of(entry: Entry, baseline: str | None) -> bool:
    """Whether an entry is one of the baseline; a check with shuffled labels is not."""
    return entry.attention == baseline and not entry.shuffled


def counterpart(
    entry: Entry, entries: Sequence[Entry], baseline: str | None
) -> Entry | None:
    """Find the entry of the baseline with the same head and recipe.

    If both entries were tuned, their tuned settings may differ. None for the baseline
    itself and for checks, and if more than the mechanism would differ.
    """
    if entry.shuffled or entry.attention == baseline:
        return None
    of_baseline = [
        other
        for other in entries
        if is_of(other, baseline) and other.head == entry.head
    ]
    for other in of_baseline:
        if same_recipe(entry.recipe, other.recipe):
            return other
    if not entry.tunings:
        return None
    for other in of_baseline:
        if other.tunings and same_recipe(entry.recipe, other.recipe, TUNED):
            return other
    return None


def probe_of(entry: Entry, entries: Sequence[Entry]) -> Entry | None:
    """Find the linear probe that was fitted to the same rows and layers as an entry.

    Returns:
        None if there is no such probe, if the entry is a probe itself, has shuffled
        labels, or has too few seeds for a claim.
    """
    if entry.fitted or entry.shuffled or len(entry.finished) < stats.LEAST_SEEDS:
        return None
    for probe in entries:
        # The recipe of a probe says only which rows and layers it read. Settings that
        # draw a part of the rows must agree also where the probe has none (None).
        required = dict.fromkeys(DRAWN_BY) | probe.recipe
        is_same = all(
            entry.recipe.get(name) == value for name, value in required.items()
        )
        if probe.is_logistic and not probe.shuffled and is_same:
            return probe
    return None


class Group(NamedTuple):
    """Entries that differ in one setting alone, the best first, and all their pairs."""

    name: str  # the settings that distinguish it from other groups; may be empty
    labels: tuple[str, ...]  # the value of the setting, for each entry
    entries: tuple[Entry, ...]
    pairs: dict[Places, Comparison]  # the entry at the first place minus the second

    @property
    def references(self) -> tuple[int, ...]:
        """Places of the entries compared with all others: the best, and that of all."""
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
    """Compare all pairs of entries of every table that differ in one setting alone.

    Of many entries, the best are compared each with each; all others are compared with
    the best entry and with the entry of all layers, if there is one. Holm corrects for
    all possible pairs of a table and head, as if the omitted pairs had shown nothing.

    Args:
        tables: the entries of each table, and all its entries with those that filters
            left out.
        axis: the setting; None: the mechanism.
        margin: largest difference that does not matter.

    Raises:
        ConfigError: no two entries differ in the setting alone.
    """
    setting = (axis or "attn").strip().lower().replace("-", "_")
    shown_sets = [_group_by_settings(entries, setting) for entries, _ in tables]
    if axis is not None and not any(shown_sets):
        raise ConfigError(
            f"no two decoders differ in '{axis}' alone",
            expected="attn, head, layers, lr or another setting in which some do",
            hint="--all shows every candidate of what validation chose",
        )

    pairs = []
    for shown, (_, all_entries) in zip(shown_sets, tables, strict=True):
        all_sets = _group_by_settings(all_entries, setting)
        table_pairs = _compare_table(shown, all_sets, setting, margin, axis is not None)
        pairs.append(table_pairs)
    return pairs


def _compare_table(
    shown: EntriesBySettings,
    all_sets: EntriesBySettings,
    axis: str,
    margin: float,
    asked: bool,
) -> Pairs:
    """Compare the pairs of one table, and correct them for all pairs of their head."""
    testable = _testable_pairs([*shown.values(), *all_sets.values()], axis)
    groups = _compare_groups(shown, axis, margin)
    num_tests: dict[str, int] = {}
    for family in dict.fromkeys(_family(group.entries, axis) for group in groups):
        family_groups = [
            group for group in groups if _family(group.entries, axis) == family
        ]
        _correct_groups(family_groups, len(testable[family]))
        num_tests[family] = len(testable[family])
    return Pairs(axis, num_tests, groups, asked)


def _family(entries: Sequence[Entry], axis: str) -> str:
    """The head of these entries, whose pairs Holm corrects for one another."""
    return ALL_HEADS if axis == "head" else entries[0].head


def _testable_pairs(
    sets: Iterable[Sequence[Entry]], axis: str
) -> dict[str, set[frozenset[Any]]]:
    """Pairs of entry keys with enough seeds and test rows for a claim, by family."""
    testable: dict[str, set[frozenset[Any]]] = {}
    for entries in sets:
        pairs = {
            frozenset({first.key, second.key})
            for first, second in combinations(entries, 2)
            if _is_testable(first, second)
        }
        testable.setdefault(_family(entries, axis), set()).update(pairs)
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


def _is_testable(entry: Entry, other: Entry) -> bool:
    """Whether two entries have seeds and test rows enough for a claim."""
    seeds = {*entry.finished} & {*other.finished}
    num_rows: int = entry.accuracy.scored.by_row.shape[1]  # type: ignore[union-attr]
    return len(seeds) >= stats.LEAST_SEEDS and num_rows > 1


def _compare_groups(sets: EntriesBySettings, axis: str, margin: float) -> list[Group]:
    """Compare the entries of the largest groups, and name each group."""
    if not sets:
        return []
    shared = set.intersection(*map(set, sets))
    largest_first = sorted(sets.items(), key=lambda item: -len(item[1]))
    groups = []
    for settings, entries in largest_first[:MOST_GROUPS]:
        values = [brief(_axis_value(entry, axis), 60) for entry in entries]
        labels = tuple(numbered(values))
        pairs = _compare_entries(entries, _references(labels), margin)
        name = _group_name(settings, shared)
        groups.append(Group(name, labels, tuple(entries), pairs))
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


def _compare_entries(
    entries: Sequence[Entry], references: Sequence[int], margin: float
) -> dict[Places, Comparison]:
    """Compare the best entries with each other, and all entries with the references."""
    pairs: dict[Places, Comparison] = {}
    for first, second in combinations(range(len(entries)), 2):
        if second < MOST_VALUES or first in references or second in references:
            comparison = paired_difference(entries[first], entries[second], margin)
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


def _axis_value(entry: Entry, axis: str) -> str:
    """The value of the setting in an entry; the default if its recipe has none."""
    if axis == "attn":
        return entry.attention
    if axis == "head":
        return entry.head
    value = entry.recipe.get(axis, entry.runs[0].setting(axis))
    if value is None and axis in MEAN_ALL:
        return ALL
    return str(value)


def _group_by_settings(entries: Sequence[Entry], axis: str) -> EntriesBySettings:
    """Group entries that agree in all settings but the axis and the tuned ones.

    A group without two values of the axis is left out. So are probes, entries with
    shuffled labels and entries without the score, and, where the axis is a setting that
    tuning chose, the tuned entries: their values were chosen, not compared.
    """
    sets: EntriesBySettings = {}
    for entry in entries:
        if entry.fitted or entry.shuffled or entry.compared_score.mean is None:
            continue
        if entry.tunings and axis in TUNED:
            continue
        sets.setdefault(_settings(entry, axis), []).append(entry)
    return {
        settings: members
        for settings, members in sets.items()
        if len({_axis_value(entry, axis) for entry in members}) > 1
    }


def _settings(entry: Entry, axis: str) -> SettingPairs:
    """The settings of an entry, without the axis and without tuned settings."""
    left_out = {axis}
    if entry.tunings:
        left_out.update(TUNED)
    is_scaled = entry.compared_score.score.of_sizes and entry.temperatures is not None
    settings: dict[str, Any] = {
        "attn": entry.attention,
        "head": entry.head,
        "tuned": bool(entry.tunings),
        **entry.recipe,
        "scaled logits": is_scaled,
    }
    pairs = []
    for name, value in settings.items():
        if name not in left_out and value is not None:
            pairs.append((name, str(value)))
    return tuple(sorted(pairs))
