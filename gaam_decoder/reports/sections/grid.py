"""Show accuracy by the setting in which most entries differ: a table and a picture."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gaam_cache.common.messages import brief
from gaam_decoder.number_lists import parse_numbers
from gaam_decoder.reports.columns import Sheet
from gaam_decoder.reports.drawing import (
    MOST_LINES,
    Line,
    Panel,
    Picture,
    line_panels,
    not_drawn,
)
from gaam_decoder.reports.entries import Entry
from gaam_decoder.reports.scoring import score_of
from gaam_decoder.reports.sections.base import Parts, Section, Writer
from gaam_decoder.reports.table import Table
from gaam_decoder.reports.wording import capitalised
from gaam_decoder.tasks import Task

NOT_AN_AXIS = {
    "split_seed",
    "fold",
    "repeats",
    "val_fraction",
    "val_folds",
    "shard_rows",
    "test_split",
    "plugins",
}
"""Settings that are no quantity, or that decide the split of the rows."""
ALL = "all"
"""The value of ``layers`` or ``train_rows`` in a recipe that has no limit."""
Accuracies = dict[Any, float]  # value of the axis -> mean accuracy
Lines = dict[str, Accuracies]  # name of a line of the table -> its cells


class Grid(Writer):
    """A column for every value of the most varied setting, a line for all else."""

    position = 10

    def sections_of(self, table: Table) -> Iterator[Section]:
        """Yield the section if some entries differ in a single setting.

        The setting is layers, training rows, or one whose values are numbers.
        """
        axis, lines = _lines_along_axis(table)
        if not lines:
            return
        task = table.task
        values = [
            {"decoder": name, "value": value, task.score_key: mean}
            for name, accuracies in lines.items()
            for value, mean in accuracies.items()
        ]
        yield Section(
            name="grid",
            heading=f"{capitalised(task.score_title)} by setting",
            lead=f"decoders differ in {axis}; what is best here is best on the test "
            "rows, which must not choose settings",
            make=lambda: _sheet_and_picture(axis, lines, task),
            values={"axis": axis, "cells": values},
        )


def _lines_along_axis(table: Table) -> tuple[str, Lines]:
    """Choose the axis of the grid, and collect the mean accuracies along it.

    The axis is the setting with the most values, a column for each. The entries on one
    line of the grid agree in all other settings.

    Returns:
        The name of the axis, empty without any; and the lines with several cells.
    """
    entries = [
        entry for entry in table.entries if entry.finished and not entry.labels_shuffled
    ]
    settings_of_entries = [_settings(entry) for entry in entries]
    # name of a setting -> all its values
    values_of = _values_by_setting(settings_of_entries)
    varied_names = sorted(name for name in values_of if len(values_of[name]) > 1)
    axes = [name for name in varied_names if _is_axis(name, values_of[name])]
    axis = max(axes, key=lambda name: len(values_of[name]), default="")

    lines: Lines = {}
    other_names = [name for name in varied_names if name != axis]
    for entry, settings in zip(entries, settings_of_entries, strict=True):
        if axis in settings:
            mean = entry.default_score.mean
            assert mean is not None, "the default score of a finished seed is defined"
            accuracies = lines.setdefault(_line_name(entry, settings, other_names), {})
            accuracies[settings[axis]] = mean
    # A line with one value shows nothing along the axis.
    return axis, {name: cells for name, cells in lines.items() if len(cells) > 1}


def _settings(entry: Entry) -> dict[str, object]:
    """The settings of an entry that may be an axis, without tuned settings."""
    left_out = NOT_AN_AXIS | {name for tuning in entry.tunings for name in tuning.names}
    recipe = {name: entry.recipe[name] for name in entry.recipe if name not in left_out}
    set_values = {name: value for name, value in recipe.items() if value is not None}
    return {"layers": ALL, "train_rows": ALL} | set_values


def _values_by_setting(
    settings_of_entries: Iterable[Mapping[str, object]],
) -> dict[str, set[object]]:
    """Name of a setting -> all its values."""
    values: dict[str, set[object]] = {}
    for settings in settings_of_entries:
        for name, value in settings.items():
            values.setdefault(name, set()).add(value)
    return values


def _is_axis(name: str, values: Iterable[object]) -> bool:
    """Whether a setting may be the axis: its values are numbers, layers or rows."""
    if name in ("layers", "train_rows"):
        return True
    return all(type(value) in (int, float) for value in values)


def _line_name(
    entry: Entry, settings: Mapping[str, object], names: Sequence[str]
) -> str:
    """Mechanism and head of an entry, with those of its settings in ``names``.

    All entries of a line of the grid have the same name. A setting without a limit, or
    that the entry lacks, is not named.
    """
    parts = [f"{brief(entry.attention)} + {brief(entry.head, 60)}"]
    for name in names:
        is_limited = name in settings and settings[name] != ALL
        if is_limited:
            parts.append(brief(f"{name}={settings[name]}"))
    return ", ".join(parts)


def _axis_position(value: Any) -> float:
    """Where a value stands on the axis; infinity for several layers, and for all."""
    if not isinstance(value, str):
        return float(value)
    if value == ALL:
        return math.inf
    layers = parse_numbers(value)
    return float(layers[0]) if len(layers) == 1 else math.inf


def _value_in_words(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _sheet_and_picture(axis: str, lines: Lines, task: Task) -> Parts:
    """The table of mean accuracies by the value of the axis, and a picture of it."""
    distinct_values = {value for accuracies in lines.values() for value in accuracies}
    values = sorted(
        distinct_values, key=lambda value: (_axis_position(value), str(value))
    )
    score = score_of(task.default_score)
    header = [axis, *map(_value_in_words, values)]
    sheet_lines = []
    for name, accuracies in lines.items():
        cells = [score.text(accuracies.get(value)) for value in values]
        sheet_lines.append([name, *cells])
    caption = f"test {score.column} by {axis}, mean over seeds"
    sheet = Sheet(caption, header, sheet_lines)

    # several layers, and all, have no place on the axis of the picture
    positions = {}
    for value in values:
        position = _axis_position(value)
        if position < math.inf:
            positions[value] = position
    curves = _curves(lines, positions, score.factor)
    pictures = [_picture(axis, curves, positions.values(), task)] if curves else []
    return Parts(sheets=(sheet,), pictures=pictures)


def _picture(
    axis: str, curves: Sequence[Line], positions: Iterable[float], task: Task
) -> Picture:
    """The picture of mean accuracies along the axis, for the best decoders.

    Args:
        axis: name of the setting.
        curves: those of the best decoders stand first.
        positions: of all points on the axis.
        task: of the accuracies.
    """
    positions = list(positions)
    low = min(positions, default=0)
    high = max(positions, default=0)
    # A logarithmic scale from a factor of ten on, with room for rounding. The index of
    # a layer is no quantity whose factors mean anything.
    is_log = axis != "layers" and 0 < 9.999 * low < high
    title = f"test {task.score_title}"
    if score_of(task.default_score).percent:
        title += ", %"
    return Picture(
        name="grid",
        title=f"{capitalised(task.score_title)} by {axis}",
        caption=(
            "Mean over seeds, of the best; all else is the same along a line, but for "
            f"what was tuned.{not_drawn([curve.label for curve in curves])}"
        ),
        draw=lambda: line_panels(
            [Panel(title, curves[:MOST_LINES])], axis, is_log=is_log
        ),
    )


def _curves(lines: Lines, positions: Mapping[object, float], factor: int) -> list[Line]:
    """The curves of the picture: the lines with two points or more.

    Args:
        lines: mean accuracies by line and value of the axis.
        positions: value of the axis -> where it stands; values without a place on the
            axis, such as several layers, are left out.
        factor: of the accuracies, 100 for percent.
    """
    curves = []
    for name, accuracies in lines.items():
        values = [value for value in positions if value in accuracies]
        if len(values) > 1:
            x = [positions[value] for value in values]
            y = [factor * accuracies[value] for value in values]
            curves.append(Line(name, x, y))
    return curves
