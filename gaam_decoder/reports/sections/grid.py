"""Show accuracy by the setting in which most entries differ: a table and a picture."""

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from gaam_cache.common.messages import brief
from gaam_decoder.number_lists import DRAWN_BY, parse_numbers
from gaam_decoder.reports.columns import Sheet
from gaam_decoder.reports.compare import number_repeated
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
    "repeats",
    "val_fraction",
    "val_folds",
    "val_split",
    "test_split",
}
"""Settings that are no quantity, or that decide the split of the rows."""
NOT_NAMED = {"fold", "shard_rows", "plugins"}
"""Settings that the test rows, the cache or the mechanism decide."""
ALL = "all"
"""The value of ``layers``, ``train_rows`` or ``shots`` in a recipe without a limit."""
TUNED = "tuned"
"""Stands for the value of a setting that validation chose."""
Value = str | float | None  # of a setting
GivenValue = str | float
Accuracies = dict[GivenValue, float]  # value of the axis -> mean accuracy
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
    names = {name for entry in entries for name in entry.recipe} - NOT_NAMED
    names |= {"layers", *DRAWN_BY}
    settings_of_entries = [_settings(entry, sorted(names)) for entry in entries]
    values_of = {
        name: {settings[name] for settings in settings_of_entries}
        for name in sorted(names)
    }
    varied_names = [name for name, values in values_of.items() if len(values) > 1]
    num_values = {
        name: len(values_of[name] - {None, TUNED})
        for name in varied_names
        if _is_axis(name, values_of[name])
    }
    # of a number of rows and of rows of each class, the first
    axis = max(
        num_values,
        key=lambda name: (num_values[name], name == "train_rows"),
        default="",
    )
    if not axis:
        return "", {}
    # along one kind of budget, the other kind limits nothing
    axis_names = DRAWN_BY if axis in DRAWN_BY else (axis,)
    other_names = [name for name in varied_names if name not in axis_names]
    lines = _lines(entries, settings_of_entries, axis, other_names)
    # A line with one value shows nothing along the axis.
    return axis, {name: cells for name, cells in lines.items() if len(cells) > 1}


def _lines(
    entries: Iterable[Entry],
    settings_of_entries: Iterable[Mapping[str, Value]],
    axis: str,
    other_names: Sequence[str],
) -> Lines:
    """The mean accuracies of entries, by line and by the value of the axis.

    Args:
        entries: the best first.
        settings_of_entries: of each entry.
        axis: name of a setting.
        other_names: of the settings in which lines differ.
    """
    cells_by_key: dict[tuple[object, ...], Accuracies] = {}
    names: list[str] = []
    for entry, settings in zip(entries, settings_of_entries, strict=True):
        value = settings[axis]
        if value is None or value == TUNED:
            continue
        key = (
            entry.attention,
            entry.head,
            str(entry.recipe.get("plugins")),
            *[settings[name] for name in other_names],
        )
        if key not in cells_by_key:
            cells_by_key[key] = {}
            names.append(_line_name(entry, settings, other_names))
        mean = entry.default_score.mean
        assert mean is not None, "the default score of a finished seed is defined"
        cells_by_key[key][value] = mean
    return dict(zip(number_repeated(names), cells_by_key.values(), strict=True))


def _settings(entry: Entry, names: Iterable[str]) -> dict[str, Value]:
    """The value of each setting in an entry; a recipe does not name its defaults."""
    tuned_names = {name for tuning in entry.tunings for name in tuning.names}
    settings: dict[str, Value] = {}
    for name in names:
        settings[name] = entry.recipe.get(name, entry.runs[0].setting(name))
        if name in tuned_names:
            settings[name] = TUNED
    settings["layers"] = settings["layers"] or ALL
    # the budget is a number of rows, or of rows of each class
    if all(settings.get(name) is None for name in DRAWN_BY):
        settings |= dict.fromkeys(DRAWN_BY, ALL)
    return settings


def _is_axis(name: str, values: Collection[Value]) -> bool:
    """Whether a setting may be the axis: its values are numbers, layers or rows."""
    if name in NOT_AN_AXIS:
        return False
    if name in ("layers", *DRAWN_BY):
        return True
    given_values = [value for value in values if value not in (None, TUNED)]
    return all(type(value) in (int, float) for value in given_values)


def _line_name(
    entry: Entry, settings: Mapping[str, Value], names: Iterable[str]
) -> str:
    """Mechanism and head of an entry, with those of its settings in ``names``.

    Settings without a limit, with a default that recipes do not name, or that
    validation chose are not named.
    """
    parts = [f"{brief(entry.attention)} + {brief(entry.head, 60)}"]
    for name in names:
        value = settings[name]
        if name in entry.recipe and value not in (ALL, TUNED, None):
            parts.append(brief(f"{name}={value}"))
    return ", ".join(parts)


def _axis_position(value: GivenValue) -> float:
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


def _curves(
    lines: Lines, positions: Mapping[GivenValue, float], factor: int
) -> list[Line]:
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
