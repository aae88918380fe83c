"""Answers over data sets as text: the sentence, the tables, the notes and the JSON.

Reports and the pages of studies use the same. Statistics over data sets are above 0
where a decoder is better; everything shown has the sign of the score, so that a lower
loss is a negative difference.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gaam_cache.common.messages import brief
from gaam_decoder import stats
from gaam_decoder.analysis.learned import is_density
from gaam_decoder.reports.cells import Cell, Text, p_value, range_cell
from gaam_decoder.reports.columns import Sheet
from gaam_decoder.reports.over_sets import (
    MOST_NAMED,
    VERDICTS,
    AnswerOverSets,
    CellDifference,
    CellKey,
    CellResult,
    DecoderOverSets,
    mean_of_all,
)
from gaam_decoder.reports.wording import NAMED, enumerated, in_sentence, with_verb
from gaam_decoder.stats.across import (
    FEW_SEEDS,
    LEAST_SETS,
    average_over_encoders,
    combine_sets,
)
from gaam_decoder.stats.scores.base import Interval, Score

VERDICTS_ALONE = [verdict for verdict in VERDICTS if verdict != stats.NO_CLAIM]
UNCORRECTED = "uncorrected 95% CI"
"""Header of the interval of a mean difference."""
KEY_COLUMNS = ["verdict", "difference", UNCORRECTED, "another data set", "sets"]


def in_sign_of_score(value: float, score: Score) -> float:
    """A difference that is above 0 where a decoder is better, as one of the score.

    Of a loss, whose smaller values are better, it changes its sign.
    """
    return value if score.larger_is_better else -value


def interval_in_sign_of_score(interval: Interval, score: Score) -> Interval:
    """An interval of a difference that is above 0 where a decoder is better.

    It is turned into one of the score's own differences: of a loss, both ends change
    their sign. None stays None.
    """
    if interval is None or score.larger_is_better:
        return interval
    low, high = interval
    return -high, -low


def sentence(answer: AnswerOverSets) -> str:
    """The verdicts over all data sets in sentences, without the last full stop."""
    all_results = answer.all_results
    by_score = "" if all_results.is_usual_score else f" by {all_results.score.title}"
    preposition = "On" if answer.is_of_one_set else "Over"
    over = f"{preposition} {answer.in_words}{by_score}"
    if not answer.decoders:
        return f"{over} there is no mean difference: {_why_empty(answer)}"

    verdicts = {decoder.combined.verdict for decoder in answer.decoders}
    baseline = f"'{brief(all_results.baseline)}'"
    if verdicts == {stats.NO_CLAIM} and not answer.is_of_one_set:
        spread = _spread(answer.decoders, all_results.score)
        parts = [
            f"there is no verdict, which takes {LEAST_SETS} data sets with both "
            "decoders: mean "
            f"differences to {baseline} of {spread}"
        ]
        parts += _possible_differences(answer)
        sentences = ["; ".join(parts)]
    else:
        sentences = []
        for no_decoder, of_kind in _by_kind(answer):
            parts = _verdict_clauses(of_kind, baseline, no_decoder)
            parts += _possible_differences(of_kind)
            sentences.append("; ".join(parts))
    text = f"{over} {sentences[0]}"
    for of_others in sentences[1:]:
        text += f". Apart from densities, {of_others}"
    if answer.is_of_one_set:
        text += f". A verdict over data sets takes {LEAST_SETS} of them"
    if all_results.conditions:
        text += f" ({', '.join(all_results.conditions)})"
    return text


def sentence_against_probe(answer: AnswerOverSets) -> str:
    """How the decoders compare with the linear probe, without the last full stop.

    Args:
        answer: over several data sets, with the linear probe as the baseline.
    """
    all_results = answer.all_results
    score = all_results.score
    by_score = "" if all_results.is_usual_score else f" by {score.title}"
    start = (
        f"Compared with {all_results.baseline} on the same states{by_score}, over "
        f"{answer.in_words}"
    )
    by_verdict: dict[str, list[DecoderOverSets]] = {}
    for decoder in answer.decoders:
        by_verdict.setdefault(decoder.combined.verdict, []).append(decoder)
    clauses = []
    for verdict in VERDICTS:
        decoders = by_verdict.get(verdict, [])
        if not decoders:
            continue
        names = [in_sentence(decoder.name) for decoder in decoders]
        words = f"{with_verb(names, MOST_NAMED)} {verdict}"
        if verdict == stats.NO_CLAIM:
            words = (
                f"there is no verdict on {enumerated(names, MOST_NAMED)}, which takes "
                f"{LEAST_SETS} data sets"
            )
        elif verdict == "equivalent":
            words += f" within {score.size(all_results.margin)}"
        clauses.append(f"{words} ({_spread_in_words(decoders, score)})")
    return f"{start}: {'; '.join(clauses)}"


def probe_sheet(answer: AnswerOverSets) -> Sheet:
    """The difference of every decoder to the linear probe, a line for each."""
    score = answer.all_results.score
    header = [
        "decoder",
        "verdict",
        "difference",
        UNCORRECTED,
        "another data set",
        "sets",
        "p Holm",
    ]
    lines = []
    for decoder in answer.decoders:
        cells = _decoder_cells(answer, decoder)
        lines.append([cells[name] for name in header])
    caption = (
        f"mean difference to {answer.all_results.baseline} on the same states over "
        f"{answer.in_words}, {score.difference_unit}; Holm in a family of its own"
    )
    return Sheet(caption, header, lines)


def _by_kind(answer: AnswerOverSets) -> list[tuple[str, AnswerOverSets]]:
    """The answer for each kind of decoders, behind the subject for none of the kind.

    The densities stand apart from the others where the baseline is a density: then the
    question is whether another density does the same.
    """
    densities: list[DecoderOverSets] = []
    if is_density(answer.all_results.baseline):
        # settings may follow the mechanism behind a space
        densities = [
            decoder
            for decoder in answer.decoders
            if is_density(decoder.name.partition(" ")[0])
        ]
    if not densities:
        return [("no mechanism", answer)]
    kinds = [
        (
            _none_of(len(densities), "density", "densities"),
            replace(answer, decoders=tuple(densities)),
        )
    ]
    others = [decoder for decoder in answer.decoders if decoder not in densities]
    if others:
        no_other = _none_of(len(others), "mechanism", "mechanisms")
        kinds.append((no_other, replace(answer, decoders=tuple(others))))
    return kinds


def _none_of(count: int, noun: str, plural: str) -> str:
    """A subject such as ``none of the 6 other densities``."""
    return f"no other {noun}" if count == 1 else f"none of the {count} other {plural}"


def _why_empty(answer: AnswerOverSets) -> str:
    """Why no difference counts, for the end of a sentence."""
    reasons = dict.fromkeys(
        result.compared.why_left_out
        for result in answer.all_results.results
        if result.compared
    )
    if list(reasons) == [FEW_SEEDS]:
        return f"every table has {FEW_SEEDS}"
    return "; ".join(filter(None, reasons)) or "no decoder has one with every encoder"


def _verdict_clauses(
    answer: AnswerOverSets, baseline: str, no_decoder: str
) -> list[str]:
    """What is better, worse, equivalent and undecided, as clauses of a sentence.

    Args:
        answer: the answer.
        baseline: its name in quotes.
        no_decoder: the subject of the clause that no decoder differs.
    """
    score = answer.all_results.score
    names = _names_by_verdict(answer)
    clauses = [
        f"{with_verb(names[verdict])} {verdict} than {baseline}"
        for verdict in ("better", "worse")
        if names[verdict]
    ]
    judged = [
        decoder
        for decoder in answer.decoders
        if decoder.name not in names[stats.NO_CLAIM]
    ]
    if judged and not clauses:
        clauses.append(
            f"{no_decoder} is shown to differ from {baseline}: "
            f"{_spread_in_words(judged, score)}"
        )
    if names["equivalent"]:
        margin = score.size(answer.all_results.margin)
        clauses.append(
            f"{with_verb(names['equivalent'])} equivalent to {baseline} within {margin}"
        )
    num_undecided = len(names["undecided"])
    if 0 < num_undecided < sum(map(len, names.values())):
        undecided = with_verb(names["undecided"])
        if num_undecided > NAMED and not names[stats.NO_CLAIM]:
            undecided = "the others are"
        clauses.append(f"{undecided} undecided")
    if names[stats.NO_CLAIM]:
        clauses.append(
            f"no claim is made about {', '.join(names[stats.NO_CLAIM])}: fewer than "
            f"{LEAST_SETS} data sets"
        )
    return clauses


def _names_by_verdict(answer: AnswerOverSets) -> dict[str, list[str]]:
    """Verdict -> names of the decoders.

    The verdicts on one data set are those of its cells. Where those of several encoders
    differ, a name has the encoders.
    """
    names: dict[str, list[str]] = {verdict: [] for verdict in VERDICTS}
    for decoder in answer.decoders:
        if not answer.is_of_one_set:
            names[decoder.combined.verdict].append(decoder.name)
            continue
        encoders_by_verdict: dict[str, list[str]] = {}
        for (_data_set, encoder), cell in decoder.differences.items():
            encoders_by_verdict.setdefault(cell.verdict, []).append(encoder)
        for verdict, encoders in encoders_by_verdict.items():
            encoder_words = ""
            if len(encoders_by_verdict) > 1:
                encoder_words = f" through {' and '.join(encoders)}"
            names[verdict].append(f"{decoder.name}{encoder_words}")
    return names


def _interval(answer: AnswerOverSets, decoder: DecoderOverSets) -> Interval:
    """The 95% interval of a mean difference; of one data set, that of its cells."""
    if answer.is_of_one_set:
        return mean_interval(list(decoder.differences.values()))
    return decoder.combined.interval


def _spread(decoders: Sequence[DecoderOverSets], score: Score) -> str:
    """Smallest and largest mean difference, such as ``-0.10 to +0.35 points``."""
    differences = [
        in_sign_of_score(decoder.combined.difference, score) for decoder in decoders
    ]
    low = score.difference(min(differences))
    high = score.difference(max(differences))
    text = low if low == high else f"{low} to {high}"
    return f"{text} points" if score.percent else text


def _spread_in_words(decoders: Sequence[DecoderOverSets], score: Score) -> str:
    """The mean difference of a decoder, or those of several."""
    noun = "a mean difference" if len(decoders) == 1 else "mean differences"
    return f"{noun} of {_spread(decoders, score)}"


def _possible_differences(answer: AnswerOverSets) -> list[str]:
    """The clause on the differences that the intervals leave possible; or no clause."""
    score = answer.all_results.score
    ends: list[float] = []
    for decoder in answer.decoders:
        interval = interval_in_sign_of_score(_interval(answer, decoder), score)
        ends += interval or ()
    if not ends:
        return []
    unit = " points" if score.percent else ""
    span = f"{score.difference(min(ends))} to {score.difference(max(ends))}{unit}"
    if len(answer.decoders) == 1:
        return [f"the uncorrected 95% interval is {span}"]
    return [f"each uncorrected 95% interval lies within {span}"]


def notes_on(answers: Sequence[AnswerOverSets]) -> list[str]:
    """What is left out, how data sets differ, and how the numbers were made."""
    lines = notes_on_cells(answers)
    if answers[0].decoders:
        lines += notes_on_method(answers)
    return lines


def notes_on_cells(answers: Sequence[AnswerOverSets]) -> list[str]:
    """What is left out, and how data sets and their training differ."""
    all_results = answers[0].all_results
    # several answers leave out the same cells
    left_out = dict.fromkeys(line for answer in answers for line in answer.left_out)
    return [
        *all_results.left_out,
        *left_out,
        *all_results.remarks,
        *all_results.conditions,
    ]


def notes_on_method(answers: Sequence[AnswerOverSets]) -> list[str]:
    """How the numbers of answers with the same decoders were made."""
    first = answers[0]
    score = first.all_results.score
    baselines = dict.fromkeys(f"'{brief(a.all_results.baseline)}'" for a in answers)
    several = len(first.encoders) > 1
    unit = "a data set with all its encoders" if several else "a data set"
    of_head = ""
    if first.all_results.head:
        of_head = f", head {brief(first.all_results.head, 60)}"
    differences = f"differences to {' and '.join(baselines)} in {score.difference_unit}"
    if first.is_of_one_set:
        of_encoders = ", a mean over encoders" if several else ""
        return [
            f"{differences}{of_head}{of_encoders}; verdicts are those of the cells, "
            "corrected (Holm) for all decoders; intervals are not corrected"
        ]
    lines = [
        f"{differences}{of_head}: a random-effects mean over data sets, with the "
        f"interval of Hartung and Knapp; {unit} counts once",
        *_notes_on_columns(first),
    ]
    if any(map(_has_one_interval, answers)):
        lines.append(
            "where both intervals are the same, the errors within data sets explain "
            "all differences between them"
        )
    if first.num_ranked > 1:
        lines.append(
            f"mean rank: 1 is the best, over the {first.num_ranked} data sets with "
            "every decoder"
        )
    return lines


def _notes_on_columns(answer: AnswerOverSets) -> list[str]:
    """What the columns of an answer over several data sets mean."""
    margin = answer.all_results.score.size(answer.all_results.margin)
    return [
        f"{UNCORRECTED}: of the mean difference, not corrected for the number of "
        "decoders; another data set: 95% prediction interval of the true difference on "
        "another data set of the kind",
        f"a verdict takes {LEAST_SETS} data sets; p Holm is corrected for all "
        f"decoders; equivalent: a mean difference within {margin}",
        "p of these sets: the exact signed-rank test, of these data sets alone, not "
        "corrected",
    ]


def _has_one_interval(answer: AnswerOverSets) -> bool:
    """Whether a prediction interval is as wide as that of the mean difference."""
    for decoder in answer.decoders:
        interval = decoder.combined.interval
        prediction = decoder.combined.prediction
        if interval and prediction and math.isclose(interval[0], prediction[0]):
            return True
    return False


def decoders_sheet(answer: AnswerOverSets) -> Sheet:
    """The table of an answer: a line for every decoder, and one for the baseline.

    Decoders without a mean difference have a line with their mean score.
    """
    all_results = answer.all_results
    score = all_results.score
    cells_by_line = [_decoder_cells(answer, decoder) for decoder in answer.decoders]
    header = list(cells_by_line[0])
    without_difference = {
        f"{brief(all_results.baseline)} (baseline)": {
            score.column: score.text(answer.baseline_mean),
            "mean rank": _rank(answer.baseline_rank),
        }
    }
    for name, mean in answer.other_means.items():
        without_difference[name] = {score.column: score.text(mean)}
    for name, known in without_difference.items():
        cells = {"decoder": name} | known
        cells_by_line.append({column: cells.get(column, "-") for column in header})
    caption = (
        f"mean difference to '{brief(all_results.baseline)}' over {answer.in_words}, "
        f"{score.difference_unit}"
    )
    lines = [list(cells.values()) for cells in cells_by_line]
    return Sheet(caption, header, lines, [c for c in KEY_COLUMNS if c in header])


def _decoder_cells(answer: AnswerOverSets, decoder: DecoderOverSets) -> dict[str, str]:
    """The line of a decoder: header -> text."""
    score = answer.all_results.score
    combined = decoder.combined
    interval = interval_in_sign_of_score(_interval(answer, decoder), score)
    verdict: str = combined.verdict
    if answer.is_of_one_set:
        # in the order of the encoders
        verdict = " / ".join(cell.verdict for cell in decoder.differences.values())
    first_cells = {
        "decoder": decoder.name,
        "verdict": verdict,
        score.column: score.text(decoder.mean),
        "difference": score.difference(in_sign_of_score(combined.difference, score)),
        UNCORRECTED: range_cell(score.span(interval, signed=True)),
    }
    if answer.is_of_one_set:
        return first_cells

    alone = {verdict: str(decoder.counts.get(verdict, 0)) for verdict in VERDICTS_ALONE}
    p_holm = combined.p if combined.p_holm is None else combined.p_holm
    has_verdict = combined.verdict != stats.NO_CLAIM
    prediction_interval = interval_in_sign_of_score(combined.prediction, score)
    return first_cells | {
        "another data set": range_cell(score.span(prediction_interval, signed=True)),
        "sets": str(len(combined.sets)),
        f"each alone {' / '.join(VERDICTS_ALONE)}": Cell(
            " / ".join(alone.values()),
            {f"each alone {verdict}": count for verdict, count in alone.items()},
        ),
        "mean rank": _rank(decoder.mean_rank),
        "p Holm": p_value(p_holm) if has_verdict else "-",
        "p of these sets": p_value(combined.p_of_these_sets),
    }


def _rank(rank: float | None) -> str:
    return "-" if rank is None else f"{rank:.2f}"


def robustness_sheet(answer: AnswerOverSets) -> Sheet:
    """The mean difference of every decoder through each encoder, and without a set.

    A line for every decoder. The last column has the smallest and the largest mean
    difference over all data sets but one.
    """
    score = answer.all_results.score
    lines = []
    for decoder in answer.decoders:
        line = [decoder.name]
        for encoder in answer.encoders:
            sets = [
                cell.counted(data_set)
                for (data_set, of_encoder), cell in decoder.differences.items()
                if of_encoder == encoder
            ]
            mean = combine_sets([entry for entry in sets if entry]).difference
            line.append(score.difference(in_sign_of_score(mean, score)))
        means = []
        for left_out in decoder.combined.sets:
            others = [entry for entry in decoder.combined.sets if entry != left_out]
            mean = combine_sets(others).difference
            means.append(in_sign_of_score(mean, score))
        span = (min(means), max(means))
        line.append(score.span(span, signed=True))
        lines.append(line)
    header = ["decoder", *answer.encoders, "all but one data set"]
    caption = (
        f"mean difference to '{brief(answer.all_results.baseline)}' through each "
        f"encoder alone, and smallest and largest without one data set, "
        f"{score.difference_unit}"
    )
    return Sheet(caption, header, lines)


def scores_sheet(answer: AnswerOverSets, encoder: str) -> Sheet:
    """The mean score of every decoder on every data set, through one encoder.

    A line for the baseline and for every decoder, in the order of the answer; a column
    for every data set and one for the mean. A star marks a score that is better or
    worse than that of the baseline, by the table of this data set.
    """
    all_results = answer.all_results
    score = all_results.score
    results_by_set = {
        data_set: all_results.by_cell[data_set, encoder]
        for data_set in answer.data_sets
    }
    baselines = [
        name
        for results in results_by_set.values()
        for name, result in results.items()
        if result.is_baseline
    ]
    compared = [decoder.name for decoder in answer.decoders]
    lines = []
    for name in dict.fromkeys([*baselines, *compared, *answer.other_means]):
        line: list[str] = [name]
        means: list[float | None] = []
        for data_set, results in results_by_set.items():
            result = results.get(name)
            means.append(result.counted_mean if result else None)
            line.append(_score_cell(result, score, header=data_set))
        line.append(score.text(mean_of_all(means)))
        lines.append(line)
    caption = (
        f"{score.column} through {encoder}; * better or worse than "
        f"'{brief(all_results.baseline)}', corrected (Holm) in the table of this data "
        "set"
    )
    return Sheet(caption, ["decoder", *answer.data_sets, "mean"], lines)


def _score_cell(result: CellResult | None, score: Score, header: str) -> str:
    """The mean score of a decoder on a data set; with a star where it differs.

    ``header`` is the name of the data set. CSV has the verdict in a column of its own.
    """
    if result is None or result.mean is None:
        return "-"
    text = score.text(result.mean)
    parts = {header: text}
    if result.compared:
        parts[f"{header} verdict"] = result.compared.verdict
        if result.compared.verdict in ("better", "worse"):
            text += "*"
    return Cell(text, parts)


def sets_sheet(answer: AnswerOverSets, decoder: DecoderOverSets) -> Sheet:
    """The differences of one decoder on every data set, with 95% intervals.

    A line for every data set and one for the mean, a column for every encoder.
    """
    score = answer.all_results.score
    several = len(answer.encoders) > 1
    header = ["data set", *answer.encoders]
    if several:
        header.append("all encoders")

    lines = []
    for data_set in decoder.combined.sets:
        cells = cells_on(answer, decoder, data_set.name)
        line: list[str] = [Text(data_set.name)]
        for encoder, cell in zip(answer.encoders, cells, strict=True):
            line.append(_with_interval(cell.difference, cell.interval, score, encoder))
        if several:
            interval = mean_interval(cells)
            line.append(
                _with_interval(data_set.difference, interval, score, header[-1])
            )
        lines.append(line)
    combined = decoder.combined
    blanks = [""] * (len(header) - 2)
    mean = _with_interval(combined.difference, combined.interval, score, header[-1])
    lines.append(["mean", *blanks, mean])
    caption = (
        f"differences of {decoder.name} to '{brief(answer.all_results.baseline)}' on "
        f"every data set, {score.difference_unit}, with 95% intervals, not corrected"
    )
    return Sheet(caption, header, lines)


def cells_on(
    answer: AnswerOverSets, decoder: DecoderOverSets, data_set: str
) -> list[CellDifference]:
    """The cells of a decoder on a data set that counts, one for each encoder."""
    return [decoder.differences[data_set, encoder] for encoder in answer.encoders]


def mean_interval(cells: Sequence[CellDifference]) -> Interval:
    """The interval of the mean difference over encoders; None if a cell has none.

    Its ends are as far from the mean as those of the encoders' intervals are on
    average, times the standard error of the mean over the mean standard error of the
    encoders (see ``average_over_encoders``).
    """
    counted = [cell.counted("") for cell in cells]
    differences = [difference for difference in counted if difference is not None]
    intervals = [cell.interval for cell in cells if cell.interval is not None]
    if min(len(differences), len(intervals)) < len(cells):
        return None
    mean = average_over_encoders("", differences)
    std_errors = [math.sqrt(difference.variance) for difference in differences]
    scale = 1.0
    if any(std_errors):
        scale = math.sqrt(mean.variance) / float(np.mean(std_errors))
    mean_low, mean_high = np.mean(intervals, axis=0)
    low = mean.difference - scale * (mean.difference - mean_low)
    high = mean.difference + scale * (mean_high - mean.difference)
    return float(low), float(high)


def _with_interval(
    difference: float, interval: Interval, score: Score, header: str
) -> str:
    """A difference, with its interval in brackets; both as those of the score.

    ``header`` is that of the column. In CSV each of the three numbers has a column.
    """
    span = score.span(interval_in_sign_of_score(interval, score), signed=True)
    text = score.difference(in_sign_of_score(difference, score))
    low, _, high = span.partition(" to ")
    parts = {header: text, f"{header} low": low, f"{header} high": high}
    return Cell(f"{text} ({span})", parts)


def answer_values(answer: AnswerOverSets) -> dict[str, Any]:
    """An answer as JSON values; differences are fractions of the score."""
    score = answer.all_results.score
    return {
        "encoders": list(answer.encoders),
        "data_sets": list(answer.data_sets),
        "decoders": [_decoder_values(decoder, score) for decoder in answer.decoders],
        "baseline_mean": answer.baseline_mean,
        "baseline_mean_rank": answer.baseline_rank,
        "data_sets_ranked": answer.num_ranked,
        "left_out": list(answer.left_out),
    }


def _decoder_values(decoder: DecoderOverSets, score: Score) -> dict[str, Any]:
    """The answer of one decoder as JSON values; differences are of the score."""
    combined = decoder.combined
    return {
        "decoder": decoder.name,
        "verdict": combined.verdict,
        "mean": decoder.mean,
        "difference": in_sign_of_score(combined.difference, score),
        "std_error": combined.std_error,
        "ci95": interval_in_sign_of_score(combined.interval, score),
        "ci95_another_data_set": interval_in_sign_of_score(combined.prediction, score),
        "std_between_data_sets": combined.between,
        "p": combined.p,
        "p_holm": combined.p_holm,
        "p_equivalent": combined.p_equivalent,
        "p_equivalent_holm": combined.p_equivalent_holm,
        "p_of_these_data_sets": combined.p_of_these_sets,
        "mean_rank": decoder.mean_rank,
        "tables_by_verdict": decoder.counts,
        "data_sets": [
            {
                "data_set": data_set.name,
                "difference": in_sign_of_score(data_set.difference, score),
                "std_error": data_set.variance**0.5,
            }
            for data_set in combined.sets
        ],
        "tables": [
            _cell_values(key, cell, score) for key, cell in decoder.differences.items()
        ],
        "missing": decoder.missing,
    }


def _cell_values(key: CellKey, cell: CellDifference, score: Score) -> dict[str, Any]:
    """The difference in one cell as JSON values."""
    data_set, encoder = key
    return {
        "data_set": data_set,
        "encoder": encoder,
        "difference": in_sign_of_score(cell.difference, score),
        "std_error": cell.std_error,
        "ci95": interval_in_sign_of_score(cell.interval, score),
        "verdict": cell.verdict,
    }
