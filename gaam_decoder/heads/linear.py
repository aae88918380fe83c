"""One linear map of everything."""

from torch import Tensor, nn
from torch.nn import functional

from gaam_decoder.heads.base import Head

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

    def after(self, last: nn.Linear, y_BLE: Tensor) -> Tensor:
        """Logits of ``last(y)``, by one map for both: fewer products where classes are few."""
        weight_CLD = self.fc.weight.unflatten(1, (self.num_layers, -1))
        bias_C = self.fc.bias + weight_CLD.sum(1) @ last.bias
        return functional.linear(
            y_BLE.flatten(1), (weight_CLD @ last.weight).flatten(1), bias_C
        )
