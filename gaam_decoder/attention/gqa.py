"""Grouped-query attention over the encoder layers."""

from gaam_decoder.attention.frames.grouped_query import MappedGroupedQuery

ALIASES = ("grouped-query",)


class GQA(MappedGroupedQuery):
    """A linear map to ``width``, then attention of queries that share key-value heads.

    Formula: ``y = concat_i(softmax(Q_i K_g(i)^T / sqrt(E)) V_g(i)) W_o``, with Q, K and
    V linear in ``W_m x + b_m``, E the size of a head and
    ``g(i) = i // (query_heads / kv_heads)``.

    ``published=true`` does what the published code does: the queries of a group are
    summed before the softmax, the scores are divided by ``sqrt(E)`` twice, a LayerNorm
    precedes the output projection, and the attended width is ``kv_heads * E``. It sets
    ``init=xavier-normal``, as that code does; ``init=xavier-uniform`` beside it wins.
    ``init=xavier-normal`` can also be had alone.

    Source: Ainslie et al. 2023, arXiv 2305.13245; published code of arXiv 2401.11143.
    W_m and b_m start as in ``torch.nn.Linear``, the projections as ``init`` says, with
    biases of 0.
    """
