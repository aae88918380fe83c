"""Where learned parameters end up: pure functions of finished runs.

S seeds, H heads, D hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_decoder import stats
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import by_seed

Floats = NDArray[np.floating[Any]]
QUANTILES = (5, 25, 50, 75, 95)
LAPLACE, GAUSSIAN = 1.0, 2.0
"""The exponents at which a generalised Gaussian is one of the two."""


def parameter_range(
    values: Floats, start: Sequence[float] | None = None, *, exponents: bool = False
) -> dict[str, Any]:
    """Where one parameter ended up over its heads, features and all finished seeds, as JSON values.

    ``start`` is the smallest and largest value of a decoder that has not been trained;
    ``seed_medians_sd`` the standard deviation of each seed's median, None for one seed. Of
    exponents of a generalised Gaussian, ``distribution`` has quantiles (percent -> value), shares
    of the values (fractions), and for every head the median over features and seeds.

    Args:
        values: (S, ...), one entry per finished seed, S at least 1.
        start: smallest and largest value before training.
        exponents: whether these are exponents of a generalised Gaussian, (S, H, D).
    """
    values = values.astype(np.float64)
    flat = values.reshape(len(values), -1)
    found: dict[str, Any] = {
        "start": list(start) if start else None,
        "min": float(flat.min()),
        "median": float(np.median(flat)),
        "max": float(flat.max()),
        "seed_medians_sd": stats.standard_deviation(np.median(flat, axis=1)),
    }
    if exponents:
        quantiles = zip(QUANTILES, np.percentile(values, QUANTILES).tolist(), strict=True)
        nearer = np.abs(values - LAPLACE) < np.abs(values - GAUSSIAN)
        found["distribution"] = {
            "quantiles": {str(percent): value for percent, value in quantiles},
            "nearer_to_laplace": float(np.mean(nearer)),
            "below_laplace": float(np.mean(values < LAPLACE)),
            "above_gaussian": float(np.mean(values > GAUSSIAN)),
            "head_medians": np.median(values, axis=(0, 2)).tolist(),
        }
    return found


def learned_ranges(runs: Sequence[RunResult]) -> dict[str, dict[str, Any]]:
    """``parameter_range`` of every learned parameter, of runs that differ in their seeds alone.

    Seeds that failed are left out. Empty where the mechanism learns nothing that means something
    by itself, or no seed finished.
    """
    mechanism = runs[0].attention.partition(":")[0]
    ranges = {}
    for name in runs[0].learned:
        if found := by_seed(runs, lambda run, name=name: run.learned.get(name)):  # type: ignore[misc]
            ranges[name] = parameter_range(
                np.stack(list(found.values())),
                runs[0].learned_start.get(name),
                exponents=(mechanism, name) == ("generalized-gaussian", "beta"),
            )
    return ranges
