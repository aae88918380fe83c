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
    is_share_of_hits = True
    fewest_classes = 11  # with ten or fewer, half of all guesses would be right

    def seed_score(self, answers: Answers) -> SeedScore | None:
        """Whether the label of every row is among the five.

        None for ten classes or fewer.
        """
        if answers.num_classes < self.fewest_classes:
            return None
        # count the classes that rank before the label of a row
        rows = np.arange(answers.num_rows)
        label_logit_N1 = answers.logits[rows, answers.labels][:, None]
        is_larger_NC = answers.logits > label_logit_N1
        is_equal_NC = answers.logits == label_logit_N1
        is_earlier_NC = np.arange(answers.num_classes) < answers.labels[:, None]
        ranks_before_NC = is_larger_NC | (is_equal_NC & is_earlier_NC)
        right_N = ranks_before_NC.sum(-1) < FIVE
        return SeedScore(value=float(CLASSIFICATION.accuracy(right_N)), by_row=right_N)
