"""Cross-entropy.

B batch, C classes.
"""

from torch import Tensor
from torch.nn import functional

from gaam_cache.common.errors import check_option
from gaam_decoder.losses.base import Loss

ALIASES = ("ce", "nll", "log-loss", "label-smoothing")


class CrossEntropy(Loss):
    """``-log p_y``, p the softmax of the logits, y the label; averaged over the batch.

    Formula: ``-(1 - s) log p_y - s/C sum_c log p_c`` with smoothing s.

    Args:
        smoothing: s, 0 to below 1; the share of the target that is spread evenly over
            all classes.

    Source: of the smoothing, Szegedy et al. 2016, arXiv 1512.00567, section 7.
    """

    def __init__(self, *, smoothing: float = 0.0) -> None:
        check_option(0 <= smoothing < 1, "smoothing", smoothing, "0 to below 1")
        self.smoothing = smoothing

    def __call__(self, logits_BC: Tensor, label_B: Tensor) -> Tensor:
        """Mean over the batch, a scalar."""
        return functional.cross_entropy(
            logits_BC, label_B, label_smoothing=self.smoothing
        )
