"""The last layer alone: a control."""

from torch import Tensor

from gaam_decoder.attention.base import Attention

ALIASES = ("last", "final-layer")


class LastLayer(Attention):
    """A control: the last layer, which most probes of an encoder read.

    Formula: ``y = x_L``. No parameters.
    """

    @property
    def output_shape(self) -> tuple[int, int]:
        return 1, self.hidden_size

    def forward(self, x_BLD: Tensor) -> Tensor:
        """(B, L, D) -> (B, 1, D)."""
        return x_BLD[:, -1:]
