"""Every score of every row, recall and confusion of classes, calibration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from gaam_cache.messages import brief
from gaam_decoder import stats
from gaam_decoder.reports.columns import Sheet
from gaam_decoder.reports.drawing import MOST_LINES, Line, Picture, line_panels
from gaam_decoder.reports.notes import TEMPERATURE
from gaam_decoder.reports.rows import SCALED
from gaam_decoder.reports.sections._base import Section, Writer, most_accurate
from gaam_decoder.reports.table import Table
from gaam_decoder.reports.unit import Unit, all_scores, percent, score_of
from gaam_decoder.stats.scores.ece import BINS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_CLASSES = 30
"""That are listed; of more, the most frequent."""
MOST_ERRORS = 10
MOST_DECODERS = 8
"""Of which recall is listed; of more, the most accurate. All confusions are in the JSON."""
FEWEST = 5
"""Rows of a bin that is drawn: the share of fewer is anything."""


class Scores(Writer):
    """Balanced accuracy, AUROC, log loss and the others, and calibration."""

    place = 20

    def of(self, table: Table) -> Iterator[Section]:
        """Nothing where no seed finished."""
        if not any(row.scores.seeds for row in table.rows):
            return
        units = {
            name: Unit(score)
            for name, score in all_scores().items()
            if any(len(row.scores.every.get(name, ())) for row in table.rows)
        }
        smaller = [u.score.title for u in units.values() if not u.score.larger_is_better]
        yield Section(
            name="scores",
            heading="Other scores",
            lead=f"{', '.join(unit.score.title for unit in units.values())}, and recall by class; "
            "--score NAME compares by one of them",
            lines=(
                "mean over seeds, and standard deviation in brackets; the test rows are taken as "
                f"given. Of {', '.join(smaller)} smaller is better",
                "which score is compared has to be chosen before it is seen: of many, one differs "
                "by chance",
            ),
            parts=lambda: ((_every(table, units), _recall(table), _errors(table)), ()),
        )
        yield _calibration(table)


def _every(table: Table, units: dict[str, Unit]) -> Sheet:
    def cell(value_S: Any, unit: Unit) -> str:
        if value_S is None or not len(value_S):
            return "-"
        std = stats.standard_deviation(value_S)
        return unit.value(float(value_S.mean())) + ("" if std is None else f" ({unit.std(std)})")

    return Sheet(
        caption="test scores",
        header=["decoder", *(unit.column for unit in units.values())],
        lines=[
            [label, *(cell(row.scores.every.get(name), unit) for name, unit in units.items())]
            for label, row in zip(table.labels(), table.rows, strict=True)
        ],
        words=("decoder",),
    )


def _recall(table: Table) -> Sheet:
    """Share of the rows of every class that are right."""
    names, labels, lines = table.cache["class_names"], table.labels(), []
    count_C = table.rows[0].scores.labels_per_class
    frequent = np.argsort(-count_C, kind="stable")[:MOST_CLASSES]
    for place in most_accurate(table, MOST_DECODERS):
        scores = table.rows[place].scores
        for one in np.sort(frequent[count_C[frequent] > 0]) if scores.seeds else ():
            share = scores.confusion[one, one] / (len(scores.seeds) * count_C[one])
            cells = [brief(str(names[one]), 40), f"{count_C[one]:,}", percent(float(share))]
            lines.append([labels[place], *cells])
    header = ["decoder", "class", "rows", "recall %"]
    caption = f"recall by class, mean over seeds; of many the {MOST_CLASSES} most frequent, and "
    caption += f"of the {MOST_DECODERS} most accurate decoders"
    return Sheet(caption, header, lines, ("decoder", "class"))


def _errors(table: Table) -> Sheet:
    """What the most accurate decoder takes for what."""
    (place,) = most_accurate(table, 1)
    names = [brief(str(name), 40) for name in table.cache["class_names"]]
    count_CC = table.rows[place].scores.confusion
    wrong_CC, of_C = count_CC - np.diag(np.diag(count_CC)), np.maximum(1, count_CC.sum(1))
    lines = []
    for flat in np.argsort(-wrong_CC, axis=None, kind="stable")[:MOST_ERRORS]:
        true, predicted = np.unravel_index(int(flat), wrong_CC.shape)
        if wrong_CC[true, predicted]:
            share = percent(float(wrong_CC[true, predicted] / of_C[true]))
            lines.append([names[true], names[predicted], share])
    caption = f"most frequent errors of {table.labels()[place]}, all seeds together"
    header = ["true class", "predicted", "% of the true class"]
    return Sheet(caption, header, lines, ("true class", "predicted"))


def _calibration(table: Table) -> Section:
    unit, scaled = Unit(score_of("ece")), SCALED * table.temperature
    lines, values, means = [], list[dict[str, Any]](), []
    for label, row in zip(table.labels(), table.rows, strict=True):
        if row.scores.seeds:
            value_S, by = row.scores.every["ece"], row.scores.temperature()
            count, right, sure = row.scores.bins.sum(1)
            means.append(float(value_S.mean()))
            cells = [label, unit.value(means[-1]), unit.std(stats.standard_deviation(value_S))]
            cells += [unit.value(sure / count), unit.value(right / count)]
            cells += [f"{by['mean']:.3g}" if by else "-"] * table.temperature
            bins = zip(("rows", "right", "sum"), row.scores.bins.tolist(), strict=True)
            of_row = {"decoder": label, "ece": means[-1], **dict(bins)}
            values.append(of_row | ({"temperature": by} if table.temperature else {}))
            lines.append(cells)
    header = ["decoder", "ECE %", "sd", "mean probability %", "accuracy %"]
    header += ["temperature"] * table.temperature
    sheet = Sheet(f"calibration{scaled}", header, lines, ("decoder",))
    picture = Picture(
        "reliability",
        "Reliability diagram",
        f"Test rows of all seeds of the {MOST_LINES} most accurate in {BINS} bins by the "
        "probability of what is predicted; below the dashed line probabilities are too large."
        + " Logits were divided by a temperature where one was fitted."
        * table.temperature,
        lambda: _reliability(table),
    )
    return Section(
        name="calibration",
        heading="Calibration",
        lead=f"expected calibration error {unit.value(min(means))} to {unit.value(max(means))}% "
        f"(top label, {BINS} bins{scaled})",
        lines=(
            f"ECE: distance between accuracy and mean probability of what is predicted, in "
            f"{BINS} bins of equal width (Naeini et al. 2015, Guo et al. 2017), of each seed; "
            "it is biased upwards, the more the fewer test rows there are, so that nothing is "
            "claimed of differences",
            *[TEMPERATURE] * table.temperature,
        ),
        parts=lambda: ((sheet,), (picture,)),
        values=values,
    )


def _reliability(table: Table) -> Figure:
    labels, lines = table.labels(), []
    for place in most_accurate(table, MOST_LINES):
        bins = table.rows[place].scores.bins
        count_B, right_B, sure_B = bins[:, bins[0] >= FEWEST]
        if table.rows[place].scores.seeds:
            lines.append(Line(labels[place], 100 * sure_B / count_B, 100 * right_B / count_B))
    beside = Line("as they say", [0, 100], [0, 100])
    return line_panels([("accuracy, %", lines)], "mean probability, %", beside=beside)
