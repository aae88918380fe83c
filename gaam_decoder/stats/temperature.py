"""One number by which logits are divided, so that probabilities are what they say.

N rows, C classes.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax


def fit_temperature(
    logits_NC: NDArray[Any], label_N: NDArray[np.int64]
) -> float | None:
    """The temperature with which ``softmax(logits / T)`` has the smallest log loss.

    The log loss is convex in ``1 / T``; its derivative, the mean of ``E_p[z] - z_y``, is brought to
    zero by Brent's method in float64.

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
    if (
        logits_NC.ndim != 2
        or not logits_NC.size
        or label_N.shape != logits_NC.shape[:1]
    ):
        raise ValueError(
            "logits (rows, classes) with a label for each row, one row at least"
        )
    logits_NC = logits_NC.astype(np.float64)
    if not np.isfinite(logits_NC).all():
        raise ValueError("logits are finite")
    from_right_NC = logits_NC - np.take_along_axis(logits_NC, label_N[:, None], 1)
    flat, steep = from_right_NC.mean(1).mean(), from_right_NC.max(1).mean()
    if (
        flat >= 0
    ):  # the derivative at 1 / T of 0: probabilities of these answers lose by any size
        return np.inf
    if steep <= 0:  # its limit towards infinity
        return None
    from scipy.optimize import brentq  # a training does without: a quarter of a second

    def slope(log_inverse: float) -> float:
        """Derivative of the log loss by ``1 / T``."""
        power_NC = softmax(from_right_NC * np.exp(log_inverse), 1)
        return float((power_NC * from_right_NC).sum(1).mean())

    # at this scale all but the largest numbers count, or none: the slope is negative, or positive
    middle = -np.log(np.abs(from_right_NC).max())
    reach = 1.0
    while slope(middle - reach) > 0 or slope(middle + reach) < 0:
        reach *= 2
    return float(
        np.exp(-brentq(slope, middle - reach, middle + reach, xtol=1e-15, rtol=1e-15))
    )
