"""What was learned by epoch: training loss and accuracy, and last that of what was held out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from gaam_decoder.reports.columns import Sheet
from gaam_decoder.reports.drawing import MOST_LINES, Line, Picture, line_panels
from gaam_decoder.reports.rows import Row
from gaam_decoder.reports.sections._base import Parts, Section, Writer, most_accurate
from gaam_decoder.reports.table import Table
from gaam_decoder.runs.tuning import first_runs

if TYPE_CHECKING:
    import pandas

HELD_OUT = {"val": "validation accuracy, %", "test": "TEST accuracy, %"}


class Curves(Writer):
    """Means over seeds; the picture is of the most accurate rows."""

    place = 13

    def of(self, table: Table) -> Iterator[Section]:
        """Nothing over several folds, or of fits alone."""
        stepped = [row for row in table.rows if not row.fitted and row.folds == 1]
        if any(run.log for row in stepped for run in row.runs):
            yield Section(name="curves", heading="Learning curves", make=lambda: _curves(table))


def _curves(table: Table) -> Parts:
    held_out = HELD_OUT.get("".join({r.select for r in table.rows}), "held-out accuracy, %")
    names = {"loss": "training loss", "train_accuracy": "training accuracy, %"}
    panels = dict[str, list[Line]]()
    for row in table.rows:
        log = logged(row)
        for key, what in (names | {"accuracy": held_out}).items() if len(log) else ():
            by_epoch = log.astype({key: float}).groupby("epoch")[key] if key in log else None
            if by_epoch is not None and len(mean_E := by_epoch.mean().dropna()):
                mean_E *= (factor := 1 if key == "loss" else 100)
                sd_E = factor * by_epoch.std(ddof=0)[mean_E.index]
                line = Line(row.label, [*mean_E.index], [*mean_E], (mean_E - sd_E, mean_E + sd_E))
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


def logged(row: Row) -> pandas.DataFrame:
    """The logs of its seeds, each from the run that counts; nothing of a fit."""
    import pandas

    counts = {} if row.fitted else first_runs(row.runs)
    log = [one for run in row.runs for one in run.log if counts.get(one["seed"]) is run]
    return pandas.DataFrame(log)
