"""Modules that we did not write, with our weights."""

from __future__ import annotations

import torch
from torch import nn


def torch_multihead_attention(
    projections: tuple[nn.Linear, nn.Linear, nn.Linear],
    out_proj: nn.Linear,
    num_heads: int,
) -> nn.MultiheadAttention:
    """Torch's module over (batch, sequence, width), with separate projections."""
    attention = nn.MultiheadAttention(
        out_proj.out_features, num_heads, batch_first=True
    )
    weights: list[torch.Tensor] = [projection.weight for projection in projections]
    biases: list[torch.Tensor] = [projection.bias for projection in projections]
    attention.load_state_dict(
        {
            "in_proj_weight": torch.cat(weights),
            "in_proj_bias": torch.cat(biases),
            "out_proj.weight": out_proj.weight,
            "out_proj.bias": out_proj.bias,
        }
    )
    return attention
