"""Compare every mechanism, or every value of a setting, with every other.

The section says which entry is best, and how sure that is.
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from gaam_cache.common.messages import counted
from gaam_decoder import stats
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.reports.cells import Cell, p_value, range_cell, verdict
from gaam_decoder.reports.columns import (
    DIFFERENCE,
    DIFFERENCE_CI,
    P_HOLM,
    VERDICT,
    Sheet,
)
from gaam_decoder.reports.compare import (
    ALL,
    ENCODER,
    MOST_GROUPS,
    MOST_VALUES,
    PairGroup,
    PairPositions,
    Pairs,
    num_tests_in_words,
)
from gaam_decoder.reports.entries import Comparison, claim_values
from gaam_decoder.reports.sections.base import Parts, Section, Writer
from gaam_decoder.reports.table import Table
from gaam_decoder.reports.wording import enumerated
from gaam_decoder.stats.paired import NO_CLAIM
from gaam_decoder.stats.scores.base import Score

MARKS = {"better": "*", "worse": "*", "equivalent": "="}  # beside a difference
MOST_LISTED = 24  # pairs of a group in the list: people read no more
MOST_ANSWERS = 3  # groups whose best entry stands under the title
MOST_NAMED = 6  # entries that one part of an answer names
PAIR_HEADERS = [
    column.header for column in (DIFFERENCE, DIFFERENCE_CI, P_HOLM, VERDICT)
]
"""Headers of a table of pairs, behind the first column."""
VERDICTS = {
    "better": "better than {}",
    "worse": "worse than {}",
    "equivalent": "equivalent to {} within {}",
    "undecided": "not shown to differ from {}",
}
"""How an answer compares an entry with others."""


class EveryPair(Writer):
    """For each group of entries that differ in one setting: pairs, and a matrix."""

    position = 30

    def sections_of(self, table: Table) -> Iterator[Section]:
        """Yield the section if there are pairs beside the comparison with the baseline.

        A person who asks for pairs along an axis (a setting) gets every one.
        """
        pairs = table.pairs
        if not pairs:
            return
        comparisons = [
            comparison for group in pairs.groups for comparison in group.pairs.values()
        ]
        if not comparisons:
            return
        # a single pair of mechanisms is the comparison in the table above
        is_in_table = (
            pairs.axis == "attn" and bool(table.baseline) and len(comparisons) < 2
        )
        if is_in_table and not pairs.is_requested:
            return

        axis = pairs.axis.replace("_", "-")
        yield Section(
            name="pairs",
            heading="Every pair",
            lead=lead(comparisons, axis),
            answers=_answers(table, pairs) if pairs.is_requested else (),
            lines=_lines(table, pairs),
            make=lambda: Parts(list(_sheets(pairs.groups, axis, table.score))),
            values={
                "axis": axis,
                "corrected_for": pairs.num_tests,
                "groups": [group_values(group) for group in pairs.groups],
            },
        )


def lead(comparisons: Sequence[Comparison], axis: str) -> str:
    """How many pairs differ, and how many have each other verdict."""
    noun = "mechanisms" if axis == "attn" else f"decoders that differ in {axis} alone"
    count = Counter(comparison.claim.verdict for comparison in comparisons)
    num_different = count.pop("better", 0) + count.pop("worse", 0)
    parts = [f"{num_different} differ"]
    parts += [f"{number} {verdict}" for verdict, number in sorted(count.items())]
    return f"of {counted(len(comparisons), 'pair')} of {noun}, {', '.join(parts)}"


def _lines(table: Table, pairs: Pairs) -> list[str]:
    """The legend below the tables of pairs."""
    score = table.score
    lines = [
        f"differences are in {score.difference_unit}; the best decoder stands first",
        "each pair is tested as a comparison with a baseline is; Holm corrects for all "
        f"pairs of this table ({num_tests_in_words(pairs.num_tests)}), a family of "
        "their own",
    ]
    if any(len(group.pairs) > MOST_LISTED for group in pairs.groups):
        lines.append(
            "line minus column: * they differ, = they are equivalent within "
            f"{score.size(table.margin)}, no mark: undecided, or no claim"
        )
        lines.append(
            f"the {MOST_VALUES} best decoders are compared each with each, all others "
            "with the best one and with that of all layers or rows; "
            f"{MOST_LISTED} pairs at most are listed, JSON has every one"
        )
    # there may be more groups than these
    if len(pairs.groups) == MOST_GROUPS:
        lines.append(
            f"of more than {MOST_GROUPS} groups those of most decoders are compared"
        )
    return lines


def group_values(group: PairGroup) -> dict[str, object]:
    """The pairs of a group as JSON values."""
    pairs = []
    for (first, second), comparison in group.pairs.items():
        pair = {
            "first": group.labels[first],
            "second": group.labels[second],
            "paired_seeds": list(comparison.seeds),
        }
        pairs.append(pair | claim_values(comparison.claim))
    return {"shared": group.name, "labels": list(group.labels), "pairs": pairs}


def _answers(table: Table, pairs: Pairs) -> list[str]:
    """Name the best entry of every group, in a sentence without its full stop.

    Of many groups a last sentence has the number alone.
    """
    axis = pairs.axis.replace("_", "-")
    groups = [group for group in pairs.groups if group.pairs]
    answers = [
        answer(group, axis, table.score, table.margin)
        for group in groups[:MOST_ANSWERS]
    ]
    return [*answers, *more_groups(len(groups), axis, "pairs")]


def more_groups(num_groups: int, axis: str, section: str) -> Iterator[str]:
    """A sentence on the groups that have no sentence of their own.

    Args:
        num_groups: number of all groups.
        axis: the setting in which the entries of a group differ.
        section: where all of them stand.
    """
    num_more = num_groups - MOST_ANSWERS
    if num_more > 0:
        verb = (
            "group of decoders differs"
            if num_more == 1
            else "groups of decoders differ"
        )
        yield f"{num_more} more {verb} in {axis} alone: --section {section}"


def answer(group: PairGroup, axis: str, score: Score, margin: float) -> str:
    """A sentence on the best entry: its verdicts, and its difference to the second.

    Args:
        group: entries that differ in one setting alone.
        axis: this setting.
        score: that is compared.
        margin: largest difference that does not matter.
    """
    mean = score.text(group.entries[0].compared_score.mean)
    percent = "%" if score.percent else ""
    best_label = in_words(axis, group.labels[:1])
    text = f"the best mean {score.title} is that of {best_label}, {mean}{percent}"
    tied = _tied_with_best(group)
    if tied:
        text += f" (the same mean: {in_words(axis, tied)})"
    if group.name:
        text = f"{group.name}: {text}"

    # position of another entry -> the best entry minus that one
    comparisons_of_best = {
        second: comparison
        for (first, second), comparison in group.pairs.items()
        if first == 0
    }
    clauses = _verdicts_of_best(group, axis, score.size(margin), comparisons_of_best)
    if clauses:
        text += f": {'; '.join(clauses)}"
    if not comparisons_of_best:
        return text

    # the best of the entries that it is compared with
    second = min(comparisons_of_best)
    claim = comparisons_of_best[second].claim
    pair = _pair_in_words(group, axis, (0, second))
    text += f"; {pair}: {score.difference(claim.difference)}"
    if claim.interval_corrected:
        interval = score.span(claim.interval_corrected, signed=True)
        text += f", {interval}, p {p_value(claim.p_holm)}"
    return text


def _tied_with_best(group: PairGroup) -> list[str]:
    """The labels of the other entries whose mean is that of the best, but for rounding.

    A group has the best entry first.
    """
    best, *others = zip(group.labels, group.entries, strict=True)
    best_mean = best[1].compared_score.mean
    assert best_mean is not None, "pairs have scores"
    return [
        label
        for label, entry in others
        if entry.compared_score.mean is not None
        and math.isclose(entry.compared_score.mean, best_mean, rel_tol=1e-9)
    ]


def _verdicts_of_best(
    group: PairGroup,
    axis: str,
    margin: str,
    comparisons_of_best: Mapping[int, Comparison],
) -> list[str]:
    """Clauses on the best entry: which others it is better than, equivalent to, ...

    Args:
        group: entries that differ in one setting alone, the best first.
        axis: this setting.
        margin: largest difference that does not matter, in words.
        comparisons_of_best: the best entry minus another, by the other's position.
    """
    labels_by_verdict: dict[str, list[str]] = {}
    for second, comparison in comparisons_of_best.items():
        labels = labels_by_verdict.setdefault(comparison.claim.verdict, [])
        labels.append(group.labels[second])
    clauses = []

    # Too few seeds decide nothing, where there are seeds. Where the score or the data
    # are why there is no claim, that reason is given: more seeds would not help.
    num_seeds = max(
        (len(pair.seeds) for pair in comparisons_of_best.values()), default=0
    )
    has_seeds = not group.entries[0].fitted_at_once
    has_few_seeds = has_seeds and num_seeds < stats.LEAST_SEEDS
    if has_few_seeds and NO_CLAIM not in labels_by_verdict:
        seeds = f"seeds: {num_seeds}, and other verdicts need {stats.LEAST_SEEDS}"
        clauses.append(f"every difference is undecided ({seeds})")
    else:
        verdicts = [
            words.format(in_words(axis, labels_by_verdict[verdict]), margin)
            for verdict, words in VERDICTS.items()
            if verdict in labels_by_verdict
        ]
        if verdicts:
            clauses.append(f"it is {', '.join(verdicts)}")

    if NO_CLAIM in labels_by_verdict:
        reasons = (
            comparison.claim.no_claim_reason
            for comparison in comparisons_of_best.values()
        )
        first_reason = next(filter(None, reasons))
        without_claim = in_words(axis, labels_by_verdict[NO_CLAIM])
        clauses.append(f"no claim is made beside {without_claim}: {first_reason}")
    return clauses


def in_words(axis: str, labels: Sequence[str]) -> str:
    """Spell values of a setting for a sentence: ``layers 1-4 and all layers``.

    ``axis`` is the setting, ``labels`` are its values. Of many values the first are
    spelled, the others counted.
    """
    if axis in ("attn", "head", ENCODER):
        names = list(labels)
    elif axis == "layers":
        names = _layers_in_words(labels)
    else:
        names = [f"{axis} {label}" for label in labels]
    return enumerated(names, MOST_NAMED)


def _layers_in_words(labels: Sequence[str]) -> list[str]:
    """Spell sets of layers: single layers first, then ranges, then all layers."""
    names = []
    single = sorted(int(label) for label in labels if label.isdecimal())
    if single:
        plural = "s" if len(single) > 1 else ""
        names.append(f"layer{plural} {spell_numbers(single)}")
    ranges = [label for label in labels if not label.isdecimal() and label != ALL]
    names += [f"layers {label}" for label in ranges]
    if ALL in labels:
        names.append("all layers")
    return names


def _pair_in_words(group: PairGroup, axis: str, pair: PairPositions) -> str:
    """Both entries of a pair in words, such as ``layer 1 minus layer 5``.

    ``pair`` has their positions in the group.
    """
    return " minus ".join(in_words(axis, [group.labels[index]]) for index in pair)


def _sheets(groups: Sequence[PairGroup], axis: str, score: Score) -> Iterator[Sheet]:
    """A list of pairs for every group, and a matrix where the list leaves some out."""
    for group in groups:
        yield _list_sheet(group, axis, score)
        if len(group.pairs) > MOST_LISTED:
            yield _matrix_sheet(group, axis, score)


def _list_sheet(group: PairGroup, axis: str, score: Score) -> Sheet:
    """The table of a group: a line for every listed pair, with interval and p.

    ``axis`` is the setting in which the entries of the group differ.
    """
    lines = [pair_cells(group, axis, pair, score) for pair in _listed_pairs(group)]
    header = PAIR_HEADERS
    listed = "first minus second of every pair"
    if len(lines) < len(group.pairs):
        listed = f"first minus second of {len(lines)} of {len(group.pairs)} pairs"
    return Sheet(_caption(listed, group, axis, score), ["pair", *header], lines, header)


def pair_cells(
    group: PairGroup, axis: str, pair: PairPositions, score: Score
) -> list[str]:
    """A line of a table of pairs: both entries, difference, interval, p and verdict.

    Args:
        group: entries that differ in one setting alone.
        axis: this setting.
        pair: positions of the two entries in the group.
        score: that is compared.
    """
    claim = group.pairs[pair].claim
    return [
        _pair_in_words(group, axis, pair),
        score.difference(claim.difference),
        range_cell(score.span(claim.interval_corrected, signed=True)),
        p_value(claim.p_holm),
        verdict(claim),
    ]


def _listed_pairs(group: PairGroup) -> list[PairPositions]:
    """The pairs to list: all if they are few, else those of the reference entries.

    The reference entries are the best one, and the one of all layers or rows. Each is
    paired with the other references and the best entries.
    """
    pairs = sorted(group.pairs)
    if len(pairs) <= MOST_LISTED:
        return pairs
    references = {*group.references}
    # entries stand by rank
    best_entries = range(MOST_VALUES)
    listed_entries = {*best_entries} | references
    listed_pairs = []
    for pair in pairs:
        has_reference = bool(references & {*pair})
        if has_reference and {*pair} <= listed_entries:
            listed_pairs.append(pair)
    return listed_pairs[:MOST_LISTED]


def _matrix_sheet(group: PairGroup, axis: str, score: Score) -> Sheet:
    """The table of differences of the best entries, line minus column.

    A star marks a pair that differs, ``=`` an equivalent one.
    """
    count = min(len(group.labels), MOST_VALUES)
    cells = [["-"] * count for _ in range(count)]
    for (first, second), comparison in group.pairs.items():
        # positions are ranks, and the second is the larger one
        if second < count:
            claim = comparison.claim
            cells[first][second] = _marked(claim.difference, claim, score)
            cells[second][first] = _marked(-claim.difference, claim, score)
    header = [axis, *(str(number) for number in range(1, count + 1))]
    lines = [[f"{i + 1} {group.labels[i]}", *cells[i]] for i in range(count)]
    return Sheet(_caption("line minus column", group, axis, score), header, lines)


def _marked(difference: float, claim: stats.Claim, score: Score) -> Cell:
    """A difference with the mark of its claim, which stands in words in CSV."""
    text = score.difference(difference)
    mark = MARKS.get(claim.verdict, "")
    differs = claim.verdict in ("better", "worse")
    return Cell(
        text + mark, {"": text, " verdict": "differs" if differs else claim.verdict}
    )


def _caption(text: str, group: PairGroup, axis: str, score: Score) -> str:
    """The caption of a group's table: ``text``, the axis, the group and the unit."""
    name = f" ({group.name})" if group.name else ""
    return f"{text} along {axis}{name}, {score.difference_unit}"
