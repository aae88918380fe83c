"""Every score of every row, and the recall of every class."""

from __future__ import annotations

import numpy as np

from gaam_cache.messages import brief
from gaam_decoder import stats
from gaam_decoder.reports.pictures.pictures import most_accurate
from gaam_decoder.reports.table import Table
from gaam_decoder.reports.writing.numbers import percent
from gaam_decoder.reports.writing.section import Section, Writer
from gaam_decoder.reports.writing.sheets import Sheet
from gaam_decoder.reports.writing.unit import Unit, all_scores

MOST_CLASSES = 30
"""That are listed; of more, the most frequent."""
MOST_DECODERS = 8
"""Of which recall is listed; of more, the most accurate. All confusions are in the JSON."""


class Scores(Writer):
    """Balanced accuracy, AUROC, log loss and the others beside accuracy."""

    place = 20

    def of(self, table: Table) -> Section | None:
        """None where no seed finished."""
        if not any(row.scores.seeds for row in table.rows):
            return None
        units = {
            name: Unit(score)
            for name, score in all_scores().items()
            if any(len(row.scores.every.get(name, ())) for row in table.rows)
        }
        names = [unit.score.title for unit in units.values()]
        smaller = [u.score.title for u in units.values() if not u.score.larger_is_better]
        recall = _recall(table)
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
                *recall[1],
            ),
            sheets=(_every(table, units), recall[0]),
        )


def _every(table: Table, units: dict[str, Unit]) -> Sheet:
    lines = []
    for label, row in zip(table.labels(), table.rows, strict=True):
        cells = [label]
        for name, unit in units.items():
            value_S = row.scores.every.get(name)
            if value_S is None or not len(value_S):
                cells.append("-")
                continue
            std = stats.standard_deviation(value_S)
            spread = "" if std is None else f" ({unit.std(std)})"
            cells.append(unit.value(float(value_S.mean())) + spread)
        lines.append(cells)
    return Sheet(
        caption="test scores",
        header=["decoder", *(unit.column for unit in units.values())],
        lines=lines,
        words=("decoder",),
    )


def _recall(table: Table) -> tuple[Sheet, list[str]]:
    """Share of the rows of every class that are right, and what is left out."""
    names = table.cache["class_names"]
    count_C = table.rows[0].scores.labels_per_class
    there = np.flatnonzero(count_C)
    shown = np.sort(there[np.argsort(-count_C[there], kind="stable")][:MOST_CLASSES])
    labels, lines = table.labels(), []
    for place in most_accurate(table, MOST_DECODERS):
        scores = table.rows[place].scores
        for of_class in shown if scores.seeds else ():
            right = scores.confusion[of_class, of_class]
            cells = [brief(str(names[of_class]), 40), f"{count_C[of_class]:,}"]
            share = right / (len(scores.seeds) * count_C[of_class])
            lines.append([labels[place], *cells, percent(float(share))])
    said = []
    if len(there) > len(shown):
        said.append(f"recall of the {len(shown)} most frequent of {len(there)} classes")
    if len(there) < len(names):
        said.append(
            f"{len(names) - len(there)} of {len(names)} classes have no test rows: they count in "
            "neither balanced accuracy nor AUROC"
        )
    if len(table.rows) > MOST_DECODERS:
        said.append(f"recall of the {MOST_DECODERS} most accurate of {len(table.rows)} decoders")
    header = ["decoder", "class", "rows", "recall %"]
    return Sheet(
        caption="recall by class, mean over seeds",
        header=header,
        lines=lines,
        words=("decoder", "class"),
    ), said
