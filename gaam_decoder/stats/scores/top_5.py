"""Top-5 accuracy."""

import numpy as np

from gaam_decoder.stats.scores.base import Answers, Found, Score

FIVE = 5


class Top5(Score):
    """Share of the rows whose class is among the five with the largest logits.

    Of equal logits those of the earlier class count as larger, as they do for the accuracy.
    """

    title = "top-5 accuracy"
    hits = True
    fewest_classes = 11  # with ten or fewer, half of all guesses would be right

    def of(self, answers: Answers) -> Found | None:
        """Among the five or not, row by row."""
        if answers.num_classes < self.fewest_classes:
            return None
        rows = np.arange(answers.num_rows)
        own_N1 = answers.logits[rows, answers.labels][:, None]
        earlier_NC = np.arange(answers.num_classes) < answers.labels[:, None]
        before_NC = (answers.logits > own_N1) | (
            (answers.logits == own_N1) & earlier_NC
        )
        right_N = before_NC.sum(-1) < FIVE
        return Found(value=float(right_N.mean(dtype=np.float64)), by_row=right_N)
