"""Modules that we did not write, with our weights."""

from __future__ import annotations

import torch
from torch import nn


def torch_multihead_attention(
    projections: tuple[nn.Linear, nn.Linear, nn.Linear], out_proj: nn.Linear, heads: int
) -> nn.MultiheadAttention:
    """``torch.nn.MultiheadAttention`` over (batch, sequence, width) with separate projections."""
    theirs = nn.MultiheadAttention(out_proj.out_features, heads, batch_first=True)
    theirs.load_state_dict(
        {
            "in_proj_weight": torch.cat([p.weight for p in projections]),
            "in_proj_bias": torch.cat([p.bias for p in projections]),
            "out_proj.weight": out_proj.weight,
            "out_proj.bias": out_proj.bias,
        }
    )
    return theirs
