"""Learned parameters, and the gates that densities have become, beside a planted one.

S seeds, P points.
"""

from __future__ import annotations

from collections.abc import Iterator

from gaam_cache.messages import brief
from gaam_decoder.analysis.learned import (
    RESIDUALS,
    learned_cells,
    learned_curves,
    planted_curve,
    planted_gate,
)
from gaam_decoder.reports.columns import Sheet
from gaam_decoder.reports.drawing import Line, Picture, in_fours, line_panels
from gaam_decoder.reports.sections._base import Parts, Section, Writer, most_accurate
from gaam_decoder.reports.table import Table

MOST = 8  # gates that are drawn
GATE = (
    "gate: the weight of a feature by how many standard deviations it lies from the gate's centre, "
    "mean over heads and features; peak 1, since the head undoes any factor"
)


class Learned(Writer):
    """Ranges of parameters, and curves of gates."""

    place = 40

    def of(self, table: Table) -> Iterator[Section]:
        """Nothing where no row learned any."""
        header = ["decoder", "parameter", "start", "min", "median", "max", "sd of seed medians"]
        lines = []
        for row in table.shown:
            for name, found in row.learned.items():
                start = dict.fromkeys(f"{value:.3g}" for value in found["start"] or ())
                values = [found[key] for key in ("min", "median", "max", "seed_medians_sd")]
                cells = ["-" if value is None else f"{value:.3g}" for value in values]
                lines.append([row.label, brief(name, 40), " to ".join(start) or "-", *cells])
        if lines:
            title = "learned parameters after training, over heads, features and seeds"
            sheet = Sheet(title, header, lines, ("decoder", "parameter"))
            yield Section(name="learned", heading="Learned parameters", make=lambda: ((sheet,), ()))
        rows = [row for row in table.rows if row.folds == 1 and row.finished]
        if count := sum(learned_cells(row.runs) is not None for row in rows):
            gate, about = planted_gate(table.cache), table.cache.get("planted")
            yield Section(
                name="gates",
                heading="Learned gates",
                lead=f"the gates of {count} rows"
                + f", beside the planted one ({gate})" * bool(gate),
                lines=(GATE,),
                make=lambda: _gates(table, gate),
                values={"planted": about if gate else None},
            )


def _gates(table: Table, gate: str | None) -> Parts:
    """The curve of every density after training; see ``analysis.learned``."""
    lines = []
    for row in most_accurate(table):
        cells = learned_cells(row.runs) if row.folds == 1 and row.finished else None
        curve_SP = None if cells is None else learned_curves(row.attention, cells)
        if curve_SP is not None:
            band = curve_SP.min(0), curve_SP.max(0)
            lines.append(Line(row.label, RESIDUALS, curve_SP.mean(0), band))
    beside = Line("planted", RESIDUALS, planted_curve(gate)) if gate else None
    picture = Picture(
        "gates",
        "Learned gates",
        f"Mean over seeds, heads and features of the {MOST} most accurate; the band goes from the "
        "lowest seed to the highest" + f"; dashed: the planted gate, {gate}" * bool(gate) + ".",
        lambda: line_panels(
            in_fours("weight", lines[:MOST]) or [("weight", [])],
            "standardised feature value, from the gate's centre",
            ticks=[-4, -2, 0, 2, 4],
            beside=beside,
            bottom=0,
        ),
    )
    return (), (picture,)
