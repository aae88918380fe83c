"""Huber loss.

B batch, K numbers of a row.
"""

from torch import Tensor
from torch.nn import functional

from gaam_cache.common.errors import check_option
from gaam_decoder.losses.base import Loss

ALIASES = ("smooth-l1",)


class Huber(Loss):
    """Squared for small errors and linear for large ones, so that outliers count less.

    Formula: ``1/K sum_k h(f_k - y_k)``, f the outputs, y the targets; averaged over the
    batch. ``h(e) = e^2 / 2`` where ``|e| <= delta``, else ``delta (|e| - delta / 2)``.

    Args:
        delta: > 0; the error at which h becomes linear. Targets are standardised in
            training, so that 1 is a standard deviation of the training rows.

    Source: Huber 1964, "Robust estimation of a location parameter".
    """

    tasks = ("regression",)

    def __init__(self, *, delta: float = 1.0) -> None:
        check_option(0 < delta < float("inf"), "delta", delta, "a positive number")
        self.delta = delta

    def __call__(self, logits_BC: Tensor, label_B: Tensor) -> Tensor:
        """Mean over the batch, a scalar: outputs and targets (B, K)."""
        target_BC = label_B.to(logits_BC.dtype)
        return functional.huber_loss(logits_BC, target_BC, delta=self.delta)
