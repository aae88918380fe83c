"""The answers of a study, from its records alone."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gaam_decoder.grids.recipe import Grid
from gaam_decoder.grids.records import DecoderRow, Records
from gaam_decoder.stats.across import (
    LEAST_SETS,
    Across,
    SetDifference,
    across_corrected,
    average_over_encoders,
    combine_sets,
)

VERDICTS = ("better", "equivalent", "worse", "undecided")


@dataclass(frozen=True, slots=True)
class DecoderAnswer:
    """A decoder against the baseline, over all recorded cells of a grid."""

    decoder: str
    rows: tuple[DecoderRow, ...]
    """One for every cell that has the decoder."""
    across: Across | None
    """None for the baseline, and where no data set has a standard error."""

    @property
    def accuracy(self) -> float | None:
        """Mean over cells; None if a cell has none."""
        values = [row.accuracy for row in self.rows if row.accuracy is not None]
        if not values or len(values) < len(self.rows):
            return None
        return math.fsum(values) / len(values)

    def count(self, verdict: str) -> int:
        """The number of cells with this verdict of their own."""
        return sum(row.verdict == verdict for row in self.rows)


@dataclass(frozen=True, slots=True)
class GridAnswer:
    """All decoders against one baseline, the best mean difference first."""

    grid: Grid
    baseline: str
    decoders: tuple[DecoderAnswer, ...]

    @property
    def compared(self) -> list[DecoderAnswer]:
        """The decoders with an answer."""
        return [answer for answer in self.decoders if answer.across]

    @property
    def num_sets(self) -> int:
        """The number of data sets with a recorded cell."""
        return len({row.dataset for answer in self.decoders for row in answer.rows})

    @property
    def num_encoders(self) -> int:
        """The number of encoders with a recorded cell."""
        return len({row.encoder for answer in self.decoders for row in answer.rows})

    @property
    def num_cells(self) -> int:
        """The number of recorded cells."""
        return len({row.cell for answer in self.decoders for row in answer.rows})

    def in_words(self) -> str:
        """The answer in one sentence."""
        margin = f"{100 * self.grid.margin:g} points"
        sets = _number(self.num_sets, "data set")
        over = f"Over {sets} and {_number(self.num_encoders, 'encoder')}"
        over += f" ({self.num_cells} of {len(list(self.grid.cells()))} cells)"
        if not self.compared:
            return f"{over} there is no estimate yet"
        if self.num_sets < LEAST_SETS:
            means = [100 * entry.difference for entry in _acrosses(self.compared)]
            return (
                f"{over} the mean differences to {self.baseline} are "
                f"{min(means):+.2f} to {max(means):+.2f} points; fewer than "
                f"{LEAST_SETS} data sets give estimates without a verdict"
            )
        parts = []
        for verdict in VERDICTS:
            names = [
                entry.decoder
                for entry in self.compared
                if entry.across and entry.across.verdict == verdict
            ]
            if names:
                parts.append(f"{verdict}: {', '.join(names)}")
        return (
            f"{over}, against {self.baseline} with a margin of {margin}, "
            f"{'; '.join(parts)}. {self._largest_possible()}"
        )

    def _largest_possible(self) -> str:
        """The largest difference that the intervals of the means leave possible."""
        ends: list[tuple[float, str]] = []
        for entry in self.compared:
            if entry.across and entry.across.interval:
                low, high = entry.across.interval
                ends += [(low, entry.decoder), (high, entry.decoder)]
        if not ends:
            return ""
        low, low_name = min(ends)
        high, high_name = max(ends)
        return (
            f"The intervals leave mean differences of {100 * low:+.2f} ({low_name}) "
            f"to {100 * high:+.2f} points ({high_name}) possible"
        )


def _number(count: int, noun: str) -> str:
    """A number of things: ``1 encoder``, ``2 encoders``."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _acrosses(answers: Iterable[DecoderAnswer]) -> list[Across]:
    """The mean differences over data sets of the decoders that have one."""
    return [entry.across for entry in answers if entry.across]


def answers_of(grid: Grid, records: Records) -> list[GridAnswer]:
    """The answers of a grid, one for every baseline; none without a recorded cell."""
    rows = [row for row in records.rows if row.grid == grid.name]
    answers = []
    for baseline in grid.baselines:
        rows_of_baseline = [row for row in rows if row.baseline == baseline]
        if rows_of_baseline:
            decoders = _decoder_answers(grid, rows_of_baseline)
            answers.append(GridAnswer(grid, baseline, tuple(decoders)))
    return answers


def _decoder_answers(grid: Grid, rows: Sequence[DecoderRow]) -> list[DecoderAnswer]:
    """Answers of all decoders, corrected for one another, the best first."""
    by_decoder: dict[str, list[DecoderRow]] = {}
    for row in rows:
        by_decoder.setdefault(row.decoder, []).append(row)
    answers = [
        DecoderAnswer(decoder, tuple(decoder_rows), combine_rows(grid, decoder_rows))
        for decoder, decoder_rows in by_decoder.items()
    ]

    tested = [answer for answer in answers if answer.across]
    corrected = dict(
        zip(
            [answer.decoder for answer in tested],
            across_corrected(_acrosses(tested)),
            strict=True,
        )
    )
    answers = [
        DecoderAnswer(answer.decoder, answer.rows, corrected.get(answer.decoder))
        for answer in answers
    ]
    return sorted(answers, key=_rank)


def _rank(answer: DecoderAnswer) -> tuple[float, str]:
    """Sort key: the largest mean difference to the baseline first.

    The baseline itself has the difference 0, and so stands between those that are above
    it and those below.
    """
    difference = answer.across.difference if answer.across else 0.0
    return -difference, answer.decoder


def combine_rows(grid: Grid, rows: Sequence[DecoderRow]) -> Across | None:
    """The mean difference of a decoder over data sets.

    A data set is the unit: the differences of its encoders are averaged first, since
    they have their test rows in common. A data set with a cell that has no standard
    error is left out by name.
    """
    by_set: dict[str, list[DecoderRow]] = {}
    for row in rows:
        by_set.setdefault(row.dataset, []).append(row)

    sets: list[SetDifference] = []
    left_out: dict[str, str] = {}
    for dataset, set_rows in by_set.items():
        differences = [_difference(row) for row in set_rows]
        tested = [entry for entry in differences if entry is not None]
        if len(tested) < len(differences):
            left_out[dataset] = "no standard error"
        else:
            sets.append(average_over_encoders(dataset, tested))
    if not sets:
        return None
    return combine_sets(sets, margin=grid.margin, left_out=left_out)


def _difference(row: DecoderRow) -> SetDifference | None:
    """The difference in one cell with its variance; None without a standard error."""
    if row.difference is None or row.std_error is None:
        return None
    return SetDifference(
        name=row.dataset, difference=row.difference, variance=row.std_error**2
    )
