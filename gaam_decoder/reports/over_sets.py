"""The answers of a report over many data sets: a mean difference for each decoder."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from gaam_cache.common.messages import brief
from gaam_decoder import stats
from gaam_decoder.reports.compare import is_baseline
from gaam_decoder.reports.entries import Entry
from gaam_decoder.reports.sets import MOST_NAMED, Cell, Cells
from gaam_decoder.reports.wording import join_first
from gaam_decoder.stats.across import mid_ranks, why_left_out

VERDICTS = ("better", "equivalent", "worse", "undecided", stats.NO_CLAIM)
MOST_ENCODERS = 10  # of more, all subsets would be too many to look at


@dataclass(frozen=True, kw_only=True, slots=True)
class DecoderOverSets:
    """The mean difference of a decoder and the baseline over data sets."""

    name: str
    answer: stats.Across
    """Above 0 is better, whatever the score."""
    claims: Mapping[tuple[str, str], stats.Claim]
    """Of every table that counts, by data set and encoder."""
    missing: tuple[str, ...]
    """Data sets that do not count, with the reason."""
    mean_rank: float | None
    """Among all decoders and the baseline; None where no data set has all."""

    @property
    def counts(self) -> dict[str, int]:
        """Number of tables by verdict."""
        counts: Counter[str] = Counter(claim.verdict for claim in self.claims.values())
        return {verdict: counts[verdict] for verdict in VERDICTS if counts[verdict]}


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerOverSets:
    """The answer over data sets, each read by all of some encoders."""

    encoders: tuple[str, ...]
    data_sets: tuple[str, ...]
    decoders: tuple[DecoderOverSets, ...]
    """The largest mean difference first."""
    baseline_rank: float | None
    num_ranked: int
    """Data sets in the mean ranks."""
    left_out: tuple[str, ...]

    @property
    def in_words(self) -> str:
        """Such as ``11 data sets and 3 encoders``."""
        sets = f"{len(self.data_sets)} data sets"
        if len(self.encoders) == 1:
            return f"{sets} through {self.encoders[0]}"
        return f"{sets} and {len(self.encoders)} encoders"


def answers_over_sets(
    cells: Cells, factors: tuple[str, ...] | None, untested: int = 0
) -> list[AnswerOverSets]:
    """The answers over the data sets of a report.

    Args:
        cells: the tables.
        factors: ``dataset`` gives an answer for each encoder, ``dataset`` and
            ``encoder`` one answer, whose unit is a data set with all its encoders.
            Default: the latter.
        untested: decoders in Holm's correction that filters left out.

    Returns:
        Answers with two data sets or more.
    """
    each_encoder = factors == ("dataset",)
    blocks = [_largest_block(cells)]
    if each_encoder:
        blocks = [(encoder,) for encoder in cells.encoders]
    answers = [_answer(cells, block, untested, each_encoder) for block in blocks]
    return [answer for answer in answers if answer and len(answer.data_sets) > 1]


def _largest_block(cells: Cells) -> tuple[str, ...]:
    """The encoders, and with them the data sets, of an answer over all data sets.

    Every encoder of an answer has read every data set of it. Of all subsets of the
    encoders, the one that gives most tables is taken; of several, the one with most
    data sets.
    """
    encoders = cells.encoders
    if len(encoders) > MOST_ENCODERS:
        return tuple(encoders)
    best: tuple[str, ...] = ()
    most = (0, 0)
    for size in range(1, len(encoders) + 1):
        for block in combinations(encoders, size):
            num_sets = len(_complete_sets(cells, block))
            if (num_sets * size, num_sets) > most:
                most = (num_sets * size, num_sets)
                best = block
    return best


def _complete_sets(cells: Cells, encoders: Sequence[str]) -> list[str]:
    """Data sets that all of these encoders read."""
    return [
        data_set
        for data_set in cells.data_sets
        if all(cells.find(data_set, encoder) for encoder in encoders)
    ]


def _answer(
    cells: Cells, encoders: tuple[str, ...], untested: int, each_encoder: bool
) -> AnswerOverSets | None:
    """The answer over the data sets that all of these encoders read.

    Args:
        cells: the tables of all data sets and encoders.
        encoders: those of the answer.
        untested: decoders in Holm's correction that filters left out.
        each_encoder: whether there is an answer for each encoder.

    Returns:
        None without a decoder that has a test on any data set.
    """
    data_sets = _complete_sets(cells, encoders)
    # a complete data set has a cell of every encoder
    cells_by_set: dict[str, list[Cell]] = {}
    for data_set in data_sets:
        set_cells = [cells.find(data_set, encoder) for encoder in encoders]
        cells_by_set[data_set] = [cell for cell in set_cells if cell is not None]
    names = _names(cells_by_set)
    ranks, num_ranked = _mean_ranks(cells_by_set, names, cells.baseline)
    decoders = [
        decoder
        for name in names
        if (decoder := _decoder(name, cells_by_set, ranks.get(name))) is not None
    ]
    if not decoders:
        return None

    corrected = stats.across_corrected(
        [decoder.answer for decoder in decoders],
        max(0, untested - len(decoders)),
    )
    decoders = [
        replace(decoder, answer=answer)
        for decoder, answer in zip(decoders, corrected, strict=True)
    ]
    decoders.sort(key=lambda decoder: (-decoder.answer.difference, decoder.name))
    return AnswerOverSets(
        encoders=encoders,
        data_sets=tuple(data_sets),
        decoders=tuple(decoders),
        baseline_rank=ranks.get(""),
        num_ranked=num_ranked,
        left_out=tuple(
            _left_out(cells, encoders, data_sets, names, decoders, each_encoder)
        ),
    )


def _names(cells_by_set: Mapping[str, Sequence[Cell]]) -> list[str]:
    """Sorted names of the decoders that any table compares with the baseline.

    ``cells_by_set`` has the tables of every data set, one for each encoder.
    """
    names: dict[str, None] = {}
    for set_cells in cells_by_set.values():
        for cell in set_cells:
            names |= dict.fromkeys(
                name for name, entry in cell.entries.items() if entry.comparison
            )
    return sorted(names)


def _decoder(
    name: str, cells_by_set: Mapping[str, Sequence[Cell]], mean_rank: float | None
) -> DecoderOverSets | None:
    """The mean difference of one decoder and the baseline over data sets.

    Args:
        name: of the decoder.
        cells_by_set: the tables of every data set, one for each encoder.
        mean_rank: of the decoder.

    Returns:
        None if no data set has a test of the decoder with every encoder.
    """
    claims: dict[str, list[stats.Claim]] = {}
    claim_of: dict[tuple[str, str], stats.Claim] = {}
    missing: list[str] = []
    for data_set, set_cells in cells_by_set.items():
        reasons = [reason for cell in set_cells if (reason := _why_not(cell, name))]
        if reasons:
            missing.append(f"{data_set} ({'; '.join(dict.fromkeys(reasons))})")
            continue
        for cell in set_cells:
            claim = _claim(cell.entries[name])
            claims.setdefault(data_set, []).append(claim)
            claim_of[data_set, cell.encoder] = claim
    if not claims:
        return None
    margin = next(iter(claim_of.values())).margin
    return DecoderOverSets(
        name=name,
        answer=stats.across(claims, margin=margin),
        claims=claim_of,
        missing=tuple(missing),
        mean_rank=mean_rank,
    )


def _claim(entry: Entry) -> stats.Claim:
    """The claim on the difference of an entry and the baseline."""
    comparison = entry.comparison
    if comparison is None:
        raise ValueError("the entry is compared with nothing")
    return comparison.claim


def _why_not(cell: Cell, name: str) -> str:
    """Why a decoder does not count in a table; empty if it counts."""
    entry = cell.entries.get(name)
    if entry is None:
        return f"not trained on {cell.encoder}"
    if entry.comparison is None:
        return f"not compared on {cell.encoder}"
    reason = why_left_out(entry.comparison.claim)
    return f"{reason} on {cell.encoder}" if reason else ""


def _mean_ranks(
    cells_by_set: Mapping[str, Sequence[Cell]], names: Sequence[str], baseline: str
) -> tuple[dict[str, float], int]:
    """Mean ranks over the data sets where every decoder has a mean; the best is 1.

    Decoders with equal means share the mean of their ranks. K data sets, M decoders
    with the baseline.

    Args:
        cells_by_set: the tables of every data set, one for each encoder.
        names: of the decoders.
        baseline: its mechanism.

    Returns:
        Name of a decoder -> its mean rank, with the baseline as ``""``; and the number
        of data sets. An empty dictionary and 0 where no data set has all.
    """
    ranks_K: list[Any] = []
    for set_cells in cells_by_set.values():
        ranks = [_ranks(cell, names, baseline) for cell in set_cells]
        complete = [rank_M for rank_M in ranks if rank_M is not None]
        if len(complete) == len(ranks):
            ranks_K.append(np.mean(complete, axis=0))
    if not ranks_K:
        return {}, 0
    mean_M = np.mean(ranks_K, axis=0)
    return dict(zip([*names, ""], map(float, mean_M), strict=True)), len(ranks_K)


def _ranks(cell: Cell, names: Sequence[str], baseline: str) -> Any:
    """Ranks of the decoders of a table, then of its baseline, (M,); the best is 1.

    None if one of them is missing or has no mean.
    """
    baselines = [e for e in cell.entries.values() if is_baseline(e, baseline)]
    entries = [cell.entries.get(name) for name in names] + baselines
    means = [entry.compared_score.mean if entry else None for entry in entries]
    # several baselines, such as one for each set of layers, have no single rank
    if len(baselines) != 1 or any(m is None or not math.isfinite(m) for m in means):
        return None
    mean_M = np.array(means, np.float64)
    if cell.table.score.larger_is_better:
        mean_M = -mean_M
    # equal means may differ by rounding
    return mid_ranks(mean_M.round(12))


def _left_out(
    cells: Cells,
    encoders: Sequence[str],
    data_sets: Sequence[str],
    names: Sequence[str],
    decoders: Sequence[DecoderOverSets],
    each_encoder: bool,
) -> list[str]:
    """Sentences on encoders, data sets and decoders that an answer leaves out.

    Args:
        cells: the tables of all data sets and encoders.
        encoders: those of the answer.
        data_sets: those of the answer.
        names: of all decoders that are compared.
        decoders: those of the answer.
        each_encoder: whether there is an answer for each encoder, so that other
            encoders need no sentence.
    """
    lines = []
    other_encoders = [name for name in cells.encoders if name not in encoders]
    if other_encoders and len(encoders) > 1:
        lines.append(
            "not read by enough data sets, so left out: encoder "
            f"{join_first(other_encoders, MOST_NAMED)}"
        )
    elif other_encoders and not each_encoder:
        others = join_first(other_encoders, MOST_NAMED)
        lines.append(f"of encoder {encoders[0]} alone; others: {others}")
    for data_set in cells.data_sets:
        absent = [name for name in encoders if cells.find(data_set, name) is None]
        if data_set not in data_sets:
            missing_encoders = join_first(absent, MOST_NAMED)
            lines.append(
                f"{data_set} is left out: it has no table of {missing_encoders}"
            )
    lines += [
        f"{decoder.name} is without {join_first(decoder.missing, MOST_NAMED)}"
        for decoder in decoders
        if decoder.missing
    ]
    known = {decoder.name for decoder in decoders}
    untested = [brief(name) for name in names if name not in known]
    if untested:
        lines.append(
            "no data set has a standard error of the difference (one seed?): "
            f"{join_first(untested, MOST_NAMED)}"
        )
    return lines
