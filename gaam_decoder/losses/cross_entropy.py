"""Cross-entropy."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional

from gaam_decoder.losses._base import Loss

ALIASES = ("ce", "nll", "log-loss")


class CrossEntropy(Loss):
    """``-log p_y``, p the softmax of the logits, y the label; averaged over the batch."""

    def __call__(self, logits_BC: Tensor, label_B: Tensor) -> Tensor:
        """Mean over the batch, a scalar."""
        return functional.cross_entropy(logits_BC, label_B)
