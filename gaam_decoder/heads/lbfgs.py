"""Logistic regression to convergence, as benchmarks of encoders fit it.

N training rows, V validation rows, F features, A = F + 1: the weights of the features
and, last, the bias. In the shape of a tensor C are the classes or labels; elsewhere C
is the inverse penalty.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from gaam_decoder.heads.base import Examples, Fit, FittedHead
from gaam_decoder.heads.frames.scale import Scale
from gaam_decoder.heads.frames.targets import (
    FitScore,
    fit_score,
    log_entry,
    target_matrix,
)
from gaam_decoder.heads.linear import LinearHead
from gaam_decoder.tasks import task_of

GRID = tuple(float(value) for value in np.logspace(-4, 4, 40))
"""Values of C that are tried.

With the smallest, a fit knows little more than the shares of the classes; with the
largest, it has learned the rows by heart. That holds for 50 rows as for 100,000: rows
have a mean squared norm of 1, whatever the encoder. On AG News (4,500 rows) validation
chooses 0.5 to 40."""
TOLERANCE = 3e-7
"""Largest entry of the gradient of the mean loss where a fit has converged.

Benchmarks take 1e-4, with which weak penalties stop at twice their loss."""
MOST_ITERATIONS = 2000
CORRECTIONS = 30
"""Number of last steps whose curvature L-BFGS remembers."""
MOST_LENGTHS = 30
"""Lengths that one line search tries."""
SLOPE_SHARE = 0.03
"""A line search ends where the slope is this share of the slope at its start."""
LEAST_CURVATURE = 1e-300
"""Divisor of Newton's method in a line search where rounding leaves no curvature."""
EVALUATIONS = 20
"""Evaluations of the loss for each C, to estimate the time.

Measured on AG News: 9 on all layers, 15 on one."""

ALIASES = ("logistic-regression", "linear-probe", "probe", "logreg")


class LBFGSHead(FittedHead, LinearHead):
    """Logistic regression to convergence, the best of 40 penalties; it is hard to beat.

    Formula: ``min_W,b  C sum_n CE(W z_n + b, y_n) + ||W||^2 / 2``, by L-BFGS, for 40
    values of C from 1e-4 to 1e4; b has no penalty. Products with z are float32, all
    else is float64.

    z are the features, standardised on the training rows and divided by sqrt F, so that
    a row has a mean squared norm of 1. The weights take the scale in afterwards. So one
    C means the same for all layers and encoders. In language models a few features are
    a thousand times as large as the others; they too have the full penalty.

    Of label sets, CE is the sum of the binary cross-entropies of all labels: every
    label has a logistic regression of its own, and all have the same C.

    The accuracy on validation rows, of label sets micro-F1, chooses C (ties: the lower
    loss, then the smaller C). Unlike in most benchmarks, the validation rows are not
    learned from afterwards: the other heads do not learn from them either. There is no
    seed, rate or epoch.

    Source: the protocol of linear probes of CLIP (Radford et al. 2021, section A.3) and
    DINOv2 (Oquab et al. 2023), without the last fit on all rows.
    """

    num_tried_values: ClassVar[int] = len(GRID)
    tasks: ClassVar[tuple[str, ...]] = ("classification", "multi-label")

    @torch.inference_mode()
    def fit(
        self,
        training: Examples,
        validation: Examples,
        on_value: Callable[[int, str], None],
    ) -> Fit:
        """Set weight and bias: see ``FittedHead.fit``."""
        scale = Scale.of_rows(training.x_NF)
        z_VF = scale.standardised_in_float32(validation.x_NF)
        # over the raw rows: beside them, the memory would be twice as much
        z_NF = scale.standardised_in_float32(training.x_NF, into=training.x_NF)
        target_NC = target_matrix(training, self.num_classes)
        has_classes = task_of(training.task).has_classes
        problem = _Problem(z_NF, target_NC.T, has_classes=has_classes)

        log: list[dict[str, Any]] = []
        validation_scores: list[FitScore] = []
        best_index = 0
        start_CA = target_NC.new_zeros(self.num_classes, z_NF.shape[1] + 1)
        best_CA = start_CA
        for index, solution in enumerate(problem.solve_grid(start_CA)):
            training_logits_CN = problem.logits(solution.weight_CA)
            training_score = fit_score(training_logits_CN.T, training)
            validation_logits_CV = _logits(solution.weight_CA, z_VF)
            validation_score = fit_score(validation_logits_CV.T, validation)
            validation_scores.append(validation_score)
            entry = log_entry(
                number=index + 1,
                setting="C",
                value=GRID[index],
                training=training_score,
                validation=validation_score,
                task_name=training.task,
            )
            log.append(entry | solution.log_values())
            # a loss that is no number (nan) never wins
            is_better = validation_score.rank > validation_scores[best_index].rank
            if index == 0 or is_better:
                best_index = index
                best_CA = solution.weight_CA
            percent = 100 * validation_score.value
            on_value(index + 1, f"C {GRID[index]:.2g} validation {percent:.1f}%")

        scale.set_map(self.fc, best_CA)
        unconverged = [entry["C"] for entry in log if not entry["converged"]]
        return Fit.from_values("C", GRID, best_index, log, unconverged=unconverged)

    @classmethod
    def cost(cls, rows: int, features: int, classes: int) -> tuple[float, float]:
        """Floating-point operations and bytes of memory.

        An evaluation of the loss takes two products. The rows are kept once, as float32
        (4 bytes a feature).
        """
        operations = 4.0 * rows * features * classes * len(GRID) * EVALUATIONS
        return operations, 4.0 * rows * features


