"""What a mechanism is.

B batch, L encoder layers, D hidden size.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn


class Attention(nn.Module, ABC):
    """Maps a stack of pooled encoder states (B, L, D) to (B, L', D').

    A mechanism is written for one seed. Its options are the keyword-only arguments of its
    constructor, annotated and with defaults: the command line, ``gaam describe`` and the checks of
    option names all read them from there.

    Args:
        num_layers: L, layers of the encoder.
        hidden_size: D, hidden size of the encoder.
    """

    depends_on_batch: bool = False
    """Whether a sample's output depends on its neighbours in evaluation too; such a mechanism is
    evaluated in batches of the training's size, in the order of the rows."""
    stackable: bool = True
    """Whether ``torch.func.vmap`` can run several seeds of it at once; if not, seeds are looped."""
    smooth: bool = True
    """Whether it is differentiable everywhere; others have corners that finite differences miss."""

    brings: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Option of yes or no -> options that come with it, unless they are given too: what is written
    ``published=true`` is then spelled out, in names and keys as well."""

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

    def attention_map(self, x_BLD: Tensor) -> Tensor | None:  # noqa: ARG002
        """The weights that ``forward`` applies to every sample, or None if it has none.

        Shape:
            A gate has (B, L, D), or (B, L, 1) where all features share a weight; what reads layers
            with H heads and Q queries has (B, H, Q, L), each row of L summing to 1.
        """
        return None

    def learned(self) -> dict[str, Tensor]:
        """Parameters that mean something by themselves, by name, as ``forward`` uses them.

        A report shows their ranges after training. Projections are not among them.
        """
        return {}
