"""Gaussian adaptive attention, then grouped-query attention."""

from typing import Any

from torch import Tensor

from gaam_decoder.attention.frames.density import Location, Normalize
from gaam_decoder.attention.frames.grouped_query import MappedGroupedQuery
from gaam_decoder.attention.gaam import GAAM


class GQGAAM(MappedGroupedQuery):
    """``gaam``, then a linear map to ``width``, then ``gqa``.

    Formula: ``y = gqa(W_m gaam(x) + b_m)``.

    ``published=true`` uses the published form of grouped-query attention, ``init=xavier-normal``
    its start alone: see ``gqa``.

    Args:
        heads: heads of the Gaussian gate; must divide L and leave groups of two or more layers.
        location: statistics of the gate.
        normalize: normalisation of the gate.

    Source: Ioannides, Chadha, Elkins 2024, arXiv 2401.11143, GQGAAM; published code.
    """

    def __init__(
        self,
        num_layers: int,
        hidden_size: int,
        *,
        heads: int | None = None,
        location: Location = "mean",
        normalize: Normalize = "peak",
        **more: Any,
    ) -> None:
        super().__init__(num_layers, hidden_size, **more)
        self.gaam = GAAM(
            num_layers, hidden_size, heads=heads, location=location, normalize=normalize
        )
        self.heads = self.gaam.heads

    def gated(self, x_BLD: Tensor) -> Tensor:
        """The Gaussian gate: (B, L, D) -> (B, L, D)."""
        return self.gaam(x_BLD)

    def attention_map(self, x_BLD: Tensor) -> Tensor:
        """The Gaussian gate's weights, (B, L, D): what the importance factor of the paper is of."""
        return self.gaam.attention_map(x_BLD)

    def learned(self) -> dict[str, Tensor]:
        """``offset`` and ``xi`` of the gate, (H, D)."""
        return self.gaam.learned()
