"""Every mechanism against every other, or every value of a setting: a matrix and its picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from gaam_decoder import stats
from gaam_decoder.reports.columns import Sheet
from gaam_decoder.reports.compare import MOST_GROUPS, MOST_VALUES, Group, Pair
from gaam_decoder.reports.sections._base import Section, Writer
from gaam_decoder.reports.table import Table
from gaam_decoder.reports.unit import Unit
from gaam_decoder.stats.seeds_alone import NO_CLAIM

if TYPE_CHECKING:
    pass

MARKS = {"better": "*", "worse": "*", "equivalent": "=", "undecided": "", NO_CLAIM: ""}
"""Of a verdict, beside a difference."""


class Pairs(Writer):
    """A matrix per group of rows that differ in one setting alone."""

    place = 30

    def of(self, table: Table) -> Iterator[Section]:
        """Nothing without pairs, or where the only one is the comparison with the baseline."""
        if table.pairs is None or not table.pairs.there:
            return
        axis, groups = table.pairs.family.axis, table.pairs.groups
        made = [pair for group in groups for pair in group.pairs]
        if not made or (len(made) == 1 and axis == "attn" and table.baseline is not None):
            return
        yield Section(
            name="pairs",
            heading="Every pair",
            lead=_lead(axis, made, groups, table),
            lines=tuple(_lines(groups, table)),
            parts=lambda: ([_sheet(group, axis, table.unit) for group in groups], ()),
            values={
                "axis": axis.replace("_", "-"),
                "corrected_for": table.pairs.family.num_tests,
                "groups": [
                    {
                        "shared": group.name,
                        "labels": list(group.labels),
                        "rows_not_compared": group.left_out,
                        "pairs": [pair.to_dict(group.labels) for pair in group.pairs],
                    }
                    for group in groups
                ],
            },
        )


def _lead(axis: str, made: list[Pair], groups: Sequence[Group], table: Table) -> str:
    named = axis.replace("_", "-").replace(",", " or ")
    name = "mechanisms" if axis == "attn" else f"rows that differ in {named} alone"
    most = max(len(pair.seeds) for pair in made)
    why = next((p.claim.no_claim for p in made if p.claim.no_claim), "")
    pairs = f"{len(made)} pair{'s' * (len(made) != 1)} of {name}"
    if all(pair.claim.no_claim for pair in made):
        return f"{pairs}, and no claim of any, for {why}"
    if most < stats.LEAST_SEEDS:
        count = f"{most} seed{'s' * (most != 1)}"
        return f"{pairs}, and no claim of any: {count}, and a claim needs {stats.LEAST_SEEDS}"
    pairs += f" (no claim of some: {why})" if why else ""
    optimistic = any(row.optimistic for group in groups for row in group.rows)
    some = "; some numbers are optimistic" if optimistic else ""
    return f"of {pairs}, {_counted(made, f' within {table.unit.margin(table.margin)}')}{some}"


def _counted(pairs: Sequence[Pair], within: str) -> str:
    """How many pairs are what, and within which margin."""
    found = Counter(pair.claim.verdict for pair in pairs)
    text = f"{found['better'] + found['worse']} differ, {found['equivalent']} are equivalent"
    text += f"{within}, {found['undecided']} are undecided"
    return text + (f", of {found[NO_CLAIM]} no claim is made" if found[NO_CLAIM] else "")


def _unmarked(pairs: Iterable[Pair]) -> str:
    """What a difference without a mark is."""
    without = {pair.claim.verdict for pair in pairs if not MARKS[pair.claim.verdict]}
    return " or ".join(sorted(without, reverse=True)) or "undecided"


def _lines(groups: tuple[Group, ...], table: Table) -> Iterator[str]:
    assert table.pairs is not None
    unmarked = _unmarked(pair for group in groups for pair in group.pairs)
    yield (
        f"row minus column in {table.unit.of_differences}, the best first; * they differ, = they "
        f"are equivalent, no mark: {unmarked}; each is tested over seeds and test rows as a "
        f"comparison with a baseline is, corrected by Holm for all {table.pairs.family.num_tests} "
        "pairs of this report, a family of their own"
    )
    if any(group.left_out for group in groups):
        yield (
            f"of more than {MOST_VALUES} rows the best are compared; Holm corrects for "
            "the pairs of all, so that this choice makes no p smaller"
        )
    if left_out := table.pairs.groups_left_out:
        yield (
            f"at most {MOST_GROUPS} groups of rows are compared, those of most rows; pairs of the "
            f"{left_out} other{'s' * (left_out > 1)} are counted by Holm too"
        )
    rows = [row for group in groups for row in group.rows]
    if any(row.folds > 1 for row in rows):
        yield "the training sets of the folds are taken as given"
    selects = {row.select for row in rows}
    if "select" in table.pairs.family.axis.split(","):
        if "test" in selects:
            yield (
                "a row of select test chose its epoch by the rows that it is tested on: what it is "
                "ahead by is optimism, and nothing that other test rows would show"
            )
        if "val" in selects and len(selects) > 1:
            yield (
                "of select val the part of train that chooses is not learned from, of the others "
                "all is: a difference is of both"
            )
    elif any(row.optimistic for row in rows):
        yield "some of these numbers are optimistic"


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
