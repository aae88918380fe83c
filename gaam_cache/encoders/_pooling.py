"""Masked pooling over tokens: pure functions, float32 accumulation.

B batch, T tokens, D hidden size. Padding sits on the right, so that a length per row says it all.
Padded positions are filled, never multiplied: 0 x inf is NaN, and a padded position may hold
anything.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from gaam_cache.errors import ConfigError
from gaam_cache.plugins import unknown


def _real_B1T1(x_BTD: Tensor, length_B: Tensor) -> Tensor:
    position_T = torch.arange(x_BTD.shape[1], device=x_BTD.device)
    return (position_T < length_B[:, None]).unsqueeze(-1)


def mean(x_BTD: Tensor, length_B: Tensor) -> Tensor:
    """Mean over the real tokens, accumulated in float32 (float64 for float64 input)."""
    dtype = torch.promote_types(x_BTD.dtype, torch.float32)
    filled_BTD = x_BTD.masked_fill(~_real_B1T1(x_BTD, length_B), 0)
    return filled_BTD.sum(1, dtype=dtype) / length_B[:, None].to(dtype)


def last(x_BTD: Tensor, length_B: Tensor) -> Tensor:
    """State of the last real token, the summary of a causal encoder."""
    row_B = torch.arange(x_BTD.shape[0], device=x_BTD.device)
    return x_BTD[row_B, length_B - 1].float()


def first(x_BTD: Tensor, length_B: Tensor) -> Tensor:  # noqa: ARG001 one signature for all
    """State of the first token ([CLS] in BERT)."""
    return x_BTD[:, 0].float()


def max(x_BTD: Tensor, length_B: Tensor) -> Tensor:
    """Largest value of every feature over the real tokens."""
    filled_BTD = x_BTD.masked_fill(~_real_B1T1(x_BTD, length_B), -torch.inf)
    return filled_BTD.amax(1).float()


POOLINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "mean": mean,
    "last": last,
    "first": first,
    "max": max,
}


def check_names(names: tuple[str, ...]) -> None:
    """Refuse unknown or repeated poolings.

    Raises:
        ConfigError: listing the valid names.
    """
    for name in names:
        if name not in POOLINGS:
            raise unknown("pooling", name, POOLINGS, found=f"--pool {','.join(names)}")
    if len(set(names)) != len(names):
        raise ConfigError("a pooling is given twice", found=",".join(names))
