"""Every score of every row, recall and confusion of classes, calibration, published figures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from gaam_cache.messages import brief
from gaam_decoder import stats
from gaam_decoder.reports.columns import Sheet
from gaam_decoder.reports.drawing import MOST_LINES, Line, Picture, line_panels
from gaam_decoder.reports.notes import TEMPERATURE
from gaam_decoder.reports.rows import SCALED, Row
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
    """Balanced accuracy, AUROC, log loss and the others; calibration; what others published."""

    place = 20

    def of(self, table: Table) -> Iterator[Section]:
        """Nothing where no seed finished."""
        found = [
            (label, row)
            for label, row in zip(table.labels(), table.rows, strict=True)
            if row.scores.seeds
        ]
        if not found:
            return
        yield _scores(table)
        yield _calibration(table, found)
        lines = [  # notes say what differs
            [label, f"{100 * one['mean']:.1f}", one["encoder"]]
            for label, one in zip(table.labels(), table.published, strict=True)
            if one is not None
        ]
        if lines:
            header = ["decoder", "published %", "of the encoder"]
            caption = "published accuracies, which no test compares"
            sheet = Sheet(caption, header, lines, ("decoder", "of the encoder"))
            heading = "Published by others"
            yield Section(name="published", heading=heading, parts=lambda: ((sheet,), ()))


def _scores(table: Table) -> Section:
    units = {
        name: Unit(score)
        for name, score in all_scores().items()
        if any(len(row.scores.every.get(name, ())) for row in table.rows)
    }
    names = [unit.score.title for unit in units.values()]
    smaller = [u.score.title for u in units.values() if not u.score.larger_is_better]
    return Section(
        name="scores",
        heading="Other scores",
        lead=f"{', '.join(names[:-1])} and {names[-1]}, and recall by class; --score NAME "
        "compares by one of them",
        lines=(
            "mean over seeds, and standard deviation in brackets; the test rows are taken as "
            f"given. Of {', '.join(smaller)} smaller is better",
            "which score is compared has to be chosen before it is seen: of many, one differs "
            "by chance",
        ),
        parts=lambda: ((_every(table, units), _recall(table), _errors(table)), ()),
    )


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


def _most_frequent(row: Row) -> Any:
    """Places of the classes that are tested, of many the most frequent."""
    count_C = row.scores.labels_per_class
    there = np.flatnonzero(count_C)
    return np.sort(there[np.argsort(-count_C[there], kind="stable")][:MOST_CLASSES])


def _recall(table: Table) -> Sheet:
    """Share of the rows of every class that are right."""
    names, labels, lines = table.cache["class_names"], table.labels(), []
    count_C = table.rows[0].scores.labels_per_class
    for place in most_accurate(table, MOST_DECODERS):
        scores = table.rows[place].scores
        for one in _most_frequent(table.rows[0]) if scores.seeds else ():
            share = scores.confusion[one, one] / (len(scores.seeds) * count_C[one])
            cells = [brief(str(names[one]), 40), f"{count_C[one]:,}", percent(float(share))]
            lines.append([labels[place], *cells])
    header = ["decoder", "class", "rows", "recall %"]
    caption = f"recall by class, mean over seeds; of many the {MOST_CLASSES} most frequent, and "
    caption += f"of the {MOST_DECODERS} most accurate decoders"
    return Sheet(caption=caption, header=header, lines=lines, words=("decoder", "class"))


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


def _calibration(table: Table, found: list[tuple[str, Row]]) -> Section:
    unit = Unit(score_of("ece"))
    lines, values = [], list[dict[str, Any]]()
    for label, row in found:
        value_S, by = row.scores.every["ece"], row.scores.temperatures
        count, right, sure = row.scores.bins.sum(1)
        cells = [label, unit.value(float(value_S.mean()))]
        cells += [unit.std(stats.standard_deviation(value_S))]
        cells += [unit.value(sure / count), unit.value(right / count)]
        values.append({"decoder": label, "ece": float(value_S.mean())})
        if table.temperature:
            cells.append(str(by) if by else "-")
            values[-1]["temperature"] = by.to_dict() if by else None
        bins = zip(("rows", "right", "sum"), row.scores.bins.tolist(), strict=True)
        values[-1] |= dict(bins)
        lines.append(cells)
    means = [float(row.scores.every["ece"].mean()) for _, row in found]
    scaled = SCALED if table.temperature else ""
    header = ["decoder", "ECE %", "sd", "mean probability %", "accuracy %"]
    header += ["temperature"] * bool(scaled)
    sheet = Sheet(f"calibration{scaled}", header, lines, ("decoder",))
    return Section(
        name="calibration",
        heading="Calibration",
        lead=f"expected calibration error {unit.value(min(means))} to "
        f"{unit.value(max(means))}% (top label, {BINS} bins{scaled})",
        lines=(
            f"ECE: distance between accuracy and mean probability of what is predicted, in "
            f"{BINS} bins of equal width (Naeini et al. 2015, Guo et al. 2017), of each seed; "
            "it is biased upwards, the more the fewer test rows there are, so that nothing is "
            "claimed of differences",
            *[TEMPERATURE] * table.temperature,
        ),
        parts=lambda: ((sheet,), (_reliability(table, found),)),
        values=values,
    )  # fmt: skip


def _reliability(table: Table, found: list[tuple[str, Row]]) -> Picture:
    ranked = np.argsort([-(row.mean or 0.0) for _, row in found], kind="stable")
    drawn = [found[place] for place in sorted(ranked[:MOST_LINES])]
    rest = f" The {MOST_LINES} most accurate of {len(found)}." if len(found) > MOST_LINES else ""
    scaled = " Logits were divided by a temperature where one was fitted." * table.temperature

    def draw() -> Figure:
        lines = []
        for label, row in drawn:
            count_B, right_B, sure_B = row.scores.bins[:, row.scores.bins[0] >= FEWEST]
            lines.append(Line(label, 100 * sure_B / count_B, 100 * right_B / count_B))
        beside, what = Line("as they say", [0, 100], [0, 100]), "mean probability, %"
        return line_panels([("accuracy, %", lines)], what, beside=beside)

    return Picture(
        "reliability",
        "Reliability diagram",
        f"Test rows of all seeds in {BINS} bins by the probability of what is predicted; below the "
        f"dashed line probabilities are too large.{rest}{scaled}",
        draw,
    )
