"""No attention: the control that every mechanism has to beat."""

from torch import Tensor

from gaam_decoder.attention.base import Attention

ALIASES = ("identity", "no-attention")


class NoAttention(Attention):
    """A control, the identity: the head reads all layers as they are.

    Formula: ``y = x``. No parameters.
    """

    def forward(self, x_BLD: Tensor) -> Tensor:
        """(B, L, D) -> (B, L, D), unchanged."""
        return x_BLD
