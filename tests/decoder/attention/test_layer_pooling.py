"""Mechanisms whose queries read the layers, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gaam_decoder.attention import LayerPooling
from gaam_decoder.attention.nadaraya_watson import kernel_weights
from gaam_decoder.decoder import build_attention
from gaam_decoder.specs import parse_attention
from tests.decoder.attention.references import torch_multihead_attention

L, D, B = 6, 16, 5
KERNELS = {
    "gaussian": lambda u: np.exp(-(u**2) / 2),
    "boxcar": lambda u: (u <= 1).astype(float),
    "epanechnikov": lambda u: np.maximum(0.75 * (1 - u**2), 0),
}


def build(text: str) -> LayerPooling:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        attention = build_attention(parse_attention(text), L, D).double()
    assert isinstance(attention, LayerPooling)
    return attention


def inputs() -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(B, L, D, generator=generator, dtype=torch.float64)


def normalised(x: torch.Tensor) -> NDArray[np.float64]:
    a = x.numpy()
    return (a - a.mean(-1, keepdims=True)) / np.sqrt(a.var(-1, keepdims=True) + 1e-5)


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernel_regression_on_the_textbook_example(kernel: str) -> None:
    """y = 2 sin x + x, 50 random points, estimated on a grid: the closed form by loops."""
    generator = np.random.default_rng(0)
    x = np.sort(generator.uniform(0, 5, 50))
    y = 2 * np.sin(x) + x + generator.normal(size=50)
    grid, bandwidth = np.arange(0, 5, 0.1), 0.7
    distance = np.abs(grid[:, None] - x) / bandwidth
    weights = kernel_weights(torch.from_numpy(distance), kernel).numpy()
    np.testing.assert_allclose(weights.sum(1), 1, atol=1e-12)
    for place, at in enumerate(grid):
        k = KERNELS[kernel](np.abs(at - x) / bandwidth)
        assert k.sum() > 0
        np.testing.assert_allclose(
            weights[place] @ y, (k * y).sum() / k.sum(), atol=1e-12
        )
    truth = 2 * np.sin(grid) + grid
    assert np.abs(weights @ y - truth).mean() < 0.5


@settings(deadline=None, max_examples=50)
@given(
    u=st.lists(st.floats(0, 50), min_size=1, max_size=8),
    kernel=st.sampled_from(sorted(KERNELS)),
)
def test_kernel_weights_sum_to_one_even_if_the_window_is_empty(
    u: list[float], kernel: str
) -> None:
    values = torch.tensor(u, dtype=torch.float64, requires_grad=True)
    weights = kernel_weights(values, kernel)
    np.testing.assert_allclose(weights.sum().item(), 1, atol=1e-12)
    if kernel != "gaussian" and min(u) > 1:
        assert weights[int(np.argmin(u))] == 1
    (weights * torch.arange(len(u))).sum().backward()
    assert values.grad.isfinite().all()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("distances", [[0.3, 0.8, 1.3], [1.5, 2.0, 2.5]])
def test_every_kernel_has_a_gradient_inside_and_outside_the_window(
    kernel: str, distances: list[float]
) -> None:
    u = torch.tensor(distances, requires_grad=True)
    (kernel_weights(u, kernel) * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    # moving the farthest layer closer moves the weighted mean up
    reachable = kernel != "epanechnikov" or min(distances) > 1
    assert (u.grad[2] < 0) == reachable
    assert u.grad.abs().sum() > 0


@pytest.mark.parametrize("kernel", KERNELS)
def test_nadaraya_watson_equals_loops(kernel: str) -> None:
    attention = build(f"nadaraya-watson:kernel={kernel},heads=3")
    with torch.no_grad():
        attention.h.copy_(torch.tensor([0.9, 1.05, 2.0], dtype=torch.float64))
    x = inputs()
    key, query = normalised(x), attention.query.detach().numpy()
    expected = np.zeros((B, 3, D))
    for b in range(B):
        for h, bandwidth in enumerate((0.9, 1.05, 2.0)):
            u = np.sqrt(((query[h] - key[b]) ** 2).mean(1)) / bandwidth
            k = KERNELS[kernel](u)
            if k.sum() == 0:
                k[u.argmin()] = 1
            expected[b, h] = k @ x[b].numpy() / k.sum()
    np.testing.assert_allclose(attention(x).detach().numpy(), expected, atol=1e-9)


def test_dot_equals_torch_attention_with_learned_queries() -> None:
    attention = build("dot:heads=3")
    x = inputs()
    key = torch.from_numpy(normalised(x))
    query = attention.query.expand(B, -1, -1)
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, x)
    torch.testing.assert_close(attention(x), expected, atol=1e-12, rtol=0)


def test_additive_equals_loops() -> None:
    attention = build("additive:heads=2,width=7")
    x = inputs()
    key, query = normalised(x), attention.query.detach().numpy()
    w_q = attention.query_proj.weight.detach().numpy()
    w_k = attention.key_proj.weight.detach().numpy()
    w = attention.w.detach().numpy()
    for b in range(B):
        for h in range(2):
            score = np.array([w @ np.tanh(w_q @ query[h] + w_k @ k) for k in key[b]])
            weight = np.exp(score) / np.exp(score).sum()
            ours = attention(x)[b, h].detach().numpy()
            np.testing.assert_allclose(ours, weight @ x[b].numpy(), atol=1e-12)


def test_perceiver_equals_torch_modules() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        ours = build_attention(
            parse_attention("perceiver:latents=3,heads=2,width=12"), L, D
        )
    x = inputs().float()

    def theirs(
        part: torch.nn.Module, query: torch.Tensor, key: torch.Tensor
    ) -> torch.Tensor:
        projections = (part.q_proj, part.k_proj, part.v_proj)
        attention = torch_multihead_attention(projections, part.out_proj, 2)
        return attention(query, key, key, need_weights=False)[0]

    z = ours.latents.expand(B, -1, -1)
    z = z + theirs(ours.cross, z, ours.in_norm(ours.in_proj(x)))
    normed = ours.self_norm(z)
    z = z + theirs(ours.self_attention, normed, normed)
    z = z + ours.mlp(ours.mlp_norm(z))
    torch.testing.assert_close(
        ours(x), ours.out_proj(ours.out_norm(z)), atol=1e-6, rtol=0
    )
