"""The nearest class mean.

N rows, F features, C classes or labels; A = F + 1, the bias last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import torch
from torch import Tensor

from gaam_cache.common.errors import ConfigError
from gaam_decoder.heads.base import Examples, Fit, FittedHead
from gaam_decoder.heads.frames.scale import Scale
from gaam_decoder.heads.frames.targets import fit_score, log_entry, target_matrix
from gaam_decoder.heads.linear import LinearHead

NEVER_MARGIN = 30.0
"""How far the logit of a class without training rows is below the mean logit."""
LEAST_SPREAD = 1e-9
"""Less is rounding: the rows of every class are equal, and 1 takes its place."""

ALIASES = ("nearest-centroid", "centroids", "prototypes")


class ClassMeansHead(FittedHead, LinearHead):
    """The class whose mean is the nearest; nothing is trained.

    Formula: ``-|z - m_c|^2 / (2 v)``, without the part that all classes share: ``logits
    = (z . m_c - |m_c|^2 / 2) / v``; m_c the mean of the training rows of class c, v the
    mean of ``|z - m_y|^2`` over the training rows, y their class.

    A label is there if the mean of the rows with it is nearer than that of the others;
    its logit is the difference of both logits. v is then the mean over the labels.

    z are the features, standardised on the training rows and divided by sqrt F. A class
    without training rows is never predicted. Numbers have no classes and are refused.

    Source: Rocchio 1971; Tibshirani et al. 2002, "Diagnosis of multiple cancer types by
    shrunken centroids of gene expression", without shrinking.
    """

    tasks: ClassVar[tuple[str, ...]] = ("classification", "multi-label")

    @torch.inference_mode()
    def fit(
        self,
        training: Examples,
        validation: Examples,
        on_value: Callable[[int, str], None],
    ) -> Fit:
        """Set weight and bias: see ``FittedHead.fit``."""
        self._check_task(training.task)
        scale = Scale.of_rows(training.x_NF)
        z_NF = scale.standardised(training.x_NF)
        target_NC = target_matrix(training, self.num_classes)
        if training.task == "classification":
            weight_CA, spread = _class_weights(z_NF, target_NC)
        else:
            weight_CA, spread = _label_weights(z_NF, target_NC)
        scale.set_map(self.fc, weight_CA)

        scores = []
        for rows in (training, validation):
            rows_z_NF = scale.standardised(rows.x_NF)
            logits_NC = rows_z_NF @ weight_CA[:, :-1].T + weight_CA[:, -1]
            scores.append(fit_score(logits_NC, rows))
        training_score, validation_score = scores
        on_value(1, f"validation {validation_score.value:.3f}")
        entry = log_entry(
            number=1,
            setting="spread",
            value=spread,
            training=training_score,
            validation=validation_score,
            task_name=training.task,
        )
        # nothing is chosen: the spread of the rows is the only value
        return Fit(
            setting="spread",
            value=spread,
            lowest=spread,
            highest=spread,
            tried=1,
            kept=1,
            log=(entry,),
        )

    def _check_task(self, task_name: str) -> None:
        """Refuse regression: numbers have no classes."""
        if task_name not in self.tasks:
            raise ConfigError(
                "--head class-means predicts no numbers",
                expected=" or ".join(self.tasks),
                found=task_name,
                hint="--head knn, nadaraya-watson or ridge",
            )

    @classmethod
    def cost(cls, rows: int, features: int, classes: int) -> tuple[float, float]:
        """Floating-point operations and bytes of memory.

        The rows and their distances from the means are float64, 8 bytes each.
        """
        return 8.0 * rows * features * classes, 16.0 * rows * features


def _class_weights(z_NF: Tensor, target_NC: Tensor) -> tuple[Tensor, float]:
    """Weights of the logits of the nearest class mean, (C, A), and the spread.

    ``logit_c = (z . m_c - |m_c|^2 / 2) / spread``: the last of the A = F + 1 weights is
    the bias. The spread is the mean squared distance of rows from the mean m_c of their
    class.

    Args:
        z_NF: standardised features of the training rows.
        target_NC: 1 for the class of a row, else 0.
    """
    count_C = target_NC.sum(0)
    mean_CF = (target_NC.T @ z_NF) / count_C.clamp_min(1)[:, None]
    from_mean_NF = z_NF - target_NC @ mean_CF
    spread = _or_one(float(from_mean_NF.square().sum(1).mean()))
    weight_CA = _weights_from_means(mean_CF) / spread

    # a class without rows is never predicted: its logit is the mean of the others,
    # less a margin, which the bias takes
    has_rows_C = count_C > 0
    empty_class_A = weight_CA[has_rows_C].mean(0)
    empty_class_A[-1] -= NEVER_MARGIN
    return torch.where(has_rows_C[:, None], weight_CA, empty_class_A), spread


def _label_weights(z_NF: Tensor, target_NC: Tensor) -> tuple[Tensor, float]:
    """Weights of the logits of labels, (C, A), and the spread.

    A logit compares the mean of the rows with the label to the mean of the others; the
    last of its A = F + 1 weights is the bias. The spread is the mean squared distance
    of rows from their mean of the two, averaged over labels.

    Args:
        z_NF: standardised features of the training rows.
        target_NC: 1 for the labels of a row, else 0.
    """
    with_C = target_NC.sum(0)
    without_C = len(z_NF) - with_C
    total_F = z_NF.sum(0)
    sum_CF = target_NC.T @ z_NF
    mean_CF = sum_CF / with_C.clamp_min(1)[:, None]
    other_CF = (total_F - sum_CF) / without_C.clamp_min(1)[:, None]
    # the sum of squares around two means is that around 0, less that of the means
    mean_square = float(z_NF.square().sum(1).mean())
    square_with_C = with_C * mean_CF.square().sum(1)
    square_without_C = without_C * other_CF.square().sum(1)
    explained = float((square_with_C + square_without_C).mean())
    spread = _or_one(mean_square - explained / len(z_NF))
    weight_CA = (_weights_from_means(mean_CF) - _weights_from_means(other_CF)) / spread

    # of a label that no row has, or every row, one mean is missing: its logit is
    # constant, far below or above 0, and has a bias alone
    is_constant_C = (with_C == 0) | (without_C == 0)
    weight_CA[is_constant_C] = 0.0
    constant_C = torch.where(with_C == 0, -NEVER_MARGIN, NEVER_MARGIN).to(weight_CA)
    weight_CA[:, -1] = torch.where(is_constant_C, constant_C, weight_CA[:, -1])
    return weight_CA, spread


def _weights_from_means(mean_CF: Tensor) -> Tensor:
    """Weights ``m`` and biases ``-|m|^2 / 2`` of the logits of class means, (C, A).

    A = F + 1: the weights of F features, then the bias.
    """
    return torch.cat([mean_CF, -mean_CF.square().sum(1, keepdim=True) / 2], dim=1)


def _or_one(spread: float) -> float:
    """The spread, or 1 where it is 0 up to rounding: logits are divided by it."""
    return spread if spread > LEAST_SPREAD else 1.0
