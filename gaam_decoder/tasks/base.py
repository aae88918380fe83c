"""What a task is: what decoders predict, how they learn it, and how good they are.

Training, selection, tuning, splits, runs, reports and predictions ask the task of their
cache; nothing else knows what a target is. A file in this folder is a task.

S seeds, N rows, B batch, K outputs: the classes, the columns of numbers, or the labels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.devices import float64

if TYPE_CHECKING:
    from torch import Tensor

Targets = NDArray[Any]
"""Targets of rows: (N,) int64, (N, K) float32, or (N, K) of 0 and 1."""


class Task(ABC):
    """A kind of prediction.

    Outputs and targets are tensors or arrays of NumPy; leading axes (seeds) are free.
    """

    name: ClassVar[str]
    default_loss: ClassVar[str]
    default_score: ClassVar[str]
    """The score of reports; ``selection_score`` computes the same number."""
    score_title: ClassVar[str]
    """Its name for people."""
    score_key: ClassVar[str] = "score"
    """Name of the score of held-out rows in a log of epochs."""
    training_key: ClassVar[str] = "train_score"
    """Name of the score of training rows in a log of epochs."""
    in_percent: ClassVar[bool] = True
    """Whether people see the score in percent."""
    standardises: ClassVar[bool] = False
    """Whether decoders learn targets of mean 0 and standard deviation 1."""
    baseline_in_words: ClassVar[str]
    """The prediction that looks at no row."""
    probe_head: ClassVar[str] = "lbfgs"
    """The head of the linear probe: what every mechanism is compared with."""
    probe_in_words: ClassVar[str] = "logistic regression"
    has_classes: ClassVar[bool] = False
    """Whether a target is one class, so that probabilities of a row have the sum 1."""
    has_probabilities: ClassVar[bool] = True
    """Whether outputs become probabilities."""
    has_balance: ClassVar[bool] = True
    """Whether rows can be counted and weighted by class or label."""
    verb: ClassVar[str]
    """What a decoder does, for a model card: 'Labels' texts."""
    outputs_in_words: ClassVar[str]
    """The plural of what it gives, such as 'labels'."""
    caveat: ClassVar[str]
    """What a user of a decoder must know, for a model card."""
    sums_shape: ClassVar[tuple[int, ...]] = ()
    """Shape of the sums over rows from which the training score of a seed follows."""
    sums_are_counts: ClassVar[bool] = True
    """Whether these sums are whole numbers."""
    division_rule: ClassVar[str] = ""
    """The rule by which training and validation rows are divided, where runs of an
    earlier rule need other keys; "" for the first rule."""

    @property
    def probe(self) -> str:
        """The linear probe for people."""
        return f"{self.probe_in_words} (none + {self.probe_head})"

    @abstractmethod
    def predictions(self, outputs: Any) -> Any:
        """What outputs (..., K) predict, in the form of targets."""

    @abstractmethod
    def batch_sums(self, output_SBK: Tensor, targets: Tensor) -> Tensor:
        """Sums over the rows of a batch, by which the training score is computed.

        Args:
            output_SBK: the outputs of every seed.
            targets: classes (S, B), or numbers or labels (S, B, K).

        Returns:
            (S, *``sums_shape``).
        """

    def training_score(self, sums_S: Tensor, num_rows: int | Tensor) -> Tensor:
        """The training score of every seed, (S,), from the sums of an epoch.

        ``num_rows`` is the number of summed rows; seeds may have left out others, (S,).
        """
        return sums_S / num_rows

    @abstractmethod
    def selection_score(self, outputs: Any, targets: Any) -> Any:
        """The score of rows, (..., N, K) to (...), in float64: larger is better.

        Epochs, learning rates and weight decays are chosen by it.
        """

    @abstractmethod
    def row_contributions(self, output_NK: Targets, targets: Targets) -> NDArray[Any]:
        """The contribution of every row to the score, (N,); their mean is the score.

        For a score that is no mean of rows it is ``score + influence of the row``, the
        derivative of the score in the weight of the row (infinitesimal jackknife).
        """

    @abstractmethod
    def baseline_score(self, training: Targets, tested: Targets) -> float:
        """The score, on the tested rows, of the best prediction that looks at no row.

        Args:
            training: targets of the rows that are learned from.
            tested: targets of the test rows.
        """

    @abstractmethod
    def strata(self, targets: Targets) -> NDArray[np.int64]:
        """The stratum of every row, (N,): its class, or a range of its number."""

    def stratify_by(
        self, targets: Targets
    ) -> NDArray[np.int64] | NDArray[np.float64] | NDArray[np.bool_]:
        """The classes, numbers or labels of which every part of a split is alike.

        The class of every row (N,), its first number (N,), or whether it has each label
        (N, K).
        """
        return self.strata(targets)

    def learned_targets(self, targets: Tensor) -> Tensor:
        """Targets in the type that the loss takes."""
        return targets

    def scored_targets(self, targets: Targets) -> Targets:
        """Targets in the type that scores take: int64, float64 or bool."""
        return targets

    def in_words(self, score: float) -> str:
        """A score for people, such as ``81.2%``."""
        return f"{100 * score:.1f}%" if self.in_percent else f"{score:.3f}"

    def with_title(self, score: float) -> str:
        """A score with its name, such as ``R2 0.812``; an accuracy needs none."""
        if self.has_classes:
            return self.in_words(score)
        return f"{self.score_title} {self.in_words(score)}"


def in_float64(values: Any) -> Any:
    """An array or a tensor in float64; the tensor on a device that has it."""
    if isinstance(values, np.ndarray | np.generic):
        return values.astype(np.float64)
    return float64(values)
