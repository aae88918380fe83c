"""Statistics of accuracies and predictions: pure functions of arrays.

``accuracy`` scores predictions, ``seeds`` treats the accuracies of several seeds as a sample,
``paired`` compares two mechanisms, and ``bootstrap`` treats seeds and test rows as samples both.
"""

from __future__ import annotations

from gaam_decoder.stats.accuracy import (
    accuracy,
    confusion,
    f1_of_confusion,
    macro_f1,
    majority_accuracy,
    majority_votes,
)
from gaam_decoder.stats.bootstrap import resample_rows, two_level_interval
from gaam_decoder.stats.paired import McNemar, SignFlip, holm, mcnemar, sign_flip
from gaam_decoder.stats.seeds import (
    minimum_detectable_difference,
    seeds_needed,
    standard_deviation,
    t_interval,
    within,
)

__all__ = [
    "McNemar",
    "SignFlip",
    "accuracy",
    "confusion",
    "f1_of_confusion",
    "holm",
    "macro_f1",
    "majority_accuracy",
    "majority_votes",
    "mcnemar",
    "minimum_detectable_difference",
    "resample_rows",
    "seeds_needed",
    "sign_flip",
    "standard_deviation",
    "t_interval",
    "two_level_interval",
    "within",
]
