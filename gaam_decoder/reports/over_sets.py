"""The answers over many data sets: a mean difference to the baseline for each decoder.

A cell is one data set, read by one encoder. A report makes a ``CellResult`` of every
decoder in every table, and a study one of every recorded row. Everything that is said,
tabulated and drawn over data sets follows from these results alone.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.messages import brief, counted, join_first
from gaam_decoder import stats
from gaam_decoder.reports.wording import with_verb
from gaam_decoder.stats.across import (
    LEAST_SETS,
    SetDifference,
    average_over_encoders,
    combine_sets,
    mid_ranks,
)
from gaam_decoder.stats.scores.base import Interval, Score

VERDICTS = ("better", "equivalent", "worse", "undecided", stats.NO_CLAIM)
MOST_NAMED = 8  # names in a sentence; it counts the rest
MOST_ENCODERS = 10  # of more, all subsets would be too many to try
Floats = NDArray[np.float64]
CellKey = tuple[str, str]
"""Names of a data set and of the encoder that read it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CellDifference:
    """A decoder minus the baseline in one cell, in the unit of the score; not percent.

    Above 0 the decoder is better, whatever the score.
    """

    difference: float
    std_error: float | None
    interval: Interval
    """95%, not corrected."""
    verdict: str
    """Of this cell alone."""
    shared_variance: float | None = None
    """The part of the squared standard error that all encoders share, see
    ``SetDifference``."""
    why_left_out: str = ""
    """Why it counts in no mean over data sets; empty if it counts."""

    def counted(self, data_set: str) -> SetDifference | None:
        """The difference with its variance; None if it does not count."""
        if self.why_left_out or self.std_error is None:
            return None
        return SetDifference(
            name=data_set,
            difference=self.difference,
            variance=self.std_error**2,
            shared_variance=self.shared_variance,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class CellResult:
    """One decoder in one cell."""

    data_set: str
    encoder: str
    decoder: str
    mean: float | None
    """Mean score over seeds."""
    is_baseline: bool = False
    compared: CellDifference | None = None
    """None: it is compared with nothing."""

    @property
    def cell(self) -> CellKey:
        return self.data_set, self.encoder

    @property
    def counted(self) -> SetDifference | None:
        """The difference with its variance; None if there is none that counts."""
        return self.compared.counted(self.data_set) if self.compared else None

    @property
    def counted_mean(self) -> float | None:
        """The mean score; None if there is a difference that does not count."""
        return self.mean if self.compared is None or self.counted else None


@dataclass(frozen=True, kw_only=True)
class ResultsOverSets:
    """The results of all cells, and what they have in common."""

    results: tuple[CellResult, ...]
    baseline: str
    score: Score
    margin: float
    """Largest difference that does not matter, in the unit of the results."""
    is_usual_score: bool = True
    head: str = ""  # of all decoders; empty: their names say it
    conditions: tuple[str, ...] = ()
    """What makes all numbers doubtful, for the end of a sentence."""
    left_out: tuple[str, ...] = ()
    """Sentences on what is not among the results."""
    remarks: tuple[str, ...] = ()
    """Sentences on what differs between the cells."""

    @cached_property
    def by_cell(self) -> dict[CellKey, dict[str, CellResult]]:
        """Cell -> name of a decoder -> its result."""
        by_cell: dict[CellKey, dict[str, CellResult]] = {}
        for result in self.results:
            by_cell.setdefault(result.cell, {})[result.decoder] = result
        return by_cell


@dataclass(frozen=True, kw_only=True, slots=True)
class DecoderOverSets:
    """The mean difference of a decoder and the baseline over data sets."""

    name: str
    combined: stats.Across
    """Above 0 the decoder is better, whatever the score."""
    differences: Mapping[CellKey, CellDifference]
    """Of every cell that counts."""
    mean: float | None
    """Mean score over all cells of the answer; None where one has none."""
    mean_rank: float | None
    """Among all decoders and the baseline; None where no data set has all."""

    @property
    def counts(self) -> dict[str, int]:
        """Number of cells by verdict."""
        counts = Counter(cell.verdict for cell in self.differences.values())
        return {verdict: counts[verdict] for verdict in VERDICTS if counts[verdict]}

    @property
    def missing(self) -> list[str]:
        """Data sets that do not count, each with the reason in brackets."""
        return [f"{name} ({why})" for name, why in self.combined.left_out.items()]


@dataclass(frozen=True, kw_only=True, slots=True)
class MeanRanks:
    """Mean ranks of decoders over data sets; the best is 1."""

    by_decoder: Mapping[str, float]
    baseline: float | None
    num_sets: int


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerOverSets:
    """The answer over data sets, each read by all of some encoders."""

    all_results: ResultsOverSets
    """All results, also those that this answer leaves out."""
    encoders: tuple[str, ...]
    data_sets: tuple[str, ...]
    decoders: tuple[DecoderOverSets, ...]
    """The largest mean difference first; empty where no difference counts."""
    baseline_mean: float | None
    baseline_rank: float | None
    other_means: Mapping[str, float | None]
    """Mean score of every other decoder: no difference of it counts."""
    num_ranked: int
    """Data sets in the mean ranks."""
    left_out: tuple[str, ...]

    @property
    def is_of_one_set(self) -> bool:
        """Whether it is of one data set alone, so that nothing varies between sets."""
        return len(self.data_sets) == 1

    @property
    def in_words(self) -> str:
        """Such as ``11 data sets and 3 encoders``, or ``trec through minilm``."""
        sets = counted(len(self.data_sets), "data set")
        if self.is_of_one_set:
            sets = self.data_sets[0]
        if len(self.encoders) == 1:
            return f"{sets} through {self.encoders[0]}"
        return f"{sets} and {counted(len(self.encoders), 'encoder')}"


def mean_of_all(scores: Collection[float | None]) -> float | None:
    """The mean of scores; None where one is unknown, or where there are none."""
    known_scores = [score for score in scores if score is not None]
    if not known_scores or len(known_scores) < len(scores):
        return None
    return math.fsum(known_scores) / len(known_scores)


def data_sets_of(cells: Iterable[CellKey]) -> list[str]:
    """Names of the data sets, in the order of the cells."""
    return list(dict.fromkeys(data_set for data_set, _encoder in cells))


def encoders_of(cells: Iterable[CellKey]) -> list[str]:
    """Names of the encoders, in the order of the cells."""
    return list(dict.fromkeys(encoder for _data_set, encoder in cells))


def answers_over_sets(
    all_results: ResultsOverSets,
    factors: tuple[str, ...] | None = None,
    num_corrected: int = 0,
) -> list[AnswerOverSets]:
    """The answers over data sets.

    Args:
        all_results: the results of all cells, at least one.
        factors: ``dataset`` gives an answer for each encoder that read several data
            sets; ``dataset`` and ``encoder`` give one answer, whose unit is a data set
            with all its encoders. Default: the latter.
        num_corrected: the decoders that Holm corrects for, if they are more than those
            of the answer, such as those that filters left out.

    Returns:
        At least one answer. It has no decoders where no difference counts.
    """
    cells, left_out = _cells_that_count(all_results)
    one_for_each = factors == ("dataset",)
    blocks: list[tuple[str, ...]] = []
    if one_for_each:
        read = Counter(encoder for _data_set, encoder in all_results.by_cell)
        blocks = [(name,) for name in encoders_of(cells) if read[name] > 1]
    elif cells:
        blocks = [_largest_block(cells)]
    answers = [
        _answer(all_results, cells, block, num_corrected, one_for_each)
        for block in blocks
    ]
    if not answers:
        answers = [_empty_answer(all_results)]
    # every answer says which cells are in none
    return [
        replace(answer, left_out=(*left_out, *answer.left_out)) for answer in answers
    ]


def _cells_that_count(all_results: ResultsOverSets) -> tuple[list[CellKey], list[str]]:
    """The cells in which any decoder counts, and sentences that name the others."""
    cells: list[CellKey] = []
    names_by_reason: dict[str, list[str]] = {}
    for cell, result_by_decoder in all_results.by_cell.items():
        results = result_by_decoder.values()
        if any(result.counted for result in results):
            cells.append(cell)
            continue
        reasons = dict.fromkeys(
            result.compared.why_left_out for result in results if result.compared
        )
        reason = "; ".join(filter(None, reasons)) or "nothing is compared"
        names_by_reason.setdefault(reason, []).append(" through ".join(cell))
    sentences = [
        f"{reason}, so left out: {join_first(names, MOST_NAMED)}"
        for reason, names in names_by_reason.items()
    ]
    return cells, sentences


def _largest_block(cells: Collection[CellKey]) -> tuple[str, ...]:
    """The encoders of an answer: those whose common data sets make the most cells.

    Each data set of an answer is read by all its encoders, so that an encoder more may
    mean fewer data sets. Enough data sets for a verdict go before fewer, and two before
    one; of several choices with as many cells, the one with most data sets is taken.
    """
    best: tuple[str, ...] = ()
    largest = (False, False, 0, 0)
    for encoders in _candidate_blocks(cells):
        num_sets = len(_common_sets(cells, encoders))
        has_verdict = num_sets >= LEAST_SETS
        size = (has_verdict, num_sets > 1, num_sets * len(encoders), num_sets)
        if size > largest:
            largest = size
            best = encoders
    return best


def _candidate_blocks(cells: Collection[CellKey]) -> list[tuple[str, ...]]:
    """The sets of encoders to choose from: all of them, small ones first.

    Of more than ten encoders, not all: the one that read most data sets, the two that
    read most, and so on.
    """
    names = encoders_of(cells)
    if len(names) > MOST_ENCODERS:
        num_sets = Counter(encoder for _data_set, encoder in cells)
        names.sort(key=lambda name: -num_sets[name])
        return [tuple(names[:size]) for size in range(1, len(names) + 1)]
    return [
        encoders
        for size in range(1, len(names) + 1)
        for encoders in combinations(names, size)
    ]


def _common_sets(cells: Collection[CellKey], encoders: Sequence[str]) -> list[str]:
    """Data sets that all of these encoders read."""
    known_cells = set(cells)
    return [
        data_set
        for data_set in data_sets_of(cells)
        if all((data_set, encoder) in known_cells for encoder in encoders)
    ]


def _empty_answer(all_results: ResultsOverSets) -> AnswerOverSets:
    """The answer where no difference counts: it names data sets and encoders alone."""
    return AnswerOverSets(
        all_results=all_results,
        encoders=tuple(encoders_of(all_results.by_cell)),
        data_sets=tuple(data_sets_of(all_results.by_cell)),
        decoders=(),
        baseline_mean=None,
        baseline_rank=None,
        other_means={},
        num_ranked=0,
        left_out=(),
    )


def _answer(
    all_results: ResultsOverSets,
    cells: Collection[CellKey],
    encoders: tuple[str, ...],
    num_corrected: int,
    one_for_each: bool,
) -> AnswerOverSets:
    """The answer over the data sets that all of these encoders read.

    Args:
        all_results: the results of all cells.
        cells: those that count.
        encoders: those of the answer.
        num_corrected: the least number of decoders that Holm corrects for.
        one_for_each: whether there is an answer for each encoder, so that the other
            encoders need no sentence.
    """
    block = _Block(all_results, _common_sets(cells, encoders), encoders)
    decoders, uncounted = block.decoders()
    left_out = [] if one_for_each else _encoders_left_out(cells, encoders)
    left_out += _sets_left_out(cells, encoders)
    left_out += _gaps(decoders)
    left_out += [
        f"no data set counts for {brief(name)}: {reason}"
        for name, reason in uncounted.items()
    ]

    baselines = block.baseline_names()
    names_without_mean = (
        block.names() - {decoder.name for decoder in decoders} - baselines
    )
    left_out += [
        line for name in sorted(names_without_mean) for line in block.gaps_of_mean(name)
    ]
    return AnswerOverSets(
        all_results=all_results,
        encoders=encoders,
        data_sets=tuple(block.data_sets),
        decoders=tuple(_corrected(decoders, num_corrected)),
        baseline_mean=block.mean(baselines.pop()) if len(baselines) == 1 else None,
        baseline_rank=block.ranks.baseline,
        other_means={name: block.mean(name) for name in sorted(names_without_mean)},
        num_ranked=block.ranks.num_sets,
        left_out=tuple(left_out),
    )


def _corrected(
    decoders: Sequence[DecoderOverSets], num_corrected: int
) -> list[DecoderOverSets]:
    """Correct the decoders for one another; the largest mean difference comes first."""
    corrected = stats.across_corrected(
        [decoder.combined for decoder in decoders],
        untested=max(0, num_corrected - len(decoders)),
    )
    with_corrected_p = [
        replace(decoder, combined=combined)
        for decoder, combined in zip(decoders, corrected, strict=True)
    ]
    return sorted(
        with_corrected_p,
        key=lambda decoder: (-decoder.combined.difference, decoder.name),
    )


class _Block:
    """The cells of some data sets, each read by all of some encoders."""

    def __init__(
        self,
        all_results: ResultsOverSets,
        data_sets: Sequence[str],
        encoders: Sequence[str],
    ) -> None:
        self.data_sets = data_sets
        self._all_results = all_results
        self._encoders = encoders
        self._by_cell = {
            (data_set, encoder): all_results.by_cell[data_set, encoder]
            for data_set in data_sets
            for encoder in encoders
        }

    def decoders(self) -> tuple[list[DecoderOverSets], dict[str, str]]:
        """The decoders with their mean differences, not corrected for one another.

        Returns:
            The decoders; and names of those that no data set counts for -> the reason.
        """
        decoders = []
        uncounted: dict[str, str] = {}
        for name in self.compared_names():
            sets, reasons = self._differences_of(name)
            if sets:
                decoders.append(self._decoder(name, sets, reasons))
            else:
                uncounted[name] = "; ".join(dict.fromkeys(reasons.values()))
        return decoders, uncounted

    def names(self) -> set[str]:
        """Names of all decoders, of baselines too."""
        return {name for by_decoder in self._by_cell.values() for name in by_decoder}

    def compared_names(self) -> list[str]:
        """Sorted names of the decoders that any cell compares with the baseline."""
        return sorted(
            {
                result.decoder
                for by_decoder in self._by_cell.values()
                for result in by_decoder.values()
                if result.compared
            }
        )

    def baseline_names(self) -> set[str]:
        """Names of the baseline; there are several where it has several settings."""
        return {
            result.decoder
            for by_decoder in self._by_cell.values()
            for result in by_decoder.values()
            if result.is_baseline
        }

    def mean(self, name: str) -> float | None:
        """Mean score of a decoder over all cells; None where one has none."""
        return mean_of_all(self._means(name).values())

    def gaps_of_mean(self, name: str) -> list[str]:
        """A sentence on the cells without a score of a decoder; none without gaps."""
        gaps = [
            " through ".join(cell)
            for cell, mean in self._means(name).items()
            if mean is None
        ]
        if not gaps:
            return []
        return [
            f"{brief(name)} has no mean score: it has none on "
            f"{join_first(gaps, MOST_NAMED)}"
        ]

    def _means(self, name: str) -> dict[CellKey, float | None]:
        """Mean score of a decoder over seeds in every cell; None where it has none."""
        means: dict[CellKey, float | None] = {}
        for cell, by_decoder in self._by_cell.items():
            result = by_decoder.get(name)
            means[cell] = result.counted_mean if result else None
        return means

    def _decoder(
        self, name: str, sets: Sequence[SetDifference], reasons: Mapping[str, str]
    ) -> DecoderOverSets:
        """A decoder with its mean difference, and the cells that count.

        Args:
            name: of the decoder.
            sets: its differences on the data sets that count.
            reasons: the other data sets -> why they do not count.
        """
        all_results = self._all_results
        combined = combine_sets(
            sets,
            margin=all_results.margin,
            left_out=reasons,
            largest_difference=all_results.score.largest_difference,
        )
        return DecoderOverSets(
            name=name,
            combined=combined,
            differences=self._counted_cells(name, sets),
            mean=self.mean(name),
            mean_rank=self.ranks.by_decoder.get(name),
        )

    def _counted_cells(
        self, name: str, sets: Sequence[SetDifference]
    ) -> dict[CellKey, CellDifference]:
        """The differences of a decoder in all cells of the data sets that count."""
        counted: dict[CellKey, CellDifference] = {}
        for data_set in sets:
            for encoder in self._encoders:
                difference = self._by_cell[data_set.name, encoder][name].compared
                assert difference is not None
                counted[data_set.name, encoder] = difference
        return counted

    def _differences_of(self, name: str) -> tuple[list[SetDifference], dict[str, str]]:
        """The differences of a decoder on the data sets that count.

        A data set counts if the results of all encoders do. Their differences are
        averaged, since they have the test rows in common.

        Returns:
            The differences, and the other data sets -> why they do not count.
        """
        sets: list[SetDifference] = []
        reasons_by_set: dict[str, str] = {}
        for data_set in self.data_sets:
            differences: list[SetDifference] = []
            reasons: dict[str, None] = {}
            for encoder in self._encoders:
                result = self._by_cell[data_set, encoder].get(name)
                difference = result.counted if result else None
                if difference:
                    differences.append(difference)
                else:
                    reasons[_why_left_out(result, encoder)] = None
            if reasons:
                reasons_by_set[data_set] = "; ".join(reasons)
            else:
                sets.append(average_over_encoders(data_set, differences))
        return sets, reasons_by_set

    @cached_property
    def ranks(self) -> MeanRanks:
        """Mean ranks over the data sets where every decoder has a mean score.

        Decoders with equal means share the mean of their ranks. K data sets, M decoders
        with the baseline as the last.
        """
        names = self.compared_names()
        rank_of_sets: list[Floats] = []
        for data_set in self.data_sets:
            ranks = [
                self._ranks(self._by_cell[data_set, encoder], names)
                for encoder in self._encoders
            ]
            complete = [rank_M for rank_M in ranks if rank_M is not None]
            if len(complete) == len(ranks):
                rank_of_sets.append(np.mean(complete, axis=0))
        if not rank_of_sets:
            return MeanRanks(by_decoder={}, baseline=None, num_sets=0)
        *of_decoders, of_baseline = np.mean(rank_of_sets, axis=0).tolist()
        return MeanRanks(
            by_decoder=dict(zip(names, of_decoders, strict=True)),
            baseline=of_baseline,
            num_sets=len(rank_of_sets),
        )

    def _ranks(
        self, results: Mapping[str, CellResult], names: Sequence[str]
    ) -> Floats | None:
        """Ranks of the decoders of a cell, then of its baseline, (M,).

        None if one of them is missing or has no mean.
        """
        baselines = [name for name, result in results.items() if result.is_baseline]
        ranked = [results.get(name) for name in (*names, *baselines)]
        means = [result.counted_mean if result else None for result in ranked]
        finite_means = [
            mean for mean in means if mean is not None and math.isfinite(mean)
        ]
        # several baselines, such as one for each set of layers, have no single rank
        if len(baselines) != 1 or len(finite_means) < len(means):
            return None
        mean_M = np.array(finite_means, np.float64)
        if self._all_results.score.larger_is_better:
            mean_M = -mean_M
        return mid_ranks(mean_M)


def _why_left_out(result: CellResult | None, encoder: str) -> str:
    """Why a decoder does not count in the cell of an encoder."""
    if result is None:
        return f"not trained on {encoder}"
    if result.compared is None:
        return f"not compared on {encoder}"
    return f"{result.compared.why_left_out or 'no standard error'} on {encoder}"


def _encoders_left_out(cells: Iterable[CellKey], encoders: Sequence[str]) -> list[str]:
    """A sentence on the encoders that an answer leaves out; no sentence if it has all.

    ``encoders`` are those of the answer.
    """
    left_out = [name for name in encoders_of(cells) if name not in encoders]
    if not left_out:
        return []
    named = join_first(left_out, MOST_NAMED)
    if len(encoders) > 1:
        return [
            "encoder left out, because it shares too few data sets with the others: "
            + named
        ]
    return [f"of encoder {encoders[0]} alone; others: {named}"]


def _sets_left_out(cells: Collection[CellKey], encoders: Sequence[str]) -> list[str]:
    """A sentence on each data set that any encoder of the answer did not read."""
    lines = []
    for data_set in data_sets_of(cells):
        absent = [name for name in encoders if (data_set, name) not in cells]
        if absent:
            named = join_first(absent, MOST_NAMED)
            lines.append(
                f"{data_set} is left out: it has no results of {named} that count"
            )
    return lines


def _gaps(decoders: Sequence[DecoderOverSets]) -> list[str]:
    """Sentences on the data sets that decoders are without, once for those alike."""
    names_by_gap: dict[str, list[str]] = {}
    for decoder in decoders:
        if decoder.missing:
            gap = join_first(decoder.missing, MOST_NAMED)
            names_by_gap.setdefault(gap, []).append(decoder.name)
    return [f"{with_verb(names)} without {gap}" for gap, names in names_by_gap.items()]
