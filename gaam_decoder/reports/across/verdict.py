"""The verdict over many data sets: a sentence, a line a decoder, and forest plots."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gaam_cache.common.messages import brief
from gaam_decoder import stats
from gaam_decoder.reports.across.base import AcrossWriter
from gaam_decoder.reports.cells import p_value
from gaam_decoder.reports.columns import Sheet
from gaam_decoder.reports.drawing import (
    Forest,
    Picture,
    ValueWithInterval,
    forest_of_sets,
)
from gaam_decoder.reports.over_sets import AnswerOverSets, DecoderOverSets
from gaam_decoder.reports.sections.base import Section
from gaam_decoder.reports.sets import Cells
from gaam_decoder.reports.wording import with_verb
from gaam_decoder.stats.across import LEAST_SETS
from gaam_decoder.stats.scores.base import Interval, Score

MOST_PICTURES = 12  # decoders with a forest plot of their own
HEADER = [
    "decoder",
    "verdict",
    "difference",
    "95% CI",
    "another data set",
    "sets",
    "tables better / equivalent / worse / undecided",
    "mean rank",
    "p Holm",
    "p of these sets",
]
KEY_COLUMNS = ["verdict", "difference", "95% CI", "another data set", "sets"]
BASELINE = "{} (baseline)"


class Verdict(AcrossWriter):
    """The answer over all data sets, and the differences that it is made of."""

    position = 10

    def of(self, cells: Cells, answers: Sequence[AnswerOverSets]) -> Iterator[Section]:
        """Two sections: the answer, and every difference."""
        unit = cells.cells[0].table.score
        sentences = [_sentence(cells, answer) for answer in answers]
        yield Section(
            name="across",
            heading="Over all data sets",
            lead="; ".join(sentences),
            answers=sentences,
            lines=_lines(cells, answers, unit),
            values={
                "baseline": cells.baseline,
                "head": cells.head,
                "score": cells.cells[0].table.score_name,
                "margin": cells.cells[0].table.margin,
                "answers": [_values(answer, unit) for answer in answers],
                "left_out": list(cells.left_out),
                "remarks": list(cells.remarks),
            },
            make=lambda: (
                [_sheet(cells, answer, unit) for answer in answers],
                list(_pictures(cells, answers, unit)),
            ),
        )
        yield Section(
            name="across-sets",
            heading="Differences of every data set",
            make=lambda: (
                [
                    _sets_sheet(cells, answer, decoder, unit)
                    for answer in answers
                    for decoder in answer.decoders
                ],
                (),
            ),
        )


def _sign(unit: Score) -> int:
    """1, or -1 for scores whose smaller values are better, such as a loss.

    The statistics over data sets are above 0 where a decoder is better. This factor
    turns them into differences of the score.
    """
    return 1 if unit.larger_is_better else -1


def _oriented(value: float, unit: Score) -> float:
    """A value that is above 0 where a decoder is better, as one of the score."""
    return _sign(unit) * value


def _oriented_interval(interval: Interval, unit: Score) -> Interval:
    """The same of an interval: below 0 where a smaller score is better."""
    if interval is None or unit.larger_is_better:
        return interval
    low, high = interval
    return -high, -low


def _sentence(cells: Cells, answer: AnswerOverSets) -> str:
    """The verdicts over all data sets as one sentence, without a full stop."""
    unit = cells.cells[0].table.score
    rival = f"'{brief(cells.baseline)}'"
    # verdict -> names of the decoders
    names: dict[str, list[str]] = {}
    for decoder in answer.decoders:
        names.setdefault(decoder.answer.verdict, []).append(decoder.name)

    if set(names) == {stats.NO_CLAIM}:
        return (
            f"Over {answer.in_words} there is no verdict, which takes {LEAST_SETS} "
            f"data sets: mean differences to {rival} of "
            f"{_spread(answer.decoders, unit)}"
        )
    parts = [
        f"{with_verb(names[verdict])} {verdict} than {rival}"
        for verdict in ("better", "worse")
        if verdict in names
    ]
    if not parts:
        judged = [
            decoder
            for decoder in answer.decoders
            if decoder.answer.verdict != stats.NO_CLAIM
        ]
        parts.append(
            f"no mechanism is shown to differ from {rival}: mean differences of "
            f"{_spread(judged, unit)}{_reach(judged, unit)}"
        )
    if "equivalent" in names:
        margin = unit.size(answer.decoders[0].answer.margin)
        parts.append(
            f"{with_verb(names['equivalent'])} equivalent to {rival} within {margin}"
        )
    if 0 < len(names.get("undecided", ())) < len(answer.decoders):
        parts.append(f"{with_verb(names['undecided'])} undecided")
    if stats.NO_CLAIM in names:
        parts.append(
            f"no claim is made about {', '.join(names[stats.NO_CLAIM])}: fewer than "
            f"{LEAST_SETS} data sets"
        )
    by_score = ""
    table = cells.cells[0].table
    if table.score_name != table.task.default_score:
        by_score = f" by {unit.title}"
    return f"Over {answer.in_words}{by_score} {'; '.join(parts)}{_conditions(cells)}"


def _spread(decoders: Sequence[DecoderOverSets], unit: Score) -> str:
    """Smallest and largest mean difference, such as ``-0.10 to +0.35 points``."""
    differences = [_oriented(decoder.answer.difference, unit) for decoder in decoders]
    low = unit.difference(min(differences))
    high = unit.difference(max(differences))
    text = low if low == high else f"{low} to {high}"
    return f"{text} points" if unit.percent else text


def _reach(decoders: Sequence[DecoderOverSets], unit: Score) -> str:
    """A clause on the bound of all intervals that is furthest from 0; or nothing."""
    intervals = [
        decoder.answer.interval for decoder in decoders if decoder.answer.interval
    ]
    if not intervals:
        return ""
    furthest = max(abs(bound) for interval in intervals for bound in interval)
    return f", and no 95% interval reaches beyond {unit.size(furthest, '.2f')}"


def _conditions(cells: Cells) -> str:
    """What makes all numbers doubtful, in brackets; empty where nothing does."""
    entries = [entry for cell in cells.cells for entry in cell.entries.values()]
    conditions = []
    if any(entry.is_optimistic for entry in entries):
        conditions.append("some numbers are optimistic")
    if not any(entry.tunings for entry in entries):
        conditions.append("not tuned")
    return f" ({', '.join(conditions)})" if conditions else ""


def _lines(cells: Cells, answers: Sequence[AnswerOverSets], unit: Score) -> list[str]:
    """The notes: what is left out, how data sets differ, and how numbers were made."""
    lines = list(cells.left_out)
    for answer in answers:
        lines += answer.left_out
    lines += cells.remarks
    several = len(answers[0].encoders) > 1
    counted = "a data set with all its encoders" if several else "a data set"
    lines += [
        f"differences to '{brief(cells.baseline)}' in {unit.difference_unit}, head "
        f"{brief(cells.head, 60)}; {counted} counts as one, and data sets as a sample "
        "of their kind: a random-effects mean with the interval of Hartung and Knapp",
        "95% CI: of the mean, not corrected; another data set: 95% interval of the "
        "true difference on another data set of the kind",
        f"a verdict takes {LEAST_SETS} data sets, and p Holm is corrected for all "
        "decoders; p of these sets is that of the exact signed-rank test, of these "
        "data sets alone",
    ]
    num_ranked = answers[0].num_ranked
    if num_ranked:
        lines.append(
            f"mean rank: 1 is the best, over the {num_ranked} data sets with every "
            "decoder"
        )
    return lines


def _sheet(cells: Cells, answer: AnswerOverSets, unit: Score) -> Sheet:
    """The table of an answer: a line for every decoder, and one for the baseline."""
    lines = [_cells_of_line(decoder, unit) for decoder in answer.decoders]
    baseline = ["-"] * len(HEADER)
    baseline[0] = BASELINE.format(brief(cells.baseline))
    baseline[HEADER.index("mean rank")] = _rank(answer.baseline_rank)
    caption = (
        f"mean difference to '{brief(cells.baseline)}' over {answer.in_words}, "
        f"{unit.difference_unit}"
    )
    return Sheet(caption, HEADER, [*lines, baseline], KEY_COLUMNS)


def _cells_of_line(decoder: DecoderOverSets, unit: Score) -> list[str]:
    """The line of a decoder: a text for every header of ``HEADER``."""
    answer = decoder.answer
    counts = decoder.counts
    verdicts = ("better", "equivalent", "worse", "undecided")
    numbers = [str(counts.get(verdict, 0)) for verdict in verdicts]
    p_holm = answer.p if answer.p_holm is None else answer.p_holm
    has_verdict = answer.verdict != stats.NO_CLAIM
    return [
        decoder.name,
        answer.verdict,
        unit.difference(_oriented(answer.difference, unit)),
        unit.span(_oriented_interval(answer.interval, unit), signed=True),
        unit.span(_oriented_interval(answer.prediction, unit), signed=True),
        str(len(answer.sets)),
        " / ".join(numbers),
        _rank(decoder.mean_rank),
        p_value(p_holm) if has_verdict else "-",
        p_value(answer.p_of_these_sets),
    ]


def _rank(rank: float | None) -> str:
    return "-" if rank is None else f"{rank:.2f}"


def _sets_sheet(
    cells: Cells, answer: AnswerOverSets, decoder: DecoderOverSets, unit: Score
) -> Sheet:
    """The differences of one decoder on every data set, with 95% intervals.

    A line for every data set and one for the mean, a column for every encoder.
    """
    header = ["data set", *answer.encoders]
    several = len(answer.encoders) > 1
    if several:
        header.append("all encoders")
    lines = []
    for data_set in decoder.answer.sets:
        claims = [decoder.claims[data_set.name, name] for name in answer.encoders]
        line = [data_set.name, *(_claim_cell(claim, unit) for claim in claims)]
        if several:
            difference = unit.difference(_oriented(data_set.difference, unit))
            interval = unit.span(_mean_interval(claims), signed=True)
            line.append(f"{difference} ({interval})")
        lines.append(line)
    mean = unit.difference(_oriented(decoder.answer.difference, unit))
    of_mean = _oriented_interval(decoder.answer.interval, unit)
    blanks = [""] * (len(header) - 2)
    lines.append(["mean", *blanks, f"{mean} ({unit.span(of_mean, signed=True)})"])
    caption = (
        f"differences of {decoder.name} to '{brief(cells.baseline)}' on every data "
        f"set, {unit.difference_unit}, with 95% intervals"
    )
    return Sheet(caption, header, lines)


def _claim_cell(claim: stats.Claim, unit: Score) -> str:
    """A difference, with its interval in brackets."""
    interval = unit.span(claim.interval, signed=True)
    return f"{unit.difference(claim.difference)} ({interval})"


def _values(answer: AnswerOverSets, unit: Score) -> dict[str, Any]:
    """An answer as JSON values; differences are fractions of the score."""
    return {
        "encoders": list(answer.encoders),
        "data_sets": list(answer.data_sets),
        "decoders": [_decoder_values(decoder, unit) for decoder in answer.decoders],
        "baseline_mean_rank": answer.baseline_rank,
        "data_sets_ranked": answer.num_ranked,
        "left_out": list(answer.left_out),
    }


def _decoder_values(decoder: DecoderOverSets, unit: Score) -> dict[str, Any]:
    """The answer of one decoder as JSON values; differences are of the score."""
    answer = decoder.answer
    tables = [
        {
            "data_set": data_set,
            "encoder": encoder,
            "difference": claim.difference,
            "ci95": claim.interval,
            "verdict": claim.verdict,
        }
        for (data_set, encoder), claim in decoder.claims.items()
    ]
    return {
        "decoder": decoder.name,
        "verdict": answer.verdict,
        "difference": _oriented(answer.difference, unit),
        "std_error": answer.std_error,
        "ci95": _oriented_interval(answer.interval, unit),
        "ci95_another_data_set": _oriented_interval(answer.prediction, unit),
        "std_between_data_sets": answer.between,
        "p": answer.p,
        "p_holm": answer.p_holm,
        "p_equivalent": answer.p_equivalent,
        "p_equivalent_holm": answer.p_equivalent_holm,
        "p_of_these_data_sets": answer.p_of_these_sets,
        "mean_rank": decoder.mean_rank,
        "tables_by_verdict": decoder.counts,
        "data_sets": [
            {
                "data_set": data_set.name,
                "difference": _oriented(data_set.difference, unit),
                "std_error": data_set.variance**0.5,
            }
            for data_set in answer.sets
        ],
        "tables": tables,
        "missing": list(decoder.missing),
    }


def _pictures(
    cells: Cells, answers: Sequence[AnswerOverSets], unit: Score
) -> Iterator[Picture]:
    """A forest plot for every decoder."""
    pairs = [(answer, decoder) for answer in answers for decoder in answer.decoders]
    better = "Right" if unit.larger_is_better else "Left"
    for number, (answer, decoder) in enumerate(pairs[:MOST_PICTURES], 1):
        title = f"{decoder.name} minus {brief(cells.baseline)}, {answer.in_words}"
        yield Picture(
            f"across-{number}",
            title,
            f"{better} of the line: better. A dot and its 95% interval for each data "
            "set; the diamond is the mean and its interval, the thin line the "
            "interval of another data set.",
            lambda answer=answer, decoder=decoder: forest_of_sets(  # type: ignore[misc]
                _forest(cells, answer, decoder, unit)
            ),
        )


def _forest(
    cells: Cells, answer: AnswerOverSets, decoder: DecoderOverSets, unit: Score
) -> Forest:
    """The numbers of a forest plot of one decoder, in the unit of the score.

    A row for every data set, a column for every encoder; the mean over data sets below.
    """
    sets = decoder.answer.sets
    columns: dict[str, list[ValueWithInterval]] = {}
    for encoder in answer.encoders:
        claims = [decoder.claims[data_set.name, encoder] for data_set in sets]
        columns[encoder] = [
            _marked(claim.difference, claim.interval, unit) for claim in claims
        ]
    if len(answer.encoders) > 1:
        columns["all encoders"] = [
            _marked(
                _oriented(data_set.difference, unit),
                _mean_interval(
                    [decoder.claims[data_set.name, name] for name in answer.encoders]
                ),
                unit,
            )
            for data_set in sets
        ]
    whole = decoder.answer
    return Forest(
        rows=[data_set.name for data_set in sets],
        columns=columns,
        mean=_marked(
            _oriented(whole.difference, unit),
            _oriented_interval(whole.interval, unit),
            unit,
        ),
        prediction=_scaled(_oriented_interval(whole.prediction, unit), unit),
        margin=unit.factor * whole.margin,
        x_label=f"difference to {brief(cells.baseline, 26)}, {unit.difference_unit}",
    )


def _mean_interval(claims: Sequence[stats.Claim]) -> Interval:
    """The mean of the intervals of all encoders; None if one of them has none.

    It is the interval of the mean difference if all encoders err alike, since they are
    tested on the same rows.
    """
    intervals = [claim.interval for claim in claims if claim.interval]
    if len(intervals) < len(claims):
        return None
    low, high = np.mean(intervals, axis=0)
    return float(low), float(high)


def _marked(value: float, interval: Interval, unit: Score) -> ValueWithInterval:
    """A value and its interval as a picture shows them: fractions become percent."""
    return ValueWithInterval(unit.factor * value, _scaled(interval, unit))


def _scaled(interval: Interval, unit: Score) -> Interval:
    """An interval as a picture shows it: fractions become percent."""
    if interval is None:
        return None
    low, high = interval
    return unit.factor * low, unit.factor * high
