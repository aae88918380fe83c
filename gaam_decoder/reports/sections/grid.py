"""Accuracy over a grid of two numbers of a recipe, as a heat map."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from gaam_decoder.reports.axes import Series, along
from gaam_decoder.reports.pictures.picture import Picture, slug
from gaam_decoder.reports.table import Table
from gaam_decoder.reports.writing.section import Section, Writer

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_GRIDS = 4
"""Pictures; those of most rows are drawn."""


class Grids(Writer):
    """One picture per mechanism and pair of axes."""

    place = 11

    def of(self, table: Table) -> Section | None:
        """None where no rows are a grid."""
        grids = [(axes.names, one) for axes in along(table.rows, 2) for one in axes.series]
        grids.sort(key=lambda grid: -len(grid[1].places))
        if not grids:
            return None
        drawn = grids[:MOST_GRIDS]
        rest = f"; {len(grids) - len(drawn)} are not drawn" if len(grids) > len(drawn) else ""
        shapes = ", ".join(f"{one.label} over {names[0]} and {names[1]}" for names, one in drawn)
        return Section(
            name="grid",
            heading="Accuracy over two axes",
            lead=f"{shapes}{rest}; the best cell is best on the test rows, which must not choose",
            pictures=tuple(_picture(table, names, one) for names, one in drawn),
            folded=False,
        )


def _picture(table: Table, names: tuple[str, ...], one: Series) -> Picture:
    return Picture(
        kind="grid",
        name=f"grid-{slug(one.label)}-{slug('-'.join(names))}",
        title=f"{one.label} over {names[0]} and {names[1]}",
        caption="Mean test accuracy over seeds, in percent; darker is higher.",
        alt=f"Test accuracy of {one.label} by {names[0]} and {names[1]}, {len(one.places)} cells. "
        "All numbers are in the table.",
        draw=partial(_draw, table, names, one),
    )


def _draw(table: Table, names: tuple[str, ...], one: Series) -> Figure:
    from gaam_decoder.reports.figures.axes import accuracy_grid

    rows, columns = (sorted(set(values)) for values in zip(*one.values, strict=True))
    value_RC = np.full((len(rows), len(columns)), np.nan)
    for (row, column), place in zip(one.values, one.places, strict=True):
        mean = table.rows[place].mean
        value_RC[rows.index(row), columns.index(column)] = 100 * (mean or 0.0)
    return accuracy_grid(value_RC, rows, columns, (names[0], names[1]))
