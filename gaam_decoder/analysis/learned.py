"""Where learned parameters end up: pure functions of finished runs.

S seeds, H heads, D hidden size.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
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


@dataclass(frozen=True, kw_only=True, slots=True)
class ExponentDistribution:
    """What the exponents of ``generalized-gaussian`` say of the data; shares are fractions."""

    quantiles: dict[str, float]
    """Percent -> value, over heads, features and seeds."""
    nearer_to_laplace: float
    """Share of the values nearer to 1 than to 2."""
    below_laplace: float
    """Share of the values below 1."""
    above_gaussian: float
    """Share of the values above 2."""
    head_medians: tuple[float, ...]
    """For every head the median over features and seeds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ParameterRange:
    """One learned parameter over its heads, features and all finished seeds."""

    start: tuple[float, float] | None
    """Smallest and largest value of a decoder that has not been trained; None if not recorded."""
    min: float
    median: float
    max: float
    seed_medians_sd: float | None
    """Standard deviation over seeds of each seed's median; None for one seed."""
    distribution: ExponentDistribution | None = None
    """For the exponent of ``generalized-gaussian``."""

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        values = asdict(self)
        if values.pop("distribution") is not None:
            values["distribution"] = asdict(self.distribution)  # type: ignore[arg-type]
        return values


def parameter_range(
    values: Floats, start: Sequence[float] | None = None, *, exponents: bool = False
) -> ParameterRange:
    """Range and median of one parameter.

    Args:
        values: (S, ...), one entry per finished seed, S at least 1.
        start: smallest and largest value before training.
        exponents: whether these are exponents of a generalised Gaussian, (S, H, D).
    """
    values = values.astype(np.float64)
    flat = values.reshape(len(values), -1)
    distribution = None
    if exponents:
        found = np.percentile(values, QUANTILES)
        distribution = ExponentDistribution(
            quantiles={str(q): float(v) for q, v in zip(QUANTILES, found, strict=True)},
            nearer_to_laplace=float(np.mean(np.abs(values - LAPLACE) < np.abs(values - GAUSSIAN))),
            below_laplace=float(np.mean(values < LAPLACE)),
            above_gaussian=float(np.mean(values > GAUSSIAN)),
            head_medians=tuple(np.median(values, axis=(0, 2)).tolist()),
        )
    return ParameterRange(
        start=(start[0], start[1]) if start else None,
        min=float(flat.min()),
        median=float(np.median(flat)),
        max=float(flat.max()),
        seed_medians_sd=stats.standard_deviation(np.median(flat, axis=1)),
        distribution=distribution,
    )


def learned_ranges(runs: Sequence[RunResult]) -> dict[str, ParameterRange]:
    """Ranges of every learned parameter by name, of runs that differ in their seeds alone.

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
