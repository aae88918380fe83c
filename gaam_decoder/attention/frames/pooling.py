"""The base class of mechanisms whose learned queries read the layers.

B batch, L layers, D hidden size, H heads.
"""

from abc import abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional

from gaam_cache.common.errors import check_option
from gaam_decoder.attention.base import Attention
from gaam_decoder.attention.frames.num_heads import DEFAULT_HEADS


class LayerPooling(Attention):
    """H learned queries; each of them reads one weighted mean of the layers.

    ``y_h = sum_l w_hl x_l``, where the weights w of a head sum to 1 over the layers. A
    mechanism adds ``weights``.

    The values x_l are the layers as they are. The keys k_l are the layers with mean 0
    and variance 1 over their features. So queries start at the scale of the keys,
    whatever the encoder.

    Args:
        heads: H, learned queries.
    """

    def __init__(
        self, num_layers: int, hidden_size: int, *, heads: int = DEFAULT_HEADS
    ) -> None:
        super().__init__(num_layers, hidden_size)
        check_option(heads >= 1, "heads", heads, ">= 1")
        self.heads = heads
        self.query = nn.Parameter(torch.empty(heads, hidden_size))
        # with small queries all layers have nearly equal weights at the start
        nn.init.normal_(self.query, std=0.1)

    @property
    def output_shape(self) -> tuple[int, int]:
        return self.heads, self.hidden_size

    @abstractmethod
    def weights(self, key_BLD: Tensor) -> Tensor:
        """How much every query reads of every layer, (B, H, L); sums to 1 over L."""

    def forward(self, x_BLD: Tensor) -> Tensor:
        """Read the layers: (B, L, D) -> (B, H, D)."""
        w_BHL = self.weights(self._keys(x_BLD))
        return w_BHL.to(x_BLD.dtype) @ x_BLD

    def attention_map(self, x_BLD: Tensor) -> Tensor:
        """The weights, (B, H, 1, L)."""
        return self.weights(self._keys(x_BLD)).unsqueeze(2)

    def _keys(self, x_BLD: Tensor) -> Tensor:
        """The normalised layers, (B, L, D), in float32 or wider."""
        wide_BLD = x_BLD.to(torch.promote_types(x_BLD.dtype, torch.float32))
        return functional.layer_norm(wide_BLD, (self.hidden_size,))
