"""One linear map of all features of all layers.

B batch, L layers, D hidden size, C classes, E features before a mechanism's final map.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from gaam_decoder.heads.base import Head

FEW_CLASSES = 16
"""Up to this number, joining two maps into one is less work than both maps of a row."""

ALIASES = ("logistic", "softmax")


class LinearHead(Head):
    """A linear probe: ``logits = W vec(x) + b``.

    ``W`` (classes, layers x hidden_size) starts Xavier-uniform, ``b`` (classes,) at 0.
    """

    def __init__(self, num_layers: int, hidden_size: int, num_classes: int) -> None:
        super().__init__(num_layers, hidden_size, num_classes)
        self.fc = nn.Linear(num_layers * hidden_size, num_classes)
        nn.init.xavier_uniform_(self.fc.weight)
        nn.init.zeros_(self.fc.bias)

    def forward(
        self,
        x_BLD: Tensor,
        noise_BK: Tensor | None = None,  # noqa: ARG002
    ) -> Tensor:
        """(B, L, D) -> (B, C). There is no dropout, so the noise is not used."""
        logits_BC: Tensor = self.fc(x_BLD.flatten(1))
        return logits_BC

    @property
    def joins_final_map(self) -> bool:
        # a subclass that overrides forward() computes something else
        is_linear = type(self).forward is LinearHead.forward
        return is_linear and self.num_classes <= FEW_CLASSES

    def after_final_map(self, final_map: nn.Linear, y_BLE: Tensor) -> Tensor:
        """Logits of ``final_map(y)``, by one map that is the product of both.

        ``y_BLE`` are the E features of every layer before the final map.
        """
        weight_CLD = torch.unflatten(self.fc.weight, 1, (self.num_layers, -1))
        bias_C = self.fc.bias + weight_CLD.sum(1) @ final_map.bias
        weight_CLE = weight_CLD @ final_map.weight
        return functional.linear(y_BLE.flatten(1), weight_CLE.flatten(1), bias_C)
