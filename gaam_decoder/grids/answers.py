"""The answers of a study, from its records alone: one for every grid and baseline."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gaam_decoder.grids.recipe import Grid
from gaam_decoder.grids.records import CellKey, DecoderRow, Records
from gaam_decoder.number_lists import EACH
from gaam_decoder.reports.over_sets import (
    AnswerOverSets,
    CellDifference,
    CellResult,
    ResultsOverSets,
    answers_over_sets,
)
from gaam_decoder.reports.over_sets_text import sentence
from gaam_decoder.stats import LEAST_SEEDS, NO_CLAIM
from gaam_decoder.stats.across import FEW_SEEDS
from gaam_decoder.stats.crossed import Crossed
from gaam_decoder.stats.mean_test import ALPHA
from gaam_decoder.stats.scores.base import Score

PROBE_ATTENTION = "none"
"""Mechanism of the linear probe."""
INPUTS = ("layers", "train_rows", "pool", "val_split")
"""Settings of a training that decide what a decoder reads and learns from."""
NO_EQUIVALENCE = 1e-12
"""A margin within which nothing is shown to lie."""


def answers_of(grid: Grid, records: Records) -> list[AnswerOverSets]:
    """The answers of a grid, one for every baseline; none without a recorded cell."""
    answers: list[AnswerOverSets] = []
    for baseline in grid.baselines:
        rows = [
            row
            for row in records.rows
            if row.grid == grid.name and row.baseline == baseline
        ]
        if rows:
            all_results = ResultsOverSets(
                results=tuple(_results(rows, records)),
                baseline=baseline,
                score=grid.score,
                margin=grid.margin,
            )
            answers += answers_over_sets(all_results)
    return answers


def answer_against_probe(grid: Grid, records: Records) -> AnswerOverSets | None:
    """The mean differences of all decoders to the linear probe, over data sets.

    Records hold no errors of these differences, so that each data set counts alike, and
    nothing is called equivalent: an observed difference of zero is no evidence.

    Returns:
        None where fewer than two data sets have a probe, or where decoders of a cell
        read other layers or learn from other rows than its probe.
    """
    inputs = {str([options.get(name) for name in INPUTS]) for options in grid.train}
    if len(inputs) > 1 or any(_has_several_inputs(options) for options in grid.train):
        return None
    # a decoder has the same score in the rows of every baseline
    rows = [
        row
        for row in records.rows
        if row.grid == grid.name and row.baseline == grid.baselines[0]
    ]
    probes = {
        row.cell: row
        for row in rows
        if row.attention == PROBE_ATTENTION and row.head == grid.task.probe_head
    }
    results = tuple(
        CellResult(
            data_set=row.dataset,
            encoder=row.encoder,
            decoder=row.decoder,
            mean=row.score,
            compared=_beside(row, probes.get(row.cell), grid.score),
        )
        for row in rows
    )
    if not probes:
        return None
    [answer] = answers_over_sets(
        ResultsOverSets(
            results=results,
            baseline=grid.task.probe,
            score=grid.score,
            margin=NO_EQUIVALENCE,
        )
    )
    return answer if answer.decoders and not answer.is_of_one_set else None


def _beside(
    row: DecoderRow, probe: DecoderRow | None, score: Score
) -> CellDifference | None:
    """A decoder minus the linear probe of its cell, without an error of its own.

    None for the probe, without a probe, and where one of the two has no score.
    """
    if probe is None or row.decoder == probe.decoder:
        return None
    if row.score is None or probe.score is None:
        return None
    difference = row.score - probe.score
    return CellDifference(
        difference=difference if score.larger_is_better else -difference,
        std_error=0.0,
        shared_variance=0.0,
        interval=None,
        verdict=NO_CLAIM,
        why_left_out=FEW_SEEDS if row.seeds - row.failed < LEAST_SEEDS else "",
    )


def _has_several_inputs(options: Mapping[str, object]) -> bool:
    """Whether a training of a grid gives several sets of layers or rows."""
    return any(
        isinstance(value, list) or value == EACH or "," in str(value)
        for value in (options.get(name) for name in INPUTS)
    )


def in_words(grid: Grid, answer: AnswerOverSets) -> str:
    """The answer in one sentence; it says how many cells count, unless all do."""
    text = sentence(answer)
    num_counted = 0
    if answer.decoders:
        num_counted = len(answer.data_sets) * len(answer.encoders)
    num_cells = len(list(grid.cells()))
    if num_counted < num_cells:
        text += f" ({num_counted} of {num_cells} cells count)"
    return text


def _results(rows: Sequence[DecoderRow], records: Records) -> list[CellResult]:
    """The results of decoders, each compared with the baseline of the same head.

    ``rows`` are those of one baseline.
    """
    seeds = _FinishedSeeds.from_records(records)
    heads = {row.head for row in rows if row.difference is not None}
    # a cell has one decoder of the baseline's mechanism for each head
    baselines = {
        (row.cell, row.head): row.decoder
        for row in rows
        if row.attention == row.baseline and row.head in heads
    }
    results = []
    for row in rows:
        baseline_decoder = baselines.get((row.cell, row.head), "")
        num_pairs = seeds.num_pairs(row.cell, row.decoder, baseline_decoder)
        results.append(
            CellResult(
                data_set=row.dataset,
                encoder=row.encoder,
                decoder=row.decoder,
                mean=row.score,
                is_baseline=row.decoder == baseline_decoder,
                compared=_difference(row, num_pairs),
            )
        )
    return results


@dataclass(frozen=True, slots=True)
class _FinishedSeeds:
    """The seeds that decoders finished, by cell and decoder."""

    by_decoder: dict[tuple[CellKey, str], set[int]]

    @classmethod
    def from_records(cls, records: Records) -> "_FinishedSeeds":
        """The seeds with a recorded score."""
        by_decoder: dict[tuple[CellKey, str], set[int]] = {}
        for row in records.seeds:
            if row.score is not None:
                by_decoder.setdefault((row.cell, row.decoder), set()).add(row.seed)
        return cls(by_decoder)

    def num_pairs(self, cell: CellKey, decoder: str, baseline: str) -> int:
        """The number of seeds that both decoders finished in a cell."""
        seeds = self.by_decoder.get((cell, decoder), set())
        return len(seeds & self.by_decoder.get((cell, baseline), set()))


def _difference(row: DecoderRow, num_pairs: int) -> CellDifference | None:
    """The difference of a recorded decoder; None if it is compared with nothing.

    ``num_pairs`` is the number of seeds that it and the baseline finished.
    """
    if row.difference is None:
        return None
    interval = None
    std_error = None
    shared_variance = None
    if row.std_error is not None:
        std_error = row.std_error
        variance = std_error**2
        half_width = _half_width(row, variance, num_pairs)
        interval = (row.difference - half_width, row.difference + half_width)
        own_variance = (row.from_seeds or 0.0) + (row.from_tuning or 0.0)
        shared_variance = max(0.0, variance - own_variance)
    return CellDifference(
        difference=row.difference,
        std_error=std_error,
        shared_variance=shared_variance,
        interval=interval,
        verdict=row.verdict,
        why_left_out=_why_left_out(row, num_pairs),
    )


def _half_width(row: DecoderRow, variance: float, num_pairs: int) -> float:
    """Half the width of the 95% interval of a recorded difference.

    The records have the parts of its variance. Each part has the t quantile of its own
    degrees of freedom. Groups count as of one size.

    Args:
        row: the record.
        variance: of its difference.
        num_pairs: number of seeds of both decoders.
    """
    from_seeds = row.from_seeds or 0.0
    from_rows = row.from_rows or 0.0
    from_tuning = row.from_tuning or 0.0
    # of rare rows that the test rows lack, and of few training rows: their parts are
    # not recorded
    other_variance = max(0.0, variance - from_seeds - from_rows - from_tuning)

    # ``Crossed`` divides mean squares by the number of values: multiplied by it, they
    # give back the recorded parts. The mean square of the rest is contained in them.
    num_units = row.test_groups or row.test_rows
    num_values = num_pairs * num_units
    anova = Crossed(
        mean=0.0,
        ms_seeds=from_seeds * num_values,
        ms_rows=from_rows * num_values,
        ms_rest=0.0,
        num_seeds=num_pairs,
        num_units=num_units,
        tuning_variance=from_tuning,
    )
    return anova.critical_distance(ALPHA / 2, other_variance)


def _why_left_out(row: DecoderRow, num_pairs: int) -> str:
    """Why a recorded difference counts in no mean; empty if it counts."""
    if num_pairs < LEAST_SEEDS:
        return FEW_SEEDS
    if row.verdict == NO_CLAIM:
        return NO_CLAIM
    return "no standard error" if row.std_error is None else ""
