"""The nearest class mean.

N rows, F features, C classes or labels; F1 = F + 1 with the bias last.
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
        if training.task not in self.tasks:
            raise ConfigError(
                "--head class-means predicts no numbers",
                expected=" or ".join(self.tasks),
                found=training.task,
                hint="--head knn, nadaraya-watson or ridge",
            )
        scale = Scale.of_rows(training.x_NF)
        z_NF = scale.standardised(training.x_NF)
        target_NC = target_matrix(training, self.num_classes)
        if training.task == "classification":
            weight_CF1, spread = _class_weights(z_NF, target_NC)
        else:
            weight_CF1, spread = _label_weights(z_NF, target_NC)
        weight_CF, bias_C = scale.for_raw_features(weight_CF1)
        self.fc.weight.data.copy_(weight_CF)
        self.fc.bias.data.copy_(bias_C)

        scores = []
        for rows in (training, validation):
            z_RF = scale.standardised(rows.x_NF)
            logits_RC = z_RF @ weight_CF1[:, :-1].T + weight_CF1[:, -1]
            scores.append(fit_score(logits_RC, rows))
        on_value(1, f"validation {scores[1].value:.3f}")
        return Fit(
            setting="spread",
            value=spread,
            lowest=spread,
            highest=spread,
            tried=1,
            kept=1,
            log=(log_entry(1, "spread", spread, scores[0], scores[1], training.task),),
        )

    @classmethod
    def cost(cls, rows: int, features: int, classes: int) -> tuple[float, float]:
        """Floating-point operations and bytes: the rows are kept as float64."""
        return 8.0 * rows * features * classes, 16.0 * rows * features


def _class_weights(z_NF: Tensor, target_NC: Tensor) -> tuple[Tensor, float]:
    """Weights of the logits of the nearest class mean, (C, F1), and the spread.

    The spread is the mean squared distance of rows from the mean of their class.
    """
    count_C = target_NC.sum(0)
    mean_CF = (target_NC.T @ z_NF) / count_C.clamp_min(1)[:, None]
    spread = _spread(z_NF, mean_CF, target_NC)
    weight_CF1 = _weights_from_means(mean_CF) / spread

    # a class without rows is never predicted: its logit is the mean of the others,
    # less a margin
    has_rows_C = count_C > 0
    never_F1 = weight_CF1[has_rows_C].mean(0)
    never_F1[-1] -= NEVER_MARGIN
    return torch.where(has_rows_C[:, None], weight_CF1, never_F1), spread


def _label_weights(z_NF: Tensor, target_NC: Tensor) -> tuple[Tensor, float]:
    """Weights of the logits of labels, (C, F1), and the spread.

    A logit compares the mean of the rows with the label to the mean of the others. The
    spread is the mean squared distance of rows from their mean, averaged over labels.
    """
    with_C = target_NC.sum(0)
    without_C = len(z_NF) - with_C
    total_F = z_NF.sum(0)
    sum_CF = target_NC.T @ z_NF
    mean_CF = sum_CF / with_C.clamp_min(1)[:, None]
    other_CF = (total_F - sum_CF) / without_C.clamp_min(1)[:, None]
    mean_square = float(z_NF.square().sum(1).mean())
    # the sum of squares around two means is that around 0, less that of the means
    explained_C = with_C * mean_CF.square().sum(1) + without_C * other_CF.square().sum(
        1
    )
    spread = mean_square - float(explained_C.mean()) / len(z_NF)
    spread = spread if spread > 1e-9 else 1.0
    weight_CF1 = (_weights_from_means(mean_CF) - _weights_from_means(other_CF)) / spread

    # of a label that no row has, or every row, one mean is missing: its logit is
    # constant, far below or above 0
    is_constant_C = (with_C == 0) | (without_C == 0)
    weight_CF1[is_constant_C] = 0.0
    constant_C = torch.where(with_C == 0, -NEVER_MARGIN, NEVER_MARGIN).to(weight_CF1)
    weight_CF1[:, -1] = torch.where(is_constant_C, constant_C, weight_CF1[:, -1])
    return weight_CF1, spread


def _weights_from_means(mean_CF: Tensor) -> Tensor:
    """Weights ``m`` and biases ``-|m|^2 / 2`` of the logits of class means, (C, F1)."""
    return torch.cat([mean_CF, -mean_CF.square().sum(1, keepdim=True) / 2], dim=1)


def _spread(z_NF: Tensor, mean_CF: Tensor, target_NC: Tensor) -> float:
    """Mean squared distance of rows from the mean of their class; 1 if it is 0."""
    spread = float((z_NF - target_NC @ mean_CF).square().sum(1).mean())
    return spread if spread > 1e-9 else 1.0
