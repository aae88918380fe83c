"""What was learned by epoch: training loss and accuracy, and last that of what was held out.

S seeds, E epochs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from gaam_decoder.reports.columns import Sheet
from gaam_decoder.reports.drawing import MOST_LINES, Line, Picture, line_panels
from gaam_decoder.reports.rows import Row
from gaam_decoder.reports.sections._base import Section, Writer, most_accurate
from gaam_decoder.reports.table import Table
from gaam_decoder.runs.tuning import first_runs

HELD_OUT = {"val": "validation accuracy", "test": "TEST accuracy"}


class Curves(Writer):
    """Means over seeds of the most accurate rows."""

    place = 13

    def of(self, table: Table) -> Iterator[Section]:
        """Nothing over several folds, or of fits alone."""
        if table.rows[0].folds > 1:
            return
        selects = "".join({row.select for row in table.rows})
        kinds = {
            "loss": ("training loss", 1),
            "train_accuracy": ("training accuracy", 100),
            "accuracy": (HELD_OUT.get(selects, "held-out accuracy"), 100),
        }
        labels, header, panels = table.labels(), ["decoder"], []
        cells: dict[str, list[str]] = {label: [label] for label in labels}
        drawn = [labels[place] for place in most_accurate(table, MOST_LINES)]
        for key, (name, factor) in kinds.items():
            lines = [
                _line(label, factor * value_SE)
                for label, row in zip(labels, table.rows, strict=True)
                if (value_SE := logged(row, key)) is not None
            ]
            if not lines:
                continue
            what = name + (", %" if factor > 1 else "")
            header.append(what)
            ends = {one.label: f"{one.y[0]:.4g} to {one.y[-1]:.4g}" for one in lines}
            for label in labels:
                cells[label].append(ends.get(label, "-"))
            panels.append((what, [one for one in lines if one.label in drawn]))
        panels = [(what, lines) for what, lines in panels if lines]
        if len(header) == 1:
            return
        sheet = Sheet(caption="first to last epoch, mean over seeds", header=header,
                      lines=list(cells.values()), words=("decoder",))  # fmt: skip
        rest = len(labels) - len(drawn)
        left_out = f" The {len(drawn)} most accurate; {rest} are left out." if rest else ""
        picture = Picture(
            "curves",
            "Learning curves",
            f"Mean over seeds; the band is one standard deviation.{left_out}",
            lambda: line_panels(panels, "epoch"),
        )
        pictures = (picture,) if panels else ()
        yield Section(name="curves", heading="Learning curves", sheets=(sheet,), pictures=pictures)


def _line(label: str, value_SE: NDArray[np.float64]) -> Line:
    seen_E = np.flatnonzero(np.isfinite(value_SE).any(0))
    mean_E, sd_E = (of(value_SE[:, seen_E], 0) for of in (np.nanmean, np.nanstd))
    return Line(label, seen_E + 1, mean_E, (mean_E - sd_E, mean_E + sd_E))


def logged(row: Row, key: str) -> NDArray[np.float64] | None:
    """A quantity of the log, (S, E), NaN where a seed has none; None where no entry has it."""
    decides = first_runs(row.runs)
    entries = [
        entry
        for run in row.runs
        for entry in run.log
        if entry.get(key) is not None and decides.get(entry["seed"]) is run
    ]
    if row.fitted or not entries:
        return None
    seeds = sorted({entry["seed"] for entry in entries})
    value_SE = np.full((len(seeds), max(entry["epoch"] for entry in entries)), np.nan)
    for entry in entries:
        value_SE[seeds.index(entry["seed"]), entry["epoch"] - 1] = entry[key]
    return value_SE