class _Solution(NamedTuple):
    """The weights at which L-BFGS ended for one C, and how."""

    weight_CA: Tensor
    iterations: int
    stopped: str | None
    """Why it ended before it converged; None: it converged."""

    def log_values(self) -> dict[str, Any]:
        """The keys that the log of a fit gets for this C."""
        values: dict[str, Any] = {
            "iterations": self.iterations,
            "converged": self.stopped is None,
        }
        if self.stopped is not None:
            values["stopped"] = self.stopped
        return values


class _Correction(NamedTuple):
    """What L-BFGS remembers of a step: s, y and s.y of Nocedal & Wright."""

    step_CA: Tensor
    gradient_change_CA: Tensor
    dot_product: float
    """Of the step and the change."""


class _Problem:
    """Penalised mean cross-entropy of a linear map, for one C after another.

    Formula: ``1/N sum_n CE(W z_n + b, y_n) + ||W||^2 / (2 C N)``.

    Most of the time goes into reading the rows. So they are float32; all else is
    float64. Along a direction the logits are linear: one product serves all lengths of
    a step, and what it rounds becomes as small as the step.

    Source: Nocedal & Wright 2006, Numerical Optimization, algorithms 7.4 and 7.5.
    """

    def __init__(self, z_NF: Tensor, target_CN: Tensor, *, has_classes: bool) -> None:
        self._z_NF = z_NF
        self._target_CN = target_CN
        self._has_classes = has_classes
        self._num_rows, num_features = z_NF.shape
        # the penalty of each weight; the bias has none
        self._penalty_A = target_CN.new_zeros(num_features + 1)

    def _probabilities(self, logits_CN: Tensor) -> Tensor:
        """Of the classes of a row together, or of each label by itself, (C, N)."""
        return logits_CN.softmax(0) if self._has_classes else logits_CN.sigmoid()

    def logits(self, weight_CA: Tensor) -> Tensor:
        """Logits of the training rows, (C, N), by weights of A features and bias."""
        return _logits(weight_CA, self._z_NF)

    def solve_grid(self, weight_CA: Tensor) -> Iterator[_Solution]:
        """The solution for every inverse penalty of ``GRID`` in turn.

        Args:
            weight_CA: where the first fit starts: weights of A = F + 1 features and
                bias, for each class or label.
        """
        previous_CA = weight_CA
        for inverse_penalty in GRID:
            # The logarithms of GRID have equal distances, and the optimum changes
            # smoothly with them: start where a line through the last two weights leads.
            # For the first fit both are the start, for the second one of them is.
            start_CA = 2 * weight_CA - previous_CA
            previous_CA = weight_CA
            solution = self.solve(inverse_penalty, start_CA)
            weight_CA = solution.weight_CA
            yield solution

    def solve(self, inverse_penalty: float, weight_CA: Tensor) -> _Solution:
        """Minimise the loss for one inverse penalty by L-BFGS, from ``weight_CA`` on.

        The weights are (C, A): A = F + 1 features and bias, for each class or label.
        """
        self._penalty_A[:-1] = 1 / (inverse_penalty * self._num_rows)
        corrections: deque[_Correction] = deque(maxlen=CORRECTIONS)
        logits_CN = self.logits(weight_CA)
        gradient_CA = self._gradient(logits_CN, weight_CA)
        for iteration in range(MOST_ITERATIONS):
            if float(gradient_CA.abs().max()) <= TOLERANCE:
                return _Solution(weight_CA, iteration, stopped=None)
            direction_CA = _direction(gradient_CA, corrections)
            # how fast the logits change along the direction, on which they are linear
            direction_CN = self.logits(direction_CA)
            length = self._step_length(weight_CA, direction_CA, logits_CN, direction_CN)

            step_CA = length * direction_CA
            weight_CA = weight_CA + step_CA
            logits_CN = logits_CN + length * direction_CN
            change_CA = self._gradient(logits_CN, weight_CA) - gradient_CA
            gradient_CA = gradient_CA + change_CA
            dot_product = float((step_CA * change_CA).sum())
            # of a convex loss it is positive, up to rounding
            if dot_product > 0:
                corrections.append(_Correction(step_CA, change_CA, dot_product))
        stopped = f"the limit of {MOST_ITERATIONS:,} steps"
        return _Solution(weight_CA, MOST_ITERATIONS, stopped)

    def _gradient(self, logits_CN: Tensor, weight_CA: Tensor) -> Tensor:
        """The gradient of the penalised loss at these weights, (C, A), A = F + 1.

        Args:
            logits_CN: logits of the training rows.
            weight_CA: the weights, which give the gradient of the penalty.
        """
        p_CN = self._probabilities(logits_CN)
        residual_CN = (p_CN - self._target_CN) / self._num_rows
        # reading the rows takes most of the time: this product alone is float32
        weight_gradient_CF = (residual_CN.float() @ self._z_NF).double()
        bias_gradient_C1 = residual_CN.sum(1, keepdim=True)
        loss_gradient_CA = torch.cat([weight_gradient_CF, bias_gradient_C1], dim=1)
        return loss_gradient_CA + self._penalty_A * weight_CA

    def _step_length(
        self,
        weight_CA: Tensor,
        direction_CA: Tensor,
        logits_CN: Tensor,
        direction_CN: Tensor,
    ) -> float:
        """Line search: the length t at which the loss has nearly stopped falling.

        With ``phi(t)`` the loss at ``W + t direction``, it ends where
        ``|phi'(t)| <= 0.03 |phi'(0)|``. phi is convex, so Newton's method between two
        bounds finds t; a step beyond a bound becomes a bisection.

        Args:
            weight_CA: W, of A features and bias, for C classes or labels.
            direction_CA: the direction.
            logits_CN: logits of W.
            direction_CN: logits of the direction.
        """
        # the parts of the slope phi' and the curvature phi'' without probabilities
        penalty_curvature = float((self._penalty_A * direction_CA.square()).sum())
        fixed_slope = float((self._penalty_A * direction_CA * weight_CA).sum())
        fixed_slope -= float((self._target_CN * direction_CN).sum()) / self._num_rows
        first_p_CN = self._probabilities(logits_CN)
        first_mean = float((first_p_CN * direction_CN).sum()) / self._num_rows
        first_slope = fixed_slope + first_mean

        length = 1.0
        low = 0.0
        high = float("inf")
        for _ in range(MOST_LENGTHS):
            # mean and variance of the direction's logits over the classes of a row
            p_CN = self._probabilities(logits_CN + length * direction_CN)
            mean_N = (p_CN * direction_CN).sum(0)
            slope = fixed_slope + length * penalty_curvature + float(mean_N.mean())
            if abs(slope) <= -SLOPE_SHARE * first_slope:
                break
            variance_N = self._variance(p_CN, direction_CN, mean_N)
            curvature = penalty_curvature + float(variance_N.mean())

            # the loss falls at the lower bound and rises at the upper one
            if slope < 0:
                low = length
            else:
                high = length
            next_length = length - slope / max(curvature, LEAST_CURVATURE)
            if not low < next_length < high:
                next_length = (low + high) / 2
            length = min(next_length, 10 * length)
        return length

    def _variance(self, p_CN: Tensor, direction_CN: Tensor, mean_N: Tensor) -> Tensor:
        """Variance of the direction's logits: over classes, or summed over labels."""
        if self._has_classes:
            return (p_CN * direction_CN.square()).sum(0) - mean_N.square()
        return (p_CN * (1 - p_CN) * direction_CN.square()).sum(0)


