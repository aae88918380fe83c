"""Show every score of every entry, the recall of classes, and how classes are confused.

The JSON also has the confusion matrices.
"""

from collections.abc import Iterator

import numpy as np

from gaam_cache.common.messages import brief
from gaam_decoder import stats
from gaam_decoder.reports.cells import Text, with_std
from gaam_decoder.reports.columns import Sheet
from gaam_decoder.reports.entries import Entry
from gaam_decoder.reports.scoring import all_scores
from gaam_decoder.reports.sections.base import Parts, Section, Writer
from gaam_decoder.reports.table import Table
from gaam_decoder.stats.scores.base import Score, percent

# The table of recall lists the most frequent classes, and the best decoders.
MOST_CLASSES = 30
MOST_DECODERS = 8


class Scores(Writer):
    """Balanced accuracy, AUROC, log loss and the others."""

    position = 20

    def sections_of(self, table: Table) -> Iterator[Section]:
        """Yield the section, unless no seed finished."""
        if not any(entry.finished for entry in table.entries):
            return
        defined = {name for entry in table.entries for name in entry.values_by_score}
        all_task_scores = all_scores(table.task.name)
        scores = {
            name: score for name, score in all_task_scores.items() if name in defined
        }
        titles = ", ".join(score.title for score in scores.values())
        smaller = ", ".join(
            score.title for score in scores.values() if not score.larger_is_better
        )
        recall = ", and recall by class" if table.task.has_classes else ""
        yield Section(
            name="scores",
            heading="Other scores",
            lead=f"{titles}{recall}; --score NAME compares by one of them",
            lines=(
                f"smaller is better for {smaller or 'none of them'}",
                "choose the score to compare before you see the scores: of many, one "
                "differs by chance",
            ),
            make=lambda: Parts(list(_sheets(table, scores))),
        )


def _sheets(table: Table, scores: dict[str, Score]) -> Iterator[Sheet]:
    """All scores, and the recall of classes where there are any."""
    yield _scores_sheet(table, scores)
    if table.task.has_classes:
        yield _recall_sheet(table)


def _scores_sheet(table: Table, scores: dict[str, Score]) -> Sheet:
    """Mean and standard deviation of every score of every entry."""
    lines = []
    for entry in table.entries:
        cells = [entry.label]
        for name, score in scores.items():
            value_S = entry.values_by_score.get(name, np.empty(0))
            # a mean over some of the seeds does not compare with those over all seeds
            if not len(value_S) or np.isnan(value_S).any():
                cells.append("-")
                continue
            mean = score.text(float(value_S.mean()))
            std = stats.standard_deviation(value_S)
            cells.append(mean if std is None else with_std(mean, score.std(std)))
        lines.append(cells)
    header = ["decoder", *(score.column for score in scores.values())]
    caption = "test scores: mean over seeds (standard deviation over seeds)"
    return Sheet(caption, header, lines)


def _recall_sheet(table: Table) -> Sheet:
    """Recall of the most frequent classes, and what they are taken for.

    It lists the best decoders.
    """
    count_C = table.entries[0].labels_per_class
    frequent = np.argsort(-count_C, kind="stable")[:MOST_CLASSES]
    # a class without a test row has no recall
    listed_classes = np.sort(frequent[count_C[frequent] > 0])
    finished = [entry for entry in table.entries[:MOST_DECODERS] if entry.finished]
    lines = []
    for entry in finished:
        for index in listed_classes:
            count = count_C[index]
            # the confusion matrix is a sum over the finished seeds and the repeats
            predictions_C = entry.confusion[index]
            recall = float(predictions_C[index] / predictions_C.sum())
            name = _class_name(table, index)
            wrong_class, share = _most_frequent_mistake(entry, index, table)
            lines.append(
                [
                    entry.label,
                    name,
                    f"{count:,}",
                    percent(recall),
                    wrong_class,
                    share,
                ]
            )
    caption = (
        "recall by class, and the wrong class that most rows of it are taken for, with "
        "their share, mean over seeds; of many the "
        f"{MOST_CLASSES} most frequent classes, and the {MOST_DECODERS} best decoders"
    )
    header = ["decoder", "class", "rows", "recall %", "taken for", "share %"]
    return Sheet(caption, header, lines)


def _class_name(table: Table, index: int) -> Text:
    """The name of a class, cut to the width of a column."""
    return Text(brief(str(table.cache.class_names[index]), 40))


def _most_frequent_mistake(
    entry: Entry, true_class: int, table: Table
) -> tuple[str, str]:
    """The wrong class that rows of a class are most often taken for.

    Returns:
        Its name, and the percentage of the rows that are taken for it; twice "-" where
        no seed makes a mistake. Of equally frequent ones it is the first class.
    """
    predictions_C = entry.confusion[true_class]
    mistakes_C = predictions_C.copy()
    mistakes_C[true_class] = 0
    wrong_class = int(mistakes_C.argmax())
    if mistakes_C[wrong_class] == 0:
        return "-", "-"
    share = float(mistakes_C[wrong_class] / predictions_C.sum())
    return _class_name(table, wrong_class), percent(share)
