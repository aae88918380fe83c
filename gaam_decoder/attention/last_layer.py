"""The last layer alone: a control."""

from torch import Tensor

from gaam_decoder.attention.base import Attention

ALIASES = ("last", "final-layer")


class LastLayer(Attention):
    """A control: the last layer, as most probes use an encoder.

    Formula: ``y = x_L``. No parameters.
    """

    @property
    def output_shape(self) -> tuple[int, int]:
        return 1, self.hidden_size

    def forward(self, x_BLD: Tensor) -> Tensor:
        return x_BLD[:, -1:]
