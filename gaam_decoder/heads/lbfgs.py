"""A linear probe as benchmarks of encoders fit it: logistic regression to convergence.

N rows, F features, C classes (as a letter of a shape; the penalty's C is always spelled out).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor
from torch.nn import functional

from gaam_decoder.heads._fitted import Examples, Fit, FittedHead
from gaam_decoder.heads.linear import LinearHead

GRID = tuple(float(value) for value in np.logspace(-4, 4, 40))
"""Values of the inverse penalty, from hardly more than the shares of the classes to learned by
heart, on 50 rows as on 100,000: rows have a mean squared norm of 1, whatever the encoder. Measured
on AG News (4,500 rows) 0.5 to 40 are chosen."""
TOLERANCE = 1e-6
"""Largest slope of the mean loss where a fit has converged; benchmarks take 1e-4, with which weak
penalties stop at twice their loss."""
MOST_ITERATIONS = 2000
CORRECTIONS = 20  # pairs of steps and slopes that L-BFGS remembers
EVALUATIONS = 60  # of the loss for each value; measured on AG News: 27 on all layers, 56 on one

ALIASES = ("logistic-regression", "linear-probe", "probe", "logreg")


class LBFGSHead(FittedHead, LinearHead):
    """Logistic regression to convergence, the best of 40 penalties: a probe that is hard to beat.

    Formula: ``min_W,b  C sum_n CE(W z_n + b, y_n) + ||W||^2 / 2``, by L-BFGS in float64, for 40
    values of C from 1e-4 to 1e4; b is not penalised.

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
    def fit(self, learn: Examples, choose: Examples, tell: Callable[[int, str], None]) -> Fit:
        """Set weight and bias."""
        scale = _Scale.of(learn.x_NF)
        problem = _Problem(scale(learn.x_NF), learn.label_N, self.num_classes)
        z_NF = scale(choose.x_NF)
        start: NDArray[np.float64] = np.zeros(problem.size)
        before = start
        log: list[dict[str, Any]] = []
        best: tuple[tuple[float, float], Tensor] | None = None
        kept = 0
        for place, value in enumerate(GRID):
            # the optimum is one, wherever it is looked for: on from the last two, in log C
            found, count, why = problem.solve(value, 2 * start - before)
            before, start = start, found
            weight_CF1 = problem.unpacked(found)
            loss, right = _score(problem.z_NF, learn.label_N, weight_CF1)
            held_loss, held_right = _score(z_NF, choose.label_N, weight_CF1)
            log.append(
                {
                    "epoch": place + 1,
                    "C": value,
                    "loss": loss,
                    "train_accuracy": right,
                    "accuracy": held_right,
                    "selection_loss": held_loss,
                    "iterations": count,
                    "converged": why is None,
                    **({} if why is None else {"stopped": why}),
                }
            )
            if best is None or (held_right, -held_loss) > best[0]:
                best, kept = ((held_right, -held_loss), weight_CF1), place + 1
            tell(place + 1, f"C {value:.2g} accuracy {held_right:.3f}")
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
        """Two products a value of the loss; the rows in float32 and, twice for a while, float64."""
        evaluations = len(GRID) * EVALUATIONS
        return 4.0 * rows * features * classes * evaluations, 20.0 * rows * features


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
        factor_F = torch.where(varies_F, variance_F.clamp_min(1e-300).rsqrt() / count**0.5, 0.0)
        return cls(mean_F, factor_F)

    def __call__(self, x_NF: Tensor) -> Tensor:
        return x_NF.double().sub_(self.mean_F).mul_(self.factor_F)

    def folded(self, weight_CF1: Tensor) -> tuple[Tensor, Tensor]:
        """Weight (C, F) and bias (C,) of the same map of features as they are."""
        weight_CF = weight_CF1[:, :-1] * self.factor_F
        return weight_CF, weight_CF1[:, -1] - weight_CF @ self.mean_F


class _Problem:
    """Penalised mean cross-entropy of a linear map, and its slope, for SciPy."""

    def __init__(self, z_NF: Tensor, label_N: Tensor, num_classes: int) -> None:
        self.z_NF = z_NF
        self._label_N = label_N
        self._target_CN = functional.one_hot(label_N, num_classes).T.to(z_NF.dtype)
        self._shape = num_classes, z_NF.shape[1] + 1
        self.size = num_classes * (z_NF.shape[1] + 1)

    def unpacked(self, flat: NDArray[np.float64]) -> Tensor:
        """(C, F + 1), the bias last."""
        return torch.from_numpy(flat.copy()).view(self._shape).to(self.z_NF.device)

    def solve(
        self, value: float, start: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], int, str | None]:
        """Optimum, number of iterations, and why it is none where it did not converge.

        Args:
            value: C, what the sum of the losses counts beside half the squared norm of W.
            start: where to look from.
        """
        penalty = 1 / (value * len(self._label_N))
        options: dict[str, float] = {"maxiter": MOST_ITERATIONS, "maxfun": 2 * MOST_ITERATIONS}
        options |= {"maxcor": CORRECTIONS, "gtol": TOLERANCE, "ftol": 0.0}
        found = minimize(
            self._loss, start, (penalty,), method="L-BFGS-B", jac=True, options=options
        )
        steepest = float(np.abs(found.jac).max())
        reached = found.success or steepest <= TOLERANCE
        return found.x, int(found.nit), None if reached else str(found.message)

    def _loss(self, flat: NDArray[np.float64], penalty: float) -> tuple[float, NDArray[np.float64]]:
        weight_CF1 = self.unpacked(flat)
        weight_CF, count = weight_CF1[:, :-1].contiguous(), len(self._label_N)
        # classes first: a product with rows of F numbers is several times as fast as with columns
        logits_CN = functional.linear(weight_CF, self.z_NF) + weight_CF1[:, -1:]
        log_p_CN = functional.log_softmax(logits_CN, 0)
        loss = -(log_p_CN * self._target_CN).sum() / count
        loss = loss + penalty / 2 * weight_CF.square().sum()
        slope_CN = (log_p_CN.exp() - self._target_CN) / count
        slope_CF = slope_CN @ self.z_NF + penalty * weight_CF
        slope_CF1 = torch.cat([slope_CF, slope_CN.sum(1, keepdim=True)], 1)
        return float(loss), slope_CF1.cpu().numpy().ravel()


def _score(z_NF: Tensor, label_N: Tensor, weight_CF1: Tensor) -> tuple[float, float]:
    """Mean cross-entropy and accuracy of a linear map on rows."""
    logits_NC = z_NF @ weight_CF1[:, :-1].T + weight_CF1[:, -1]
    right = (logits_NC.argmax(1) == label_N).double().mean()
    return float(functional.cross_entropy(logits_NC, label_N)), float(right)
