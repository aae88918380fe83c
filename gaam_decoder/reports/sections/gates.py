"""Show the curves of learned gates, beside a planted gate if the states have one.

S seeds, P points.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from gaam_decoder.analysis.learned import (
    OFFSET,
    RESIDUALS,
    has_learned_curve,
    learned_curves,
    planted_curve,
    planted_gate,
)
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
from gaam_decoder.reports.wording import capitalised

GATE = (
    "gate: the weight of a feature by how many standard deviations it lies from the "
    "gate's centre, mean over heads and features; peak 1, since the head undoes any "
    "factor"
)


class Gates(Writer):
    """The weight of a feature by its distance from the centre of the gate."""

    position = 15

    def sections_of(self, table: Table) -> Iterator[Section]:
        """Yield the section if the gate of an entry has a centre for every feature."""
        gated = [
            entry
            for entry in table.entries
            if entry.folds == 1 and entry.finished and _has_feature_gate(entry, table)
        ]
        if not gated:
            return
        drawn = [entry for entry in gated if has_learned_curve(entry.runs[0])]
        gate = planted_gate(table.cache)
        noun = "decoder" if len(drawn) == 1 else "decoders"
        lead = f"of {len(drawn)} {noun}"
        if gate:
            lead += f", beside the planted one ({gate})"
        undrawn = _undrawn(gated, drawn)
        yield Section(
            name="gates",
            heading="Learned gates",
            lead=lead,
            lines=(GATE, *undrawn),
            make=lambda: _gates(drawn, gate, undrawn),
            values={"planted": table.cache.planted if gate else None},
        )


def _undrawn(gated: Sequence[Entry], drawn: Sequence[Entry]) -> list[str]:
    """A sentence on the gates whose curve is unknown; none where all are drawn."""
    labels = [entry.label for entry in gated if entry not in drawn]
    if not labels:
        return []
    return [
        f"not drawn: {', '.join(labels)}; a curve needs the class of training: name a "
        "class of your own, --attn FILE.py:CLASS, beside the other decoders"
    ]


def _has_feature_gate(entry: Entry, table: Table) -> bool:
    """Whether the gate of an entry has a centre for every feature of the states.

    The parameter ``offset``, (seeds, heads, features), holds the centres. The gate of
    gaussian-mixture has others.
    """
    offset = entry.runs[0].learned.get(OFFSET, np.empty(0))
    return bool(offset.shape[2:] == (table.cache.hidden_size,))


def _gates(entries: Sequence[Entry], gate: str | None, undrawn: Sequence[str]) -> Parts:
    """A picture of the learned gates: a curve for every entry, and no table.

    A curve is the weight of a feature by its residual: its distance from the centre of
    the gate, in standard deviations. ``RESIDUALS`` are the residuals of the points.
    ``gate`` names the planted gate with which the labels of the cache were made, if
    any; ``undrawn`` are sentences on gates without a curve.
    """
    lines = []
    for entry in entries[:MOST_LINES]:
        # weights of S seeds at P residuals
        curve_SP = learned_curves(entry.runs)
        assert curve_SP is not None  # the entries have a curve
        band = (curve_SP.min(0), curve_SP.max(0))
        mean_P = curve_SP.mean(0)
        lines.append(Line(entry.label, x=RESIDUALS, y=mean_P, band=band))
    planted = None
    if gate:
        planted = Line("planted", x=RESIDUALS, y=planted_curve(gate))
    picture = Picture(
        name="gates",
        title="Learned gates",
        caption=(
            "Mean over seeds, heads and features of the best; the band goes from the "
            "lowest seed to the highest; dashed: what was planted, where something was."
            f"{not_drawn([entry.label for entry in entries])}"
            f"{''.join(f' {capitalised(line)}.' for line in undrawn)}"
        ),
        draw=lambda: line_panels(
            [Panel("weight", lines)],
            "standardised feature value, from the gate's centre",
            reference=planted,
            bottom=0,
        ),
    )
    return Parts(sheets=(), pictures=(picture,) if lines else ())
