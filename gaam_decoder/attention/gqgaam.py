"""Gaussian adaptive attention, then grouped-query attention.

B batch, L layers, D hidden size, H heads of the gate.
"""

from typing import Any

from torch import Tensor

from gaam_decoder.attention.frames.density import Location, Normalize
from gaam_decoder.attention.frames.grouped_query import MappedGroupedQuery
from gaam_decoder.attention.gaam import GAAM


class GQGAAM(MappedGroupedQuery):
    """``gaam``, then a linear map to ``width``, then ``gqa``.

    Formula: ``y = gqa(W_m gaam(x) + b_m)``.

    ``published=true`` uses the published form of grouped-query attention, and sets
    ``init=xavier-normal``: see ``gqa``.

    Args:
        heads: heads of the Gaussian gate; must divide L and leave groups of two or more
            layers.
        location: statistics of the gate, mean or median.
        normalize: normalisation of the gate, peak or density.

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
        # more: the options of gqa
        super().__init__(num_layers, hidden_size, **more)
        self.gaam = GAAM(
            num_layers, hidden_size, heads=heads, location=location, normalize=normalize
        )
        self.heads = self.gaam.heads

    def gate(self, x_BLD: Tensor) -> Tensor:
        """The Gaussian gate: (B, L, D) -> (B, L, D)."""
        gated_BLD: Tensor = self.gaam(x_BLD)
        return gated_BLD

    def attention_map(self, x_BLD: Tensor) -> Tensor:
        """The weights of the Gaussian gate, (B, L, D).

        The paper computes its importance factor from them.
        """
        return self.gaam.attention_map(x_BLD)

    def learned(self) -> dict[str, Tensor]:
        """``offset`` and ``xi`` of the gate, each (H, D)."""
        return self.gaam.learned()
