"""A part of every row's positions, which is pooled alone.

B batch, T positions, W positions of the longest part, D hidden size.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class Span(NamedTuple):
    """Positions from ``start_B`` on, ``length_B`` of them, at most ``width``."""

    start_B: Tensor  # noqa: N815 a shape suffix
    length_B: Tensor  # noqa: N815
    width: int
    """W: kept beside the lengths, so that nobody waits for a device."""

    def of(self, x_BTD: Tensor) -> Tensor:
        """These positions moved to the front, (B, W, D): what is behind a part may be anything."""
        position_W = torch.arange(self.width, device=x_BTD.device)
        start_B = self.start_B.to(x_BTD.device)
        place_BW = (start_B[:, None] + position_W).clamp_max(x_BTD.shape[1] - 1)
        return x_BTD[torch.arange(len(x_BTD), device=x_BTD.device)[:, None], place_BW]
