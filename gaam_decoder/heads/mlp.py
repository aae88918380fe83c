"""A perceptron with one hidden layer.

B batch, L layers, D hidden size, C classes, K hidden units.
"""

from torch import Tensor, nn
from torch.nn import functional

from gaam_cache.common.errors import check_option
from gaam_decoder.heads.base import Head

ALIASES = ("feed-forward", "two-layer")


class MLPHead(Head):
    """One hidden layer: ``logits = W2 dropout(gelu(W1 vec(x) + b1)) + b2``.

    ``W1`` (width, layers x hidden_size) and ``W2`` (classes, width) start
    Xavier-uniform, ``b1`` and ``b2`` at 0.

    Args:
        width: K, hidden units.
        dropout: probability in [0, 1) that a hidden unit is set to zero in training;
            the others are divided by ``1 - dropout``.
    """

    def __init__(
        self,
        num_layers: int,
        hidden_size: int,
        num_classes: int,
        *,
        width: int = 512,
        dropout: float = 0.1,
    ) -> None:
        super().__init__(num_layers, hidden_size, num_classes)
        check_option(width >= 1, "width", width, ">= 1")
        check_option(0 <= dropout < 1, "dropout", dropout, "0 <= p < 1")
        self.dropout = dropout
        self.num_noise = width if dropout else 0
        self.fc1 = nn.Linear(num_layers * hidden_size, width)
        self.fc2 = nn.Linear(width, num_classes)
        for module in (self.fc1, self.fc2):
            nn.init.xavier_uniform_(module.weight)
            nn.init.zeros_(module.bias)

    def forward(self, x_BLD: Tensor, noise_BK: Tensor | None = None) -> Tensor:
        """(B, L, D) -> (B, C), through K hidden units.

        ``noise_BK`` is a random number for each unit of each row, which decides whether
        dropout leaves it out; None in evaluation.
        """
        hidden_BK = functional.gelu(self.fc1(x_BLD.flatten(1)))
        if noise_BK is not None:
            # dropout, by uniform random numbers
            hidden_BK = hidden_BK * (noise_BK >= self.dropout) / (1 - self.dropout)
        logits_BC: Tensor = self.fc2(hidden_BK)
        return logits_BC
