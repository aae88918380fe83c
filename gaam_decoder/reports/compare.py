"""Compare entries with a baseline, with the linear probe, and in pairs along a setting.

``paired_difference`` pairs two entries by seed and test row. Each of the three kinds of
comparison is a family of its own: Holm corrects the comparisons of one head on the same
states and test rows, with those that filters left out. Other tables of a report are
other families.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import NamedTuple, TypeVar

import numpy as np

from gaam_cache.common.errors import ConfigError
from gaam_cache.common.messages import brief
from gaam_decoder import stats
from gaam_decoder.number_lists import DRAWN_BY
from gaam_decoder.reports.entries import Comparison, Entry, EntryKey
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import TUNED_SETTINGS
from gaam_decoder.specs import Settings
from gaam_decoder.stats.paired import compare_on_these_rows
from gaam_decoder.stats.scored import claim_by_score

DEFAULT_BASELINE = "none"
# The value of ``val_split`` where rows of the train split validate.
HELD_OUT_ROWS = "held-out rows"
# Validation rows that choose the penalty of a fit, for a claim on it beside another.
LEAST_VALIDATION_ROWS = 40
# Entries of a group that are compared each with each: people can read a matrix of 66.
MOST_VALUES = 12
# Groups of a table that are compared, the largest first.
MOST_GROUPS = 8
# A recipe without one of these settings uses all layers, or all training rows.
UNSET_MEANS_ALL = ("layers", *DRAWN_BY)
ALL = "all"  # what reports call the missing value
ALL_HEADS = "all heads"
ENCODER = "encoder"
"""The axis along which entries of several tables are compared: see ``encoders``."""

SettingPairs = tuple[tuple[str, str], ...]  # sorted names and values
EntriesBySettings = dict[SettingPairs, list[Entry]]
PairPositions = tuple[int, int]  # the positions of two entries in their group
Key = TypeVar("Key", bound=Hashable)  # of a comparison


def paired_difference(entry: Entry, other: Entry, margin: float) -> Comparison | None:
    """Subtract the score of another entry from that of an entry, seed by seed.

    A head that is fitted at once has no seeds: its predictions are subtracted from
    those of each seed. The difference of two such heads is tested over rows alone.

    Returns:
        None if the two have no seed in common, if one of them lacks the score, or if
        only one of them has probabilities that a fitted temperature scaled.
    """
    seeds = _common_seeds(entry, other)
    if not seeds or not _have_comparable_scores(entry, other):
        return None

    # positions of the seeds in the arrays of each entry; a fit has a single position
    positions = [entry.finished.index(seed) for seed in seeds]
    other_positions = [0] * len(seeds)
    if not other.fitted_at_once:
        other_positions = [other.finished.index(seed) for seed in seeds]
    are_fits = entry.fitted_at_once and other.fitted_at_once
    if are_fits:
        # they do not vary over seeds: each stands for as many equal seeds as a claim
        # needs
        positions = [0] * stats.LEAST_SEEDS
        other_positions = positions
    scored = entry.compared_score.scored.subset_of_seeds(positions)
    if are_fits:
        reason = _why_no_claim_on_fits([*entry.runs, *other.runs])
        scored = replace(scored, no_claim_reason=scored.no_claim_reason or reason)
    claim = claim_by_score(
        entry.compared_score.score,
        scored,
        other.compared_score.scored.subset_of_seeds(other_positions),
        margin=margin,
    )
    if are_fits:
        claim = _without_seeds(claim)
    return Comparison(
        baseline=other.attention,
        seeds=seeds,
        dropped_seeds=tuple(sorted({*entry.seeds, *other.seeds} - {*seeds})),
        claim=claim,
        fold_test=_difference_over_folds(entry, other, positions, other_positions),
        grids_differ=_tuning_grids(entry) != _tuning_grids(other),
    )


def _common_seeds(entry: Entry, other: Entry) -> tuple[int, ...]:
    """The finished seeds of an entry that another entry has, too."""
    # a head that is fitted at once stands beside every seed
    return tuple(
        seed
        for seed in entry.finished
        if other.fitted_at_once or seed in other.finished
    )


def _have_comparable_scores(entry: Entry, other: Entry) -> bool:
    """Whether two entries have the score, both or neither of scaled logits."""
    is_scored = (
        entry.compared_score.mean is not None and other.compared_score.mean is not None
    )
    if not is_scored:
        return False
    # logits that a temperature divides do not compare with logits as they are
    is_one_scaled = (entry.temperatures is None) != (other.temperatures is None)
    return not (entry.compared_score.score.uses_temperature and is_one_scaled)


def _why_no_claim_on_fits(runs: Sequence[RunResult]) -> str:
    """Why fits allow no claim on their difference; empty if they do.

    No interval includes the choice of a penalty by validation rows. In simulations with
    20 of them 12 of 100 tables of three equal fits call two different, with 60 of them
    6.
    """
    for run in runs:
        if run.fit is None or run.fit.tried < 2 or run.validation is None:
            continue
        num_rows = int((run.validation.rows >= 0).sum())
        if num_rows < LEAST_VALIDATION_ROWS:
            return (
                f"{num_rows} validation rows chose its penalty, and a claim takes "
                f"{LEAST_VALIDATION_ROWS}"
            )
    return ""


def _without_seeds(claim: stats.Claim) -> stats.Claim:
    """The claim of two fits, whose test over seeds alone says nothing."""
    difference_S = np.array([claim.difference])
    return replace(
        claim, on_these_rows=compare_on_these_rows(difference_S, claim.margin)
    )


def _difference_over_folds(
    entry: Entry, other: Entry, positions: list[int], other_positions: list[int]
) -> stats.CorrectedT | None:
    """Test the difference of two entries over the P folds of a cross-validation.

    The t test is corrected, because the training sets of folds overlap.

    Args:
        entry: the entry.
        other: the entry that is subtracted.
        positions: of the common seeds in the arrays of ``entry``.
        other_positions: of the same seeds in the arrays of ``other``.

    Returns:
        None without folds, or where a fold has no score.
    """
    difference_SP = entry.score_SP[positions] - other.score_SP[other_positions]
    difference_P = difference_SP.mean(0)
    if entry.folds <= 1 or not np.isfinite(difference_P).all():
        return None

    # Test rows of a fold for every training or validation row: the correction needs
    # this ratio. Where only some training rows were drawn, it is larger.
    test_per_train = 1 / (entry.folds - 1)
    if entry.num_drawn_rows is not None:
        first = entry.runs[0]
        split_rows = first.cache.rows[first.recipe.train_split]
        test_per_train = split_rows / entry.folds / entry.num_drawn_rows
    largest_difference = entry.compared_score.score.largest_difference
    return stats.corrected_resampled_t(
        difference_P, test_per_train, most=largest_difference
    )


def _tuning_grids(entry: Entry) -> list[list[dict[str, float]]]:
    """For every tuning of an entry (one, or one a fold), the settings it tried."""
    return [
        [candidate.values for candidate in tuning.candidates]
        for tuning in entry.tunings
    ]


def _correct_by_holm(
    comparisons: Mapping[Key, Comparison],
    whole_family: Mapping[Key, Comparison] | None = None,
    num_untested: int = 0,
) -> dict[Key, Comparison]:
    """Give comparisons Holm's p-values, corrected for all comparisons of a family.

    A family are the comparisons that are corrected for one another. The tests of a
    difference and of equivalence are a family each.

    Args:
        comparisons: key -> a comparison to correct.
        whole_family: key -> a comparison of the family. Those whose keys
            ``comparisons`` lacks count in the correction too, but are not returned.
        num_untested: number of further comparisons, which count with p=1.

    Returns:
        The keys of ``comparisons`` -> the corrected comparison.
    """
    claims = [comparison.claim for comparison in comparisons.values()]
    for key, comparison in (whole_family or {}).items():
        if key not in comparisons:
            claims.append(comparison.claim)

    # The corrected claims of ``comparisons`` come first.
    corrected_claims = stats.holm_corrected(claims, num_untested)
    return {
        key: replace(comparison, claim=claim)
        for (key, comparison), claim in zip(
            comparisons.items(), corrected_claims, strict=False
        )
    }


def compare_with_counterparts(
    entries: Sequence[Entry],
    all_entries: Sequence[Entry],
    margin: float,
    find_counterpart: Callable[[Entry, Sequence[Entry]], Entry | None],
) -> dict[EntryKey, Comparison]:
    """Compare every entry of a table with its counterpart.

    Holm corrects the comparisons of entries with the same head for one another.

    Args:
        entries: entries of one table.
        all_entries: these entries, and those that filters left out of the table. The
            latter count in the correction alone.
        margin: largest difference that does not matter.
        find_counterpart: of an entry and a list of entries, the one in the list that is
            subtracted from the entry; None: the entry is not compared.

    Returns:
        The comparison of each entry with a counterpart, by the key of the entry.
    """
    corrected: dict[tuple[EntryKey, EntryKey], Comparison] = {}
    for head in dict.fromkeys(entry.head for entry in entries):
        comparisons = _compare_head(entries, head, margin, find_counterpart)
        all_comparisons = _compare_head(all_entries, head, margin, find_counterpart)
        corrected |= _correct_by_holm(comparisons, all_comparisons)
    # an entry has one counterpart, so its own key identifies the comparison
    return {
        entry_key: comparison
        for (entry_key, _counterpart_key), comparison in corrected.items()
    }


def _compare_head(
    entries: Sequence[Entry],
    head: str,
    margin: float,
    find_counterpart: Callable[[Entry, Sequence[Entry]], Entry | None],
) -> dict[tuple[EntryKey, EntryKey], Comparison]:
    """Subtract from every entry with this head its counterpart.

    ``find_counterpart`` finds the counterpart of an entry among ``entries``, or None.

    Returns:
        Keys of an entry and its counterpart -> their comparison, not yet corrected by
        Holm.
    """
    comparisons = {}
    for entry in entries:
        if entry.head != head:
            continue
        other = find_counterpart(entry, entries)
        if other is None:
            continue
        comparison = paired_difference(entry, other, margin)
        if comparison is not None:
            comparisons[entry.key, other.key] = comparison
    return comparisons


def num_tests_by_head(
    entries: Sequence[Entry], comparisons: Mapping[EntryKey, Comparison]
) -> dict[str, int]:
    """Number of comparisons that Holm corrects for, by head.

    Heads without a comparison that allows a claim are left out.

    Args:
        entries: of one table.
        comparisons: key of an entry -> its comparison with the baseline.
    """
    counts: dict[str, int] = {}
    for entry in entries:
        comparison = comparisons.get(entry.key)
        # all comparisons of a head have the same number
        if comparison and comparison.claim.testable:
            counts[entry.head] = comparison.claim.num_tests
    return counts


def num_tests_in_words(num_tests: Mapping[str, int]) -> str:
    """Say how many comparisons Holm corrects for, from their number by head.

    Such as ``3``, or of several heads ``3 of head linear and 1 of head mlp``.
    """
    if len(num_tests) < 2:
        return f"{sum(num_tests.values())}"
    return " and ".join(
        f"{count} of head {brief(head)}" for head, count in num_tests.items()
    )


def same_recipe(first: Settings, second: Settings, ignore: Iterable[str] = ()) -> bool:
    """Whether two recipes agree in all settings except those in ``ignore``.

    A missing setting is the same as None.
    """
    keys = (first.keys() | second.keys()) - set(ignore)
    return all(first.get(key) == second.get(key) for key in keys)


def choose_baseline(entries: Sequence[Entry], requested: str | None) -> str | None:
    """Choose the mechanism to compare with: the requested one, else ``none``.

    None if nothing was requested and no run has the mechanism ``none``.

    Raises:
        ConfigError: no entry has the requested mechanism.
    """
    evaluated = sorted(
        {entry.attention for entry in entries if not entry.labels_shuffled}
    )
    if requested is None:
        # The mechanism of a linear probe is 'none' too. A probe is a baseline only
        # where no decoder was trained in steps, because these are compared with one
        # another.
        candidates = {entry.attention for entry in trained_in_steps(entries)}
        candidates = candidates or set(evaluated)
        return DEFAULT_BASELINE if DEFAULT_BASELINE in candidates else None
    if requested in evaluated:
        return requested
    raise ConfigError(
        f"no run of the baseline '{requested}' was evaluated",
        expected=f"one of: {', '.join(evaluated)}",
        hint=f"gaam train --attn {requested}, or a filter that does not leave it out",
    )


def sampled_units(entries: Sequence[Entry], num_groups: int | None) -> str:
    """What the intervals of entries are over: "seeds and test rows".

    Heads that are fitted at once have no seeds.

    Args:
        entries: of a table.
        num_groups: number of groups of its test rows; None without groups.
    """
    units = "groups of test rows" if num_groups else "test rows"
    return f"seeds and {units}" if trained_in_steps(entries) else units


def trained_in_steps(entries: Sequence[Entry]) -> list[Entry]:
    """The entries whose heads are not fitted at once, without those of controls.

    A control learned from shuffled labels.
    """
    return [
        entry
        for entry in entries
        if not (entry.fitted_at_once or entry.labels_shuffled)
    ]


def is_baseline(entry: Entry, baseline: str | None) -> bool:
    """Whether an entry has the mechanism of the baseline, and no shuffled labels."""
    return entry.attention == baseline and not entry.labels_shuffled


def find_baseline(
    entry: Entry, entries: Sequence[Entry], baseline: str | None
) -> Entry | None:
    """Find the entry of the baseline with the same head and recipe.

    ``baseline`` is the name of its mechanism. If both entries were tuned, their tuned
    settings may differ.

    Returns:
        None if no entry of the baseline differs in the mechanism alone, if the entry is
        one of the baseline itself, or if its labels were shuffled.
    """
    if entry.labels_shuffled or entry.attention == baseline:
        return None
    baseline_entries = [
        other
        for other in entries
        if is_baseline(other, baseline) and other.head == entry.head
    ]
    for other in baseline_entries:
        if same_recipe(entry.recipe, other.recipe):
            return other
    if not entry.tunings:
        return None
    # each decoder may have a learning rate and weight decay of its own
    for other in baseline_entries:
        if other.tunings and same_recipe(entry.recipe, other.recipe, TUNED_SETTINGS):
            return other
    return None


def find_probe(entry: Entry, entries: Sequence[Entry]) -> Entry | None:
    """Find the linear probe that was fitted to the same rows and layers as an entry.

    A linear probe is logistic regression on the states; of numbers, ridge regression.

    Returns:
        None if there is no such probe, if the entry is a probe itself, has shuffled
        labels, or has too few seeds for a claim.
    """
    if (
        entry.fitted_at_once
        or entry.labels_shuffled
        or len(entry.finished) < stats.LEAST_SEEDS
    ):
        return None
    for other in entries:
        is_usual_probe = other.is_probe and not other.labels_shuffled
        if is_usual_probe and _has_input_of_probe(entry, other):
            return other
    return None


def _has_input_of_probe(entry: Entry, probe: Entry) -> bool:
    """Whether an entry learned from the rows and layers that a probe was fitted to."""
    # The recipe of a probe has nothing but its rows and layers. A probe without a
    # setting that draws rows uses all rows, and so must the entry; without a validation
    # split its validation rows are training rows.
    names = {*probe.recipe, *DRAWN_BY, "val_split"}
    return all(entry.recipe.get(name) == probe.recipe.get(name) for name in names)


class PairGroup(NamedTuple):
    """Entries that differ in one setting alone, the best first, and all their pairs."""

    name: str  # the settings that distinguish it from other groups; may be empty
    labels: tuple[str, ...]  # the value of the setting, for each entry
    entries: tuple[Entry, ...]
    pairs: dict[PairPositions, Comparison]
    """Positions of two entries -> the first entry minus the second."""

    @property
    def references(self) -> tuple[int, ...]:
        """Positions in ``entries`` of those that are compared with every other entry.

        These are the best entry, and each that uses all layers or all training rows.
        """
        return _reference_positions(self.labels)


class Pairs(NamedTuple):
    """The pairs of one table."""

    axis: str  # the setting in which the two entries of a pair differ
    num_tests: dict[str, int]
    """Head, or ``ALL_HEADS`` -> number of its pairs that Holm corrects for: those with
    enough seeds for a claim."""
    groups: list[PairGroup]
    is_requested: bool  # whether the user named this axis


def _reference_positions(labels: Sequence[str]) -> tuple[int, ...]:
    """Position 0, of the best entry, and the positions of the label ``all``.

    ``labels`` have the value of the axis for each entry of a group, the best first.
    """
    positions = {position for position, label in enumerate(labels) if label == ALL}
    return tuple(sorted({0} | positions))


class TableEntries(NamedTuple):
    """The entries of one table."""

    entries: Sequence[Entry]
    all_entries: Sequence[Entry]
    """These, and those that filters left out of the table. The latter count in the
    correction for many comparisons alone. Empty if filters left nothing out."""


def compare_pairs(
    tables: Sequence[TableEntries], axis: str | None, margin: float
) -> list[Pairs]:
    """Compare all pairs of entries of every table that differ in one setting alone.

    Of many entries, the best are compared each with each; all others are compared with
    the best entry and with the entry of all layers, if there is one. Holm corrects for
    all possible pairs of a table and head: a pair that is not compared counts with p=1.

    Args:
        tables: the entries of each table.
        axis: the setting that a person named; None: the mechanism.
        margin: largest difference that does not matter.

    Raises:
        ConfigError: no two entries differ in the setting alone.
    """
    setting = "attn" if axis is None else normalised_axis(axis)
    pairs_of_tables = [
        compare_pairs_of_table(table, setting, margin, is_requested=axis is not None)
        for table in tables
    ]
    if axis is not None and not any(pairs.groups for pairs in pairs_of_tables):
        raise ConfigError(
            f"no two decoders differ in '{axis}' alone",
            expected="attn, head, layers, lr, encoder or another setting in which some "
            "do",
            hint="--all shows every candidate of what validation chose",
        )
    return pairs_of_tables


def normalised_axis(axis: str) -> str:
    """The name of a setting as recipes write it, from that of a person."""
    return axis.strip().lower().replace("-", "_")


def compare_pairs_of_table(
    table: TableEntries, axis: str, margin: float, *, is_requested: bool
) -> Pairs:
    """Compare the pairs of one table, and correct them by Holm for all its pairs.

    The pairs of one head are a family of their own; along the axis ``head`` there is
    one family of all heads.

    Args:
        table: its entries, the best first.
        axis: the setting in which the entries of a pair differ.
        margin: largest difference that does not matter.
        is_requested: whether the user named the axis.
    """
    entries_by_settings = _group_by_settings(table.entries, axis)
    all_by_settings = _group_by_settings(table.all_entries, axis)
    # a pair of both mappings counts once
    testable = _testable_pairs(
        [*entries_by_settings.values(), *all_by_settings.values()], axis
    )
    groups = _compare_groups(entries_by_settings, axis, margin)

    # Holm's correction of each family replaces the comparisons in its groups
    num_tests: dict[str, int] = {}
    for family in dict.fromkeys(_family(group.entries, axis) for group in groups):
        family_groups = [
            group for group in groups if _family(group.entries, axis) == family
        ]
        _correct_groups(family_groups, len(testable[family]))
        num_tests[family] = len(testable[family])
    return Pairs(axis, num_tests, groups, is_requested)


def _family(entries: Sequence[Entry], axis: str) -> str:
    """Name of the family of these entries: their head, or that of all heads.

    Holm corrects the pairs of a family for one another.
    """
    return ALL_HEADS if axis == "head" else entries[0].head


def _testable_pairs(
    groups: Iterable[Sequence[Entry]], axis: str
) -> dict[str, set[frozenset[EntryKey]]]:
    """The distinct pairs with enough seeds and test rows for a claim, by family.

    Args:
        groups: groups of entries that differ in the axis alone.
        axis: name of the setting in which the entries of a pair differ.

    Returns:
        Family, whose pairs Holm corrects for one another -> its pairs, each a set of
        the keys of two entries.
    """
    testable: dict[str, set[frozenset[EntryKey]]] = {}
    for entries in groups:
        pairs = {
            frozenset({first.key, second.key})
            for first, second in combinations(entries, 2)
            if _is_testable(first, second)
        }
        testable.setdefault(_family(entries, axis), set()).update(pairs)
    return testable


def _correct_groups(groups: Sequence[PairGroup], num_testable: int) -> None:
    """Replace the comparisons of these groups by corrected ones, in place.

    Args:
        groups: the groups of one family.
        num_testable: number of pairs of the family that allow a claim, compared or not.
    """
    # index of the group, and positions of both entries in it -> their comparison
    comparisons = {
        (group_index, positions): comparison
        for group_index, group in enumerate(groups)
        for positions, comparison in group.pairs.items()
    }
    # pairs of the family that were not compared count with p=1
    claims = [comparison.claim for comparison in comparisons.values()]
    num_tested = sum(claim.testable or claim.refused_by_data for claim in claims)
    num_untested = max(0, num_testable - num_tested)
    corrected = _correct_by_holm(comparisons, num_untested=num_untested)
    for (group_index, positions), comparison in corrected.items():
        groups[group_index].pairs[positions] = comparison


def _is_testable(entry: Entry, other: Entry) -> bool:
    """Whether two entries have enough common seeds and test rows for a claim."""
    by_row_SN = entry.default_score.scored.by_row
    assert by_row_SN is not None, "the default score of every task is one of rows"
    num_rows: int = by_row_SN.shape[1]
    # heads that are fitted at once have no seeds
    are_fits = entry.fitted_at_once and other.fitted_at_once
    seeds = {*entry.finished} & {*other.finished}
    return num_rows > 1 and (are_fits or len(seeds) >= stats.LEAST_SEEDS)


def _compare_groups(
    entries_by_settings: EntriesBySettings, axis: str, margin: float
) -> list[PairGroup]:
    """Compare the entries of the largest groups, and name each group.

    Args:
        entries_by_settings: shared settings -> the entries that differ in the axis
            alone.
        axis: name of the setting in which they differ.
        margin: largest difference that does not matter.
    """
    if not entries_by_settings:
        return []
    heads = {_head_of(settings) for settings in entries_by_settings}
    # of encoders, names have to be the same on every data set, and every decoder counts
    with_head = axis == ENCODER or len(heads) > 1
    most_groups = None if axis == ENCODER else MOST_GROUPS
    largest_first = sorted(entries_by_settings.items(), key=lambda item: -len(item[1]))
    groups = []
    for settings, entries in largest_first[:most_groups]:
        values = [brief(_axis_value(entry, axis), 60) for entry in entries]
        labels = tuple(number_repeated(values))
        # entries that every other entry of the group is compared with
        references = _reference_positions(labels)
        pairs = _compare_entries(entries, references, margin)
        shared_by_head = _shared_by_head(entries_by_settings, _head_of(settings))
        name = _group_name(settings, shared_by_head, with_head=with_head)
        groups.append(PairGroup(name, labels, tuple(entries), pairs))
    return groups


def _head_of(settings: SettingPairs) -> str | None:
    """The head of a group; None along the axis ``head``, where a group has several."""
    return dict(settings).get("head")


def _shared_by_head(
    entries_by_settings: EntriesBySettings, head: str | None
) -> set[tuple[str, str]]:
    """The settings that all groups of a head have: they do not tell them apart."""
    of_head = [
        set(settings) for settings in entries_by_settings if _head_of(settings) == head
    ]
    return set.intersection(*of_head)


def _group_name(
    settings: SettingPairs, shared: set[tuple[str, str]], *, with_head: bool
) -> str:
    """The mechanism of a group, its head, and settings that other groups do not have.

    Args:
        settings: of the group.
        shared: those that all groups with the same head have.
        with_head: whether to name the head.
    """
    values = dict(settings)
    mechanism = values.get("attn")
    head = values.get("head") if with_head else None
    parts = []
    if mechanism and head:
        parts.append(f"{brief(mechanism, 60)} + {brief(head, 60)}")
    elif mechanism:
        parts.append(brief(mechanism, 60))
    elif head:
        parts.append(brief(f"head={head}"))
    parts += [
        brief(f"{name}={value}")
        for name, value in settings
        if name not in ("attn", "head") and (name, value) not in shared
    ]
    return ", ".join(parts)


def _compare_entries(
    entries: Sequence[Entry], references: Sequence[int], margin: float
) -> dict[PairPositions, Comparison]:
    """Compare the best entries with each other, and all entries with the references.

    Args:
        entries: of one group, the best first.
        references: positions of the reference entries.
        margin: largest difference that does not matter.
    """
    pairs: dict[PairPositions, Comparison] = {}
    for first, second in combinations(range(len(entries)), 2):
        # the position is the rank, and ``second`` the lower rank of the two
        are_among_best = second < MOST_VALUES
        if are_among_best or first in references or second in references:
            comparison = paired_difference(entries[first], entries[second], margin)
            if comparison is not None:
                pairs[first, second] = comparison
    return pairs


def number_repeated(names: list[str]) -> list[str]:
    """Add its position, such as `` #2``, to each name that occurs several times."""
    numbered_names = []
    for position, name in enumerate(names, 1):
        is_repeated = names.count(name) > 1
        numbered_names.append(f"{name} #{position}" if is_repeated else name)
    return numbered_names


