"""Multi-head self-attention over the encoder layers.

B batch, L layers, D hidden size, H heads, E = D / H; S sequences of T: samples of layers, layers of
samples if published.
"""

from torch import Tensor, nn
from torch.nn import functional

from gaam_decoder.attention.frames.num_heads import heads_over_features
from gaam_decoder.attention.frames.softmax import (
    Projected,
    joined,
    softmax_attention,
    softmax_weights,
    split,
)

ALIASES = ("multi-head", "self-attention", "softmax", "transformer")


class MHA(Projected):
    """Multi-head scaled dot-product self-attention; the layers of one sample are the sequence.

    Formula: ``y = concat_h(softmax(Q_h K_h^T / sqrt(E)) V_h) W_o``, Q, K, V linear in x.

    ``published=true`` does what the published code does, which is not what its description says:
    the input is not batch-first, so attention runs across the samples of a batch, separately for
    every layer, and a sample's output depends on its neighbours, in evaluation too.

    Args:
        heads: H; must divide the hidden size. Default: the largest divisor up to 8.
        published: attend across samples instead of layers.

    Source: Vaswani et al. 2017, arXiv 1706.03762, section 3.2.2; published code of arXiv
    2401.11143. Initialisation as in ``torch.nn.MultiheadAttention``: Xavier-uniform over the
    stacked projection, biases zero.
    """

    def __init__(
        self,
        num_layers: int,
        hidden_size: int,
        *,
        heads: int | None = None,
        published: bool = False,
    ) -> None:
        super().__init__(num_layers, hidden_size)
        self.heads = heads_over_features(hidden_size, heads)
        self.depends_on_batch = published
        self.in_proj = nn.Linear(hidden_size, 3 * hidden_size)
        self.out_proj = nn.Linear(hidden_size, hidden_size)
        nn.init.xavier_uniform_(self.in_proj.weight)
        nn.init.zeros_(self.in_proj.bias)
        nn.init.zeros_(self.out_proj.bias)

    def unprojected(self, x_BLD: Tensor) -> Tensor:
        """Attend over layers, or over samples if ``published``: (B, L, D) -> (B, L, D)."""
        x_STD = x_BLD.transpose(0, 1) if self.depends_on_batch else x_BLD
        q_SHTE, k_SHTE, v_SHTE = (
            split(one, self.heads) for one in self.in_proj(x_STD).chunk(3, -1)
        )
        y_STD = joined(softmax_attention(q_SHTE, k_SHTE, v_SHTE))
        return y_STD.transpose(0, 1) if self.depends_on_batch else y_STD

    def attention_map(self, x_BLD: Tensor) -> Tensor | None:
        """Softmax weights, (B, H, L, L): how much layer i (row) reads of layer j (column).

        None if ``published``: samples are read there, not layers.
        """
        if self.depends_on_batch:
            return None
        about = (
            one[: 2 * self.hidden_size]
            for one in (self.in_proj.weight, self.in_proj.bias)
        )
        q_BLD, k_BLD = functional.linear(x_BLD, *about).chunk(2, -1)
        return softmax_weights(split(q_BLD, self.heads), split(k_BLD, self.heads))
