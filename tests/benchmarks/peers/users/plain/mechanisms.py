"""Four mechanisms over layers, with a linear head."""

import torch
from torch import nn


class Gate(nn.Module):
    """Gaussian or Laplace gate, every head over its own neighbouring layers."""

    def __init__(self, laplace: bool, size: int, heads: int = 3):
        super().__init__()
        self.laplace = laplace
        self.heads = heads
        self.offset = nn.Parameter(torch.zeros(heads, 1, size))
        self.scale = nn.Parameter(torch.full((heads, 1, size), 1.0 if laplace else 2.0))

    def forward(self, x):
        groups = x.unflatten(1, (self.heads, -1))
        mean = groups.mean(2, keepdim=True)
        variance = ((groups**2).mean(2, keepdim=True) - mean**2).abs() + 1e-8
        r = (groups - mean - self.offset) / (variance + 1e-5).sqrt()
        scale = self.scale.clamp(min=1e-3)
        gate = torch.exp(-r.abs() / scale if self.laplace else -(r**2) / (2 * scale))
        return x * gate.flatten(1, 2)


class SelfAttention(nn.Module):
    def __init__(self, size: int, heads: int = 8):
        super().__init__()
        self.attention = nn.MultiheadAttention(size, heads, batch_first=True)

    def forward(self, x):
        return self.attention(x, x, x, need_weights=False)[0]


def make_decoder(name: str, layers: int, size: int, classes: int):
    attention = {
        "gaam": lambda: Gate(False, size),
        "laplace": lambda: Gate(True, size),
        "mha": lambda: SelfAttention(size),
        "none": nn.Identity,
    }[name]()
    head = nn.Linear(layers * size, classes)
    nn.init.xavier_uniform_(head.weight)
    nn.init.zeros_(head.bias)
    return nn.Sequential(attention, nn.Flatten(), head)
