"""What a loss is.

B batch, C classes.
"""

from abc import ABC, abstractmethod

from torch import Tensor


class Loss(ABC):
    """A number to minimise, a mean over rows, of which none looks at another.

    Options are the keyword-only arguments of the constructor.
    """

    @abstractmethod
    def __call__(self, logits_BC: Tensor, label_B: Tensor) -> Tensor:
        """Mean loss of a batch, a scalar: logits (B, C), labels (B,) int64."""
