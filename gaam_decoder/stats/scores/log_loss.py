"""Log loss."""

import math

import numpy as np

from gaam_decoder.stats.scores.base import Answers, Score, SeedScore


class LogLoss(Score):
    """Mean of ``-log p`` of the right class, in nats.

    Of label sets the mean over the labels, too: the binary cross-entropy.

    Numerics: a log-softmax in float64. No probability is zero, so no loss is infinite.
    """

    tasks = ("classification", "multi-label")
    title = "log loss"
    larger_is_better = False
    percent = False
    margin = 0.01  # the probability of the right class is larger by 1% in every row
    highest = float("inf")
    uses_temperature = True

    def seed_score(self, answers: Answers) -> SeedScore:
        """The log loss of a seed and of every row."""
        if answers.labels.ndim == 2:
            # the loss is softplus(-z) of a label that the row has, else softplus(z)
            sign_NK = np.where(answers.labels, -1.0, 1.0)
            loss_N = np.logaddexp(0.0, sign_NK * answers.logits).mean(1)
            num_averaged = answers.labels.shape[1]
        else:
            loss_N = -answers.log_p_NC[np.arange(answers.num_rows), answers.labels]
            num_averaged = 1
        # The test rows may lack a row with a large loss: one as large as their largest,
        # and at least log N for one of its labels, because N rows may lack an event of
        # probability 1 / N.
        num_distinct_rows = answers.num_rows / answers.tests_per_row
        least_loss = math.log(num_distinct_rows) / num_averaged
        largest_loss = max(float(loss_N.max()), least_loss)
        largest_change = largest_loss / num_distinct_rows
        return SeedScore(
            value=float(loss_N.mean()),
            by_row=loss_N,
            unseen_change=largest_change,
        )
