"""The state of the first token."""

from typing import ClassVar

from torch import Tensor

from gaam_cache.encoders.poolings.base import Pooling


class First(Pooling):
    """State of the first token ([CLS] in BERT)."""

    summary: ClassVar[bool] = True

    def __call__(self, x_BTD: Tensor, length_B: Tensor) -> Tensor:  # noqa: ARG002
        """Return the first state of every row, (B, D) in float32."""
        return x_BTD[:, 0].float()
