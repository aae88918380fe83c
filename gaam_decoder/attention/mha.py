"""Multi-head self-attention over the encoder layers.

B batch, L layers, D hidden size, H heads, E = D / H size of a head, C = 2 D; S
sequences of T items: B rows of L layers, or in the published form L layers of B rows.
"""

from torch import Tensor, nn
from torch.nn import functional

from gaam_decoder.attention.frames.num_heads import heads_over_features
from gaam_decoder.attention.frames.softmax import (
    Projected,
    join_heads,
    softmax_attention,
    softmax_weights,
    split_heads,
)

ALIASES = ("multi-head", "self-attention", "softmax", "transformer")


class MHA(Projected):
    """Multi-head scaled dot-product self-attention over the layers of a row.

    Formula: ``y = concat_h(softmax(Q_h K_h^T / sqrt(E)) V_h) W_o``, with Q, K and V
    linear in x, and E the size of a head.

    ``published=true`` does what the published code does, which its description does not
    say: the input is not batch-first. So attention runs across the rows of a batch,
    separately for every layer, and the output for a row depends on the other rows of
    its batch, also in evaluation.

    Args:
        heads: H; must divide the hidden size. Default: the largest divisor up to 8.
        published: attend across the rows of a batch instead of the layers.

    Source: Vaswani et al. 2017, arXiv 1706.03762, section 3.2.2; published code of
    arXiv 2401.11143. Initialisation as in ``torch.nn.MultiheadAttention``:
    Xavier-uniform over the stacked projection, biases of 0.
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
        # as published, attention runs across the rows of a batch
        self.depends_on_batch = published
        self.in_proj = nn.Linear(hidden_size, 3 * hidden_size)
        self.out_proj = nn.Linear(hidden_size, hidden_size)
        nn.init.xavier_uniform_(self.in_proj.weight)
        nn.init.zeros_(self.in_proj.bias)
        nn.init.zeros_(self.out_proj.bias)

    @property
    def projection(self) -> nn.Linear:
        return self.out_proj

    def before_final_map(self, x_BLD: Tensor) -> Tensor:
        """Attend over layers, or over rows if ``published``: (B, L, D) -> (B, L, D)."""
        # S sequences of T items: rows of layers, or as published layers of rows
        x_STD = x_BLD.transpose(0, 1) if self.depends_on_batch else x_BLD
        q_STD, k_STD, v_STD = self.in_proj(x_STD).chunk(3, -1)
        y_SHTE = softmax_attention(
            split_heads(q_STD, self.heads),
            split_heads(k_STD, self.heads),
            split_heads(v_STD, self.heads),
        )
        y_STD = join_heads(y_SHTE)
        return y_STD.transpose(0, 1) if self.depends_on_batch else y_STD

    def attention_map(self, x_BLD: Tensor) -> Tensor | None:
        """Softmax weights, (B, H, L, L): how much layer i (row) reads of j (column).

        None if ``published``, which reads the rows of a batch instead of layers.
        """
        if self.depends_on_batch:
            return None
        # queries and keys are the first two thirds of the map; values need no map here
        width = 2 * self.hidden_size
        qk_BLC = functional.linear(
            x_BLD, self.in_proj.weight[:width], self.in_proj.bias[:width]
        )
        q_BLD, k_BLD = qk_BLC.chunk(2, -1)
        return softmax_weights(
            split_heads(q_BLD, self.heads), split_heads(k_BLD, self.heads)
        )
