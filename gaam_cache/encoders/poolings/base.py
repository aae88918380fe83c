"""What a pooling over tokens is: masked, accumulated in float32.

B batch, T tokens, D hidden size. Padding sits on the right, so that a length per row says it all.
Padded positions are filled, never multiplied: 0 x inf is NaN, and a padded position may hold
anything.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from gaam_cache.common import plugins
from gaam_cache.common.errors import ConfigError

PACKAGE = "gaam_cache.encoders.poolings"


class Pooling(ABC):
    """A pure function of states and lengths."""

    summary: ClassVar[bool] = False
    """Whether it is the state of a position that stands for the whole, such as a class token. Where
    an encoder keeps such positions apart from those of the parts, it is given those alone."""

    @abstractmethod
    def __call__(self, x_BTD: Tensor, length_B: Tensor) -> Tensor:
        """One state a row.

        Shape:
            x_BTD: (B, T, D), on the device of ``length_B``. Result: (B, D), float32 at least.
        """


def filled(x_BTD: Tensor, length_B: Tensor, value: float) -> Tensor:
    """The states with ``value`` in the place of padding."""
    position_T = torch.arange(x_BTD.shape[1], device=x_BTD.device)
    real_BT = position_T < length_B[:, None]
    return x_BTD.masked_fill(~real_BT.unsqueeze(-1), value)


def load_poolings(names: Sequence[str]) -> dict[str, Pooling]:
    """The poolings of these names."""
    found = f"--pool {','.join(names)}"
    loaded = {
        name: plugins.load(PACKAGE, name, kind="pooling", found=found)()
        for name in names
    }
    if len(loaded) != len(names):
        raise ConfigError("a pooling is given twice", found=",".join(names))
    return loaded
