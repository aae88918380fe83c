"""Ridge regression in closed form.

N training rows, V validation rows, F features, K outputs, M = min(N, F) eigenvectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gaam_decoder.heads.base import Examples, Fit, FittedHead
from gaam_decoder.heads.frames.scale import Scale
from gaam_decoder.heads.frames.targets import (
    FitScore,
    fit_score,
    log_entry,
    target_matrix,
)
from gaam_decoder.heads.linear import LinearHead

PENALTIES = tuple(float(penalty) for penalty in np.logspace(-6, 2, 33))
"""Penalties that are tried.

Rows have a mean squared norm of 1: with the largest, the outputs are the mean of the
training rows; with the smallest, they are nearly those of least squares."""

ALIASES = ("ridge-regression", "linear-regression", "least-squares")


class RidgeHead(FittedHead, LinearHead):
    """Linear regression with a squared penalty, the best of 33 on validation rows.

    Formula: ``min_W,b  1/N sum_n |W z_n + b - y_n|^2 + penalty ||W||^2``, exactly, for
    33 penalties from 1e-6 to 100 by one eigendecomposition; b has no penalty.

    z are the features, standardised on the training rows and divided by sqrt F, so that
    a row has a mean squared norm of 1. The weights take the scale in afterwards. y are
    the numbers; of classes and labels, 1 where a row has them and else -1.

    R2 on validation rows chooses the penalty (of classes accuracy, of labels micro-F1;
    ties: the lower loss, then the smaller penalty). All is float64. There is no seed,
    rate or epoch.

    Source: Hoerl and Kennard 1970, "Ridge regression: biased estimation for
    nonorthogonal problems".
    """

    num_tried_values: ClassVar[int] = len(PENALTIES)
    tasks: ClassVar[tuple[str, ...]] = ("classification", "regression", "multi-label")

    @torch.inference_mode()
    def fit(
        self,
        training: Examples,
        validation: Examples,
        on_value: Callable[[int, str], None],
    ) -> Fit:
        """Set weight and bias: see ``FittedHead.fit``."""
        scale = Scale.of_rows(training.x_NF)
        z_NF = scale.standardised(training.x_NF)
        z_VF = scale.standardised(validation.x_NF)
        target_NK = _targets(training, self.num_classes)
        solutions = _Solutions.of_rows(z_NF, target_NK)
        # the rows in the basis in which every penalty is a division
        projected_NM = z_NF @ solutions.basis_FM
        projected_VM = z_VF @ solutions.basis_FM

        log: list[dict[str, Any]] = []
        validation_scores: list[FitScore] = []
        best_index = 0
        for index, penalty in enumerate(PENALTIES):
            weight_MK = solutions.weights(penalty)
            training_output_NK = projected_NM @ weight_MK + solutions.mean_K
            validation_output_VK = projected_VM @ weight_MK + solutions.mean_K
            training_score = fit_score(training_output_NK, training)
            validation_score = fit_score(validation_output_VK, validation)
            validation_scores.append(validation_score)
            entry = log_entry(
                number=index + 1,
                setting="penalty",
                value=penalty,
                training=training_score,
                validation=validation_score,
                task_name=training.task,
            )
            log.append(entry)
            if validation_score.rank > validation_scores[best_index].rank:
                best_index = index
            text = f"penalty {penalty:.2g} validation {validation_score.value:.3f}"
            on_value(index + 1, text)

        scale.set_map(self.fc, solutions.feature_weights(PENALTIES[best_index]))
        return Fit.from_values("penalty", PENALTIES, best_index, log)

    @classmethod
    def cost(cls, rows: int, features: int, classes: int) -> tuple[float, float]:
        """Floating-point operations and bytes of memory.

        Operations: the Gram matrix of rows or features, whichever are fewer, its
        eigenvectors, the rows in their basis, and the outputs for every penalty.

        Memory: a feature of a row takes 20 bytes, as it is given in float32, and twice
        in float64. The Gram matrix, its eigenvectors and a work space are float64.
        """
        fewer = min(rows, features)
        operations = 4.0 * rows * features * fewer + 10.0 * fewer**3
        operations += 2.0 * cls.num_tried_values * rows * fewer * classes
        return operations, 20.0 * rows * features + 24.0 * fewer**2


def _targets(rows: Examples, num_outputs: int) -> Tensor:
    """Numbers; of classes and labels, 1 where a row has them and else -1, (N, K)."""
    target_NK = target_matrix(rows, num_outputs)
    if rows.task == "regression":
        return target_NK
    return 2 * target_NK - 1


class _Solutions(NamedTuple):
    """The solutions for all penalties, in a basis of M eigenvectors.

    Weights of the features for one penalty: ``basis (target / (value + penalty))``.
    """

    basis_FM: Tensor
    """Weights of a row's features in every coordinate of the basis."""
    value_M: Tensor
    """Eigenvalues of the Gram matrix, divided by N."""
    target_MK: Tensor
    """Targets in the basis, divided by N."""
    mean_K: Tensor
    """Mean of the targets: the output of a row whose features are the mean."""

    @classmethod
    def of_rows(cls, z_NF: Tensor, target_NK: Tensor) -> _Solutions:
        """Decompose the smaller Gram matrix, of features (F, F) or of rows (N, N).

        With Z the features, whose mean is 0, and Y the targets without their mean, the
        weights are ``(Z'Z / N + penalty)^-1 Z'Y / N``.
        """
        num_rows, num_features = z_NF.shape
        mean_K = target_NK.mean(0)
        from_mean_NK = target_NK - mean_K
        if num_features <= num_rows:
            # Z'Z / N = U S U', so the weights are U ((S + penalty)^-1 U'Z'Y / N)
            value_M, basis_FM = torch.linalg.eigh(z_NF.T @ z_NF / num_rows)
            target_MK = basis_FM.T @ (z_NF.T @ from_mean_NK) / num_rows
        else:
            # ZZ' / N = V S V', so they also are Z'V ((S + penalty)^-1 V'Y / N)
            value_M, vector_NM = torch.linalg.eigh(z_NF @ z_NF.T / num_rows)
            basis_FM = z_NF.T @ vector_NM
            target_MK = vector_NM.T @ from_mean_NK / num_rows
        return cls(basis_FM, value_M.clamp_min(0), target_MK, mean_K)

    def weights(self, penalty: float) -> Tensor:
        """Weights of the coordinates in the basis with this penalty, (M, K)."""
        return self.target_MK / (self.value_M + penalty)[:, None]

    def feature_weights(self, penalty: float) -> Tensor:
        """Weights of the features with this penalty, the bias last, (K, F + 1)."""
        weight_KF = (self.basis_FM @ self.weights(penalty)).T
        return torch.cat([weight_KF, self.mean_K[:, None]], dim=1)
