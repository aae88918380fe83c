"""One number by which logits are divided, so that probabilities are what they say.

N rows, C classes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

STEPS = 200
"""Newton's steps take about ten; halving what is left, as where they fail, 60 for all its bits."""
NEAR = 1e-12
"""Relative distance between two steps, or the ends of what is left, at which they end."""


def fit_temperature(logits_NC: NDArray[Any], label_N: NDArray[np.int64]) -> float | None:
    """The temperature with which ``softmax(logits / T)`` has the smallest log loss.

    The log loss is convex in ``1 / T``; its derivative, the mean of ``E_p[z] - z_y``, is brought to
    zero by Newton's method in float64, within limits that have it between them.

    Args:
        logits_NC: of rows that were not learned from.
        label_N: what is right.

    Returns:
        A number above 0; infinity where answers are no better than none: the larger, the better.
        None where every row is right: the smaller, the better.

    Raises:
        ValueError: no rows, or logits that are no numbers.

    Source: Guo, Pleiss, Sun and Weinberger 2017, "On calibration of modern neural networks",
        section 4.2, which takes L-BFGS and so gives some number in both of these cases.
    """
    if logits_NC.ndim != 2 or not logits_NC.size or label_N.shape != logits_NC.shape[:1]:
        raise ValueError("logits (rows, classes) with a label for each row, one row at least")
    logits_NC = logits_NC.astype(np.float64)
    if not np.isfinite(logits_NC).all():
        raise ValueError("logits are finite")
    from_right_NC = logits_NC - np.take_along_axis(logits_NC, label_N[:, None], 1)
    flat, steep = from_right_NC.mean(1).mean(), from_right_NC.max(1).mean()
    if flat >= 0:  # the derivative at 1 / T of 0: probabilities of these answers lose by any size
        return np.inf
    if steep <= 0:  # its limit towards infinity
        return None
    low, high, inverse = 0.0, np.inf, 1.0
    for _ in range(STEPS):
        slope, curvature = _derivatives(from_right_NC, inverse)
        if slope == 0:
            break
        low, high = (inverse, high) if slope < 0 else (low, inverse)
        step = inverse - slope / curvature if curvature > 0 else np.nan
        if not max(low, inverse / 10) < step < min(high, inverse * 10):
            step = _between(low, high)
        done = abs(step - inverse) <= NEAR * inverse or high <= low * (1 + NEAR)
        inverse = step
        if done:
            break
    return float(1 / inverse)


def _between(low: float, high: float) -> float:
    """A number between two limits, one of which may not be known yet."""
    if low == 0:
        return high / 8
    return low * 8 if high == np.inf else float(np.sqrt(low) * np.sqrt(high))


def _derivatives(from_right_NC: NDArray[np.float64], inverse: float) -> tuple[float, float]:
    """First and second derivative of the log loss by ``1 / T``."""
    power_NC = from_right_NC * inverse
    power_NC = np.exp(power_NC - power_NC.max(1, keepdims=True))
    power_NC /= power_NC.sum(1, keepdims=True)
    mean_N = (power_NC * from_right_NC).sum(1)
    spread_N = (power_NC * np.square(from_right_NC - mean_N[:, None])).sum(1)
    return float(mean_N.mean()), float(spread_N.mean())
