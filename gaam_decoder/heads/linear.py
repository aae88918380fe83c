"""One linear map of everything."""

from torch import Tensor, nn

from gaam_decoder.heads._base import Head

ALIASES = ("logistic", "softmax")


class LinearHead(Head):
    """``logits = W vec(x) + b``, W Xavier-uniform, b zero: a linear probe."""

    def __init__(self, num_layers: int, hidden_size: int, num_classes: int) -> None:
        super().__init__(num_layers, hidden_size, num_classes)
        self.fc = nn.Linear(num_layers * hidden_size, num_classes)
        nn.init.xavier_uniform_(self.fc.weight)
        nn.init.zeros_(self.fc.bias)

    def forward(self, x_BLD: Tensor, noise_BK: Tensor | None = None) -> Tensor:  # noqa: ARG002
        """(B, L, D) -> (B, C); takes no noise."""
        return self.fc(x_BLD.flatten(1))
