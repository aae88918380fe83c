"""Show calibration: how far probabilities are from the share of right answers.

B bins of probability.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gaam_decoder import stats
from gaam_decoder.reports.columns import Sheet
from gaam_decoder.reports.drawing import (
    MOST_LINES,
    Line,
    Panel,
    Picture,
    line_panels,
    not_drawn,
)
from gaam_decoder.reports.entries import SCALED_SUFFIX, Entry
from gaam_decoder.reports.scoring import score_of
from gaam_decoder.reports.sections.base import Parts, Section, Writer
from gaam_decoder.reports.table import Table
from gaam_decoder.reports.wording import TEMPERATURE
from gaam_decoder.stats.calibration import BINS
from gaam_decoder.stats.scores.base import Score

# A bin with fewer rows is not drawn: its share of right rows is too uncertain.
FEWEST = 5


class Calibration(Writer):
    """The expected calibration error, and a reliability diagram."""

    position = 21

    def sections_of(self, table: Table) -> Iterator[Section]:
        """Yield the section if a seed finished and the task has probabilities."""
        if not table.task.has_probabilities:
            return
        if any(entry.finished for entry in table.entries):
            yield _calibration(table)


@dataclass(frozen=True)
class _TaskWords:
    """How a section spells what depends on the task."""

    predicted: str  # what a probability is of
    share: str  # what a probability is compared with
    counted: str  # which probabilities count, in short


def _words_of_task(table: Table) -> _TaskWords:
    """The words for the task of a table."""
    if table.task.has_classes:
        return _TaskWords(
            predicted="what is predicted", share="accuracy", counted="top label"
        )
    return _TaskWords(
        predicted="each label", share="share with the label", counted="all labels"
    )


def _calibration(table: Table) -> Section:
    """The section on the expected calibration error (ECE), with a diagram.

    Its lead is ``expected calibration error 2.1 to 9.8% (top label, 15 bins)``. An
    entry of the table has finished.
    """
    score = score_of("ece")
    scaled = SCALED_SUFFIX if table.temperature else ""
    finished = [entry for entry in table.entries if entry.finished]
    errors = [float(entry.values_by_score["ece"].mean()) for entry in finished]
    words = _words_of_task(table)
    lines = [
        f"ECE: distance between {words.share} and mean probability of "
        f"{words.predicted}, in {BINS} bins of equal width (Naeini et al. 2015, Guo et "
        "al. 2017), of each seed; it is biased upwards, the more the fewer test rows "
        "there are, so that nothing is claimed of differences"
    ]
    if table.temperature:
        lines.append(TEMPERATURE)
    sheet = _calibration_sheet(finished, score, words, table.temperature)
    picture = _reliability_diagram(finished, words)
    return Section(
        name="calibration",
        heading="Calibration",
        lead=f"expected calibration error {score.text(min(errors))} to "
        f"{score.text(max(errors))}% ({words.counted}, {BINS} bins{scaled})",
        lines=tuple(lines),
        make=lambda: Parts(sheets=(sheet,), pictures=(picture,)),
        values=[_calibration_values(entry) for entry in finished],
    )


def _calibration_sheet(
    entries: Sequence[Entry], score: Score, words: _TaskWords, has_temperature: bool
) -> Sheet:
    """The table of calibration, with a column of temperatures if they were fitted."""
    header = ["decoder", "ECE %", "sd", "mean probability %", f"{words.share} %"]
    caption = (
        "expected calibration error (ECE), mean and sd over seeds; a mean probability "
        f"above {words.share} is too sure"
    )
    if has_temperature:
        header.append("temperature")
        caption += f"{SCALED_SUFFIX} (median over seeds)"

    lines = []
    for entry in entries:
        value_S = entry.values_by_score["ece"]
        bins = entry.calibration_bins
        num_rows = bins.num_rows_B.sum()
        cells = [
            entry.label,
            score.text(value_S.mean()),
            score.std(stats.standard_deviation(value_S)),
            score.text(bins.probability_sum_B.sum() / num_rows),
            score.text(bins.num_right_B.sum() / num_rows),
        ]
        if has_temperature:
            temperature = entry.temperature
            cells.append(f"{temperature['median']:.3g}" if temperature else "-")
        lines.append(cells)
    return Sheet(caption, header, lines)


def _calibration_values(entry: Entry) -> dict[str, object]:
    """Calibration as JSON values; for every bin rows, right rows and probabilities."""
    bins = entry.calibration_bins
    return {
        "decoder": entry.label,
        "ece": float(entry.values_by_score["ece"].mean()),
        "temperature": entry.temperature,
        "rows": bins.num_rows_B.tolist(),
        "right": bins.num_right_B.tolist(),
        "sum": bins.probability_sum_B.tolist(),
    }


def _reliability_diagram(entries: Sequence[Entry], words: _TaskWords) -> Picture:
    """Share of right answers by mean probability, a point for every bin.

    Args:
        entries: those with a finished seed; ``MOST_LINES`` are drawn.
        words: of the task, such as "accuracy" for the share.
    """
    curves = []
    for entry in entries[:MOST_LINES]:
        bins = entry.calibration_bins
        is_drawn_B = bins.num_rows_B >= FEWEST
        num_rows_B = bins.num_rows_B[is_drawn_B]
        mean_probability_B = 100 * bins.probability_sum_B[is_drawn_B] / num_rows_B
        right_share_B = 100 * bins.num_right_B[is_drawn_B] / num_rows_B
        curves.append(Line(entry.label, x=mean_probability_B, y=right_share_B))
    # where the share is the probability itself
    diagonal = Line("as they say", x=[0, 100], y=[0, 100])
    return Picture(
        name="reliability",
        title="Reliability diagram",
        caption=(
            f"Test rows of all seeds, of the best decoders, in {BINS} bins by the "
            f"probability of {words.predicted}; below the dashed line probabilities "
            f"are too large.{not_drawn([entry.label for entry in entries])}"
        ),
        draw=lambda: line_panels(
            [Panel(f"{words.share}, %", curves)],
            "mean probability, %",
            reference=diagonal,
        ),
    )
