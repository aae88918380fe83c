"""What mechanisms read of every layer, and whether what is read most is the most accurate alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from gaam_cache.messages import brief
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.reports.axes import Beside
from gaam_decoder.reports.columns import Sheet
from gaam_decoder.reports.drawing import (
    MOST_LINES,
    Line,
    Picture,
    line_panels,
)
from gaam_decoder.reports.rows import Row, as_list
from gaam_decoder.reports.sections._base import Parts, Section, Writer
from gaam_decoder.reports.table import Table

LINES = (
    "importance is the mean importance factor of a layer over features and seeds, accuracy that of "
    "the same head and recipe on this layer alone; rho is Spearman's rank correlation",
    "the interval is of 1,000 draws of seeds and test rows. It is no test: neighbouring layers are "
    "alike in both, so that curves over depth may agree without one saying anything of the other",
)


class OfLayers(Writer):
    """Shares of layers; where layers have rows of their own, rank correlations with accuracy."""

    place = 12

    def of(self, table: Table) -> Iterator[Section]:
        """Nothing without attention maps."""
        if not table.layers:
            if any(_is_of_layers(row) for row in table.rows):
                heading = "What mechanisms read of every layer"
                yield Section(name="importance", heading=heading, parts=lambda: _shares(table))
            return
        labels = dict(zip(map(id, table.rows), table.labels(), strict=True))
        named = [
            (labels[id(one.row)], brief(one.singles[0].attention), one) for one in table.layers
        ]
        name, alone, first = named[0]
        more = f"; {len(named) - 1} more below" if len(named) > 1 else ""
        optimistic = [row for _, _, one in named for row in (one.row, *one.singles)]
        marks = ["some of these numbers are optimistic"] * any(row.optimistic for row in optimistic)
        cells = [[n, a, spell_numbers(one.layers), *_cells(one)] for n, a, one in named]
        header = ["importance", "alone", "layers", "rho", "95% interval"]
        of_each = Sheet("importance of layers and accuracy of each alone", header, cells,
                        ("importance", "alone", "layers"))  # fmt: skip
        yield Section(
            name="importance",
            heading="Does importance predict accuracy",
            lead=f"importance by {name} and accuracy of {alone} on one of {len(first.layers)} "
            f"layers alone: {_in_words(first)}{more}",
            said=True,
            lines=(*LINES, *marks),
            parts=lambda: ((of_each, *_shares(table)[0]), _shares(table)[1]),
            values={"mechanisms": [_values(*one) for one in named]},
        )


def _is_of_layers(row: Row) -> bool:
    return bool((of := row.importance) and len(of.layers) > 1)


def _shares(table: Table) -> Parts:
    """The share of every layer in the summed attention, as a table and a picture."""
    ranked = sorted(
        zip(table.labels(), table.rows, strict=True), key=lambda one: -(one[1].mean or 0.0)
    )
    found = [(label, of) for label, row in ranked if _is_of_layers(row) and (of := row.importance)]
    lines = []
    for label, of in found:
        by_share = sorted(zip(of.contribution, of.layers, strict=True), reverse=True)
        told = [f"{layer} ({share:.1f}%)" for share, layer in by_share]
        lines.append([label, ", ".join(told[:3]), told[-1]])
    header = ["decoder", "layers read most (share)", "least"]
    sheet = Sheet(caption="share of layers in the summed attention", header=header, lines=lines,
                  words=tuple(header))  # fmt: skip
    drawn = found[:MOST_LINES]
    curves = []
    for label, of in drawn:
        mean_L = np.array(of.contribution)
        sd_L = np.array(of.contribution_sd or 0 * mean_L)
        curves.append(Line(label, of.layers, mean_L, (mean_L - sd_L, mean_L + sd_L)))
    layers = sorted({layer for one in curves for layer in one.x})
    equal = Line("equal shares", layers, np.full(len(layers), 100 / len(layers)))
    rest = f" The {len(drawn)} most accurate of {len(found)}." if len(found) > len(drawn) else ""
    picture = Picture(
        "importance",
        "Share of layers in the summed attention",
        f"Mean over seeds; the band is one standard deviation.{rest}",
        lambda: line_panels([("share of the layer, %", curves)], "encoder layer",
                                 ticks=layers, beside=equal, bottom=0),
    )  # fmt: skip
    return (sheet,), (picture,)


def _cells(one: Beside) -> tuple[str, str]:
    rho, interval = one.found
    between = "-" if interval is None else f"{interval[0]:+.2f} to {interval[1]:+.2f}"
    return "-" if rho is None else f"{rho:+.2f}", between


def _in_words(one: Beside) -> str:
    if one.found.rho is None:
        return "no rank correlation, for one of both is the same of all layers"
    rho, interval = _cells(one)
    return f"rank correlation {rho}" + f", 95% interval {interval}" * bool(one.found.interval)


def _values(name: str, alone: str, one: Beside) -> dict[str, Any]:
    columns = zip(one.layers, one.importance.mean(0), one.accuracy.mean(0), strict=True)
    return {
        "importance_of": name,
        "alone": alone,
        "rho": one.found.rho,
        "ci95_seeds_and_rows": as_list(one.found.interval),
        "seeds_of_importance": list(one.row.scores.seeds),
        "seeds_alone": list(one.seeds),
        "layers": [
            {"layer": layer, "importance": float(importance), "accuracy": float(accuracy)}
            for layer, importance, accuracy in columns
        ],
    }
