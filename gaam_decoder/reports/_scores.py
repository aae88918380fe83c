"""What the seeds of a row predicted.

S finished seeds, N test rows, C classes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gaam_cache.errors import CacheError
from gaam_decoder import stats
from gaam_decoder.runs.counting import first_runs
from gaam_decoder.runs.result import RunResult

Floats = NDArray[np.float64]
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
    """Accuracy in every part, the mean over seeds, (P,); NaN without seeds."""
    accuracy: Floats
    macro_f1: Floats
    confusion: NDArray[np.int64]
    """True class by predicted class, summed over seeds, (C, C)."""
    vote_right: NDArray[np.bool_]
    """Whether the class that most seeds predict is right, (N,)."""
    labels_per_class: NDArray[np.int64]
    """Test rows of every class, (C,)."""


def scores_of(parts: Sequence[Part], seeds: Collection[int]) -> Scores:
    """Scores of one mechanism under one recipe.

    Args:
        parts: one, or the folds of a cross-validation: their test rows are put one after the
            other, for the seeds that finished in all of them.
        seeds: that are reported.
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
    return Scores(
        seeds=seeds,
        right=right_SN,
        by_row=right_SN,
        part_right=_part_right(right_SN, [len(part[0].labels) for part in parts]),
        accuracy=right_SN.mean(1, dtype=np.float64),
        macro_f1=np.array([stats.f1_of_confusion(count_CC) for count_CC in confusions]),
        confusion=sum(confusions, np.zeros((classes, classes), np.int64)),
        vote_right=votes_N == labels,
        labels_per_class=np.bincount(labels, minlength=classes),
    )


def _part_right(right_SN: NDArray[np.bool_], sizes: Sequence[int]) -> Floats:
    if not len(right_SN):
        return np.full(len(sizes), np.nan)
    parts = np.split(right_SN, np.cumsum(sizes)[:-1], axis=1)
    return np.array([part.mean() for part in parts])


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
