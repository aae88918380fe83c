"""Scores beside accuracy and macro-F1, from the logits of a row.

S finished seeds, N test rows, C classes, P parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_decoder.reports.table.scaled import scaled
from gaam_decoder.reports.writing.unit import all_scores, score_of
from gaam_decoder.stats.scored import Scored
from gaam_decoder.stats.scores._base import Answers, Score
from gaam_decoder.stats.scores.ece import BINS, reliability

Floats = NDArray[np.float64]
Rows = NDArray[np.bool_] | Floats


@dataclass(frozen=True, kw_only=True, slots=True)
class Chosen:
    """The score that is compared, of every seed."""

    scored: Scored
    part_value: Floats
    """Of every part, (S, P); NaN where a part has none."""

    @classmethod
    def of_hits(cls, value_S: Floats, by_row_SN: Rows, part_SP: Floats) -> Chosen:
        """Of what is right or wrong."""
        return cls(scored=Scored(values=value_S, by_row=by_row_SN), part_value=part_SP)


def chosen_score(
    name: str,
    logits_SNC: NDArray[np.float32],
    label_N: NDArray[np.int64],
    sizes: tuple[int, ...],
    repeats: int,
    by_row: Callable[[Rows], Rows],
    temperature_SP: Floats | None = None,
) -> Chosen:
    """A score with what every row adds.

    Args:
        name: of the score.
        logits_SNC: of the seeds.
        label_N: what is right.
        sizes: rows of every part.
        repeats: how often every row is tested.
        by_row: puts together what is of one row.
        temperature_SP: by which logits are divided, of every part, in scores of probabilities.
    """
    score = score_of(name)
    if not len(logits_SNC):
        nothing = np.empty(0)
        return Chosen(
            scored=Scored(values=nothing, by_row=np.empty((0, len(label_N)))),
            part_value=np.empty((0, len(sizes))),
        )
    answers = [Answers(logits_NC, label_N, sizes, repeats) for logits_NC in logits_SNC]
    if temperature_SP is not None and score.of_sizes:
        answers = [scaled(*each) for each in zip(answers, temperature_SP, strict=True)]
    found = [score.of(one) for one in answers]
    there = [one for one in found if one is not None]
    if len(there) < len(found):
        why = f"these rows and classes have no {score.title}"
        value_S = np.full(len(found), np.nan)
        return Chosen(scored=Scored(values=value_S, by_row=None, no_claim=why),
                      part_value=np.full((len(found), len(sizes)), np.nan))  # fmt: skip
    why = next((why for one in answers if (why := score.why_no_claim(one))), "")
    rows = [one.by_row for one in there if one.by_row is not None]
    stacked: Any = np.stack(rows) if rows else None
    by_row_SN = by_row(stacked) if rows else None
    return Chosen(
        scored=Scored.of(there, by_row_SN, why),
        part_value=np.array([_by_part(score, one, sizes) for one in answers]),
    )


def _by_part(score: Score, answers: Answers, sizes: Sequence[int]) -> list[float]:
    """Of one seed; NaN where a part has no such score."""
    ends = np.cumsum(sizes).tolist()
    parts = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
    values = [score.value(Answers(answers.logits[p], answers.labels[p])) for p in parts]
    return [np.nan if value is None else value for value in values]


def value_of_all(
    logits_SNC: NDArray[np.float32],
    label_N: NDArray[np.int64],
    sizes: tuple[int, ...],
    known: set[str],
    temperature_SP: Floats | None = None,
) -> tuple[dict[str, Floats], Floats]:
    """Every score of every seed but those that are known and those that there are not.

    And over all seeds the rows, the right ones, and the sum of the probabilities of what is
    predicted, of every bin of the calibration error.
    """
    found: dict[str, list[float]] = {}
    bins = np.zeros((3, BINS))
    scores = {name: score for name, score in all_scores().items() if name not in known}
    for place, logits_NC in enumerate(logits_SNC):
        answers = sure = Answers(logits_NC, label_N, sizes)
        if temperature_SP is not None:
            sure = scaled(answers, temperature_SP[place])
        for name, score in scores.items():
            if (value := score.value(sure if score.of_sizes else answers)) is not None:
                found.setdefault(name, []).append(value)
        bins += np.stack(reliability(sure))
    return {name: np.array(values) for name, values in found.items()}, bins
