"""Grouped-query attention over the encoder layers."""

from gaam_decoder.attention.frames.grouped_query import MappedGroupedQuery

ALIASES = ("grouped-query",)


class GQA(MappedGroupedQuery):
    """A linear map to ``width``, then attention whose query heads share key-value heads.

    Formula: ``y = concat_i(softmax(Q_i K_g(i)^T / sqrt(E)) V_g(i)) W_o`` of ``W_m x + b_m``,
    ``g(i) = i // (query_heads / kv_heads)``.

    ``published=true`` does what the published code does: queries of a group are summed before the
    softmax, scores are divided by ``sqrt(E)`` twice, a LayerNorm precedes the output projection,
    and the attended width is ``kv_heads * E``. It brings ``init=xavier-normal``, as that code
    starts, unless ``init=xavier-uniform`` is given; either can be had without the other.

    Source: Ainslie et al. 2023, arXiv 2305.13245; published code of arXiv 2401.11143. The map
    starts as ``torch.nn.Linear`` does, the projections as ``init`` says, with biases zero.
    """
