"""What the seeds of a row predicted.

S finished seeds, N test rows, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.errors import CacheError
from gaam_decoder import stats
from gaam_decoder.reports.table.scaled import Temperatures, fitted, scaled
from gaam_decoder.reports.writing.unit import DEFAULT, all_scores, score_of
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import first_runs
from gaam_decoder.stats.scored import Scored
from gaam_decoder.stats.scores._base import Answers, Score
from gaam_decoder.stats.scores.ece import BINS, reliability

Floats = NDArray[np.float64]
Rows = NDArray[np.bool_] | Floats
Part = Sequence[RunResult]
"""Runs on the same test rows that differ in their seeds alone."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Scores:
    """What the finished seeds of a row predicted, in the order of ``seeds``."""

    seeds: tuple[int, ...]
    right: NDArray[np.bool_]
    """Whether each seed is right on each test row, (S, N)."""
    by_row: NDArray[np.bool_] | Floats
    """The same, of rows that are tested several times the share in which it is right."""
    part_right: Floats
    """Accuracy of each seed in every part, (S, P)."""
    one_class: tuple[int, ...]
    """Seeds that predict the same class for every row of a part, of which more have one."""
    accuracy: Floats
    macro_f1: Floats
    confusion: NDArray[np.int64]
    """True class by predicted class, summed over seeds, (C, C)."""
    vote_right: NDArray[np.bool_]
    """Whether the class that most seeds predict is right, (N,)."""
    labels_per_class: NDArray[np.int64]
    """Test rows of every class, (C,)."""
    chosen: Chosen
    """What is compared."""
    every: dict[str, Floats]
    """Every score of every seed, by name; those that these rows and classes have."""
    temperatures: Temperatures | None
    """By which logits are divided in scores of probabilities; None: by nothing."""
    bins: Floats
    """Rows, right ones and summed probabilities by bin of the calibration error, (3, bins)."""


def scores_of(
    parts: Sequence[Part],
    seeds: Collection[int],
    score: str = DEFAULT,
    *,
    temperature: bool = False,
) -> Scores:
    """Scores of one mechanism under one recipe.

    Args:
        parts: one, or the folds of a cross-validation: their test rows are put one after the
            other, for the seeds that finished in all of them.
        seeds: that are reported.
        score: that is compared.
        temperature: whether one is fitted, where that can be.
    """
    by_part = [_logits(part) for part in parts]
    labels = np.concatenate([part[0].labels for part in parts])
    finished = set.intersection(set(seeds), *(set(by_seed) for by_seed in by_part))
    seeds = tuple(sorted(finished))
    classes = len(parts[0][0].cache["class_names"])
    logits_SNC = np.empty((len(seeds), len(labels), classes), np.float32)
    for place, seed in enumerate(seeds):
        np.concatenate([by_seed[seed] for by_seed in by_part], out=logits_SNC[place])
    predicted_SN = logits_SNC.argmax(-1)
    right_SN = predicted_SN == labels
    confusions = [stats.confusion(predicted_N, labels, classes) for predicted_N in predicted_SN]
    votes_N = stats.majority_votes(logits_SNC, predicted_SN) if seeds else np.full_like(labels, -1)
    by_row = _by_row(right_SN, parts)
    sizes = tuple(len(part[0].labels) for part in parts)
    part_right = _part_right(right_SN, sizes)
    repeats = repeats_of(parts)
    accuracy = right_SN.mean(1, dtype=np.float64)
    macro_f1 = np.array([stats.f1_of_confusion(count_CC) for count_CC in confusions])
    known = {DEFAULT: accuracy, "macro-f1": macro_f1}
    found = fitted(parts, seeds) if temperature else None
    value_SP = None if found is None else found.value_SP
    others, bins = value_of_all(logits_SNC, labels, sizes, set(known), value_SP)
    return Scores(
        seeds=seeds,
        right=right_SN,
        by_row=by_row,
        part_right=part_right,
        one_class=tuple(np.array(seeds)[_of_one_class(predicted_SN, labels, sizes)].tolist()),
        accuracy=accuracy,
        macro_f1=macro_f1,
        chosen=Chosen.of_hits(accuracy, by_row, part_right)
        if score == DEFAULT
        else chosen_score(
            score,
            logits_SNC,
            labels,
            sizes,
            repeats,
            lambda row_SN: _by_row(row_SN, parts),
            value_SP,
        ),
        every=known | others,
        temperatures=found,
        bins=bins,
        confusion=sum(confusions, np.zeros((classes, classes), np.int64)),
        vote_right=votes_N == labels,
        labels_per_class=np.bincount(labels, minlength=classes),
    )


def repeats_of(parts: Sequence[Part]) -> int:
    """How many cross-validations, with other folds each, parts are of."""
    return len({part[0].recipe.get("split_seed") for part in parts})


def _part_right(right_SN: NDArray[np.bool_], sizes: Sequence[int]) -> Floats:
    parts = _split(right_SN, sizes)
    return np.stack([part.mean(1, dtype=np.float64) for part in parts], axis=1)


def _of_one_class(
    predicted_SN: NDArray[np.int64], label_N: NDArray[np.int64], sizes: Sequence[int]
) -> NDArray[np.bool_]:
    """Of every seed whether it predicts all rows of a part alike although their labels differ."""
    found_S = np.zeros(len(predicted_SN), bool)
    for part_SN, true_N in zip(_split(predicted_SN, sizes), _split(label_N, sizes), strict=True):
        if len(np.unique(true_N)) > 1:
            found_S |= (part_SN == part_SN[:, :1]).all(1)
    return found_S


def _split(rows: NDArray[Any], sizes: Sequence[int]) -> list[NDArray[Any]]:
    """The parts that stand one after the other along the last axis."""
    return np.split(rows, np.cumsum(sizes)[:-1], axis=-1)


def _by_row(
    right_SN: NDArray[np.bool_] | Floats, parts: Sequence[Part]
) -> NDArray[np.bool_] | Floats:
    """Of rows that several cross-validations test the mean, (S, rows of the split)."""
    repeats = repeats_of(parts)
    rows = [part[0].test_rows for part in parts] if repeats > 1 else []
    if not rows:
        return right_SN
    row_N = np.concatenate([row for row in rows if row is not None])
    tested = np.unique(row_N, return_counts=True)[1]
    if len(row_N) != right_SN.shape[1] or (tested != repeats).any():
        raise CacheError(
            "the folds of a repeated cross-validation do not test every row equally often",
            expected=f"each row {repeats} times",
            found=f"{tested.min()} to {tested.max()} times",
            where=", ".join(str(part[0].path) for part in parts[:3]),
        )
    sorted_SN = right_SN[:, np.argsort(row_N, kind="stable")]
    shape = len(right_SN), len(row_N) // repeats, repeats
    return sorted_SN.reshape(shape).mean(2, dtype=np.float64)


def _logits(part: Part) -> dict[int, NDArray[np.float32]]:
    """Test logits of every finished seed, in the run that counts.

    Raises:
        CacheError: some are NaN or infinite; which class is largest would be anything.
    """
    decides = first_runs(part)
    by_seed: dict[int, NDArray[np.float32]] = {}
    for run in part:
        logits = run.finished_logits()
        if not np.isfinite(logits).all():
            raise CacheError(
                f"the run '{run.path.name}' has test logits that are no numbers",
                expected="finite logits of every seed that did not fail",
                where=str(run.path),
                hint="remove that folder; 'gaam train' makes the run again",
            )
        by_seed |= {
            seed: logits[index] for index, seed in enumerate(run.finished) if decides[seed] is run
        }
    return by_seed


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
