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
        return Temperature(1.0 if found is None else found, found is not None)


class Temperature(NamedTuple):
    """By which the logits of a seed are divided."""

    value: float
    """1 where none has the smallest loss."""
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
