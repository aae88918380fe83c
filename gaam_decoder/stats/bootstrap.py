"""Seeds and test rows as two samples: what another test set of this kind might have shown.

S seeds, T seeds of several mechanisms, N test rows, R resamples.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri, stdtrit

from gaam_decoder.stats.seeds import checked

Floats = NDArray[np.float32] | NDArray[np.float64]
RESAMPLES = 2000
CHUNK = 2**22
"""Weights that are held at once."""


def resample_rows(
    right_TN: NDArray[np.bool_], *, num_resamples: int = RESAMPLES, seed: int = 0
) -> NDArray[np.float32]:
    """Accuracy of every seed on resamples of the test rows, (T, R).

    A resample draws N rows with replacement, the same for all seeds and mechanisms, so that the
    results may be subtracted. All of them come from one matrix product with the number of times
    that each row is drawn.

    Args:
        right_TN: whether each seed is right on each row.
        num_resamples: R.
        seed: decides the resamples.

    Raises:
        ValueError: no rows.
    """
    generator = np.random.default_rng(seed)
    num_seeds, num_rows = right_TN.shape
    if num_rows == 0:
        raise ValueError("there are no rows to draw from")
    always_N = right_TN.all(0)
    open_N = right_TN.any(0) & ~always_N  # all that the product has to be taken over
    right = right_TN[:, open_N].astype(np.float32)  # counts up to 2**24 are exact
    result = np.empty((num_seeds, num_resamples), np.float32)
    step = max(1, CHUNK // num_rows)
    for start in range(0, num_resamples, step):
        size = min(step, num_resamples - start)
        drawn = generator.integers(0, num_rows, (size, num_rows), dtype=np.int64)
        drawn += np.arange(size)[:, None] * num_rows
        count_RN = np.bincount(drawn.ravel(), minlength=size * num_rows).reshape(size, num_rows)
        hits_TR = right @ count_RN[:, open_N].astype(np.float32).T + count_RN[:, always_N].sum(1)
        result[:, start : start + size] = hits_TR / num_rows
    return result


def two_level_interval(
    resampled_SR: Floats, *, level: float = 0.95, seed: int = 1
) -> tuple[float, float] | None:
    """Interval of a mean over seeds and test rows; None for fewer than two seeds.

    In every resample of the rows the seeds are drawn again with replacement, and the interval is
    between the quantiles of the means. Drawing S seeds understates their spread where S is small:
    the deviation that comes from drawing seeds is widened by ``sqrt(S / (S - 1))``, and the whole
    by the ratio of Student's t quantile to the normal one, at the degrees of freedom that follow
    from the share of the variance that comes from seeds (S - 1 if all of it, infinitely many if
    none). Without variation between rows the interval is then the t interval; without variation
    between seeds, that of the rows.

    Args:
        resampled_SR: accuracy of every seed on every resample of the rows, from ``resample_rows``,
            or the difference of two such arrays whose seeds are paired.
        level: of confidence.
        seed: decides which seeds are drawn.

    Raises:
        ValueError: NaN or infinity, or no resamples.

    Source: two-level (crossed) resampling: Owen 2007, "The pigeonhole bootstrap"; the widening:
        Hesterberg 2015, "What teachers should know about the bootstrap", section 5.3; degrees of
        freedom of a sum of variances: Satterthwaite 1946.
    """
    num_seeds, num_resamples = resampled_SR.shape
    if num_resamples == 0:
        raise ValueError("there are no resamples")
    checked(resampled_SR)
    if num_seeds < 2:
        return None
    generator = np.random.default_rng(seed)
    count_RS = generator.multinomial(num_seeds, np.full(num_seeds, 1 / num_seeds), num_resamples)
    mean_R = resampled_SR.mean(0, dtype=np.float64)
    drawn_R = np.einsum("rs,sr->r", count_RS, resampled_SR, dtype=np.float64) / num_seeds
    seeds_R = (drawn_R - mean_R) * (num_seeds / (num_seeds - 1)) ** 0.5
    total_R = mean_R + seeds_R
    tail = (1 + level) / 2
    share = float(np.var(seeds_R) / (np.var(seeds_R) + np.var(mean_R) or 1))
    quantile = stdtrit((num_seeds - 1) / share**2, tail) if share > 1e-6 else ndtri(tail)
    low, high = np.quantile(total_R, [1 - tail, tail])
    middle, widen = float(resampled_SR.mean(dtype=np.float64)), float(quantile / ndtri(tail))
    return middle + widen * (float(low) - middle), middle + widen * (float(high) - middle)
