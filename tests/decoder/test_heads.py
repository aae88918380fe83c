from __future__ import annotations

import pytest
import torch

from gaam_cache import registry
from gaam_decoder.heads.conv import grid


@pytest.mark.parametrize(
    ("hidden_size", "expected"),
    [
        (5120, (64, 80)),
        (1024, (32, 32)),
        (384, (16, 24)),
        (512, (64, 8)),
        (24, (4, 6)),
        (7, (1, 7)),
    ],
)
def test_the_grid_is_the_most_nearly_square(hidden_size: int, expected: tuple[int, int]) -> None:
    assert grid(hidden_size) == expected


@pytest.mark.parametrize("name", registry.names("gaam_decoder.heads"))
@pytest.mark.parametrize("num_layers", [1, 6])
def test_heads_give_finite_logits_and_gradients(name: str, num_layers: int) -> None:
    with torch.random.fork_rng():
        # seeded: the last ReLU of a conv head with one channel is dead for about one seed in ten
        torch.manual_seed(1)
        head = registry.load("gaam_decoder.heads", name, kind="head")(num_layers, 12, 3)
        x = torch.randn(4, num_layers, 12)
    logits = head(x)
    assert logits.shape == (4, 3)
    logits.square().sum().backward()
    for key, parameter in head.named_parameters():
        assert parameter.grad.isfinite().all(), key
        assert parameter.grad.abs().sum() > 0, key
