"""Multi-head self-attention, then batch normalisation.

B batch, L layers, D hidden size.
"""

from typing import Any

from torch import Tensor, nn

from gaam_decoder.attention.mha import MHA


class MHABN(MHA):
    """``mha``, then batch normalisation with the layers as channels.

    Formula: ``y = BatchNorm_l(mha(x))``: per layer, over batch and features, with a
    learned scale and shift.

    In training, the statistics are those of the batch; in evaluation, those that the
    training collected. Options as in ``mha``.

    Source: the baseline of arXiv 2401.11143 and its published code; Ioffe & Szegedy
    2015, arXiv 1502.03167.
    """

    def __init__(self, num_layers: int, hidden_size: int, **more: Any) -> None:
        super().__init__(num_layers, hidden_size, **more)
        self.bn = nn.BatchNorm1d(num_layers)

    def forward(self, x_BLD: Tensor) -> Tensor:
        """(B, L, D) -> (B, L, D)."""
        y_BLD = super().forward(x_BLD)
        # statistics are never bfloat16
        normed_BLD: Tensor = self.bn(y_BLD.to(self.bn.weight.dtype))
        return normed_BLD
