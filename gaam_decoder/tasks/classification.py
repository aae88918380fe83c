"""Classification: every row has one of C classes, and decoders give a logit for each.

Training, selection, tuning, probes, scores and reports ask ``CLASSIFICATION``, with
tensors or with arrays of NumPy. Leading axes (seeds, rows) are free.

N rows, C classes.
"""

from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.devices import float64

if TYPE_CHECKING:
    from torch import Tensor

Array = TypeVar("Array", "Tensor", NDArray[Any])
Labels = NDArray[np.int64]


class Classification:
    """The predictions of decoders for rows of C classes, and how good they are."""

    def predictions(self, logits: Array) -> Array:
        """Class of the largest logit, (..., C) to (...); the first of equal ones.

        Probabilities in the place of logits give the same classes.
        """
        predicted: Array = logits.argmax(-1)
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

    def majority_class(self, training_labels: Labels) -> int:
        """The most frequent class, the first of equal ones: the trivial prediction."""
        return int(np.bincount(training_labels).argmax())


CLASSIFICATION = Classification()
