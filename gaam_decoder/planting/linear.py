"""What a linear decoder of the states can know of a teacher: the best ``none`` can do.

N rows, F features, C classes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax

from gaam_decoder.planting.states import States

Floats = NDArray[np.float64]
MOST_NUMBERS = 2**27
"""Of the rows that are fitted: 1 GB."""
ROWS_PER_FEATURE = 2
"""With fewer rows a linear map of them says what they are, and nothing of others."""
PENALTY = 1e-6
"""Beside the mean loss: enough for one optimum, and too little to be seen in an accuracy."""
ITERATIONS = 500


def linear_accuracy(
    train: States, p_train_NC: Floats, test: States, p_test_NC: Floats
) -> float | None:
    """Accuracy to expect on the test rows of the best linear decoder of the states.

    It is fitted by L-BFGS to the teacher's own probabilities of the training rows, which no draw
    of a label disturbs, so that no decoder ``none + linear`` that sees labels does better but by
    chance. None where rows are too few for that, or too many for the memory.
    """
    count, features = len(train), train.shape[1] * train.shape[2]
    if count < ROWS_PER_FEATURE * features or count * features > MOST_NUMBERS:
        return None
    z_NF = np.concatenate([x.reshape(len(x), -1) for _, x in train.blocks()])
    mean_F, spread_F = z_NF.mean(0), z_NF.std(0)
    scale_F = np.divide(1.0, spread_F, out=np.zeros_like(spread_F), where=spread_F > 0)
    z_NF -= mean_F
    z_NF *= scale_F
    classes = p_train_NC.shape[1]

    def loss(flat: Floats) -> tuple[float, Floats]:
        weight_CF1 = flat.reshape(classes, features + 1)
        log_p_NC = log_softmax(z_NF @ weight_CF1[:, :-1].T + weight_CF1[:, -1], 1)
        wrong_NC = (np.exp(log_p_NC) - p_train_NC) / count
        slope_CF1 = np.concatenate([wrong_NC.T @ z_NF, wrong_NC.sum(0)[:, None]], 1)
        value = -(p_train_NC * log_p_NC).sum() / count + PENALTY / 2 * float(flat @ flat)
        return value, (slope_CF1 + PENALTY * weight_CF1).ravel()

    start = np.zeros(classes * (features + 1))
    options = {"maxiter": ITERATIONS}
    found = minimize(loss, start, method="L-BFGS-B", jac=True, options=options).x
    weight_CF1 = found.reshape(classes, features + 1)
    right = 0.0
    for rows, x_NLD in test.blocks():
        z_BF = (x_NLD.reshape(len(x_NLD), -1) - mean_F) * scale_F
        chosen_B = (z_BF @ weight_CF1[:, :-1].T + weight_CF1[:, -1]).argmax(1)
        right += float(np.take_along_axis(p_test_NC[rows], chosen_B[:, None], 1).sum())
    return right / len(test)
