"""Show learning curves: loss and accuracies by epoch, mean over seeds.

E epochs.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gaam_cache.common.messages import join_first
from gaam_decoder.reports.cells import range_cell
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
from gaam_decoder.reports.sections.base import Parts, Section, Writer
from gaam_decoder.reports.table import Table
from gaam_decoder.reports.wording import NAMED
from gaam_decoder.runs.tuning import first_run_by_seed

if TYPE_CHECKING:
    from pandas import DataFrame

HELD_OUT = {"val": "validation", "test": "TEST"}


class Curves(Writer):
    """Loss and accuracies of every epoch."""

    position = 13

    def sections_of(self, table: Table) -> Iterator[Section]:
        """Yield the section if a decoder was trained in steps, outside of folds."""
        trained = [
            entry
            for entry in table.entries
            if entry.folds == 1 and not entry.fitted_at_once
        ]
        if any(run.log for entry in trained for run in entry.runs):
            yield Section(
                name="curves", heading="Learning curves", make=lambda: _curves(table)
            )


def _curves(table: Table) -> Parts:
    """A table of the first and last values of every curve, and a picture of them."""
    panels = _panels(table)
    header = ["decoder", *panels]
    cells = [[entry.label] for entry in table.entries]
    for lines in panels.values():
        ends = {
            line.label: range_cell(
                f"{line.y[0]:.4g} to {line.y[-1]:.4g}", "first", "last"
            )
            for line in lines
        }
        for line_cells in cells:
            line_cells.append(ends.get(line_cells[0], "-"))
    sheet = Sheet(
        "loss and scores after the first and after the last epoch, mean over seeds",
        header,
        cells,
    )
    logged = list(
        dict.fromkeys(line.label for lines in panels.values() for line in lines)
    )
    caption = (
        "Mean over seeds, of the best decoders; the band is one standard deviation."
        f"{not_drawn(logged)}"
    )
    without_epochs = [e.label for e in table.entries if e.label not in logged]
    if without_epochs:
        caption += f" Without epochs: {join_first(without_epochs, NAMED)}."
    drawn = [Panel(title, lines[:MOST_LINES]) for title, lines in panels.items()]
    picture = Picture(
        name="curves",
        title="Learning curves",
        caption=caption,
        draw=lambda: line_panels(drawn, "epoch"),
    )
    return Parts(sheets=(sheet,), pictures=(picture,) if drawn else ())


def _panels(table: Table) -> dict[str, list[Line]]:
    """Title of each logged quantity -> its curves, one for every entry that logs it.

    The quantities are training loss, training score, and the score of the rows that
    are held out in training.
    """
    selections = {entry.select for entry in table.entries}
    task = table.task
    score_title = f"{task.score_title}, %" if task.in_percent else task.score_title
    # the rows that are held out, in words; entries may differ in them
    rows_in_words = "held-out"
    if len(selections) == 1:
        [selection] = selections
        rows_in_words = HELD_OUT.get(selection, rows_in_words)
    title_by_key = {
        "loss": "training loss",
        task.training_key: f"training {score_title}",
        task.score_key: f"{rows_in_words} {score_title}",
    }

    panels: dict[str, list[Line]] = {}
    for entry in table.entries:
        log = _training_log(entry)
        for key, title in title_by_key.items():
            is_percent = key != "loss" and task.in_percent
            line = _curve(entry.label, log, key, 100 if is_percent else 1)
            if line is not None:
                panels.setdefault(title, []).append(line)
    return panels


def _training_log(entry: Entry) -> "DataFrame":
    """A row for every finished seed and epoch; empty if the head was fitted at once.

    Of several runs with the same seed, the first counts.
    """
    import pandas

    counting_run = {} if entry.fitted_at_once else first_run_by_seed(entry.runs)
    records = []
    for run in entry.runs:
        records += [
            record
            for record in run.log
            if counting_run.get(record["seed"]) is run
            and record["seed"] not in run.failed
        ]
    return pandas.DataFrame(records)


def _curve(label: str, log: "DataFrame", key: str, factor: int) -> Line | None:
    """The curve of one column of a log: mean over seeds by epoch, with a band.

    The band is one standard deviation wide on both sides. None if the log has no
    values of this column.

    Args:
        label: of the curve.
        log: a row for every seed and epoch.
        key: the column.
        factor: of the values, 100 for percent.
    """
    if not len(log) or key not in log:
        return None
    by_epoch = log.astype({key: float}).groupby("epoch")[key]
    mean_E = by_epoch.mean().dropna()
    if not len(mean_E):
        return None
    mean_E = mean_E * factor
    sd_E = factor * by_epoch.std(ddof=0)[mean_E.index]
    band = (mean_E - sd_E, mean_E + sd_E)
    return Line(label, list(mean_E.index), list(mean_E), band)
