"""Expected calibration error."""

import numpy as np

from gaam_decoder.stats.calibration import calibration_bins
from gaam_decoder.stats.scores.base import Answers, Score, SeedScore


class Ece(Score):
    """Mean distance between the probability of the predicted class and its accuracy.

    Rows are sorted by this probability into 15 bins of equal width. Every bin has the
    distance between its accuracy and its mean probability; bins are weighted by their
    rows. Of label sets, every label of every row is sorted by its own probability, and
    the share of rows with the label stands in the place of the accuracy.

    Source: Naeini, Cooper and Hauskrecht 2015, "Obtaining well calibrated probabilities
        using Bayesian binning"; 15 bins of the top label: Guo, Pleiss, Sun and
        Weinberger 2017, "On calibration of modern neural networks". The bias is
        upwards, and grows with fewer rows: Kumar, Liang and Ma 2019, "Verified
        uncertainty calibration".
    """

    tasks = ("classification", "multi-label")
    title = "ECE"
    larger_is_better = False
    uses_temperature = True
    no_claim_reason = (
        "it is biased by the number of rows and has a kink where a bin is calibrated, "
        "so that no test over rows is known to hold"
    )

    def seed_score(self, answers: Answers) -> SeedScore:
        """The error, without contributions of rows: it is no mean of rows."""
        bins = calibration_bins(answers)
        distance_B = np.abs(bins.num_right_B - bins.probability_sum_B)
        value = float(distance_B.sum() / max(bins.num_rows_B.sum(), 1))
        return SeedScore(value=value, by_row=None)
