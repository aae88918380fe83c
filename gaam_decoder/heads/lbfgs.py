"""A linear probe as benchmarks of encoders fit it: logistic regression to convergence.

N rows, F features, C classes (as a letter of a shape; the penalty's C is always spelled out).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from gaam_decoder.heads._fitted import Examples, Fit, FittedHead
from gaam_decoder.heads.linear import LinearHead
from gaam_decoder.tasks import CLASSIFICATION

GRID = tuple(float(value) for value in np.logspace(-4, 4, 40))
"""Values of the inverse penalty, from hardly more than the shares of the classes to learned by
heart, on 50 rows as on 100,000: rows have a mean squared norm of 1, whatever the encoder. Measured
on AG News (4,500 rows) 0.5 to 40 are chosen."""
TOLERANCE = 3e-7
"""Largest slope of the mean loss where a fit has converged; benchmarks take 1e-4, with which weak
penalties stop at twice their loss."""
MOST_ITERATIONS = 2000
CORRECTIONS = 30  # pairs of steps and slopes that L-BFGS remembers
MOST_LENGTHS, FLATTER = (
    30,
    0.03,
)  # of one step; the slope at its end, as a share of that before it
EVALUATIONS = (
    20  # of the loss for each value; measured on AG News: 9 on all layers, 15 on one
)

ALIASES = ("logistic-regression", "linear-probe", "probe", "logreg")


class LBFGSHead(FittedHead, LinearHead):
    """Logistic regression to convergence, the best of 40 penalties: a probe that is hard to beat.

    Formula: ``min_W,b  C sum_n CE(W z_n + b, y_n) + ||W||^2 / 2``, by L-BFGS, for 40 values of C
    from 1e-4 to 1e4; b is not penalised. Products with z are float32, all else is float64.

    Every feature is standardised on the rows that learn (z; divided by sqrt F, so that a row has a
    mean squared norm of 1) and the scale folded into the weights afterwards: one C means the same
    for all layers and encoders, and a few features that are a thousand times the others, as LLMs
    have them, do not escape the penalty. C is chosen by the accuracy on the rows that choose (ties:
    lower loss, then smaller C). They are not learned from afterwards, unlike in most benchmarks:
    the other heads do not learn from them either. No seed, rate or epoch plays a part.

    Source: the protocol of linear probes of CLIP (Radford et al. 2021, section A.3) and DINOv2
    (Oquab et al. 2023), without the last fit on all rows.
    """

    tries: ClassVar[int] = len(GRID)

    @torch.inference_mode()
    def fit(
        self, learn: Examples, choose: Examples, tell: Callable[[int, str], None]
    ) -> Fit:
        """Set weight and bias."""
        scale = _Scale.of(learn.x_NF)
        problem = _Problem(scale(learn.x_NF), learn.label_N, self.num_classes)
        z_NF = scale(choose.x_NF)
        start_CF1 = before_CF1 = z_NF.new_zeros(self.num_classes, z_NF.shape[1] + 1)
        log: list[dict[str, Any]] = []
        best: tuple[tuple[float, float], Tensor] | None = None
        kept = 0
        for place, value in enumerate(GRID):
            # the optimum is one, wherever it is looked for: on from the last two, in log C
            weight_CF1, count, why = problem.solve(value, 2 * start_CF1 - before_CF1)
            before_CF1, start_CF1 = start_CF1, weight_CF1
            loss, right = _score(problem.logits(weight_CF1).T, learn.label_N)
            held_NC = z_NF @ weight_CF1[:, :-1].T + weight_CF1[:, -1]
            held_loss, held_right = _score(held_NC, choose.label_N)
            entry = {
                "epoch": place + 1,
                "C": value,
                "loss": loss,
                "train_accuracy": right,
            }
            entry |= {
                "accuracy": held_right,
                "selection_loss": held_loss,
                "iterations": count,
            }
            log.append(
                entry | {"converged": why is None} | ({"stopped": why} if why else {})
            )
            if best is None or (held_right, -held_loss) > best[0]:
                best, kept = ((held_right, -held_loss), weight_CF1), place + 1
            tell(place + 1, f"C {value:.2g} validation {100 * held_right:.1f}%")
        assert best is not None
        weight_CF, bias_C = scale.folded(best[1])
        self.fc.weight.data.copy_(weight_CF)
        self.fc.bias.data.copy_(bias_C)
        return Fit(
            setting="C",
            value=GRID[kept - 1],
            lowest=GRID[0],
            highest=GRID[-1],
            tried=len(GRID),
            kept=kept,
            unconverged=tuple(entry["C"] for entry in log if not entry["converged"]),
            log=tuple(log),
        )

    @classmethod
    def cost(cls, rows: int, features: int, classes: int) -> tuple[float, float]:
        """Two products a value of the loss; the rows twice as float32, for a while as float64."""
        return 4.0 * rows * features * classes * len(
            GRID
        ) * EVALUATIONS, 16.0 * rows * features


class _Scale(NamedTuple):
    """What standardises features: ``z = (x - mean) * factor``."""

    mean_F: Tensor
    factor_F: Tensor

    @classmethod
    def of(cls, x_NF: Tensor) -> _Scale:
        """Of these rows; a feature that never varies counts for nothing."""
        variance_F, mean_F = torch.var_mean(x_NF.double(), dim=0, correction=0)
        # of a constant, rounding leaves a variance
        varies_F = variance_F > 1e-12 * (variance_F + mean_F.square())
        count = max(1, int(varies_F.sum()))
        factor_F = torch.where(
            varies_F, variance_F.clamp_min(1e-300).rsqrt() / count**0.5, 0.0
        )
        return cls(mean_F, factor_F)

    def __call__(self, x_NF: Tensor) -> Tensor:
        return x_NF.double().sub_(self.mean_F).mul_(self.factor_F)

    def folded(self, weight_CF1: Tensor) -> tuple[Tensor, Tensor]:
        """Weight (C, F) and bias (C,) of the same map of features as they are."""
        weight_CF = weight_CF1[:, :-1] * self.factor_F
        return weight_CF, weight_CF1[:, -1] - weight_CF @ self.mean_F


class _Problem:
    """Penalised mean cross-entropy of a linear map, for one penalty after the other.

    Reading the rows is what takes the time: they are float32, all else is float64. Along a
    direction logits are linear, so that one product serves every length of a step, and what it
    rounds becomes as small as the step.
    """

    def __init__(self, z_NF: Tensor, label_N: Tensor, num_classes: int) -> None:
        self._z_NF1 = functional.pad(z_NF.float(), (0, 1), value=1.0)  # the bias last
        self._target_CN = functional.one_hot(label_N, num_classes).T.to(z_NF.dtype)
        self._penalty_F1 = torch.zeros_like(self._z_NF1[0], dtype=z_NF.dtype)

    def logits(self, weight_CF1: Tensor) -> Tensor:
        """Of the rows, (C, N)."""
        # classes first: a product with rows of F numbers is several times as fast as with columns
        return functional.linear(weight_CF1.float(), self._z_NF1).double()

    def solve(self, value: float, weight_CF1: Tensor) -> tuple[Tensor, int, str | None]:
        """Optimum for a C, looked for from there, number of steps, and why it is none."""
        self._penalty_F1[:-1] = 1 / (value * len(self._z_NF1))
        pairs: list[
            tuple[Tensor, Tensor, float]
        ] = []  # steps, changes of the slope, both
        logits_CN = self.logits(weight_CF1)
        slope_CF1 = self._slope(logits_CN, weight_CF1)
        for count in range(MOST_ITERATIONS):
            if float(slope_CF1.abs().max()) <= TOLERANCE:
                return weight_CF1, count, None
            along_CF1 = _direction(slope_CF1, pairs)
            along_CN = self.logits(along_CF1)
            length = self._length(weight_CF1, along_CF1, logits_CN, along_CN)
            step_CF1 = length * along_CF1
            weight_CF1, logits_CN = weight_CF1 + step_CF1, logits_CN + length * along_CN
            change_CF1 = self._slope(logits_CN, weight_CF1) - slope_CF1
            slope_CF1 = slope_CF1 + change_CF1
            if (
                both := float((step_CF1 * change_CF1).sum())
            ) > 0:  # but for rounding it is
                pairs = [*pairs, (step_CF1, change_CF1, both)][-CORRECTIONS:]
        return weight_CF1, MOST_ITERATIONS, f"the limit of {MOST_ITERATIONS:,} steps"

    def _slope(self, logits_CN: Tensor, weight_CF1: Tensor) -> Tensor:
        slope_CN = (logits_CN.softmax(0) - self._target_CN) / len(self._z_NF1)
        return (slope_CN.float() @ self._z_NF1).double() + self._penalty_F1 * weight_CF1

    def _length(
        self, weight_CF1: Tensor, along_CF1: Tensor, logits_CN: Tensor, along_CN: Tensor
    ) -> float:
        """How far it goes down in a direction: by Newton's method, between what is known."""
        rows, length, low, high = len(self._z_NF1), 1.0, 0.0, float("inf")
        bend = float((self._penalty_F1 * along_CF1.square()).sum())
        tilt = float((self._penalty_F1 * along_CF1 * weight_CF1).sum())
        tilt -= float((self._target_CN * along_CN).sum()) / rows
        first = tilt + float((logits_CN.softmax(0) * along_CN).sum()) / rows
        for _ in range(MOST_LENGTHS):
            p_CN = (logits_CN + length * along_CN).softmax(0)
            mean_N = (p_CN * along_CN).sum(0)
            slope = tilt + length * bend + float(mean_N.mean())
            if abs(slope) <= -FLATTER * first:
                break
            low, high = (length, high) if slope < 0 else (low, length)
            curve = bend + float(
                ((p_CN * along_CN.square()).sum(0) - mean_N.square()).mean()
            )
            ahead = length - slope / max(curve, 1e-300)
            length = min(ahead if low < ahead < high else (low + high) / 2, 10 * length)
        return length


def _direction(slope_CF1: Tensor, pairs: list[tuple[Tensor, Tensor, float]]) -> Tensor:
    """Down the slope, by what the last steps say of the curvature (Nocedal 1980)."""
    along_CF1, shares = -slope_CF1, []
    for step_CF1, change_CF1, both in reversed(pairs):
        shares.append(float((step_CF1 * along_CF1).sum()) / both)
        along_CF1 = along_CF1 - shares[-1] * change_CF1
    if pairs:
        along_CF1 = along_CF1 * (pairs[-1][2] / float(pairs[-1][1].square().sum()))
    for (step_CF1, change_CF1, both), share in zip(
        pairs, reversed(shares), strict=True
    ):
        share = share - float((change_CF1 * along_CF1).sum()) / both
        along_CF1 = along_CF1 + share * step_CF1
    return along_CF1


def _score(logits_NC: Tensor, label_N: Tensor) -> tuple[float, float]:
    """Mean cross-entropy and accuracy."""
    right_N = CLASSIFICATION.hits(CLASSIFICATION.predictions(logits_NC), label_N)
    accuracy = CLASSIFICATION.accuracy(right_N)
    return float(functional.cross_entropy(logits_NC, label_N)), float(accuracy)
