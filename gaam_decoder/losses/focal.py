"""Focal loss.

B batch, C classes or labels.
"""

from torch import Tensor
from torch.nn import functional

from gaam_cache.common.errors import check_option
from gaam_decoder.losses.base import Loss


class Focal(Loss):
    """Cross-entropy that gives less weight to rows that are already right.

    Formula: ``-alpha (1 - p_y)^gamma log p_y``, p the softmax of the logits, y the
    label; averaged over the batch. Of label sets, averaged over the labels, too: p_y is
    the sigmoid of a logit where the row has the label, and 1 minus it where not.

    ``gamma=0, alpha=1`` is cross-entropy. The paper used the defaults for speech.

    Args:
        gamma: >= 0; the larger, the less a row counts that is right.
        alpha: > 0; a factor, the same for all classes.

    Numerics:
        ``1 - p_y`` is computed from ``log p_y``, without cancellation where p_y is near
        1, and is at least 1e-12: for gamma < 1 the slope at 0 is infinite.

    Source: Lin et al. 2017, arXiv 1708.02002, equation 5; of classes with softmax in
    place of sigmoid. Its alpha weighs the two sides of a label; here class weights do.
    """

    tasks = ("classification", "multi-label")

    def __init__(self, *, gamma: float = 2.5, alpha: float = 0.25) -> None:
        check_option(0 <= gamma < float("inf"), "gamma", gamma, ">= 0")
        check_option(0 < alpha < float("inf"), "alpha", alpha, "a positive number")
        self.gamma = gamma
        self.alpha = alpha

    def __call__(self, logits_BC: Tensor, label_B: Tensor) -> Tensor:
        """Mean over the batch, a scalar: labels (B,), or (B, C) of 0 and 1."""
        if label_B.ndim == logits_BC.ndim:
            # 1 where the row has the label, else -1
            sign_BC = 2 * label_B.to(logits_BC.dtype) - 1
            return self._mean(functional.logsigmoid(sign_BC * logits_BC))
        log_p_BC = functional.log_softmax(logits_BC, dim=-1)
        return self._mean(log_p_BC.gather(1, label_B[:, None])[:, 0])

    def _mean(self, log_p: Tensor) -> Tensor:
        """Mean loss, from ``log p_y``, the log-probabilities of the right answers."""
        p_wrong = (-log_p.expm1()).clamp_min(1e-12)
        return -(self.alpha * p_wrong**self.gamma * log_p).mean()
