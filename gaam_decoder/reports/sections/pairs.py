"""Every mechanism against every other, or every value of a setting: a matrix and its picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gaam_decoder import stats
from gaam_decoder.reports.compare import MOST_GROUPS, MOST_VALUES, Group, Pair
from gaam_decoder.reports.pictures.picture import Picture, slug
from gaam_decoder.reports.table import Table
from gaam_decoder.reports.writing.section import Section, Writer
from gaam_decoder.reports.writing.sheets import Sheet
from gaam_decoder.reports.writing.unit import Unit
from gaam_decoder.stats.seeds_alone import NO_CLAIM

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MARKS = {"better": "*", "worse": "*", "equivalent": "=", "undecided": "", NO_CLAIM: ""}
"""Of a verdict, beside a difference."""
MOST_PICTURES = 2
"""Those of most rows are drawn."""


class Pairs(Writer):
    """A matrix per group of rows that differ in one setting alone."""

    place = 30

    def of(self, table: Table) -> Section | None:
        """None without pairs, or where the only one is the comparison with the baseline."""
        if table.pairs is None or not table.pairs.there:
            return None
        axis, groups = table.pairs.family.axis, table.pairs.groups
        made = [pair for group in groups for pair in group.pairs]
        if not made or (len(made) == 1 and axis == "attn" and table.baseline is not None):
            return None
        return Section(
            name="pairs",
            heading="Every pair",
            lead=self._lead(axis, made, table),
            lines=tuple(_lines(groups, table)),
            sheets=tuple(_sheet(group, axis, table.unit) for group in groups),
            pictures=tuple(_picture(group, axis, table.unit) for group in groups[:MOST_PICTURES]),
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

    def _lead(self, axis: str, made: list[Pair], table: Table) -> str:
        named = axis.replace("_", "-").replace(",", " or ")
        name = "mechanisms" if axis == "attn" else f"rows that differ in {named} alone"
        most = max(len(pair.seeds) for pair in made)
        why = next((p.claim.no_claim for p in made if p.claim.no_claim), "")
        pairs = f"{len(made)} pair{'s' * (len(made) != 1)} of {name}"
        if all(pair.claim.no_claim for pair in made):
            return f"{pairs}, and no claim of any, for {why}"
        if most < stats.LEAST_SEEDS:
            return (
                f"{pairs}, and no claim of any: {most} seed{'s' * (most != 1)}, and a claim needs "
                f"{stats.LEAST_SEEDS}"
            )
        if why:
            pairs += f" (no claim of some: {why})"
        assert table.pairs is not None
        rows = [row for group in table.pairs.groups for row in group.rows]
        some = "; some numbers are optimistic" if any(row.optimistic for row in rows) else ""
        within = f" within {table.unit.margin(table.margin)}"
        return f"of {pairs}, {_counted(made, within)}{some}"


def _counted(pairs: Sequence[Pair], within: str = "", what: str = "") -> str:
    """How many pairs are what, and within which margin; ``what`` they are stands before it."""
    found = Counter(pair.claim.verdict for pair in pairs)
    text = (
        f"{found['better'] + found['worse']} {what}differ, {found['equivalent']} are equivalent"
        f"{within}, "
        f"{found['undecided']} are undecided"
    )
    return text + (f", of {found[NO_CLAIM]} no claim is made" if found[NO_CLAIM] else "")


def _unmarked(pairs: Iterable[Pair]) -> str:
    """What a difference without a mark is."""
    without = {pair.claim.verdict for pair in pairs if not MARKS[pair.claim.verdict]}
    return " or ".join(sorted(without, reverse=True)) or "undecided"


def _lines(groups: tuple[Group, ...], table: Table) -> list[str]:
    assert table.pairs is not None
    counted = table.pairs.family.num_tests
    unmarked = _unmarked(pair for group in groups for pair in group.pairs)
    found = [
        f"row minus column in {table.unit.of_differences}, the best first; * they differ, = they "
        f"are equivalent, no mark: {unmarked}; each is tested over seeds and test rows as a "
        f"comparison with a baseline is, corrected by Holm for all {counted} pairs of this "
        "report, a family of their own"
    ]
    if any(group.left_out for group in groups):
        found.append(
            f"of more than {MOST_VALUES} rows the best are compared; Holm corrects for "
            "the pairs of all, so that this choice makes no p smaller"
        )
    if left_out := table.pairs.groups_left_out:
        found.append(
            f"at most {MOST_GROUPS} groups of rows are compared, those of most rows; pairs of the "
            f"{left_out} other{'s' * (left_out > 1)} are counted by Holm too"
        )
    if any(group.rows[0].folds > 1 for group in groups):
        found.append("the training sets of the folds are taken as given")
    rows = [row for group in groups for row in group.rows]
    selects = {row.select for row in rows}
    if "select" in table.pairs.family.axis.split(","):
        if "test" in selects:
            found.append(
                "a row of select test chose its epoch by the rows that it is tested on: what it is "
                "ahead by is optimism, and nothing that other test rows would show"
            )
        if "val" in selects and len(selects) > 1:
            found.append(
                "of select val the part of train that chooses is not learned from, of the others "
                "all is: a difference is of both"
            )
    elif any(row.optimistic for row in rows):
        found.append("some of these numbers are optimistic")
    return found


def _sheet(group: Group, axis: str, unit: Unit) -> Sheet:
    count = len(group.labels)
    cells = [["-"] * count for _ in range(count)]
    for pair in group.pairs:
        mark = MARKS[pair.claim.verdict]
        cells[pair.first][pair.second] = unit.difference(pair.claim.difference) + mark
        cells[pair.second][pair.first] = unit.difference(-pair.claim.difference) + mark
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


def _picture(group: Group, axis: str, unit: Unit) -> Picture:
    name = axis.replace("_", "-")
    more = f" ({group.name})" if group.name else ""
    counted = _counted(group.pairs, what="pairs ")
    if all(pair.claim.no_claim for pair in group.pairs):
        counted = "no claim is made of any pair"
    return Picture(
        kind="pairs",
        name=f"pairs-{slug(name)}" + (f"-{slug(group.name)}" if group.name else ""),
        title=f"Every pair along {name}{more}",
        caption=f"Row minus column in {unit.of_differences}, the best first; blue is more, red "
        f"less; * they differ, = they are equivalent, no mark: {_unmarked(group.pairs)}.",
        alt=f"Matrix of {len(group.labels)} rows from {group.labels[0]} to {group.labels[-1]}: "
        f"{counted}. All numbers are in the table.",
        draw=partial(_draw, group, unit),
    )


def _draw(group: Group, unit: Unit) -> Figure:
    from gaam_decoder.reports.figures.pairs import matrix

    count = len(group.labels)
    difference_KK = np.full((count, count), np.nan)
    marks = [[""] * count for _ in range(count)]
    for pair in group.pairs:
        one, other = pair.first, pair.second
        difference_KK[one, other] = unit.factor * pair.claim.difference
        difference_KK[other, one] = -unit.factor * pair.claim.difference
        marks[one][other] = marks[other][one] = MARKS[pair.claim.verdict]
    return matrix(difference_KK, group.labels, marks, 1 if unit.score.percent else 3)
