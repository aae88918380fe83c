"""Mean average precision of labels."""

import numpy as np

from gaam_decoder.stats.scores.average_precision import NO_CLAIM, mean_precision
from gaam_decoder.stats.scores.base import Answers, Score, SeedScore, mean_over_folds


class MeanAveragePrecision(Score):
    """Mean of the average precision over the labels that a test row has.

    Rows are ranked by the logit of a label; see the average precision of classes. The
    value of several folds is their mean, weighted by their rows; there is none where no
    row of a fold has a label.

    Source: Manning, Raghavan and Schuetze 2008, "Introduction to information
        retrieval", section 8.4.
    """

    tasks = ("multi-label",)
    title = "mean average precision"
    no_claim_reason = NO_CLAIM

    def seed_score(self, answers: Answers) -> SeedScore | None:
        """Rank the rows by every label, without contributions of rows."""
        label_NK = answers.labels.astype(np.bool_)

        def value_of(rows: slice) -> float | None:
            return mean_precision(answers.logits[rows], label_NK[rows])

        value = mean_over_folds(answers, value_of)
        return None if value is None else SeedScore(value=value, by_row=None)
