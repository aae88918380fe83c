"""Where learned parameters end, and which layers matter, over data sets by encoder."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gaam_cache.common.messages import brief
from gaam_decoder.analysis.importance import Importance
from gaam_decoder.reports.across.base import AcrossWriter
from gaam_decoder.reports.cells import Cell, Text, range_cell, shares_cell
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
from gaam_decoder.reports.over_sets import AnswerOverSets
from gaam_decoder.reports.sections.base import Parts, Section
from gaam_decoder.reports.sets import Cells

PARAMETERS = [
    "encoder",
    "decoder",
    "parameter",
    "data sets",
    "start",
    "lowest",
    "medians of data sets",
    "highest",
]
LAYERS = [
    "encoder",
    "decoder",
    "data sets",
    "layers read most (mean share)",
    "least",
    "data sets with that first layer",
]


class LearnedOverSets(AcrossWriter):
    """Ranges of learned parameters, and shares of layers, over all data sets."""

    position = 20

    def sections_of(
        self,
        cells: Cells,
        answers: Sequence[AnswerOverSets],
        against_probe: Sequence[AnswerOverSets],
    ) -> Iterator[Section]:
        """Yield the section, unless no mechanism learned parameters or read layers."""
        del answers, against_probe
        # The first table has to do: all have about the same decoders, and to look at
        # each would read the files of every seed.
        entries = cells.cells[0].entries.values()
        if any(entry.runs[0].learned or entry.relative_importance for entry in entries):
            yield Section(
                name="across-learned",
                heading="What is learned over all data sets, by encoder",
                lines=(
                    "lowest and highest: of all heads, features, seeds and data sets; "
                    "medians of data sets: the smallest and the largest of them",
                    "an offset has the unit of the states as a decoder reads them, "
                    "which it may divide",
                    "a share is that of the layer in the summed attention, a mean over "
                    "data sets; equal shares mean that no layer matters more",
                ),
                make=lambda: _parts(cells),
            )


def _parts(cells: Cells) -> Parts:
    """Tables of parameters and of layers, and a picture of layers for each encoder."""
    names = dict.fromkeys(name for cell in cells.cells for name in cell.entries)
    parameter_lines: list[list[str]] = []
    layer_lines: list[list[str]] = []
    pictures = []
    for number, encoder in enumerate(cells.encoders, 1):
        curves = []
        for name in names:
            entries = {
                cell.data_set: cell.entries[name]
                for cell in cells.cells
                if cell.encoder == encoder and name in cell.entries
            }
            parameter_lines += _parameter_lines(encoder, name, entries.values())
            importances = _importances_of_same_layers(entries.values())
            if importances:
                layer_lines.append(_layer_line(encoder, name, importances))
                curves.append(_curve(name, importances))
        if curves:
            pictures.append(_picture(number, encoder, curves))

    sheets = []
    if parameter_lines:
        caption = (
            "learned parameters at the start of training, and at its end over all data "
            "sets"
        )
        sheets.append(Sheet(caption, PARAMETERS, parameter_lines))
    if layer_lines:
        caption = (
            "share of a layer in the weights that a decoder gives to layers, in "
            "percent, mean over data sets; a decoder may divide the layers before it "
            "weighs them"
        )
        sheets.append(Sheet(caption, LAYERS, layer_lines))
    return Parts(sheets, pictures)


def _parameter_lines(
    encoder: str, name: str, entries: Iterable[Entry]
) -> list[list[str]]:
    """A line of the table ``PARAMETERS`` for every parameter of a decoder.

    ``entries`` are those of the decoder, one for each data set.
    """
    ranges_by_parameter: dict[str, list[Mapping[str, Any]]] = {}
    for entry in entries:
        for parameter, ranges in entry.parameter_ranges.items():
            ranges_by_parameter.setdefault(parameter, []).append(ranges)

    lines = []
    for parameter, every_range in ranges_by_parameter.items():
        starts = [value for ranges in every_range for value in ranges["start"] or ()]
        medians = [ranges["median"] for ranges in every_range]
        lines.append(
            [
                Text(encoder),
                name,
                brief(parameter, 40),
                str(len(every_range)),
                _from_to(starts),
                f"{min(ranges['min'] for ranges in every_range):.3g}",
                _from_to(medians),
                f"{max(ranges['max'] for ranges in every_range):.3g}",
            ]
        )
    return lines


def _from_to(values: Sequence[float]) -> str:
    """The smallest and the largest value, or the one that there is."""
    if not values:
        return "-"
    texts = dict.fromkeys(f"{value:.3g}" for value in (min(values), max(values)))
    return range_cell(" to ".join(texts))


def _importances_of_same_layers(entries: Iterable[Entry]) -> list[Importance]:
    """The importance of layers for each data set on which the usual layers were read.

    The usual layers are those of most data sets; only shares of the same layers have a
    mean. ``entries`` are those of a decoder, one for each data set.
    """
    importances = []
    for entry in entries:
        importance = entry.relative_importance
        if importance is not None:
            importances.append(importance)
    if not importances:
        return []
    layers = [importance.layers for importance in importances]
    usual_layers = max(layers, key=layers.count)
    return [
        importance for importance in importances if importance.layers == usual_layers
    ]


def _layer_line(
    encoder: str, name: str, importances: Sequence[Importance]
) -> list[str]:
    """A line of the table ``LAYERS``: the layers that a decoder reads most and least.

    ``importances`` are those of every data set (K data sets, L layers).
    """
    share_KL = np.array([importance.contribution for importance in importances])
    mean_L = share_KL.mean(0)
    order = np.argsort(-mean_L, kind="stable")
    layers = importances[0].layers
    ranked = [(layers[index], float(mean_L[index])) for index in order]
    # data sets whose largest share is that of the same layer
    agreeing = int((share_KL.argmax(1) == order[0]).sum())
    return [
        Text(encoder),
        name,
        str(len(importances)),
        shares_cell(ranked[:3]),
        shares_cell(ranked[-1:]),
        Cell(f"{agreeing} of {len(importances)}", {"": str(agreeing)}),
    ]


def _curve(name: str, importances: Sequence[Importance]) -> Line:
    """Mean share of every layer; the band is the standard deviation over data sets."""
    share_KL = np.array([importance.contribution for importance in importances])
    mean_L = share_KL.mean(0)
    band = None
    if len(importances) > 1:
        std_L = share_KL.std(0, ddof=1)
        band = (mean_L - std_L, mean_L + std_L)
    return Line(name, importances[0].layers, mean_L, band)


def _picture(number: int, encoder: str, curves: Sequence[Line]) -> Picture:
    """The mean share of every layer of an encoder, a curve for every decoder.

    Equal shares are drawn, too, if all decoders read the same layers.

    Args:
        number: of the encoder, from 1, for the name of the file.
        encoder: its name.
        curves: mean shares in percent by layer, one curve for each decoder.
    """
    drawn = curves[:MOST_LINES]
    panels = [Panel("share of the layer, %", drawn)]
    equal_shares: Line | None = None
    if len({tuple(line.x) for line in drawn}) == 1:
        layers = list(drawn[0].x)
        shares = np.full(len(layers), 100 / len(layers))
        equal_shares = Line("equal shares", layers, shares)
    labels = [line.label for line in curves]
    return Picture(
        f"across-layers-{number}",
        f"Share of layers of {encoder} in the summed attention",
        "Mean over data sets; the band is the mean plus and minus one standard "
        f"deviation over them.{not_drawn(labels)}",
        lambda: line_panels(panels, "encoder layer", reference=equal_shares, bottom=0),
    )
