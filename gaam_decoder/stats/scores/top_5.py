"""Top-5 accuracy."""

import numpy as np

from gaam_decoder.stats.scores.base import Answers, Score, SeedScore
from gaam_decoder.tasks import CLASSIFICATION

FIVE = 5


class Top5(Score):
    """Share of the rows with their label among the five largest logits.

    Among equal logits the earlier class counts as larger, like for the accuracy.
    """

    title = "top-5 accuracy"
    hits = True
    fewest_classes = 11  # with ten or fewer, half of all guesses would be right

    def of(self, answers: Answers) -> SeedScore | None:
        """Whether the label of every row is among the five."""
        if answers.num_classes < self.fewest_classes:
            return None
        # count the classes that come before the label
        rows = np.arange(answers.num_rows)
        own_N1 = answers.logits[rows, answers.labels][:, None]
        earlier_NC = np.arange(answers.num_classes) < answers.labels[:, None]
        is_equal_NC = answers.logits == own_N1
        before_NC = (answers.logits > own_N1) | (is_equal_NC & earlier_NC)
        right_N = before_NC.sum(-1) < FIVE
        return SeedScore(value=float(CLASSIFICATION.accuracy(right_N)), by_row=right_N)
