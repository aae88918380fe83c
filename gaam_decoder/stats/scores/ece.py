"""Expected calibration error."""

import numpy as np

from gaam_decoder.stats.scores.base import Answers, Floats, Found, Score

BINS = 15  # as Guo et al. 2017 have them


class Ece(Score):
    """How far the probability of what is predicted is from how often it is right.

    Rows are sorted by that probability into 15 bins of equal width; of every bin the distance
    between accuracy and mean probability, weighted by its rows.

    Source: Naeini, Cooper and Hauskrecht 2015, "Obtaining well calibrated probabilities using
        Bayesian binning"; 15 bins of the top label: Guo, Pleiss, Sun and Weinberger 2017, "On
        calibration of modern neural networks". It is biased upwards, the more the fewer rows
        there are: Kumar, Liang and Ma 2019, "Verified uncertainty calibration".
    """

    title = "ECE"
    larger_is_better = False
    of_sizes = True
    no_claim = (
        "it is biased by the number of rows and has a kink where a bin is calibrated, so that no "
        "test over rows is known to hold"
    )

    def of(self, answers: Answers) -> Found:
        """The error; it is no mean of rows."""
        count_B, right_B, sure_B = reliability(answers)
        value = float(np.abs(right_B - sure_B).sum() / max(count_B.sum(), 1))
        return Found(value=value, by_row=None)


def reliability(answers: Answers) -> tuple[Floats, Floats, Floats]:
    """Rows, right ones, and the sum of the probabilities of what is predicted, of every bin.

    A bin holds what is above its lower end and at most its upper one.
    """
    sure_N = np.exp(answers.log_p_NC.max(-1))
    bin_N = np.clip(np.ceil(sure_N * BINS).astype(np.int64) - 1, 0, BINS - 1)
    right_N = answers.predicted_N == answers.labels
    count_B = np.bincount(bin_N, minlength=BINS).astype(np.float64)
    return (
        count_B,
        np.bincount(bin_N, right_N, minlength=BINS).astype(np.float64),
        np.bincount(bin_N, sure_N, minlength=BINS).astype(np.float64),
    )
