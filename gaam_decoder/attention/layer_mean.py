"""Mean of the layers: a control."""

from torch import Tensor

from gaam_decoder.attention.base import Attention

ALIASES = ("mean", "average")


class LayerMean(Attention):
    """A control: the mean of all layers.

    Formula: ``y = (1/L) sum_l x_l``. No parameters.
    """

    @property
    def output_shape(self) -> tuple[int, int]:
        return 1, self.hidden_size

    def forward(self, x_BLD: Tensor) -> Tensor:
        """(B, L, D) -> (B, 1, D)."""
        return x_BLD.mean(1, keepdim=True)
