"""What a seed leaves behind when it is trained.

N test rows, V rows that choose, C classes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor


@dataclass(kw_only=True, slots=True)
class SeedResult:
    """What one seed left behind; tensors on the CPU."""

    seed: int
    failed: str | None
    """Why it stopped, or None."""
    epoch: int
    """Epoch that was kept, from 1; 0 where it failed."""
    seconds: float
    """Of a seed that was trained in a group: the time of the group divided by its size."""
    weights: dict[str, Tensor]
    test_logits: Tensor
    """(N, C); NaN where it failed. Of a final model N is 0."""
    attention_map: Tensor | None
    """Mean over the test rows; None where there are none."""
    learned: dict[str, Tensor]
    """Parameters that mean something by themselves, in their domain: ``Attention.learned``."""
    log: list[dict[str, Any]]
    validation_logits: Tensor | None = None
    """Of the rows of train that chose the epoch, as it was kept, (V, C); NaN where it failed, or
    they are not finite. None where no rows of train chose."""
