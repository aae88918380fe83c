"""Statistics of accuracies and predictions: pure functions of arrays.

``accuracy`` scores predictions. ``seeds`` treats the accuracies of several seeds as a
sample, ``crossed`` treats seeds and test rows as two samples. ``claim`` gives the
verdict on two mechanisms, with the tests of ``paired``.

>>> low, high = gaam_decoder.stats.t_interval(np.array([0.87, 0.88, 0.89]))
>>> f"{low:.3f} to {high:.3f}"
'0.855 to 0.905'
"""

from gaam_decoder.stats.accuracy import accuracy, confusion, majority_votes
from gaam_decoder.stats.across import Across, across, across_corrected
from gaam_decoder.stats.claims import MARGIN, Claim, claim, holm_corrected
from gaam_decoder.stats.crossed import two_level_interval
from gaam_decoder.stats.groups import LEAST_GROUPS, RowGroups, row_groups
from gaam_decoder.stats.mean_test import ALPHA
from gaam_decoder.stats.paired import (
    LEAST_SEEDS,
    NO_CLAIM,
    CorrectedT,
    corrected_resampled_t,
    holm,
    sign_flip,
)
from gaam_decoder.stats.seeds import (
    later_than_chance,
    minimum_detectable_difference,
    seeds_needed,
    standard_deviation,
    t_interval,
    within,
)

__all__ = [
    "ALPHA",
    "LEAST_GROUPS",
    "LEAST_SEEDS",
    "MARGIN",
    "NO_CLAIM",
    "Across",
    "Claim",
    "CorrectedT",
    "RowGroups",
    "accuracy",
    "across",
    "across_corrected",
    "claim",
    "confusion",
    "corrected_resampled_t",
    "holm",
    "holm_corrected",
    "later_than_chance",
    "majority_votes",
    "minimum_detectable_difference",
    "row_groups",
    "seeds_needed",
    "sign_flip",
    "standard_deviation",
    "t_interval",
    "two_level_interval",
    "within",
]
