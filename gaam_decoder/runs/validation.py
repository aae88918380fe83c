"""What a run says of the rows of train that chose its epochs.

S seeds, V rows that choose, C classes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from io import BufferedReader
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaam_decoder.runs import run_checks
from gaam_decoder.runs.run_record import RunRecord
from gaam_decoder.runs.tensor_files import TensorFile
from gaam_decoder.stats.temperature import fit_temperature

EVEN = 1e6
"""Largest logit -> a temperature at which all classes are equally likely, to six digits.

For answers that are no better than none, whose loss falls without end as it grows: in float64 their
order is still what it was.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Validation:
    """Answers of every seed, in the epoch that was kept."""

    logits: NDArray[np.float32]
    """(S, V, C); NaN for seeds that failed, and where they are not finite."""
    labels: NDArray[np.int64]
    """(V,)."""
    rows: NDArray[np.int64]
    """Numbers in the train split, (V,)."""

    def temperature(self, place: int) -> Temperature | None:
        """Of the seed at a place, fitted on these rows; None where its answers are not finite."""
        logits_VC = self.logits[place]
        if not np.isfinite(logits_VC).all():
            return None
        found = fit_temperature(logits_VC, self.labels)
        if found is None:
            return Temperature(1.0, fitted=False)
        if found == np.inf:
            return Temperature(EVEN * max(1.0, float(np.abs(logits_VC).max())), fitted=False)
        return Temperature(found, fitted=True)


class Temperature(NamedTuple):
    """By which the logits of a seed are divided."""

    value: float
    """Where none has the smallest loss: 1 if all is right, else ``EVEN`` largest logits."""
    fitted: bool
    """Whether there is one: see ``fit_temperature``."""


def read_validation(run: RunRecord, file: BufferedReader) -> Validation:
    """From the open file of a run.

    Raises:
        ValueError: it does not fit the run.
    """
    tensors = TensorFile(file)
    if json.loads(tensors.metadata.get("seeds", "[]")) != list(run.seeds):
        raise ValueError("answers of rows that chose are of other seeds, or in another order")
    found = Validation(**{name: tensors.read(name) for name in ("logits", "labels", "rows")})
    _check_rows(found, run)
    failed = [seed in run.failed for seed in run.seeds]
    sizes = len(found.rows), len(run.cache["class_names"])
    run_checks.check_logits(found.logits, failed, *sizes, some=True)
    return found


def _check_rows(found: Validation, run: RunRecord) -> None:
    """Ascending rows of the train split, not all of it, each with the number of a class."""
    rows, labels = found.rows, found.labels
    fits = rows.ndim == 1 and len(rows) and rows.dtype == labels.dtype == np.int64
    if not fits or labels.shape != rows.shape:
        raise ValueError("rows that chose, and their labels, are no lists of the same length")
    most, classes = run.cache["rows"][run.recipe["train_split"]], len(run.cache["class_names"])
    if rows[0] < 0 or rows[-1] >= most or (np.diff(rows) <= 0).any() or len(rows) >= most:
        raise ValueError("rows that chose are no ascending rows of the split")
    if run.drawn and run.drawn["choose"] != len(rows):
        raise ValueError(f"{len(rows):,} rows chose, {run.drawn['choose']:,} were drawn to")
    if labels.min() < 0 or labels.max() >= classes:
        raise ValueError(f"labels from {labels.min()} to {labels.max()} for {classes} classes")
