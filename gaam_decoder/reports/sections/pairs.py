"""Every mechanism against every other, or every value of a setting: which is best, and how sure."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from gaam_decoder import stats
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.reports.columns import (
    DIFFERENCE,
    DIFFERENCE_CI,
    P_HOLM,
    VERDICT,
    Sheet,
    p_value,
    verdict,
)
from gaam_decoder.reports.compare import (
    ALL,
    MOST_GROUPS,
    MOST_VALUES,
    Group,
    Pairs,
    counts_in_words,
)
from gaam_decoder.reports.rows import claim_values
from gaam_decoder.reports.sections.base import Section, Writer
from gaam_decoder.reports.table import Table
from gaam_decoder.stats.paired import NO_CLAIM
from gaam_decoder.stats.scores.base import Score

MARKS = {"better": "*", "worse": "*", "equivalent": "="}  # beside a difference
MOST_LISTED = 24  # pairs of a group that are listed: more is no list that people read
MOST_ANSWERS = 3  # groups of which it is said under the title which row is best
MOST_NAMED = 6  # rows that one part of an answer names
VERDICTS = {
    "better": "better than {}",
    "worse": "worse than {}",
    "equivalent": "equivalent to {} within {}",
    "undecided": "not shown to differ from {}",
}
"""How an answer says what a row is beside others."""


class EveryPair(Writer):
    """Of each group of rows that differ in one setting alone a list of pairs, and a matrix."""

    place = 30

    def of(self, table: Table) -> Iterator[Section]:
        """Nothing without pairs, or where the only one is the comparison with the baseline."""
        found, unit = table.pairs, table.unit
        claims = (
            [one.claim for g in found.groups for one in g.pairs.values()]
            if found
            else []
        )
        if not found or not claims:
            return
        as_baseline = found.axis == "attn" and table.baseline and len(claims) < 2
        if as_baseline and not found.asked:
            return
        axis = found.axis.replace("_", "-")
        of_what = (
            "mechanisms" if axis == "attn" else f"rows that differ in {axis} alone"
        )
        count = Counter[str](claim.verdict for claim in claims)
        told = [f"{count.pop('better', 0) + count.pop('worse', 0)} differ"]
        told += [f"{number} {verdict}" for verdict, number in sorted(count.items())]
        yield Section(
            name="pairs",
            heading="Every pair",
            lead=f"of {len(claims)} pairs of {of_what}, {', '.join(told)}",
            answers=_answers(table, found, axis) if found.asked else (),
            lines=_lines(table, found),
            make=lambda: (list(_sheets(found.groups, axis, unit)), ()),
            values={
                "axis": axis,
                "corrected_for": found.num_tests,
                "groups": list(map(_values, found.groups)),
            },
        )


def _lines(table: Table, found: Pairs) -> list[str]:
    unit, groups = table.unit, found.groups
    lines = [
        f"differences are in {unit.of_differences}, the best row stands first; each is tested as "
        "a comparison with a baseline is, corrected by Holm for all "
        f"pairs of this table ({counts_in_words(found.num_tests)}), a family of their own"
    ]
    if any(len(group.pairs) > MOST_LISTED for group in groups):
        lines.append(
            "row minus column: * they differ, = they are equivalent within "
            f"{unit.size(table.margin)}, no mark: undecided, or no claim"
        )
        lines.append(
            f"the {MOST_VALUES} best rows are compared each with each, all others with the best "
            f"and with the row of all; {MOST_LISTED} pairs at most are listed, JSON has every one"
        )
    if len(groups) == MOST_GROUPS:
        lines.append(
            f"of more than {MOST_GROUPS} groups those of most rows are compared"
        )
    return lines


def _values(group: Group) -> dict[str, Any]:
    pairs = [
        {"first": group.labels[first], "second": group.labels[second]}
        | {"paired_seeds": list(one.seeds)}
        | claim_values(one.claim)
        for (first, second), one in group.pairs.items()
    ]
    return {"shared": group.name, "labels": list(group.labels), "pairs": pairs}


def _answers(table: Table, found: Pairs, axis: str) -> list[str]:
    """Which row is best, of every group a sentence without its full stop."""
    groups = [group for group in found.groups if group.pairs]
    answers = [_answer(group, axis, table) for group in groups[:MOST_ANSWERS]]
    if len(groups) > MOST_ANSWERS:
        more = len(groups) - MOST_ANSWERS
        answers.append(
            f"{more} more groups of rows differ in {axis} alone: --section pairs"
        )
    return answers


def _answer(group: Group, axis: str, table: Table) -> str:
    """What the best row is beside all others, and the pair of it and the next."""
    unit, best = table.unit, group.rows[0]
    prefix = f"{group.name}: " if group.name else ""
    of_best = {
        second: one for (first, second), one in group.pairs.items() if first == 0
    }
    mean = f"{unit.text(best.chosen.mean)}{'%' if unit.percent else ''}"
    best_label = in_words(axis, group.labels[:1])
    text = f"the best mean {unit.title} is that of {best_label}, {mean}"
    labels: dict[str, list[str]] = {}
    for second, one in of_best.items():
        labels.setdefault(one.claim.verdict, []).append(group.labels[second])
    num_seeds = max((len(one.seeds) for one in of_best.values()), default=0)
    parts = []
    if num_seeds < stats.LEAST_SEEDS and NO_CLAIM not in labels:
        seeds = f"seeds: {num_seeds}, and a claim needs {stats.LEAST_SEEDS}"
        parts.append(f"nothing is said of differences yet ({seeds})")
    else:
        margin = unit.size(table.margin)
        told = [
            words.format(in_words(axis, labels[name]), margin)
            for name, words in VERDICTS.items()
            if name in labels
        ]
        parts += [f"it is {', '.join(told)}"] if told else []
    if silent := labels.get(NO_CLAIM):
        reasons = (one.claim.no_claim for one in of_best.values())
        reason = next(filter(None, reasons))
        parts.append(f"no claim is made beside {in_words(axis, silent)}: {reason}")
    text += f": {'; '.join(parts)}" if parts else ""
    if not of_best:
        return f"{prefix}{text}"
    second, nearest = min(of_best.items())
    text += f"; {_pair(group, axis, 0, second)}: {unit.difference(nearest.claim.difference)}"
    if interval := nearest.claim.interval_corrected:
        text += (
            f", {unit.span(interval, signed=True)}, p {p_value(nearest.claim.p_holm)}"
        )
    return f"{prefix}{text}"


def in_words(axis: str, labels: Sequence[str]) -> str:
    """Values of a setting, as people say them: ``layers 1-4 and all layers``."""
    if axis in ("attn", "head"):
        names = list(labels)
    elif axis != "layers":
        names = [f"{axis} {label}" for label in labels]
    else:
        single = sorted(int(label) for label in labels if label.isdecimal())
        names = (
            [f"layer{'s' if len(single) > 1 else ''} {spell_numbers(single)}"]
            if single
            else []
        )
        names += [
            f"layers {one}" for one in labels if not one.isdecimal() and one != ALL
        ]
        names += ["all layers"] if ALL in labels else []
    if len(names) > MOST_NAMED:
        names[MOST_NAMED:] = [f"{len(names) - MOST_NAMED} more"]
    before, last = ", ".join(names[:-1]), names[-1]
    return f"{before} and {last}" if before else last


def _pair(group: Group, axis: str, first: int, second: int) -> str:
    names = [in_words(axis, [group.labels[place]]) for place in (first, second)]
    return " - ".join(names)


def _sheets(groups: Sequence[Group], axis: str, unit: Score) -> Iterator[Sheet]:
    for group in groups:
        yield _list(group, axis, unit)
        if len(group.pairs) > MOST_LISTED:
            yield _matrix(group, axis, unit)


def _list(group: Group, axis: str, unit: Score) -> Sheet:
    """Pairs with interval and p: all where they are few, else those of the best row and of all."""
    places = sorted(group.pairs)
    if len(places) > MOST_LISTED:
        best, references = {*range(MOST_VALUES)}, {*group.references}
        places = [
            pair
            for pair in places
            if references & {*pair} and {*pair} <= best | references
        ]
    lines = []
    for first, second in places[:MOST_LISTED]:
        claim = group.pairs[first, second].claim
        cells = [_pair(group, axis, first, second), unit.difference(claim.difference)]
        cells += [
            unit.span(claim.interval_corrected, signed=True),
            p_value(claim.p_holm),
        ]
        lines.append([*cells, verdict(claim)])
    header = [column.name for column in (DIFFERENCE, DIFFERENCE_CI, P_HOLM, VERDICT)]
    listed = "every pair"
    if len(lines) < len(group.pairs):
        listed = f"{len(lines)} of {len(group.pairs)} pairs"
    return Sheet(_caption(listed, group, axis, unit), ["pair", *header], lines, header)


def _matrix(group: Group, axis: str, unit: Score) -> Sheet:
    count = min(len(group.labels), MOST_VALUES)
    cells = [["-"] * count for _ in range(count)]
    for (first, second), one in group.pairs.items():
        if second < count:
            mark = MARKS.get(one.claim.verdict, "")
            cells[first][second] = unit.difference(one.claim.difference) + mark
            cells[second][first] = unit.difference(-one.claim.difference) + mark
    header = [axis, *(str(place) for place in range(1, count + 1))]
    lines = [[f"{i + 1} {group.labels[i]}", *cells[i]] for i in range(count)]
    return Sheet(_caption("row minus column", group, axis, unit), header, lines)


def _caption(text: str, group: Group, axis: str, unit: Score) -> str:
    name = f" ({group.name})" if group.name else ""
    return f"{text} along {axis}{name}, {unit.of_differences}"
