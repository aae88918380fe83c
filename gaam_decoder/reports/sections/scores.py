"""Every score of every row, recall of classes, calibration; confusions are in the JSON."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from gaam_cache.common.messages import brief
from gaam_decoder import stats
from gaam_decoder.reports.columns import Sheet
from gaam_decoder.reports.drawing import MOST_LINES, Line, Picture, line_panels
from gaam_decoder.reports.notes import TEMPERATURE
from gaam_decoder.reports.rows import SCALED, all_scores, score_of
from gaam_decoder.reports.sections.base import Section, Writer
from gaam_decoder.reports.table import Table
from gaam_decoder.stats.scores.base import Score, percent
from gaam_decoder.stats.scores.ece import BINS

MOST_CLASSES, MOST_DECODERS = 30, 8
"""That are listed: of more the most frequent, and the best. The JSON has all."""
FEWEST = 5  # rows of a bin that is drawn: the share of fewer is anything


class Scores(Writer):
    """Balanced accuracy, AUROC, log loss and the others, and calibration."""

    place = 20

    def of(self, table: Table) -> Iterator[Section]:
        """Nothing where no seed finished."""
        if not any(row.finished for row in table.rows):
            return
        there = {name for row in table.rows for name in row.every}
        units = {name: score for name, score in all_scores().items() if name in there}
        smaller = [u.title for u in units.values() if not u.larger_is_better]
        yield Section(
            name="scores",
            heading="Other scores",
            lead=f"{', '.join(unit.title for unit in units.values())}, and recall by class; "
            "--score NAME compares by one of them",
            lines=(
                "mean over seeds, and standard deviation in brackets; the test rows are taken as "
                f"given. Of {', '.join(smaller)} smaller is better",
                "which score is compared has to be chosen before it is seen: of many, one differs "
                "by chance",
            ),
            make=lambda: ((_every(table, units), _recall(table)), ()),
        )
        yield _calibration(table)


def _every(table: Table, units: dict[str, Score]) -> Sheet:
    lines = []
    for row in table.rows:
        cells = [row.label]
        for name, unit in units.items():
            value_S = row.every.get(name, np.empty(0))
            std = stats.standard_deviation(value_S)
            mean = unit.text(float(value_S.mean())) if len(value_S) else "-"
            cells.append(mean + ("" if std is None else f" ({unit.std(std)})"))
        lines.append(cells)
    header = ["decoder", *(unit.column for unit in units.values())]
    return Sheet("test scores", header, lines)


def _recall(table: Table) -> Sheet:
    """Share of the rows of every class that are right."""
    lines, count_C = [], table.rows[0].labels_per_class
    frequent = np.argsort(-count_C, kind="stable")[:MOST_CLASSES]
    for row in table.rows[:MOST_DECODERS]:
        for one in np.sort(frequent[count_C[frequent] > 0]) if row.finished else ():
            share = float(row.confusion[one, one] / (len(row.finished) * count_C[one]))
            name = brief(str(table.cache["class_names"][one]), 40)
            lines.append([row.label, name, f"{count_C[one]:,}", percent(share)])
    caption = f"recall by class, mean over seeds; of many the {MOST_CLASSES} most frequent, and "
    caption += f"of the {MOST_DECODERS} best decoders"
    return Sheet(caption, ["decoder", "class", "rows", "recall %"], lines)


def _calibration(table: Table) -> Section:
    unit, scaled = score_of("ece"), SCALED * table.temperature
    lines, values = [], list[dict[str, Any]]()
    for row in table.rows:
        if row.finished:
            value_S, by = row.every["ece"], row.temperature
            count, right, sure = row.bins.sum(1)
            sd = unit.std(stats.standard_deviation(value_S))
            means = map(unit.text, (sure / count, right / count))
            fitted = [f"{by['mean']:.3g}" if by else "-"] * table.temperature
            lines.append([row.label, unit.text(value_S.mean()), sd, *means, *fitted])
            bins = dict(zip(("rows", "right", "sum"), row.bins.tolist(), strict=True))
            about = {
                "decoder": row.label,
                "ece": float(value_S.mean()),
                "temperature": by,
            }
            values.append(about | bins)
    header = ["decoder", "ECE %", "sd", "mean probability %", "accuracy %"]
    header += ["temperature"] * table.temperature
    sheet = Sheet(f"calibration{scaled}", header, lines)
    curves = []
    for row in table.rows[:MOST_LINES]:
        count_B, right_B, sure_B = row.bins[:, row.bins[0] >= FEWEST]
        curves.append(Line(row.label, 100 * sure_B / count_B, 100 * right_B / count_B))
    beside, axis = Line("as they say", [0, 100], [0, 100]), "mean probability, %"
    picture = Picture(
        "reliability",
        "Reliability diagram",
        f"Test rows of all seeds of the {MOST_LINES} best in {BINS} bins by the probability of "
        "what is predicted; below the dashed line probabilities are too large.",
        lambda: line_panels([("accuracy, %", curves)], axis, beside=beside),
    )
    low, high = (unit.text(of(one["ece"] for one in values)) for of in (min, max))
    return Section(
        name="calibration",
        heading="Calibration",
        lead=f"expected calibration error {low} to {high}% (top label, {BINS} bins{scaled})",
        lines=(
            f"ECE: distance between accuracy and mean probability of what is predicted, in "
            f"{BINS} bins of equal width (Naeini et al. 2015, Guo et al. 2017), of each seed; "
            "it is biased upwards, the more the fewer test rows there are, so that nothing is "
            "claimed of differences",
            *[TEMPERATURE] * table.temperature,
        ),
        make=lambda: ((sheet,), (picture,)),
        values=values,
    )