def _axis_value(entry: Entry, axis: str) -> str:
    """The value of the setting in an entry; the default if its recipe has none."""
    if axis == "attn":
        return entry.attention
    if axis == "head":
        return entry.head
    if axis == ENCODER:
        return entry.encoder
    value = entry.recipe.get(axis, entry.runs[0].setting(axis))
    if value is None and axis in UNSET_MEANS_ALL:
        return ALL
    if value is None and axis == "val_split":
        return HELD_OUT_ROWS
    return "none" if value is None else str(value)


def _group_by_settings(entries: Sequence[Entry], axis: str) -> EntriesBySettings:
    """Group entries that agree in all settings but ``axis`` and the tuned settings.

    A group without two values of the axis is left out. So are entries with shuffled
    labels and entries without the score, and, where the axis is a setting that tuning
    chose, the tuned entries: their values were chosen, not compared. Heads that are
    fitted at once are compared between encoders alone.
    """
    entries_by_settings: EntriesBySettings = {}
    for entry in entries:
        if entry.labels_shuffled or entry.compared_score.mean is None:
            continue
        if entry.fitted_at_once and axis != ENCODER:
            continue
        if entry.tunings and axis in TUNED_SETTINGS:
            continue
        settings = _shared_settings(entry, axis)
        entries_by_settings.setdefault(settings, []).append(entry)
    return {
        settings: group
        for settings, group in entries_by_settings.items()
        if len({_axis_value(entry, axis) for entry in group}) > 1
    }


