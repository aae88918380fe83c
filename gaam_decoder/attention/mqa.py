"""Multi-query attention over the encoder layers."""

from gaam_decoder.attention.frames.grouped_query import Init, MappedGroupedQuery

ALIASES = ("multi-query",)


class MQA(MappedGroupedQuery):
    """A linear map to ``width``, then attention of queries with one key-value head.

    Formula: ``y = concat_i(softmax(Q_i K^T / sqrt(E)) V) W_o``, with Q, K and V linear
    in ``W_m x + b_m``, and E the size of a head: ``gqa`` with ``kv_heads=1``.

    ``published=true`` and ``init`` do what they do in ``gqa``.

    Source: Shazeer 2019, arXiv 1911.02150; published code of arXiv 2401.11143.
    """

    def __init__(
        self,
        num_layers: int,
        hidden_size: int,
        *,
        query_heads: int = 8,
        width: int = 512,
        published: bool = False,
        init: Init = "xavier-uniform",
    ) -> None:
        super().__init__(
            num_layers,
            hidden_size,
            kv_heads=1,
            query_heads=query_heads,
            width=width,
            published=published,
            init=init,
        )
