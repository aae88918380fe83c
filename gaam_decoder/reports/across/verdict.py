"""The verdict over many data sets: a sentence, a line a decoder, and pictures."""

from collections.abc import Iterator, Sequence

from gaam_decoder.reports.across.base import AcrossWriter
from gaam_decoder.reports.columns import Sheet
from gaam_decoder.reports.drawing import Picture
from gaam_decoder.reports.over_sets import AnswerOverSets
from gaam_decoder.reports.over_sets_pictures import forest_picture, overview_picture
from gaam_decoder.reports.over_sets_text import (
    answer_values,
    decoders_sheet,
    notes_on,
    notes_on_cells,
    probe_sheet,
    scores_sheet,
    sentence,
    sentence_against_probe,
    sets_sheet,
)
from gaam_decoder.reports.sections.base import Parts, Section
from gaam_decoder.reports.sets import Cells

MOST_FORESTS = 12  # decoders with a forest plot of their own


class Verdict(AcrossWriter):
    """The answer over all data sets, and the differences that it is made of."""

    position = 10

    def sections_of(
        self,
        cells: Cells,
        answers: Sequence[AnswerOverSets],
        against_probe: Sequence[AnswerOverSets],
    ) -> Iterator[Section]:
        """The answer, the differences to the probe, every score, every difference."""
        sentences = _sentences(answers, against_probe)
        # the tables of all cells have the same score and margin of equivalence
        first_table = cells.cells[0].table
        yield Section(
            name="across",
            heading="Over all data sets",
            lead=". ".join(sentences),
            answers=sentences,
            lines=notes_on(answers),
            values={
                "baseline": cells.baseline,
                "head": cells.head,
                "score": first_table.score_name,
                "margin": first_table.margin,
                "answers": [answer_values(answer) for answer in answers],
                "against_probe": [answer_values(answer) for answer in against_probe],
                "left_out": list(cells.left_out),
                "remarks": list(cells.remarks),
            },
            make=lambda: Parts(
                sheets=[
                    decoders_sheet(answer) for answer in answers if answer.decoders
                ],
                pictures=list(_pictures(answers)),
            ),
        )
        yield from _sections_of_tables(answers, against_probe)


def _sections_of_tables(
    answers: Sequence[AnswerOverSets], against_probe: Sequence[AnswerOverSets]
) -> Iterator[Section]:
    """Differences to the probe, every score, and every difference.

    The arguments are those of ``_sentences``.
    """
    if against_probe:
        left_out = [line for answer in against_probe for line in answer.left_out]
        yield Section(
            name="across-probe",
            heading="Beside the linear probe",
            lines=list(dict.fromkeys(left_out)),
            make=lambda: Parts(
                sheets=[probe_sheet(answer) for answer in against_probe]
            ),
        )
    if any(answer.decoders for answer in answers):
        yield Section(
            name="across-scores",
            heading="Scores on every data set",
            lines=notes_on_cells(answers),
            make=lambda: Parts(sheets=_scores_sheets(answers)),
        )
        yield Section(
            name="across-sets",
            heading="Differences of every data set",
            make=lambda: Parts(sheets=_sets_sheets(answers)),
        )


def _sentences(
    answers: Sequence[AnswerOverSets], against_probe: Sequence[AnswerOverSets]
) -> list[str]:
    """The verdicts of all answers: that of the probe first if it beats every decoder.

    Args:
        answers: one, or one for each encoder.
        against_probe: those with the linear probe as the baseline; may be empty.
    """
    sentences = [sentence(answer) for answer in answers]
    of_probe = [sentence_against_probe(answer) for answer in against_probe]
    are_all_worse = all(
        decoder.combined.verdict == "worse"
        for answer in against_probe
        for decoder in answer.decoders
    )
    return of_probe + sentences if are_all_worse else sentences + of_probe


def _scores_sheets(answers: Sequence[AnswerOverSets]) -> list[Sheet]:
    """The scores of every decoder on every data set, a table for each encoder."""
    return [
        scores_sheet(answer, encoder)
        for answer in answers
        if answer.decoders
        for encoder in answer.encoders
    ]


def _sets_sheets(answers: Sequence[AnswerOverSets]) -> list[Sheet]:
    """The differences of every decoder on every data set."""
    return [
        sets_sheet(answer, decoder) for answer in answers for decoder in answer.decoders
    ]


def _pictures(answers: Sequence[AnswerOverSets]) -> Iterator[Picture]:
    """All decoders of each answer in one picture, then a forest plot for each."""
    pairs = [(answer, decoder) for answer in answers for decoder in answer.decoders]
    for number, answer in enumerate(answers, 1):
        if answer.decoders:
            yield overview_picture(f"across-overview-{number}", answer)
    for number, (answer, decoder) in enumerate(pairs[:MOST_FORESTS], 1):
        yield forest_picture(f"across-{number}", answer, decoder)
