"""Classification: every row has one of C classes, and decoders give a logit for each.

N rows, C classes.
"""

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.devices import float64
from gaam_decoder.tasks.base import Targets, Task

if TYPE_CHECKING:
    from torch import Tensor

Array = TypeVar("Array", "Tensor", NDArray[Any])
Labels = NDArray[np.int64]


class Classification(Task):
    """The predictions of decoders for rows of C classes, and how good they are."""

    name = "classification"
    default_loss = "cross-entropy"
    default_score = "accuracy"
    score_title = "accuracy"
    score_key = "accuracy"
    training_key = "train_accuracy"
    baseline_in_words = "the most frequent class of the training rows alone"
    has_classes = True
    verb = "Classifies"
    outputs_in_words = "classes"
    caveat = (
        "whatever it is given gets one of its classes; probabilities are not calibrated"
    )

    def predictions(self, outputs: Array) -> Array:
        """Class of the largest logit, (..., C) to (...); the first of equal ones.

        Probabilities in the place of logits give the same classes.
        """
        predicted: Array = outputs.argmax(-1)
        return predicted

    def hits(self, predictions: Array, labels: Array) -> Array:
        """Whether each prediction is right; labels (N,) serve predictions (S, N)."""
        is_right: Array = predictions == labels
        return is_right

    def accuracy(self, hits: Array) -> Array:
        """Share of hits over the last axis, in float64 where the device has it."""
        share: Array
        if isinstance(hits, np.ndarray):
            share = np.asarray(hits.mean(-1, dtype=np.float64))
        else:
            share = float64(hits).mean(-1)
        return share

    def batch_sums(self, output_SBK: "Tensor", targets: "Tensor") -> "Tensor":
        """Number of right rows of every seed, (S,)."""
        predicted_SB = self.predictions(output_SBK)
        return self.hits(predicted_SB, targets).sum(1)

    def selection_score(self, outputs: Array, targets: Array) -> Array:
        """Accuracy."""
        return self.accuracy(self.hits(self.predictions(outputs), targets))

    def row_contributions(self, output_NK: Targets, targets: Targets) -> NDArray[Any]:
        """Whether every row is right."""
        return self.hits(self.predictions(output_NK), targets)

    def majority_class(self, training_labels: Labels) -> int:
        """The most frequent class, the first of equal ones: the trivial prediction."""
        return int(np.bincount(training_labels).argmax())

    def baseline_score(self, training: Targets, tested: Targets) -> float:
        """Accuracy of the most frequent class."""
        majority_class = self.majority_class(training)
        is_majority_N = self.hits(tested, np.array(majority_class))
        return float(self.accuracy(is_majority_N))

    def strata(self, targets: Targets) -> Labels:
        """The classes."""
        return targets


CLASSIFICATION = Classification()
