"""Binary cross-entropy.

B batch, K labels.
"""

from torch import Tensor
from torch.nn import functional

from gaam_decoder.losses.base import Loss

ALIASES = ("bce",)


class BinaryCrossEntropy(Loss):
    """Cross-entropy of every label by itself: a row has it or has it not.

    Formula: ``-1/K sum_k [y_k log p_k + (1 - y_k) log(1 - p_k)]``, p the sigmoid of the
    logits, y the labels (1: the row has it); averaged over the batch.

    Numerics:
        ``log p = -softplus(-logit)``, finite for every logit.
    """

    tasks = ("multi-label",)

    def __call__(self, logits_BC: Tensor, label_B: Tensor) -> Tensor:
        """Mean over the batch, a scalar: logits (B, K), labels (B, K) of 0 and 1."""
        target_BC = label_B.to(logits_BC.dtype)
        return functional.binary_cross_entropy_with_logits(logits_BC, target_BC)
