"""Show every score of every entry, the recall of classes, and calibration.

The JSON also has the confusion matrices.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gaam_cache.common.messages import brief
from gaam_decoder import stats
from gaam_decoder.reports.columns import Sheet
from gaam_decoder.reports.drawing import MOST_LINES, Line, Picture, line_panels
from gaam_decoder.reports.entries import SCALED, Entry
from gaam_decoder.reports.scoring import all_scores, score_of
from gaam_decoder.reports.sections.base import Section, Writer
from gaam_decoder.reports.table import Table
from gaam_decoder.reports.wording import TEMPERATURE
from gaam_decoder.stats.scores.base import Score, percent
from gaam_decoder.stats.scores.ece import BINS

# The table of recall lists the most frequent classes, and the best decoders.
MOST_CLASSES = 30
MOST_DECODERS = 8
# A bin with fewer rows is not drawn: its share of right rows is too uncertain.
FEWEST = 5


class Scores(Writer):
    """Balanced accuracy, AUROC, log loss and the others, and calibration."""

    place = 20

    def of(self, table: Table) -> Iterator[Section]:
        """Nothing where no seed finished."""
        if not any(entry.finished for entry in table.entries):
            return
        defined = {name for entry in table.entries for name in entry.every}
        units = {name: unit for name, unit in all_scores().items() if name in defined}
        titles = ", ".join(unit.title for unit in units.values())
        smaller = ", ".join(
            unit.title for unit in units.values() if not unit.larger_is_better
        )
        yield Section(
            name="scores",
            heading="Other scores",
            lead=f"{titles}, and recall by class; --score NAME compares by one of them",
            lines=(
                "mean over seeds, and standard deviation over seeds in brackets. "
                f"Smaller is better for {smaller}",
                "choose the score to compare before you see the scores: of many, one "
                "differs by chance",
            ),
            make=lambda: ((_every(table, units), _recall(table)), ()),
        )
        yield _calibration(table)


def _every(table: Table, units: dict[str, Score]) -> Sheet:
    """Mean and standard deviation of every score of every entry."""
    lines = []
    for entry in table.entries:
        cells = [entry.label]
        for name, unit in units.items():
            value_S = entry.every.get(name, np.empty(0))
            cell = unit.text(float(value_S.mean())) if len(value_S) else "-"
            std = stats.standard_deviation(value_S)
            if std is not None:
                cell += f" ({unit.std(std)})"
            cells.append(cell)
        lines.append(cells)
    header = ["decoder", *(unit.column for unit in units.values())]
    return Sheet("test scores", header, lines)


def _recall(table: Table) -> Sheet:
    """Share of the rows of every class that are right."""
    count_C = table.entries[0].labels_per_class
    frequent = np.argsort(-count_C, kind="stable")[:MOST_CLASSES]
    listed = np.sort(frequent[count_C[frequent] > 0])
    finished = [entry for entry in table.entries[:MOST_DECODERS] if entry.finished]
    lines = []
    for entry in finished:
        for index in listed:
            count = count_C[index]
            right = entry.confusion[index, index]
            share = float(right / (len(entry.finished) * count))
            name = brief(str(table.cache["class_names"][index]), 40)
            lines.append([entry.label, name, f"{count:,}", percent(share)])
    caption = (
        f"recall by class, mean over seeds; of many the {MOST_CLASSES} most frequent, "
        f"and of the {MOST_DECODERS} best decoders"
    )
    return Sheet(caption, ["decoder", "class", "rows", "recall %"], lines)


def _calibration(table: Table) -> Section:
    unit = score_of("ece")
    scaled = SCALED if table.temperature else ""
    finished = [entry for entry in table.entries if entry.finished]
    errors = [float(entry.every["ece"].mean()) for entry in finished]
    lines = [
        "ECE: distance between accuracy and mean probability of what is predicted, in "
        f"{BINS} bins of equal width (Naeini et al. 2015, Guo et al. 2017), of each "
        "seed; it is biased upwards, the more the fewer test rows there are, so that "
        "nothing is claimed of differences"
    ]
    if table.temperature:
        lines.append(TEMPERATURE)
    sheet = _calibration_sheet(finished, unit, table.temperature)
    picture = _reliability_diagram(table.entries[:MOST_LINES])
    return Section(
        name="calibration",
        heading="Calibration",
        lead=f"expected calibration error {unit.text(min(errors))} to "
        f"{unit.text(max(errors))}% (top label, {BINS} bins{scaled})",
        lines=tuple(lines),
        make=lambda: ((sheet,), (picture,)),
        values=[_calibration_values(entry) for entry in finished],
    )


def _calibration_sheet(
    entries: Sequence[Entry], unit: Score, has_temperature: bool
) -> Sheet:
    header = ["decoder", "ECE %", "sd", "mean probability %", "accuracy %"]
    caption = "calibration"
    if has_temperature:
        header.append("temperature")
        caption += SCALED

    lines = []
    for entry in entries:
        value_S = entry.every["ece"]
        count, right, probability = entry.bins.sum(1)
        cells = [
            entry.label,
            unit.text(value_S.mean()),
            unit.std(stats.standard_deviation(value_S)),
            unit.text(probability / count),
            unit.text(right / count),
        ]
        if has_temperature:
            temperature = entry.temperature
            cells.append(f"{temperature['mean']:.3g}" if temperature else "-")
        lines.append(cells)
    return Sheet(caption, header, lines)


def _calibration_values(entry: Entry) -> dict[str, Any]:
    count_B, right_B, probability_B = entry.bins.tolist()
    return {
        "decoder": entry.label,
        "ece": float(entry.every["ece"].mean()),
        "temperature": entry.temperature,
        "rows": count_B,
        "right": right_B,
        "sum": probability_B,
    }


def _reliability_diagram(entries: Sequence[Entry]) -> Picture:
    curves = []
    for entry in entries:
        count_B, right_B, probability_B = entry.bins[:, entry.bins[0] >= FEWEST]
        mean_B = 100 * probability_B / count_B
        curves.append(Line(entry.label, mean_B, 100 * right_B / count_B))
    diagonal = Line("as they say", [0, 100], [0, 100])
    return Picture(
        "reliability",
        "Reliability diagram",
        f"Test rows of all seeds of the {MOST_LINES} best in {BINS} bins by the "
        "probability of what is predicted; below the dashed line probabilities are too "
        "large.",
        lambda: line_panels(
            [("accuracy, %", curves)], "mean probability, %", beside=diagonal
        ),
    )
