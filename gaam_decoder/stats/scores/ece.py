"""Expected calibration error."""

import numpy as np

from gaam_decoder.stats.scores.base import Answers, Floats, Score, SeedScore

BINS = 15  # like Guo et al. 2017


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
        count_B, right_B, probability_B = reliability(answers)
        value = float(np.abs(right_B - probability_B).sum() / max(count_B.sum(), 1))
        return SeedScore(value=value, by_row=None)


def reliability(answers: Answers) -> tuple[Floats, Floats, Floats]:
    """The bins of a reliability diagram, by the probability of the predicted class.

    Of label sets, every label of every row counts as a row, which is right if the row
    has the label. A bin excludes its lower end and includes its upper end.

    Returns:
        Number of rows, number of right rows, and sum of the probabilities, of every
        bin, each (B,).
    """
    if answers.labels.ndim == 2:
        probability_N = answers.p_NK.reshape(-1)
        right_N = answers.labels.reshape(-1)
    else:
        probability_N = np.exp(answers.log_p_NC.max(-1))
        right_N = answers.right_N
    bin_N = np.ceil(probability_N * BINS).astype(np.int64) - 1
    bin_N = np.clip(bin_N, 0, BINS - 1)
    count_B = np.bincount(bin_N, minlength=BINS)
    right_B = np.bincount(bin_N, right_N, minlength=BINS)
    probability_B = np.bincount(bin_N, probability_N, minlength=BINS)
    return (
        count_B.astype(np.float64),
        right_B.astype(np.float64),
        probability_B.astype(np.float64),
    )
