"""Accuracy along every number in which rows differ alone: layers, rates, epochs, rows."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from gaam_decoder.reports.axes import Axes, Series, along, logarithmic
from gaam_decoder.reports.pictures.picture import Picture, slug
from gaam_decoder.reports.table import Table
from gaam_decoder.reports.writing.section import Section, Writer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_AXES = 6
"""Pictures; those of most rows are drawn."""
MOST_SERIES = 8
"""Lines of a picture that can be told apart."""


class AlongAxes(Writer):
    """One picture per axis, a line per mechanism."""

    place = 10

    def of(self, table: Table) -> Section | None:
        """None where no rows differ in a number alone."""
        found = sorted(
            along(table.rows), key=lambda axes: -sum(len(one.places) for one in axes.series)
        )
        if not found:
            return None
        said = ", ".join(f"{axes.names[0]} ({len(axes.series)} x)" for axes in found)
        rest = f"; the first {MOST_AXES} are drawn" if len(found) > MOST_AXES else ""
        return Section(
            name="axes",
            heading="Accuracy along an axis",
            lead=f"rows differ alone in {said}{rest}; what is best here is best on the test rows, "
            "which must not choose",
            pictures=tuple(_picture(table, axes) for axes in found[:MOST_AXES]),
            folded=False,
            values={axes.names[0]: [_values(table, one) for one in axes.series] for axes in found},
        )


def _picture(table: Table, axes: Axes) -> Picture:
    name, drawn = axes.names[0], axes.series[:MOST_SERIES]
    rest = len(axes.series) - len(drawn)
    left_out = f" {rest} of {len(axes.series)} lines are left out." if rest else ""
    spoken = "; ".join(f"{one.label} {_spoken(table, one)}" for one in drawn)
    return Picture(
        kind="axes",
        name=f"along-{slug(name)}",
        title=f"Accuracy along {name}",
        caption="Mean over seeds; the band is the 95% interval over seeds and test rows. All else "
        f"of a recipe is the same along a line, but for what was tuned.{left_out}",
        alt=f"Test accuracy by {name}: {spoken}.",
        draw=partial(_draw, table, name, drawn),
    )


def _draw(table: Table, name: str, drawn: tuple[Series, ...]) -> Figure:
    from gaam_decoder.reports.figures.axes import accuracy_along

    lines = []
    for one in drawn:
        rows = [table.rows[place] for place in one.places]
        bounds = [row.two_level for row in rows]
        lines.append(
            (
                [value for (value,) in one.values],
                [100 * (row.mean or 0.0) for row in rows],
                [(100 * found[0], 100 * found[1]) if found else None for found in bounds],
            )
        )
    values = [value for found, _, _ in lines for value in found]
    log = logarithmic(name, values)
    return accuracy_along([one.label for one in drawn], lines, name, log=log)


def _spoken(table: Table, one: Series) -> str:
    """Its ends, for who does not see it."""
    ends = [(one.values[place][0], table.rows[one.places[place]].mean or 0.0) for place in (0, -1)]
    return " to ".join(f"{100 * mean:.1f}% at {value:g}" for value, mean in ends)


def _values(table: Table, one: Series) -> dict[str, Any]:
    points = []
    for (value,), place in zip(one.values, one.places, strict=True):
        row = table.rows[place]
        interval = list(row.two_level) if row.two_level else None
        points.append({"value": value, "accuracy": row.mean, "ci95_seeds_and_rows": interval})
    return {"label": one.label, "points": points}
