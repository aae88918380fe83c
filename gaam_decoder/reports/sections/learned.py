"""Learned parameters, and the gates that densities have become, beside a planted one.

S seeds, P points.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from gaam_decoder.reports.columns import Sheet
from gaam_decoder.reports.drawing import MOST_LINES, Line, Picture, in_fours, line_panels
from gaam_decoder.reports.rows import Row
from gaam_decoder.reports.sections._base import Parts, Section, Writer, most_accurate
from gaam_decoder.reports.table import Table
from gaam_decoder.reports.unit import percent
from gaam_decoder.runs.tuning import by_seed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST = 8
"""Gates that are drawn."""
MOST_PARAMETERS = 6
"""Of which histograms are drawn."""


class Learned(Writer):
    """Ranges and histograms of parameters, and curves of gates."""

    place = 40

    def of(self, table: Table) -> Iterator[Section]:
        """Nothing where no row learned any."""
        if any(table.rows[place].learned for place in table.places):
            yield Section(
                name="learned",
                heading="Learned parameters",
                lines=tuple(line for row in table.rows for line in _exponents(row)),
                parts=lambda: ((_ranges(table),), tuple(_histograms(table))),
            )
        yield from _gates(table)


def _ranges(table: Table) -> Sheet:
    """A line for every learned parameter."""
    labels, lines = table.labels(), []
    for place in table.places:
        for name, found in table.rows[place].learned.items():
            names = ("min", "median", "max", "seed_medians_sd")
            cells = ["-" if found[key] is None else f"{found[key]:.3g}" for key in names]
            lines.append([labels[place], brief(name, 40), _start(found), *cells])
    header = ["decoder", "parameter", "start", "min", "median", "max", "sd of seed medians"]
    title = "learned parameters after training, over heads, features and seeds"
    return Sheet(title, header, lines, ("decoder", "parameter"))


def _start(found: dict[str, Any]) -> str:
    return " to ".join(dict.fromkeys(f"{value:.3g}" for value in found["start"] or ())) or "-"


def _exponents(row: Row) -> Iterator[str]:
    """What the exponents of generalised Gaussians say."""
    for beta in row.learned.values():
        if found := beta.get("distribution"):
            quantiles = ", ".join(f"{q}%: {value:.3g}" for q, value in found["quantiles"].items())
            heads = ", ".join(f"{value:.3g}" for value in found["head_medians"])
            names = ("nearer_to_laplace", "below_laplace", "above_gaussian")
            nearer, below, above = (f"{100 * found[name]:.1f}%" for name in names)
            yield (
                f"{brief(row.attention)}: {nearer} of beta are nearer to 1 (Laplace) than to 2 "
                f"(Gaussian), {below} below 1, {above} above 2; quantiles {quantiles}; median of "
                f"each head {heads}; it starts at {_start(beta)}, near which it may only not have "
                "moved"
            )


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


def _gates(table: Table) -> Iterator[Section]:
    """The curve of every density after training; see ``analysis.gates``."""
    shown: list[tuple[str, Row, Mapping[str, Floats]]] = []
    for label, row in zip(table.labels(), table.rows, strict=True):
        cells = learned_cells(row.runs) if row.folds == 1 and row.scores.seeds else None
        if cells is not None:
            shown.append((label, row, cells))
    if not shown:
        return
    shown.sort(key=lambda one: -(one[1].mean or 0.0))
    planted, about = planted_gate(table.cache), table.cache.get("planted") or {}

    def parts() -> Parts:
        curves = {label: learned_curves(row.attention, cells) for label, row, cells in shown}
        known = {label: curve_SP for label, curve_SP in curves.items() if curve_SP is not None}

        def draw() -> Figure:
            lines = [
                Line(label, RESIDUALS, curve_SP.mean(0), (curve_SP.min(0), curve_SP.max(0)))
                for label, curve_SP in list(known.items())[:MOST]
            ]
            beside = None if planted is None else Line("planted", RESIDUALS, planted_curve(planted))
            panels = in_fours("weight", lines) or [("weight", [])]
            what = "standardised feature value, from the gate's centre"
            ticks = [-4, -2, 0, 2, 4]
            return line_panels(panels, what, ticks=ticks, beside=beside, bottom=0)

        dashed = "" if planted is None else f"; dashed: the planted gate, {planted}"
        caption = "Mean over seeds, heads and features; the band goes from the lowest seed to the "
        picture = Picture("gates", "Learned gates", f"{caption}highest{dashed}.", draw)
        if planted is None:
            return (), (picture,)
        planted_P = planted_curve(planted)
        lines = [
            [label, percent(row.mean), f"{distance(known[label].mean(0), planted_P):.3f}"]
            for label, row, _ in shown
            if label in known
        ]
        expect = [
            f"{name} {brief(str(about[key]), 12)}"
            for name, key in (("teacher", "teacher_accuracy"), ("best linear", "linear_accuracy"))
            if key in about
        ]
        caption = (
            f"planted gate {planted}: accuracy (to expect: {', '.join(expect) or 'unknown'}), "
        )
        caption += "and distance of the learned gate (0: the same)"
        sheet = Sheet(caption, ["decoder", "accuracy %", "distance"], lines, ("decoder",))
        return (sheet,), (picture,)

    lead = f"the gates that {len(shown)} {'row' if len(shown) == 1 else 'rows'} learned"
    yield Section(
        name="gates",
        heading="Learned gates",
        lead=lead + (f", beside the planted one ({planted})" if planted is not None else ""),
        lines=(
            "gate: the weight of a feature by how many standard deviations it lies from the gate's "
            "centre, mean over heads and features; peak 1, since the head undoes any factor",
            *[f"the {MOST} most accurate of {len(shown)} rows are drawn"] * (len(shown) > MOST),
        ),
        parts=parts,
        values={
            "planted": about if planted is not None else None,
            "rows": [label for label, *_ in shown],
        },
    )
