"""Every mechanism against every other, or every value of a setting: a matrix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from gaam_decoder import stats
from gaam_decoder.reports.columns import Sheet
from gaam_decoder.reports.compare import MOST_GROUPS, MOST_VALUES, Group, Pair, Pairs
from gaam_decoder.reports.sections._base import Section, Writer
from gaam_decoder.reports.table import Table
from gaam_decoder.reports.unit import Unit
from gaam_decoder.stats.seeds_alone import NO_CLAIM

MARKS = {"better": "*", "worse": "*", "equivalent": "=", "undecided": "", NO_CLAIM: ""}
"""Of a verdict, beside a difference."""


class EveryPair(Writer):
    """A matrix per group of rows that differ in one setting alone."""

    place = 30

    def of(self, table: Table) -> Iterator[Section]:
        """Nothing without pairs, or where the only one is the comparison with the baseline."""
        found = table.pairs
        made = [pair for group in found.groups for pair in group.pairs] if found else []
        alone = len(made) == 1 and table.baseline is not None
        if found is None or not made or (alone and found.axis == "attn"):
            return
        yield Section(
            name="pairs",
            heading="Every pair",
            lead=_lead(found, made, table),
            lines=tuple(_lines(found, made, table.unit)),
            parts=lambda: ([_sheet(group, found.axis, table.unit) for group in found.groups], ()),
            values={
                "axis": found.axis.replace("_", "-"),
                "corrected_for": found.num_tests,
                "groups": [
                    {
                        "shared": group.name,
                        "labels": list(group.labels),
                        "rows_not_compared": group.left_out,
                        "pairs": [pair.to_dict(group.labels) for pair in group.pairs],
                    }
                    for group in found.groups
                ],
            },
        )


def _lead(found: Pairs, made: list[Pair], table: Table) -> str:
    named = found.axis.replace("_", "-").replace(",", " or ")
    name = "mechanisms" if found.axis == "attn" else f"rows that differ in {named} alone"
    most = max(len(pair.seeds) for pair in made)
    why = next((p.claim.no_claim for p in made if p.claim.no_claim), "")
    pairs = f"{len(made)} pair{'s' * (len(made) != 1)} of {name}"
    if all(pair.claim.no_claim for pair in made):
        return f"{pairs}, and no claim of any, for {why}"
    if most < stats.LEAST_SEEDS:
        return f"{pairs}, and no claim of any: a claim needs {stats.LEAST_SEEDS} seeds, not {most}"
    count = Counter(pair.claim.verdict for pair in made)
    text = f"of {pairs}, {count['better'] + count['worse']} differ, {count['equivalent']} are "
    text += (
        f"equivalent within {table.unit.margin(table.margin)}, {count['undecided']} are undecided"
    )
    text += f", of {count[NO_CLAIM]} no claim is made ({why})" if count[NO_CLAIM] else ""
    optimistic = any(row.optimistic for group in found.groups for row in group.rows)
    return text + "; some numbers are optimistic" * optimistic


def _lines(found: Pairs, made: list[Pair], unit: Unit) -> Iterator[str]:
    without = {pair.claim.verdict for pair in made if not MARKS[pair.claim.verdict]}
    yield (
        f"row minus column in {unit.of_differences}, the best first; * they differ, = they are "
        f"equivalent, no mark: {' or '.join(sorted(without, reverse=True)) or 'undecided'}; each "
        "is tested over seeds and test rows as a comparison with a baseline is, corrected by Holm "
        f"for all {found.num_tests} pairs of this report, a family of their own"
    )
    if found.groups_left_out or any(group.left_out for group in found.groups):
        yield (
            f"the {MOST_VALUES} best rows of {MOST_GROUPS} groups at most are compared; Holm "
            "corrects for the pairs of all, so that this choice makes no p smaller"
        )
    rows = [row for group in found.groups for row in group.rows]
    if any(row.folds > 1 for row in rows):
        yield "the training sets of the folds are taken as given"
    if "select" in found.axis.split(",") and any(row.select == "test" for row in rows):
        yield (
            "a row of select test chose its epoch by the rows that it is tested on: what it is "
            "ahead by is optimism, and nothing that other test rows would show"
        )


def _sheet(group: Group, axis: str, unit: Unit) -> Sheet:
    count = len(group.labels)
    cells = [["-"] * count for _ in range(count)]
    for pair in group.pairs:
        for one, other, sign in ((pair.first, pair.second, 1), (pair.second, pair.first, -1)):
            difference = unit.difference(sign * pair.claim.difference)
            cells[one][other] = difference + MARKS[pair.claim.verdict]
    name = axis.replace("_", "-")
    more = f" ({group.name})" if group.name else ""
    return Sheet(
        caption=f"every pair along {name}{more}, {unit.of_differences}",
        header=[name, *(str(place) for place in range(1, count + 1))],
        lines=[
            [f"{place} {label}", *line]
            for place, (label, line) in enumerate(zip(group.labels, cells, strict=True), 1)
        ],
        words=(name,),
    )
