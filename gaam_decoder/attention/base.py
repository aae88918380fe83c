"""What a mechanism is: the base class of all mechanisms.

B batch, L encoder layers, D hidden size; L' and D' are those of the output.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from gaam_cache.common.own_code import RemembersCode


class Attention(RemembersCode, nn.Module, ABC):
    """Maps a stack of pooled encoder states (B, L, D) to (B, L', D').

    A mechanism is written for one seed. Its options are the keyword-only arguments of
    its constructor, with types and defaults. The command line, ``gaam describe`` and
    the checks of option names read them from there.

    Args:
        num_layers: L, layers of the encoder.
        hidden_size: D, hidden size of the encoder.
    """

    depends_on_batch: bool = False
    """Whether the output for a row depends on the other rows of its batch, also in
    evaluation. Such a mechanism is evaluated in batches of the training's size, with
    the rows in their order."""
    stackable: bool = True
    """Whether ``torch.func.vmap`` can run several seeds at once; else a loop does."""
    implied_options: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Option that is true or false -> the options that it sets where it is true.

    With ``{"published": {"init": "xavier-normal"}}``, ``published=true`` sets ``init``,
    unless a spec gives ``init``, too. Names and keys of runs spell ``init`` out."""

    def __init__(self, num_layers: int, hidden_size: int) -> None:
        super().__init__()
        self.num_layers = num_layers
        self.hidden_size = hidden_size

    @property
    def output_shape(self) -> tuple[int, int]:
        """(L', D'); most mechanisms keep (L, D)."""
        return self.num_layers, self.hidden_size

    @abstractmethod
    def forward(self, x_BLD: Tensor) -> Tensor:
        """Apply the mechanism: (B, L, D) -> (B, L', D')."""

    @property
    def final_map(self) -> nn.Linear | None:
        """The linear map of the features that ends ``forward``, if one does.

        Then ``forward(x)`` is ``final_map(before_final_map(x))``, and a linear head may
        join the map to its own.
        """
        return None

    def before_final_map(self, x_BLD: Tensor) -> Tensor:
        """The input of ``final_map``, (B, L', E), where there is such a map."""
        raise NotImplementedError

    def attention_map(self, x_BLD: Tensor) -> Tensor | None:  # noqa: ARG002
        """The weights that ``forward`` applies to every row; None if it has none.

        Shape:
            A gate has (B, L, D), or (B, L, 1) where all features share a weight. H
            heads with Q queries that read the layers have (B, H, Q, L), which sums to 1
            over L.
        """
        return None

    def learned(self) -> dict[str, Tensor]:
        """Parameters with a meaning of their own, by name, as ``forward`` uses them.

        A report shows their ranges after training. Projections are not among them.
        """
        return {}
