"""Learned parameters, and the gates that densities have become, beside a planted one.

S seeds, P points.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

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
from gaam_decoder.analysis.learned import ParameterRange
from gaam_decoder.reports.columns import Sheet
from gaam_decoder.reports.drawing import (
    MOST_LINES,
    Line,
    Picture,
    in_fours,
    line_panels,
)
from gaam_decoder.reports.rows import Row
from gaam_decoder.reports.sections._base import Section, Writer, most_accurate
from gaam_decoder.reports.table import Table
from gaam_decoder.reports.unit import percent
from gaam_decoder.runs.tuning import by_seed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Shown = tuple[str, Row, Mapping[str, Floats]]
"""A label, its row, and the cells of its gate."""
MOST = 8
"""Gates that are drawn."""
HEADER = ["decoder", "parameter", "start", "min", "median", "max", "sd of seed medians"]
MOST_PARAMETERS = 6
"""Of which histograms are drawn."""


class Learned(Writer):
    """Ranges and histograms of parameters, and curves of gates."""

    place = 40

    def of(self, table: Table) -> Iterator[Section]:
        """Nothing where no row learned any."""
        rows = list(zip(table.labels(), table.rows, strict=True))
        if any(table.rows[place].learned for place in table.places):
            yield Section(
                name="learned",
                heading="Learned parameters",
                lines=tuple(line for row in table.rows for line in _exponents(row)),
                parts=lambda: ((_ranges(table),), tuple(_histograms(table))),
            )
        yield from _gates(table, rows)


def _ranges(table: Table) -> Sheet:
    labels = table.labels()
    lines = [
        [labels[place], *cells]
        for place in table.places
        for cells in _parameters(table.rows[place])
    ]
    title = "learned parameters after training, over heads, features and seeds"
    return Sheet(title, HEADER, lines, ("decoder", "parameter"))


def _parameters(row: Row) -> Iterator[list[str]]:
    """One list of cells for every learned parameter of a mechanism, as in ``HEADER``."""
    for name, found in row.learned.items():
        ends = [f"{value:.3g}" for value in (found.min, found.median, found.max)]
        sd = "-" if found.seed_medians_sd is None else f"{found.seed_medians_sd:.3g}"
        yield [brief(name, 40), _start(found), *ends, sd]


def _start(found: ParameterRange) -> str:
    low, high = (f"{value:.3g}" for value in found.start or (0, 0))
    return "-" if found.start is None else low if low == high else f"{low} to {high}"


def _exponents(row: Row) -> Iterator[str]:
    """What the exponents of generalised Gaussians say."""
    name = brief(row.attention)
    for beta in row.learned.values():
        if (found := beta.distribution) is None:
            continue
        quantiles = ", ".join(f"{q}%: {value:.3g}" for q, value in found.quantiles.items())
        heads = ", ".join(f"{value:.3g}" for value in found.head_medians)
        yield (
            f"{name}: {100 * found.nearer_to_laplace:.1f}% of beta are nearer to 1 (Laplace) than "
            f"to 2 (Gaussian), {100 * found.below_laplace:.1f}% below 1, "
            f"{100 * found.above_gaussian:.1f}% above 2"
        )
        yield f"{name}: quantiles of beta {quantiles}; median of each head {heads}"
        yield f"{name}: beta starts at {_start(beta)}; a value near it may only not have moved"


def _histograms(table: Table) -> Iterator[Picture]:
    """A panel for every parameter, with a line for each of the most accurate rows that has it."""
    labels, panels = table.labels(), dict[str, list[Line]]()
    for place in most_accurate(table, MOST_LINES):
        row = table.rows[place]
        for name in row.learned if row.folds == 1 else ():
            found = by_seed(row.runs, lambda run, name=name: run.learned.get(name))  # type: ignore[misc]
            value = np.concatenate([np.empty(0), *(one.ravel() for one in found.values())])
            value = value[np.isfinite(value)]
            if len(value):
                # one value many times over has no width for bins
                middle, spread = np.median(value), np.ptp(value)
                narrow = spread <= 1e-5 * max(1.0, abs(middle))
                limits = (middle - 0.5, middle + 0.5) if narrow else None
                count, edge = np.histogram(value, 48, limits)
                line = Line(labels[place], (edge[1:] + edge[:-1]) / 2, 100 * count / len(value))
                panels.setdefault(brief(name, 40), []).append(line)
    if panels:
        some = [(f"{name}, % of values", lines) for name, lines in panels.items()][:MOST_PARAMETERS]
        yield Picture(
            "learned",
            "Learned parameters",
            f"How often each value is among all heads, features and seeds, of the {MOST_LINES} "
            "most accurate decoders that learn any.",
            lambda: line_panels(some, "value after training", alike=False, bottom=0),
        )


def _gates(table: Table, rows: list[tuple[str, Row]]) -> Iterator[Section]:
    """The curve of every density after training; see ``analysis.gates``."""
    of_row = [
        (label, row, learned_cells(row.runs) if row.folds == 1 and row.scores.seeds else None)
        for label, row in rows
    ]
    without = [label for label, _, cells in of_row if cells is None]
    shown = [
        (label, row, cells)
        for label, row, cells in sorted(of_row, key=lambda one: -(one[1].mean or 0.0))
        if cells is not None
    ]
    if not shown:
        return
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
    lead += f", beside the planted one ({planted})" if planted is not None else ""
    yield Section(
        name="gates",
        heading="Learned gates",
        lead=lead,
        lines=tuple(lines),
        parts=lambda: (
            [] if planted is None else [_distances(shown, planted, table.cache["planted"])],
            [_picture(shown[:MOST], planted)],
        ),
        values={
            "planted": table.cache["planted"] if planted is not None else None,
            "rows": [label for label, *_ in shown],
            "without": without,
        },
    )


def _distances(shown: Sequence[Shown], planted: str, about: Mapping[str, Any]) -> Sheet:
    """How far every learned gate is from the planted one."""
    planted_P = planted_curve(planted)
    lines = []
    for label, row, cells in shown:
        curve_SP = learned_curves(row.attention, cells)
        far = "-" if curve_SP is None else f"{distance(curve_SP.mean(0), planted_P):.3f}"
        lines.append([brief(label, 60), percent(row.mean), far])
    known = [
        f"{name} {brief(str(about[key]), 12)}"
        for name, key in (("teacher", "teacher_accuracy"), ("best linear", "linear_accuracy"))
        if key in about
    ]
    caption = f"planted gate {planted}: accuracy, and distance of the learned gate (0: the same)"
    caption += f"; accuracy to expect: {', '.join(known)}" if known else ""
    return Sheet(caption, ["row", "accuracy %", "distance"], lines, ("row",))


def _picture(shown: Sequence[Shown], planted: str | None) -> Picture:
    def draw() -> Figure:
        lines = [
            Line(label, RESIDUALS, curve_SP.mean(0), (curve_SP.min(0), curve_SP.max(0)))
            for label, row, cells in shown
            if (curve_SP := learned_curves(row.attention, cells)) is not None
        ]
        beside = None if planted is None else Line("planted", RESIDUALS, planted_curve(planted))
        panels = in_fours("weight", lines) or [("weight", [])]
        what = "standardised feature value, from the gate's centre"
        return line_panels(panels, what, ticks=[-4, -2, 0, 2, 4], beside=beside, bottom=0)

    dashed = "" if planted is None else f"; dashed: the planted gate, {planted}"
    return Picture(
        "gates",
        "Learned gates",
        "Mean over seeds, heads and features; the band goes from the lowest seed to the "
        f"highest{dashed}.",
        draw,
    )
