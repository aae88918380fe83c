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
from gaam_decoder.reports.sections._base import Parts, Section, Writer, most_accurate
from gaam_decoder.reports.table import Table
from gaam_decoder.runs.tuning import first_runs

HELD_OUT = {"val": "validation accuracy, %", "test": "TEST accuracy, %"}


class Curves(Writer):
    """Means over seeds; the picture is of the most accurate rows."""

    place = 13

    def of(self, table: Table) -> Iterator[Section]:
        """Nothing over several folds, or of fits alone."""
        stepped = [row for row in table.rows if not row.fitted and row.folds == 1]
        if any(run.log for row in stepped for run in row.runs):
            heading = "Learning curves"
            yield Section(name="curves", heading=heading, parts=lambda: _curves(table))


def _curves(table: Table) -> Parts:
    panels = dict[str, list[Line]]()
    held_out = HELD_OUT.get("".join({r.select for r in table.rows}), "held-out accuracy, %")
    for key, factor, what in (
        ("loss", 1, "training loss"),
        ("train_accuracy", 100, "training accuracy, %"),
        ("accuracy", 100, held_out),
    ):
        for row in table.rows:
            if (value_SE := logged(row, key)) is not None:
                seen_E = np.flatnonzero(np.isfinite(value_SE).any(0))
                mean_E, sd_E = (
                    factor * of(value_SE[:, seen_E], 0) for of in (np.nanmean, np.nanstd)
                )
                line = Line(row.label, seen_E + 1, mean_E, (mean_E - sd_E, mean_E + sd_E))
                panels.setdefault(what, []).append(line)
    ends = [{o.label: f"{o.y[0]:.4g} to {o.y[-1]:.4g}" for o in lines} for lines in panels.values()]
    cells = [[row.label, *(of.get(row.label, "-") for of in ends)] for row in table.rows]
    sheet = Sheet("first to last epoch, mean over seeds", ["decoder", *panels], cells, ("decoder",))
    best = {row.label for row in most_accurate(table, MOST_LINES)}
    drawn = [(what, [o for o in of if o.label in best] or of[:1]) for what, of in panels.items()]
    picture = Picture(
        "curves",
        "Learning curves",
        "Mean over seeds, of the most accurate decoders; the band is one standard deviation.",
        lambda: line_panels(drawn, "epoch"),
    )
    return (sheet,), (picture,) if drawn else ()


def logged(row: Row, key: str) -> NDArray[np.float64] | None:
    """A quantity of the log, (S, E), NaN where a seed has none; None where no entry has it."""
    decides = first_runs(row.runs)
    found = {
        (entry["seed"], entry["epoch"]): entry[key]
        for run in row.runs
        for entry in run.log
        if entry.get(key) is not None and decides.get(entry["seed"]) is run
    }
    if row.fitted or not found:
        return None
    seeds = sorted({seed for seed, _ in found})
    value_SE = np.full((len(seeds), max(epoch for _, epoch in found)), np.nan)
    for (seed, epoch), value in found.items():
        value_SE[seeds.index(seed), epoch - 1] = value
    return value_SE
