"""What a pooling is: token states of a layer become one state a row.

B batch, T tokens, D hidden size.

Padding sits on the right, so one length a row describes it. A pooling overwrites padded
positions and never multiplies them by zero: a padded position may hold anything, and
0 x inf is NaN.
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
    """A pure function of a layer's states and the lengths of rows.

    A subclass in a file of this folder is a pooling, and its file's name is the name
    for ``--pool``.
    """

    summary: ClassVar[bool] = False
    """Whether the pooling reads a position that summarises the row, such as a class
    token. An encoder of pictures passes only such positions to the pooling, and to all
    other poolings only the patches."""

    @abstractmethod
    def __call__(self, x_BTD: Tensor, length_B: Tensor) -> Tensor:
        """Pool every row over its first ``length_B`` positions.

        Shape:
            x_BTD: (B, T, D), on the device of ``length_B``.
            length_B: (B,), whole numbers from 1 to T.
            Result: (B, D), in float32 or float64.
        """


def filled(x_BTD: Tensor, length_B: Tensor, value: float) -> Tensor:
    """Return the states with ``value`` at every padded position."""
    position_T = torch.arange(x_BTD.shape[1], device=x_BTD.device)
    is_real_BT = position_T < length_B[:, None]
    return x_BTD.masked_fill(~is_real_BT.unsqueeze(-1), value)


def load_poolings(names: Sequence[str]) -> dict[str, Pooling]:
    """Load the poolings of these names, the values of ``--pool``.

    Raises:
        ConfigError: there is no pooling of a name, or a name is given twice.
    """
    option = f"--pool {','.join(names)}"
    poolings: dict[str, Pooling] = {}
    for name in names:
        pooling_class = plugins.load(PACKAGE, name, kind="pooling", found=option)
        poolings[name] = pooling_class()

    # A dictionary holds a repeated name once.
    if len(poolings) != len(names):
        raise ConfigError("a pooling is given twice", found=",".join(names))
    return poolings