def differing_settings(entries: Sequence[Entry]) -> list[str]:
    """Names of the settings in which entries of the same mechanism and head differ."""
    by_decoder: dict[tuple[str, str], list[SettingPairs]] = {}
    for entry in entries:
        key = (entry.mechanism, entry.head)
        by_decoder.setdefault(key, []).append(_shared_settings(entry, ENCODER))
    names: set[str] = set()
    for all_settings in by_decoder.values():
        shared = set.intersection(*map(set, all_settings))
        names |= {
            name for settings in all_settings for name, _value in set(settings) - shared
        }
    return sorted(names)


def _shared_settings(entry: Entry, axis: str) -> SettingPairs:
    """The settings of an entry, without the axis and without tuned settings."""
    left_out = {axis}
    if entry.tunings:
        left_out.update(TUNED_SETTINGS)
    is_scaled = (
        entry.compared_score.score.uses_temperature and entry.temperatures is not None
    )
    settings: dict[str, object] = {
        "attn": entry.shared_name or entry.attention,
        "head": entry.head,
        "tuned": bool(entry.tunings),
        # two mechanisms always differ in their code
        "code": (entry.code or None) if axis != "attn" else None,
        **entry.recipe,
        "scaled logits": is_scaled,
    }
    pairs = []
    for name, value in settings.items():
        if name not in left_out and value is not None:
            pairs.append((name, str(value)))
    return tuple(sorted(pairs))
