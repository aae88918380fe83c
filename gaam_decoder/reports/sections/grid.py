"""Accuracy along every number in which rows differ alone, and over grids of two of them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from gaam_decoder.reports.axes import Axes, Series, along, logarithmic
from gaam_decoder.reports.columns import Sheet
from gaam_decoder.reports.drawing import Line, Picture, in_fours, line_panels, matrix, slug
from gaam_decoder.reports.sections._base import Section, Writer
from gaam_decoder.reports.table import Table
from gaam_decoder.reports.unit import percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_AXES = 6
"""Pictures; those of most rows are drawn."""
MOST_SERIES = 8
"""Lines of a picture that can be told apart."""
MOST_GRIDS = 4


class Grids(Writer):
    """A picture for every axis, with a line per mechanism, and for every pair of axes."""

    place = 10

    def of(self, table: Table) -> Iterator[Section]:
        """Nothing where no rows differ in a number alone, or no rows are a grid."""
        found = sorted(
            along(table.rows), key=lambda axes: -sum(len(one.places) for one in axes.series)
        )
        if found:
            said = ", ".join(f"{axes.names[0]} ({len(axes.series)} x)" for axes in found)
            rest = f"; the first {MOST_AXES} are drawn" if len(found) > MOST_AXES else ""
            yield Section(
                name="axes",
                heading="Accuracy along an axis",
                lead=f"rows differ alone in {said}{rest}; what is best here is best on the test "
                "rows, which must not choose",
                said=True,
                parts=lambda: (
                    [_sheet(table, axes) for axes in found[:MOST_AXES]],
                    [_picture(table, axes) for axes in found[:MOST_AXES]],
                ),
                values={
                    axes.names[0]: [_values(table, one) for one in axes.series] for axes in found
                },
            )
        grids = [(axes.names, one) for axes in along(table.rows, 2) for one in axes.series]
        grids.sort(key=lambda grid: -len(grid[1].places))
        drawn = grids[:MOST_GRIDS]
        if drawn:
            rest = f"; {len(grids) - len(drawn)} are not drawn" if len(grids) > len(drawn) else ""
            shapes = ", ".join(f"{o.label} over {names[0]} and {names[1]}" for names, o in drawn)
            yield Section(
                name="grid",
                heading="Accuracy over two axes",
                lead=f"{shapes}{rest}; the best cell is best on the test rows, which must not "
                "choose",
                said=True,
                parts=lambda: (
                    [_grid(table, *one)[0] for one in drawn],
                    [_grid(table, *one)[1] for one in drawn],
                ),
            )


def _sheet(table: Table, axes: Axes) -> Sheet:
    """A line a series, a column a value."""
    values = sorted({value for one in axes.series for (value,) in one.values})
    lines = []
    for one in axes.series:
        means = {v: table.rows[p].mean for (v,), p in zip(one.values, one.places, strict=True)}
        lines.append([one.label, *(percent(means.get(value)) for value in values)])
    header = [axes.names[0], *(f"{value:g}" for value in values)]
    caption = f"accuracy % along {axes.names[0]}"
    return Sheet(caption=caption, header=header, lines=lines, words=(axes.names[0],))


def _picture(table: Table, axes: Axes) -> Picture:
    name, drawn = axes.names[0], axes.series[:MOST_SERIES]
    rest = len(axes.series) - len(drawn)
    left_out = f" {rest} of {len(axes.series)} lines are left out." if rest else ""
    return Picture(
        f"along-{slug(name)}",
        f"Accuracy along {name}",
        "Mean over seeds; the band is the 95% interval over seeds and test rows. All else "
        f"of a recipe is the same along a line, but for what was tuned.{left_out}",
        partial(_draw, table, name, drawn),
    )


def _draw(table: Table, name: str, drawn: tuple[Series, ...]) -> Figure:
    lines = []
    for one in drawn:
        rows = [table.rows[place] for place in one.places]
        bound = [row.two_level or (row.mean or 0.0,) * 2 for row in rows]
        low, high = (100 * np.array(side) for side in zip(*bound, strict=True))
        means = [100 * (row.mean or 0.0) for row in rows]
        lines.append(Line(one.label, [value for (value,) in one.values], means, (low, high)))
    ticks = sorted({value for line in lines for value in line.x})
    panels = in_fours("test accuracy, %", lines)
    return line_panels(panels, name, ticks=ticks, log=logarithmic(name, ticks))


def _values(table: Table, one: Series) -> dict[str, Any]:
    points = []
    for (value,), place in zip(one.values, one.places, strict=True):
        row = table.rows[place]
        interval = list(row.two_level) if row.two_level else None
        points.append({"value": value, "accuracy": row.mean, "ci95_seeds_and_rows": interval})
    return {"label": one.label, "points": points}


def _grid(table: Table, names: tuple[str, ...], one: Series) -> tuple[Sheet, Picture]:
    rows, columns = (sorted(set(values)) for values in zip(*one.values, strict=True))
    value_RC = np.full((len(rows), len(columns)), np.nan)
    for (row, column), place in zip(one.values, one.places, strict=True):
        value_RC[rows.index(row), columns.index(column)] = 100 * (table.rows[place].mean or 0.0)
    low, high = np.nanmin(value_RC), np.nanmax(value_RC)
    shade_RC = (value_RC - low) / (high - low) if high > low else value_RC * 0 + 0.5
    texts = [["" if np.isnan(v) else f"{v:.1f}" for v in line] for line in value_RC]
    down, across = ([f"{value:g}" for value in values] for values in (rows, columns))
    corner = f"{names[0]} \\ {names[1]}"
    title = f"{one.label} over {names[0]} and {names[1]}"
    picture = Picture(
        f"grid-{slug(one.label)}-{slug('-'.join(names))}",
        title,
        "Mean test accuracy over seeds, in percent; darker is higher.",
        lambda: matrix(shade_RC, texts, down, across, (names[0], names[1])),
    )
    lines = [[name, *line] for name, line in zip(down, texts, strict=True)]
    header = [corner, *across]
    return Sheet(caption=f"accuracy % of {title}", header=header, lines=lines), picture