def _logits(weight_CA: Tensor, z_NF: Tensor) -> Tensor:
    """Logits of some rows, (C, N) float64; the product is float32.

    The weights are those of A = F + 1 features and bias, for C classes or labels.
    """
    # a product with rows of F numbers is several times as fast as with columns
    product_CN = functional.linear(weight_CA[:, :-1].float(), z_NF)
    return product_CN.double().add_(weight_CA[:, -1:])


def _direction(gradient_CA: Tensor, corrections: Sequence[_Correction]) -> Tensor:
    """The direction of the next step of L-BFGS.

    It is minus the gradient times an estimate of the inverse Hessian, which the last
    steps give.

    Source: Nocedal & Wright 2006, algorithm 7.4, the two-loop recursion.
    """
    direction_CA = -gradient_CA
    if not corrections:
        return direction_CA

    # the first loop, from the last step to the first
    alphas = []
    for step_CA, change_CA, dot_product in reversed(corrections):
        alpha = float((step_CA * direction_CA).sum()) / dot_product
        direction_CA = direction_CA - alpha * change_CA
        alphas.append(alpha)

    # the first estimate of the inverse Hessian: the curvature of the last step
    last = corrections[-1]
    square = float(last.gradient_change_CA.square().sum())
    direction_CA = direction_CA * (last.dot_product / square)

    # the second loop, back to the last step
    alphas.reverse()
    for correction, alpha in zip(corrections, alphas, strict=True):
        step_CA, change_CA, dot_product = correction
        beta = float((change_CA * direction_CA).sum()) / dot_product
        direction_CA = direction_CA + (alpha - beta) * step_CA
    return direction_CA
