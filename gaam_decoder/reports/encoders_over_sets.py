"""The answer on encoders over many data sets: a mean difference for each pair.

Every data set gives the difference of two encoders under one decoder. The data set is
the unit: ``stats.across`` combines the differences, as it does those of decoders. Holm
corrects for all pairs of a head.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from gaam_cache.common.messages import join_first
from gaam_decoder import stats
from gaam_decoder.reports.cells import p_value, range_cell
from gaam_decoder.reports.columns import Sheet
from gaam_decoder.reports.entries import Entry
from gaam_decoder.reports.over_sets import MOST_NAMED
from gaam_decoder.reports.over_sets_text import (
    UNCORRECTED,
    in_sign_of_score,
    interval_in_sign_of_score,
)
from gaam_decoder.stats.across import (
    LEAST_SETS,
    SetDifference,
    across_corrected,
    combine_sets,
    difference_of_claim,
    why_left_out,
)
from gaam_decoder.stats.claims import Claim
from gaam_decoder.stats.scores.base import Score

KEY_HEADERS = ["decoder", "difference", UNCORRECTED, "verdict"]


@dataclass(frozen=True, kw_only=True)
class PairClaim:
    """Two entries of one data set that differ in their encoder, and their claim."""

    data_set: str
    decoder: str  # its name, which all data sets share
    first: Entry
    second: Entry
    claim: Claim  # the first minus the second

    @property
    def encoders(self) -> frozenset[str]:
        """The names of both encoders."""
        return frozenset({self.first.encoder, self.second.encoder})


@dataclass(frozen=True, kw_only=True)
class EncodersOverSets:
    """The mean difference of two encoders under one decoder over data sets."""

    decoder: str
    head: str
    first: str
    second: str
    combined: stats.Across
    """Above 0 the first encoder is better, whatever the score."""


@dataclass
class _Gathered:
    """The differences of two encoders under one decoder, by data set."""

    decoder: str
    head: str
    first: str
    second: str
    differences: list[SetDifference] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    data_sets: set[str] = field(default_factory=set)

    def add(self, pair: PairClaim) -> None:
        """Add the difference on a data set, or the reason why it does not count.

        Of several caches of one encoder the first counts.
        """
        if pair.data_set in self.data_sets:
            return
        self.data_sets.add(pair.data_set)
        reason = why_left_out(pair.claim)
        difference = difference_of_claim(pair.data_set, pair.claim)
        if reason or difference is None:
            self.left_out[pair.data_set] = reason
            return
        # in a table the better entry stands first: here the encoders keep their order
        if pair.first.encoder != self.first:
            difference = replace(difference, difference=-difference.difference)
        self.differences.append(difference)

    def why_without_answer(self) -> str:
        """A sentence on the data sets that count, where they are fewer than two."""
        reasons = list(dict.fromkeys(self.left_out.values()))
        text = (
            f"{self.decoder}, {self.first} and {self.second}: no mean difference, data "
            f"sets that count: {len(self.differences)}"
        )
        if not reasons:
            return text
        return f"{text}; of others: {join_first(reasons, MOST_NAMED, '; ')}"

    def swap(self) -> None:
        """Subtract the first encoder from the second one."""
        self.first, self.second = self.second, self.first
        self.differences = [
            replace(entry, difference=-entry.difference) for entry in self.differences
        ]

    def combined(self, score: Score, margin: float) -> stats.Across:
        """The mean difference over data sets."""
        return combine_sets(
            self.differences,
            margin=margin,
            left_out=self.left_out,
            largest_difference=score.largest_difference,
        )


class OverSets(NamedTuple):
    """The mean differences of encoders, and what has none."""

    answers: list[EncodersOverSets]
    without_answer: list[str]
    """A sentence for each pair of which fewer than two data sets count."""


def encoders_over_sets(
    pairs: Iterable[PairClaim],
    score: Score,
    margin: float,
    num_tests_by_head: Mapping[str, int],
) -> OverSets:
    """The mean differences of encoders, for all pairs that two data sets have.

    Args:
        pairs: of all data sets.
        score: that is compared.
        margin: largest difference that does not matter, in the unit of the score.
        num_tests_by_head: head -> the pairs of a data set that Holm corrects for, also
            those that filters left out.
    """
    gathered: dict[tuple[str, frozenset[str]], _Gathered] = {}
    for pair in pairs:
        key = (pair.decoder, pair.encoders)
        if key not in gathered:
            gathered[key] = _Gathered(
                decoder=pair.decoder,
                head=pair.first.head,
                first=pair.first.encoder,
                second=pair.second.encoder,
            )
        gathered[key].add(pair)

    answers = [
        _combine(pair_of_encoders, score, margin)
        for pair_of_encoders in gathered.values()
        if len(pair_of_encoders.differences) > 1
    ]
    return OverSets(
        answers=_correct_by_holm(answers, num_tests_by_head),
        without_answer=[
            pair_of_encoders.why_without_answer()
            for pair_of_encoders in gathered.values()
            if len(pair_of_encoders.differences) < 2
        ],
    )


def _correct_by_holm(
    answers: Sequence[EncodersOverSets], num_tests_by_head: Mapping[str, int]
) -> list[EncodersOverSets]:
    """Correct the answers of every head for one another, and for its other pairs."""
    corrected: list[EncodersOverSets] = []
    for head in dict.fromkeys(answer.head for answer in answers):
        answers_of_head = [answer for answer in answers if answer.head == head]
        untested = max(0, num_tests_by_head.get(head, 0) - len(answers_of_head))
        combined = [answer.combined for answer in answers_of_head]
        corrected += [
            replace(answer, combined=corrected_mean)
            for answer, corrected_mean in zip(
                answers_of_head, across_corrected(combined, untested), strict=True
            )
        ]
    return corrected


def _combine(
    pair_of_encoders: _Gathered, score: Score, margin: float
) -> EncodersOverSets:
    """The mean difference over data sets; the first encoder is the better one."""
    combined = pair_of_encoders.combined(score, margin)
    if combined.difference < 0:
        pair_of_encoders.swap()
        combined = pair_of_encoders.combined(score, margin)
    return EncodersOverSets(
        decoder=pair_of_encoders.decoder,
        head=pair_of_encoders.head,
        first=pair_of_encoders.first,
        second=pair_of_encoders.second,
        combined=combined,
    )


def sentence_over_sets(
    answers: Sequence[EncodersOverSets], score: Score, margin: float
) -> str:
    """The answer under the decoder of most data sets, without the last full stop.

    Args:
        answers: of all decoders, at least one.
        score: that is compared.
        margin: largest difference that does not matter, in the unit of the score.
    """
    decoder = max(answers, key=lambda answer: len(answer.combined.sets)).decoder
    shown = [answer for answer in answers if answer.decoder == decoder]
    clauses = join_first(
        [_clause(answer, score, margin) for answer in shown], MOST_NAMED, "; "
    )
    num_sets = max(len(answer.combined.sets) for answer in shown)
    over = f"over {num_sets} data sets, {decoder}"
    if all(answer.combined.verdict == stats.NO_CLAIM for answer in shown):
        return f"{over} has no verdict, which takes {LEAST_SETS} data sets: {clauses}"
    return f"{over}: {clauses}"


def _clause(answer: EncodersOverSets, score: Score, margin: float) -> str:
    """Two encoders, their verdict, and their mean difference with its interval."""
    combined = answer.combined
    verdict: str = combined.verdict
    verb = {
        "better": "is better than",
        "worse": "is worse than",
        "equivalent": f"is equivalent within {score.size(margin)} to",
        "undecided": "is not shown to differ from",
        stats.NO_CLAIM: "minus",
    }[verdict]
    difference = score.difference(in_sign_of_score(combined.difference, score))
    interval = interval_in_sign_of_score(combined.interval, score)
    text = f"{answer.first} {verb} {answer.second}: {difference}"
    return text if interval is None else f"{text}, {score.span(interval, signed=True)}"


def sheet_over_sets(answers: Sequence[EncodersOverSets], score: Score) -> Sheet:
    """A line for every pair of encoders under every decoder."""
    return Sheet(
        f"mean difference over data sets, first minus second encoder, "
        f"{score.difference_unit}",
        [
            "pair",
            "decoder",
            "difference",
            UNCORRECTED,
            "another data set",
            "p Holm",
            "verdict",
            "sets",
        ],
        [_cells(answer, score) for answer in answers],
        KEY_HEADERS,
    )


def _cells(answer: EncodersOverSets, score: Score) -> list[str]:
    """The line of a pair of encoders."""
    combined = answer.combined
    interval = interval_in_sign_of_score(combined.interval, score)
    prediction = interval_in_sign_of_score(combined.prediction, score)
    return [
        f"{answer.first} minus {answer.second}",
        answer.decoder,
        score.difference(in_sign_of_score(combined.difference, score)),
        range_cell(score.span(interval, signed=True)),
        range_cell(score.span(prediction, signed=True)),
        "-" if combined.p_holm is None else p_value(combined.p_holm),
        combined.verdict,
        str(len(combined.sets)),
    ]


def notes_over_sets(answers: Sequence[EncodersOverSets]) -> Iterator[str]:
    """How the mean differences are made, and which data sets do not count."""
    yield (
        "over data sets: a random-effects mean with the interval of Hartung and Knapp; "
        "another data set: 95% prediction interval of the true difference on another "
        f"data set of the kind; a verdict takes {LEAST_SETS} data sets; p Holm is "
        "corrected for all pairs of encoders of a head"
    )
    left_out: dict[str, str] = {}
    for answer in answers:
        left_out |= answer.combined.left_out
    for data_set, reason in left_out.items():
        yield f"{data_set} does not count for every pair: {reason}"


def values_over_sets(
    answers: Sequence[EncodersOverSets], score: Score
) -> list[dict[str, Any]]:
    """The mean differences as JSON values; differences are of the score."""
    return [_values(answer, score) for answer in answers]


def _values(answer: EncodersOverSets, score: Score) -> dict[str, Any]:
    """The mean difference of two encoders under one decoder as JSON values."""
    combined = answer.combined
    return {
        "decoder": answer.decoder,
        "first": answer.first,
        "second": answer.second,
        "verdict": combined.verdict,
        "difference": in_sign_of_score(combined.difference, score),
        "std_error": combined.std_error,
        "ci95": interval_in_sign_of_score(combined.interval, score),
        "ci95_another_data_set": interval_in_sign_of_score(combined.prediction, score),
        "p": combined.p,
        "p_holm": combined.p_holm,
        "p_equivalent_holm": combined.p_equivalent_holm,
        "data_sets": [
            {
                "data_set": data_set.name,
                "difference": in_sign_of_score(data_set.difference, score),
                "std_error": data_set.variance**0.5,
            }
            for data_set in combined.sets
        ],
        "missing": dict(combined.left_out),
    }
