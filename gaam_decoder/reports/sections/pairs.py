"""Every mechanism against every other, or every value of a setting: a matrix."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from gaam_decoder.reports.columns import Sheet
from gaam_decoder.reports.compare import MOST_GROUPS, MOST_VALUES, Group, counts_in_words
from gaam_decoder.reports.rows import claim_values
from gaam_decoder.reports.sections._base import Section, Writer
from gaam_decoder.reports.table import Table
from gaam_decoder.stats.scores._base import Score

MARKS = {"better": "*", "worse": "*", "equivalent": "="}  # beside a difference


class EveryPair(Writer):
    """A matrix per group of rows that differ in one setting alone."""

    place = 30

    def of(self, table: Table) -> Iterator[Section]:
        """Nothing without pairs, or where the only one is the comparison with the baseline."""
        found, unit = table.pairs, table.unit
        claims = [one.claim for g in found.groups for one in g.pairs.values()] if found else []
        if not found or not claims or (found.axis == "attn" and table.baseline and len(claims) < 2):
            return
        axis = found.axis.replace("_", "-")
        of_what = "mechanisms" if axis == "attn" else f"rows that differ in {axis} alone"
        count = Counter[str](claim.verdict for claim in claims)
        told = [f"{count.pop('better', 0) + count.pop('worse', 0)} differ"]
        told += [f"{number} {verdict}" for verdict, number in sorted(count.items())]
        yield Section(
            name="pairs",
            heading="Every pair",
            lead=f"of {len(claims)} pairs of {of_what}, {', '.join(told)}",
            lines=(
                f"row minus column in {unit.of_differences}, the best first; * they differ, = they "
                f"are equivalent within {unit.size(table.margin)}, no mark: undecided, or no "
                "claim; each is tested as a comparison with a baseline is, corrected by Holm for "
                f"all pairs of this table ({counts_in_words(found.num_tests)}), a family of their "
                "own",
                f"the {MOST_VALUES} best rows of {MOST_GROUPS} groups at most are compared",
            ),
            make=lambda: ([_sheet(group, axis, unit) for group in found.groups], ()),
            values={
                "axis": axis,
                "corrected_for": found.num_tests,
                "groups": list(map(_values, found.groups)),
            },
        )


def _values(group: Group) -> dict[str, Any]:
    pairs = [
        {"first": group.labels[first], "second": group.labels[second]}
        | {"paired_seeds": list(one.seeds)}
        | claim_values(one.claim)
        for (first, second), one in group.pairs.items()
    ]
    return {"shared": group.name, "labels": list(group.labels), "pairs": pairs}


def _sheet(group: Group, axis: str, unit: Score) -> Sheet:
    count = len(group.labels)
    cells = [["-"] * count for _ in range(count)]
    for (first, second), one in group.pairs.items():
        mark = MARKS.get(one.claim.verdict, "")
        cells[first][second] = unit.difference(one.claim.difference) + mark
        cells[second][first] = unit.difference(-one.claim.difference) + mark
    name = f" ({group.name})" * bool(group.name)
    header = [axis, *(str(place) for place in range(1, count + 1))]
    lines = [[f"{i + 1} {group.labels[i]}", *cells[i]] for i in range(count)]
    return Sheet(f"every pair along {axis}{name}, {unit.of_differences}", header, lines)
