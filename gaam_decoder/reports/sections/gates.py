"""Which gates densities have learned, beside the one that was planted, where one was.

S seeds, P points.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gaam_cache.messages import brief
from gaam_decoder.analysis.gates import (
    RESIDUALS,
    Floats,
    distance,
    learned_cells,
    learned_curves,
    planted_curve,
    planted_gate,
)
from gaam_decoder.reports.pictures.picture import Picture
from gaam_decoder.reports.rows import Row
from gaam_decoder.reports.table import Table
from gaam_decoder.reports.writing.numbers import percent
from gaam_decoder.reports.writing.section import Section, Writer
from gaam_decoder.reports.writing.sheets import Sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 8
"""Rows of one picture: it has as many colours."""


class _Shown(NamedTuple):
    label: str
    row: Row
    cells: Mapping[str, Floats]


class Gates(Writer):
    """The curve of every density after training; see ``analysis.gates``."""

    place = 40

    def of(self, table: Table) -> Section | None:
        """None where no row learned a density."""
        shown, without = [], []
        for label, row in zip(table.labels(), table.rows, strict=True):
            cells = learned_cells(row.runs) if row.folds == 1 and row.scores.seeds else None
            if cells is None:
                without.append(label)
            else:
                shown.append(_Shown(label, row, cells))
        if not shown:
            return None
        shown.sort(key=lambda one: -(one.row.mean or 0.0))
        planted = planted_gate(table.cache)
        lines = [
            "gate: the weight of a feature by how many standard deviations it lies from the gate's "
            "centre, mean over heads and features; peak 1, since the head undoes any factor"
        ]
        if len(shown) > MOST:
            lines.append(f"the {MOST} most accurate of {len(shown)} rows are drawn")
        if without:
            names = ", ".join(without[:MOST]) + (", ..." if len(without) > MOST else "")
            lines.append(f"without a curve, since their runs hold no density: {names}")
        lead = f"the gates that {len(shown)} {'row' if len(shown) == 1 else 'rows'} learned"
        if planted is not None:
            lead += f", beside the planted one ({planted})"
        return Section(
            name="gates",
            heading="Learned gates",
            lead=lead,
            lines=tuple(lines),
            sheets=() if planted is None else (_sheet(shown, planted, table.cache["planted"]),),
            pictures=(_picture(shown[:MOST], planted),),
            values={
                "planted": table.cache["planted"] if planted is not None else None,
                "rows": [one.label for one in shown],
                "without": without,
            },
        )


def _sheet(shown: Sequence[_Shown], planted: str, about: Mapping[str, Any]) -> Sheet:
    """How far every learned gate is from the planted one."""
    planted_P = planted_curve(planted)
    lines = []
    for one in shown:
        curve_SP = learned_curves(one.row.attention, one.cells)
        far = "-" if curve_SP is None else f"{distance(curve_SP.mean(0), planted_P):.3f}"
        lines.append([brief(one.label, 60), percent(one.row.mean), far])
    known = [
        f"{name} {brief(str(about[key]), 12)}"
        for name, key in (("teacher", "teacher_accuracy"), ("best linear", "linear_accuracy"))
        if key in about
    ]
    return Sheet(
        caption=f"planted gate {planted}: accuracy, and distance of the learned gate (0: the same)"
        + (f"; accuracy to expect: {', '.join(known)}" if known else ""),
        header=["row", "accuracy %", "distance"],
        lines=lines,
        words=("row",),
    )


def _picture(shown: Sequence[_Shown], planted: str | None) -> Picture:
    labels = [one.label for one in shown]

    def draw() -> Figure:
        from gaam_decoder.reports.figures.gates import gate_curves

        found = [(one.label, learned_curves(one.row.attention, one.cells)) for one in shown]
        drawn = [(label, curve_SP) for label, curve_SP in found if curve_SP is not None]
        return gate_curves(
            [label for label, _ in drawn],
            [curve_SP for _, curve_SP in drawn],
            RESIDUALS,
            None if planted is None else planted_curve(planted),
        )

    dashed = "" if planted is None else f"; dashed: the planted gate, {planted}"
    return Picture(
        kind="gates",
        name="gates",
        title="Learned gates",
        caption="Mean over seeds, heads and features; the band goes from the lowest seed to the "
        f"highest{dashed}.",
        alt=f"Gate weight against the standardised feature value for {', '.join(labels)}"
        + ("." if planted is None else f", and the planted gate {planted}."),
        draw=draw,
    )
