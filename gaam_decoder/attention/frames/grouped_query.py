"""Grouped-query attention over a sequence, as it should be and as it was published.

B batch, L layers, D hidden size, W width, Q query heads, H key-value heads, A heads that attend (Q;
H in the published form), E = W / Q.
"""

from typing import ClassVar, Literal

from torch import Tensor, nn

from gaam_cache.common.errors import check_option
from gaam_decoder.attention.frames.softmax import (
    LayerNorm,
    Projected,
    joined,
    softmax_attention,
    softmax_weights,
    split,
)

Init = Literal["xavier-uniform", "xavier-normal"]
INITS = {
    "xavier-uniform": nn.init.xavier_uniform_,
    "xavier-normal": nn.init.xavier_normal_,
}


class GroupedQueryAttention(nn.Module):
    """Query heads in groups that share a key-value head.

    Standard: query head i reads key-value head ``i // (Q / H)``; with H = Q it is multi-head
    attention, with H = 1 multi-query attention.

    Published: the queries of a group are summed before the softmax, the scores are divided by
    ``sqrt(E)`` twice, and a LayerNorm precedes the output projection, which is H E -> W.

    Args:
        width: W.
        query_heads: Q; must divide W.
        kv_heads: H; must divide Q.
        published: the published form.
        init: distribution that the weights of all four projections start from, with gain 1; biases
            are zero.

    Source: Ainslie et al. 2023, arXiv 2305.13245; published code of arXiv 2401.11143. Its form is
    that of github.com/fkodom/grouped-query-attention-pytorch, which starts Xavier-normal.
    """

    def __init__(
        self,
        width: int,
        query_heads: int,
        kv_heads: int,
        *,
        published: bool,
        init: Init = "xavier-uniform",
    ) -> None:
        super().__init__()
        fits = query_heads >= 1 and width % query_heads == 0
        check_option(
            fits, "query_heads", query_heads, f"a divisor of the width, {width}"
        )
        fits = kv_heads >= 1 and query_heads % kv_heads == 0
        check_option(
            fits, "kv_heads", kv_heads, f"a divisor of query_heads, {query_heads}"
        )
        self.query_heads = query_heads
        self.kv_heads = kv_heads
        self.published = published
        kv_width = width // query_heads * kv_heads
        self.q_proj = nn.Linear(width, width)
        self.k_proj = nn.Linear(width, kv_width)
        self.v_proj = nn.Linear(width, kv_width)
        self.norm = LayerNorm(kv_width) if published else nn.Identity()
        self.out_proj = nn.Linear(kv_width if published else width, width)
        for module in (self.q_proj, self.k_proj, self.v_proj, self.out_proj):
            INITS[init](module.weight)
            nn.init.zeros_(module.bias)

    def forward(self, x_BLW: Tensor) -> Tensor:
        """(B, L, W) -> (B, L, A E), which ``out_proj`` maps to (B, L, W)."""
        q_BALE, k_BALE = self._query_and_key(x_BLW)
        v_BALE = self._shared(self.v_proj(x_BLW))
        y_BALE = softmax_attention(q_BALE, k_BALE, v_BALE, self._scale(q_BALE))
        normed_BLW: Tensor = self.norm(joined(y_BALE))
        return normed_BLW

    def attention_map(self, x_BLW: Tensor) -> Tensor:
        """Softmax weights, (B, Q, L, L); (B, H, L, L) in the published form."""
        q_BALE, k_BALE = self._query_and_key(x_BLW)
        return softmax_weights(q_BALE, k_BALE, self._scale(q_BALE))

    def _query_and_key(self, x_BLW: Tensor) -> tuple[Tensor, Tensor]:
        q_BQLE = split(self.q_proj(x_BLW), self.query_heads)
        q_BALE = (
            q_BQLE.unflatten(1, (self.kv_heads, -1)).sum(2)
            if self.published
            else q_BQLE
        )
        return q_BALE, self._shared(self.k_proj(x_BLW))

    def _shared(self, projected: Tensor) -> Tensor:
        """Keys or values, (B, L, H E), for every head that attends, (B, A, L, E)."""
        y_BHLE = split(projected, self.kv_heads)
        if self.published:
            return y_BHLE
        return y_BHLE.repeat_interleave(self.query_heads // self.kv_heads, dim=1)

    def _scale(self, q_BALE: Tensor) -> float:
        size = q_BALE.shape[-1]
        return 1 / size if self.published else size**-0.5


class MappedGroupedQuery(Projected):
    """A linear map D -> W, then grouped-query attention over the layers in W dimensions.

    Args:
        kv_heads: must divide ``query_heads``.
        query_heads: must divide ``width``.
        width: W, dimensions after the map, 512 as published for gqa.
        published: the published form of the attention, with ``init=xavier-normal`` unless it is
            given.
        init: distribution that the weights of the projections start from.
    """

    last: ClassVar[str] = "core.out_proj"
    brings: ClassVar = {"published": {"init": "xavier-normal"}}

    def __init__(
        self,
        num_layers: int,
        hidden_size: int,
        *,
        kv_heads: int = 2,
        query_heads: int = 8,
        width: int = 512,
        published: bool = False,
        init: Init = "xavier-uniform",
    ) -> None:
        super().__init__(num_layers, hidden_size)
        check_option(width >= 1, "width", width, ">= 1")
        self.width = width
        self.map = nn.Linear(hidden_size, width)
        self.core = GroupedQueryAttention(
            width, query_heads, kv_heads, published=published, init=init
        )

    @property
    def output_shape(self) -> tuple[int, int]:
        return self.num_layers, self.width

    def gated(self, x_BLD: Tensor) -> Tensor:
        """What happens to the layers before the map, (B, L, D) -> (B, L, D): nothing."""
        return x_BLD

    def unprojected(self, x_BLD: Tensor) -> Tensor:
        """Map and attend over layers: (B, L, D) -> (B, L, A E)."""
        return self.core(self.map(self.gated(x_BLD)))

    def attention_map(self, x_BLD: Tensor) -> Tensor:
        """Softmax weights, (B, heads, L, L): how much layer i (row) reads of layer j (column)."""
        return self.core.attention_map(self.map(self.gated(x_BLD)))
