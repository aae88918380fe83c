"""Grouped-query attention over a sequence, in its standard and its published form.

B batch, L layers, D hidden size, W width, Q query heads, H key-value heads, E = W / Q
size of a head, A heads that attend: Q, or H in the published form; K = H E, width of
keys and values; F = A E, width of all that the heads read.
"""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from gaam_cache.common.errors import check_option
from gaam_decoder.attention.frames.softmax import (
    LayerNorm,
    Projected,
    join_heads,
    softmax_attention,
    softmax_weights,
    split_heads,
)

Init = Literal["xavier-uniform", "xavier-normal"]
INITS = {
    "xavier-uniform": nn.init.xavier_uniform_,
    "xavier-normal": nn.init.xavier_normal_,
}


class GroupedQueryAttention(nn.Module):
    """Query heads in groups; the heads of a group share a key-value head.

    Standard: query head i reads key-value head ``i // (Q / H)``. With H = Q it is
    multi-head attention, with H = 1 multi-query attention.

    Published form, that of the code of arXiv 2401.11143: the queries of a group are
    summed before the softmax, the scores are divided by ``sqrt(E)`` twice, and a
    LayerNorm precedes the output projection, which is H E -> W.

    Args:
        width: W.
        query_heads: Q; must divide W.
        kv_heads: H; must divide Q.
        published: use the published form.
        init: initial distribution of the weights of all four projections, with gain 1;
            their biases start at 0.

    Source: Ainslie et al. 2023, arXiv 2305.13245; published code of arXiv 2401.11143,
    whose form is that of github.com/fkodom/grouped-query-attention-pytorch, with
    Xavier-normal initialisation.
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
        expected = f"a divisor of the width, {width}"
        check_option(fits, "query_heads", query_heads, expected)
        fits = kv_heads >= 1 and query_heads % kv_heads == 0
        expected = f"a divisor of query_heads, {query_heads}"
        check_option(fits, "kv_heads", kv_heads, expected)

        self.query_heads = query_heads
        self.kv_heads = kv_heads
        self.has_published_form = published
        kv_width = width // query_heads * kv_heads
        # in the published form the queries of a group are summed to one, so that as
        # many heads attend as there are key-value heads; a LayerNorm follows them
        attending_width = kv_width if published else width
        self.q_proj = nn.Linear(width, width)
        self.k_proj = nn.Linear(width, kv_width)
        self.v_proj = nn.Linear(width, kv_width)
        self.norm = LayerNorm(attending_width) if published else nn.Identity()
        self.out_proj = nn.Linear(attending_width, width)
        for module in (self.q_proj, self.k_proj, self.v_proj, self.out_proj):
            INITS[init](module.weight)
            nn.init.zeros_(module.bias)

    def forward(self, x_BLW: Tensor) -> Tensor:
        """Attend, without the last map: (B, L, W) -> (B, L, F).

        F is the width of the A heads that attend, each of size E. The map ``out_proj``
        follows, which gives (B, L, W).
        """
        q_BALE, k_BALE = self._queries_and_keys(x_BLW)
        v_BALE = self._split_and_repeat(self.v_proj(x_BLW))
        y_BALE = softmax_attention(q_BALE, k_BALE, v_BALE, self._scale(q_BALE))
        y_BLF: Tensor = self.norm(join_heads(y_BALE))
        return y_BLF

    def attention_map(self, x_BLW: Tensor) -> Tensor:
        """Softmax weights, (B, A, L, L): how much layer i (row) reads of j (column).

        A is the number of heads that attend: the query heads, or in the published form
        the key-value heads.
        """
        q_BALE, k_BALE = self._queries_and_keys(x_BLW)
        return softmax_weights(q_BALE, k_BALE, self._scale(q_BALE))

    def _queries_and_keys(self, x_BLW: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys of the A heads that attend, each (B, A, L, E).

        A is the number of query heads, or in the published form of key-value heads; E
        is the size of a head.
        """
        q_BALE = split_heads(self.q_proj(x_BLW), self.query_heads)
        if self.has_published_form:
            # the queries of a group are summed
            q_BALE = torch.unflatten(q_BALE, 1, (self.kv_heads, -1)).sum(2)
        return q_BALE, self._split_and_repeat(self.k_proj(x_BLW))

    def _split_and_repeat(self, key_or_value_BLK: Tensor) -> Tensor:
        """Keys or values for the A heads that attend: (B, L, K) -> (B, A, L, E).

        K = H E is the width of H key-value heads of size E. In the standard form the
        query heads of a group share a key-value head, which is repeated for each of
        them. In the published form the key-value heads themselves attend: A is H.
        """
        shared_BHLE = split_heads(key_or_value_BLK, self.kv_heads)
        if self.has_published_form:
            return shared_BHLE
        group_size = self.query_heads // self.kv_heads
        return shared_BHLE.repeat_interleave(group_size, dim=1)

    def _scale(self, q_BALE: Tensor) -> float:
        """``1 / sqrt(E)`` for heads of size E, or its square in the published form."""
        size = q_BALE.shape[-1]
        scale: float = 1 / size if self.has_published_form else size**-0.5
        return scale


class MappedGroupedQuery(Projected):
    """A linear map D -> W, then grouped-query attention over layers in W dimensions.

    Args:
        kv_heads: key-value heads; must divide ``query_heads``.
        query_heads: heads of the queries; must divide ``width``.
        width: W, dimensions after the map; 512 as published for gqa.
        published: the published form of the attention; it sets ``init=xavier-normal``
            unless ``init`` is given.
        init: initial distribution of the weights of the projections.
    """

    implied_options: ClassVar = {"published": {"init": "xavier-normal"}}

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

    @property
    def projection(self) -> nn.Linear:
        return self.core.out_proj

    def gate(self, x_BLD: Tensor) -> Tensor:
        """Change the layers before the map, (B, L, D) -> (B, L, D); here nothing."""
        return x_BLD

    def before_final_map(self, x_BLD: Tensor) -> Tensor:
        """Map, then attend over layers: (B, L, D) -> (B, L, F), F the heads' width."""
        y_BLF: Tensor = self.core(self.map(self.gate(x_BLD)))
        return y_BLF

    def attention_map(self, x_BLD: Tensor) -> Tensor:
        """Softmax weights of the A heads, (B, A, L, L).

        They say how much layer i (row) reads of layer j (column).
        """
        return self.core.attention_map(self.map(self.gate(x_BLD)))
