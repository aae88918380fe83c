"""Log loss."""

import math

import numpy as np

from gaam_decoder.stats.scores.base import Answers, Found, Score


class LogLoss(Score):
    """Mean of ``-log p`` of the class that is right, in nats.

    Numerics: from logits by a log-softmax in float64: no probability is zero, so that no loss is
        infinite, however wrong.
    """

    title = "log loss"
    larger_is_better = False
    percent = False
    margin = 0.01  # probabilities of what is right that are by 1% larger throughout
    highest = float("inf")
    of_sizes = True

    def of(self, answers: Answers) -> Found:
        """The loss of every row."""
        loss_N = -answers.log_p_NC[np.arange(answers.num_rows), answers.labels]
        rows = answers.num_rows / answers.repeats
        worst = max(
            float(loss_N.max()), math.log(rows)
        )  # p of 1 in N is as rare as one row
        unseen = (worst / rows) ** 2
        return Found(value=float(loss_N.mean()), by_row=loss_N, unseen=unseen)
