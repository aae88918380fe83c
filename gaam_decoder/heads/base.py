"""What a head is.

B batch, L layers (as the attention leaves them), D hidden size, C classes, K noise per sample.
"""

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

from torch import Tensor, nn


class Head(nn.Module, ABC):
    """Maps what an attention leaves, (B, L, D), to logits (B, C).

    A head draws no random numbers while it trains: it says how many it needs for every sample, and
    is handed them. Every seed can then have a stream of its own, alone or in a group.

    Args:
        num_layers: L of the attention's output.
        hidden_size: D of the attention's output.
        num_classes: C.
    """

    trained_by: ClassVar[Literal["steps", "fit"]] = "steps"
    """steps: gradients, over epochs, each seed by itself; fit: at once, as a ``FittedHead`` is."""
    tries: ClassVar[int] = 0  # values of a setting that a fit compares
    stackable: bool = True
    """Whether several seeds are run at once by ``torch.func.vmap``; if not, seeds are looped."""
    num_noise: int = 0  # K, uniform numbers in [0, 1) that one sample needs in training

    def __init__(self, num_layers: int, hidden_size: int, num_classes: int) -> None:
        super().__init__()
        self.num_layers = num_layers
        self.hidden_size = hidden_size
        self.num_classes = num_classes

    @abstractmethod
    def forward(self, x_BLD: Tensor, noise_BK: Tensor | None = None) -> Tensor:
        """(B, L, D) -> logits (B, C); ``noise_BK`` None is evaluation."""
