"""Mean squared error.

B batch, K numbers of a row.
"""

from torch import Tensor
from torch.nn import functional

from gaam_decoder.losses.base import Loss

ALIASES = ("l2", "squared-error", "mean-squared-error")


class MeanSquaredError(Loss):
    """The squared distance of outputs and targets.

    Formula: ``1/K sum_k (f_k - y_k)^2``, f the outputs, y the targets; averaged over
    the batch.
    """

    tasks = ("regression",)

    def __call__(self, logits_BC: Tensor, label_B: Tensor) -> Tensor:
        """Mean over the batch, a scalar: outputs and targets (B, K)."""
        return functional.mse_loss(logits_BC, label_B.to(logits_BC.dtype))
