"""Temperature scaling: one divisor of the logits that calibrates the probabilities.

N rows, C classes, K labels, M = N K answers.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax


def fit_temperature(logits_NC: NDArray[Any], label_N: NDArray[Any]) -> float | None:
    """The temperature with which ``softmax(logits / T)`` has the smallest log loss.

    Of label sets it is that with which ``sigmoid(logits / T)`` has the smallest binary
    cross-entropy, one for all labels.

    The log loss is convex in ``1 / T``. Brent's method in float64 finds the root of its
    derivative, the mean of ``E_p[z] - z_y``.

    Args:
        logits_NC: logits of rows that are no training rows; of label sets (N, K).
        label_N: their labels; of label sets 0 and 1, (N, K).

    Returns:
        A number above 0. Infinity if the logits predict no better than none: the log
        loss falls with T. None if every row is right: the log loss falls with ``1 /
        T``.

    Raises:
        ValueError: no rows, or logits that are not finite.

    Source: Guo, Pleiss, Sun and Weinberger 2017, "On calibration of modern neural
        networks", section 4.2; its L-BFGS gives some number in both of these cases.
    """
    if label_N.ndim == 2 and label_N.shape == logits_NC.shape:
        # to have a label or not are two classes, with the logits 0 and z
        logit_M = logits_NC.reshape(-1)
        logits_NC = np.stack([np.zeros_like(logit_M), logit_M], axis=1)
        label_N = label_N.reshape(-1).astype(np.int64)
    is_matrix = logits_NC.ndim == 2 and logits_NC.size > 0
    if not is_matrix or label_N.shape != logits_NC.shape[:1]:
        raise ValueError(
            "logits (rows, classes) with a label for each row, one row at least"
        )
    logits_NC = logits_NC.astype(np.float64)
    if not np.isfinite(logits_NC).all():
        raise ValueError("logits are finite")
    # every logit minus the logit of the label
    above_label_NC = logits_NC - np.take_along_axis(logits_NC, label_N[:, None], 1)

    # Their mean under softmax(logits / T) is the derivative of the log loss in 1 / T.
    # At 1 / T = 0 all classes are equally likely; towards infinity the largest logit
    # has probability 1. The loss is convex: where both slopes have the same sign, it
    # has no minimum.
    slope_at_zero = above_label_NC.mean(1).mean()
    slope_at_infinity = above_label_NC.max(1).mean()
    if slope_at_zero >= 0:
        return np.inf
    if slope_at_infinity <= 0:
        return None

    log_inverse = _root_of_slope(above_label_NC)
    return float(np.exp(-log_inverse))


def _root_of_slope(above_label_NC: NDArray[np.float64]) -> float:
    """The logarithm of the ``1 / T`` at which the log loss has the slope 0.

    Args:
        above_label_NC: every logit minus the logit of the label. The slope that they
            give is below 0 at ``1 / T = 0``, and above 0 towards infinity.
    """
    # imported late, for a training without temperatures saves a quarter of a second
    from scipy.optimize import brentq

    def slope(log_inverse: float) -> float:
        """Derivative of the log loss in ``1 / T``, at the logarithm of ``1 / T``."""
        p_NC = softmax(above_label_NC * np.exp(log_inverse), 1)
        return float((p_NC * above_label_NC).sum(1).mean())

    # widen the bracket around the scale of the logits until the slope changes its sign
    middle = -np.log(np.abs(above_label_NC).max())
    reach = 1.0
    while slope(middle - reach) > 0 or slope(middle + reach) < 0:
        reach *= 2
    low = middle - reach
    high = middle + reach
    log_inverse: float = brentq(slope, low, high, xtol=1e-15, rtol=1e-15)
    return log_inverse
