"""Accuracy by the setting in which most rows differ: a table and a picture of the means."""

import math
from collections.abc import Iterator
from typing import Any

from gaam_cache.common.messages import brief
from gaam_decoder.number_lists import parse_numbers
from gaam_decoder.reports.columns import Sheet
from gaam_decoder.reports.drawing import MOST_LINES, Line, Picture, line_panels
from gaam_decoder.reports.sections.base import Parts, Section, Writer
from gaam_decoder.reports.table import Table
from gaam_decoder.stats.scores.base import percent

NO_AXES = {"split_seed", "fold", "repeats", "val_fraction", "val_folds", "shard_rows"}
NO_AXES |= {"test_split", "plugins"}
"""Settings that are no quantity, or decide which rows are which."""
ALL = "all"
Cells = dict[
    str, dict[Any, float]
]  # a line for all else, in it the accuracy at every value


class Grid(Writer):
    """A column for every value of the setting that has most, a line for all else."""

    place = 10

    def of(self, table: Table) -> Iterator[Section]:
        """Nothing where no rows differ in a number alone."""
        axis, cells = _cells(table)
        if cells:
            said = "what is best here is best on the test rows, which must not choose"
            values = [
                {"decoder": name, "value": value, "accuracy": mean}
                for name, of in cells.items()
                for value, mean in of.items()
            ]
            yield Section(
                name="grid",
                heading="Accuracy by setting",
                lead=f"rows differ in {axis}; {said}",
                make=lambda: _parts(axis, cells),
                values={"axis": axis, "cells": values},
            )


def _cells(table: Table) -> tuple[str, Cells]:
    rows, of_rows = [row for row in table.rows if row.finished and not row.shuffled], []
    for row in rows:
        left_out = NO_AXES | {name for tuning in row.tunings for name in tuning.names}
        mine = {
            k: v for k, v in row.recipe.items() if k not in left_out and v is not None
        }
        of_rows.append({"layers": ALL, "train_rows": ALL} | mine)
    values = {
        name: {of.get(name) for of in of_rows} - {None} for of in of_rows for name in of
    }
    varied = sorted(name for name, of in values.items() if len(of) > 1)
    numbers = {
        name for name in varied if all(type(v) in (int, float) for v in values[name])
    }
    axes = [name for name in varied if name in numbers | {"layers", "train_rows"}]
    axis, cells = max(axes, key=lambda name: len(values[name]), default=""), Cells()
    for row, of in zip(rows, of_rows, strict=True):
        rest = [f"{brief(row.attention)} + {brief(row.head, 60)}"]
        rest += [
            brief(f"{k}={of[k]}") for k in varied if k != axis and of.get(k, ALL) != ALL
        ]
        if axis in of:
            cells.setdefault(", ".join(rest), {})[of[axis]] = row.accuracy.mean or 0.0
    # a line of one value is on no axis
    return axis, {name: line for name, line in cells.items() if len(line) > 1}


def _number(value: Any) -> float:
    """Where a value stands on an axis; several layers, and all, behind every single one."""
    if not isinstance(value, str):
        return float(value)
    layers = () if value == ALL else parse_numbers(value)
    return float(layers[0]) if len(layers) == 1 else math.inf


def _parts(axis: str, cells: Cells) -> Parts:
    every = {value for line in cells.values() for value in line}
    values = sorted(every, key=lambda value: (_number(value), str(value)))
    header = [axis, *(f"{v:g}" if isinstance(v, float) else str(v) for v in values)]
    table = [
        [name, *(percent(of.get(v)) for v in values)] for name, of in cells.items()
    ]
    sheet = Sheet(f"accuracy % by {axis}", header, table)
    at = {value: _number(value) for value in values if _number(value) < math.inf}
    low, high = (of(at.values(), default=0) for of in (min, max))
    points = [(name, [v for v in at if v in of], of) for name, of in cells.items()]
    lines = [
        Line(n, [at[v] for v in p], [100 * of[v] for v in p])
        for n, p, of in points
        if p[1:]
    ]
    picture = Picture(
        "grid",
        f"Accuracy by {axis}",
        f"Mean over seeds, of the {MOST_LINES} best; all else is the same along a line, but for "
        "what was tuned.",
        lambda: line_panels(
            [("test accuracy, %", lines[:MOST_LINES])],
            axis,
            log=axis != "layers" and 0 < 9.999 * low < high,
        ),
    )
    return (sheet,), (picture,) if lines else ()
