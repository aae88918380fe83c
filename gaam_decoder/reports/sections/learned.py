"""Learned parameters, and the gates that densities have become, beside a planted one.

S seeds, P points.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gaam_cache.messages import brief
from gaam_decoder.analysis.learned import (
    RESIDUALS,
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

MOST = 8
"""Gates that are drawn."""
MOST_PARAMETERS = 6
"""Of which histograms are drawn."""


class Learned(Writer):
    """Ranges and histograms of parameters, and curves of gates."""

    place = 40

    def of(self, table: Table) -> Iterator[Section]:
        """Nothing where no row learned any."""
        ranges = {place: table.rows[place].learned for place in table.places}
        if any(ranges.values()):
            yield Section(
                name="learned",
                heading="Learned parameters",
                lines=[
                    _exponents(table.labels()[place], beta["distribution"])
                    for place, of in ranges.items()
                    for beta in of.values()
                    if "distribution" in beta
                ],
                parts=lambda: ((_ranges(table, ranges),), tuple(_histograms(table))),
            )
        yield from _gates(table)


def _ranges(table: Table, ranges: dict[int, dict[str, dict[str, Any]]]) -> Sheet:
    """A line for every learned parameter."""
    labels, lines = table.labels(), []
    for place, of in ranges.items():
        for name, found in of.items():
            start = " to ".join(dict.fromkeys(f"{value:.3g}" for value in found["start"] or ()))
            keys = ("min", "median", "max", "seed_medians_sd")
            cells = ["-" if found[key] is None else f"{found[key]:.3g}" for key in keys]
            lines.append([labels[place], brief(name, 40), start or "-", *cells])
    header = ["decoder", "parameter", "start", "min", "median", "max", "sd of seed medians"]
    title = "learned parameters after training, over heads, features and seeds"
    return Sheet(title, header, lines, ("decoder", "parameter"))


def _exponents(label: str, found: dict[str, Any]) -> str:
    """What the exponents of generalised Gaussians say."""
    quantiles = ", ".join(f"{q}%: {value:.3g}" for q, value in found["quantiles"].items())
    return (
        f"{label}: {percent(found['nearer_to_laplace'])}% of beta are nearer to 1 (Laplace) than "
        f"to 2 (Gaussian), {percent(found['below_laplace'])}% below 1, "
        f"{percent(found['above_gaussian'])}% above 2; quantiles {quantiles}; near where it "
        "starts it may only not have moved"
    )


def _histograms(table: Table) -> Iterator[Picture]:
    """A panel for every parameter, with a line for each of the most accurate rows that has it."""
    labels, panels = table.labels(), dict[str, list[Line]]()
    for place in most_accurate(table, MOST_LINES):
        row = table.rows[place]
        for name in row.learned:
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
            "most accurate decoders.",
            lambda: line_panels(some, "value after training", alike=False, bottom=0),
        )


def _gates(table: Table) -> Iterator[Section]:
    """The curve of every density after training; see ``analysis.learned``."""
    shown: list[tuple[str, Row, Any]] = []
    for label, row in zip(table.labels(), table.rows, strict=True):
        cells = learned_cells(row.runs) if row.folds == 1 and row.scores.seeds else None
        if cells is not None:
            shown.append((label, row, cells))
    if not shown:
        return
    shown.sort(key=lambda one: -(one[1].mean or 0.0))
    gate, about = planted_gate(table.cache), table.cache.get("planted") or {}

    def parts() -> Parts:
        curves = {label: learned_curves(row.attention, cells) for label, row, cells in shown}
        known = {label: curve_SP for label, curve_SP in curves.items() if curve_SP is not None}
        planted_P = None if gate is None else planted_curve(gate)
        lines = [
            Line(label, RESIDUALS, curve_SP.mean(0), (curve_SP.min(0), curve_SP.max(0)))
            for label, curve_SP in list(known.items())[:MOST]
        ]
        picture = Picture(
            "gates",
            "Learned gates",
            f"Mean over seeds, heads and features of the {MOST} most accurate; the band goes from "
            "the lowest seed to the highest" + f"; dashed: the planted gate, {gate}." * bool(gate),
            lambda: line_panels(
                in_fours("weight", lines) or [("weight", [])],
                "standardised feature value, from the gate's centre",
                ticks=[-4, -2, 0, 2, 4],
                beside=None if planted_P is None else Line("planted", RESIDUALS, planted_P),
                bottom=0,
            ),
        )
        if planted_P is None:
            return (), (picture,)
        far = [
            [label, percent(row.mean), f"{distance(known[label].mean(0), planted_P):.3f}"]
            for label, row, _ in shown
            if label in known
        ]
        teacher, linear = (
            brief(str(about.get(f"{name}_accuracy", "unknown")), 12)
            for name in ("teacher", "linear")
        )
        caption = f"planted gate {gate}: accuracy (to expect: teacher {teacher}, best linear "
        caption += f"{linear}), and distance of the learned gate (0: the same)"
        return (Sheet(caption, ["decoder", "accuracy %", "distance"], far, ("decoder",)),), (
            picture,
        )

    yield Section(
        name="gates",
        heading="Learned gates",
        lead=f"the gates of {len(shown)} rows" + f", beside the planted one ({gate})" * bool(gate),
        lines=(
            "gate: the weight of a feature by how many standard deviations it lies from the gate's "
            "centre, mean over heads and features; peak 1, since the head undoes any factor",
        ),
        parts=parts,
        values={"planted": about if gate else None, "rows": [label for label, *_ in shown]},
    )
