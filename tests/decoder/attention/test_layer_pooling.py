"""Mechanisms whose queries read the layers, against NumPy."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gaam_decoder.attention import Attention, LayerPooling
from gaam_decoder.attention.nadaraya_watson import kernel_weights
from gaam_decoder.decoder import build_attention
from gaam_decoder.specs import parse_attention
from tests.decoder.attention.references import torch_multihead_attention

Array = NDArray[np.float64]
Kernel = Literal["gaussian", "boxcar", "epanechnikov"]
KERNELS: tuple[Kernel, ...] = ("gaussian", "boxcar", "epanechnikov")
L = 6
D = 16
B = 5


def kernel_function(kernel: Kernel, u: Array) -> Array:
    """The textbook kernel at these distances, without a factor."""
    if kernel == "gaussian":
        return np.asarray(np.exp(-(u**2) / 2))
    if kernel == "boxcar":
        return (u <= 1).astype(float)
    return np.maximum(0.75 * (1 - u**2), 0)


def build(text: str) -> Attention:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build_attention(parse_attention(text), L, D)


def build_pooling(text: str) -> Any:
    """A mechanism whose queries read the layers, in float64."""
    attention = build(text).double()
    assert isinstance(attention, LayerPooling)
    return attention


def inputs() -> torch.Tensor:
    generator = torch.Generator().manual_seed(1)
    return torch.randn(B, L, D, generator=generator, dtype=torch.float64)


def normalised(x: torch.Tensor) -> Array:
    states = x.numpy()
    centred = states - states.mean(-1, keepdims=True)
    return np.asarray(centred / np.sqrt(states.var(-1, keepdims=True) + 1e-5))


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernel_regression_on_the_textbook_example(kernel: Kernel) -> None:
    """y = 2 sin x + x, 50 random points, estimated on a grid: the formula by loops."""
    bandwidth = 0.7
    generator = np.random.default_rng(0)
    x = np.sort(generator.uniform(0, 5, 50))
    y = 2 * np.sin(x) + x + generator.normal(size=50)
    grid = np.arange(0, 5, 0.1)
    distances = np.abs(grid[:, None] - x) / bandwidth
    weights = kernel_weights(torch.from_numpy(distances), kernel).numpy()
    np.testing.assert_allclose(weights.sum(1), 1, atol=1e-12)
    for place in range(len(grid)):
        k = kernel_function(kernel, distances[place])
        assert k.sum() > 0
        expected = (k * y).sum() / k.sum()
        np.testing.assert_allclose(weights[place] @ y, expected, atol=1e-12)
    truth = 2 * np.sin(grid) + grid
    assert np.abs(weights @ y - truth).mean() < 0.5


@settings(deadline=None, max_examples=50)
@given(
    u=st.lists(st.floats(0, 50), min_size=1, max_size=8),
    kernel=st.sampled_from(KERNELS),
)
def test_kernel_weights_sum_to_one_even_if_the_window_is_empty(
    u: list[float], kernel: Kernel
) -> None:
    values = torch.tensor(u, dtype=torch.float64, requires_grad=True)
    weights = kernel_weights(values, kernel)
    np.testing.assert_allclose(weights.sum().item(), 1, atol=1e-12)
    if kernel != "gaussian" and min(u) > 1:
        assert weights[int(np.argmin(u))] == 1
    (weights * torch.arange(len(u))).sum().backward()
    assert values.grad is not None
    assert values.grad.isfinite().all()


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("distances", [[0.3, 0.8, 1.3], [1.5, 2.0, 2.5]])
def test_every_kernel_has_a_gradient_inside_and_outside_the_window(
    kernel: Kernel, distances: list[float]
) -> None:
    u = torch.tensor(distances, requires_grad=True)
    (kernel_weights(u, kernel) * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    # moving the farthest layer closer moves the weighted mean up
    is_reachable = kernel != "epanechnikov" or min(distances) > 1
    assert u.grad is not None
    assert bool(u.grad[2] < 0) == is_reachable
    assert u.grad.abs().sum() > 0


@pytest.mark.parametrize("kernel", KERNELS)
def test_nadaraya_watson_equals_loops(kernel: Kernel) -> None:
    bandwidths = (0.9, 1.05, 2.0)
    pooling = build_pooling(f"nadaraya-watson:kernel={kernel},heads=3")
    with torch.no_grad():
        pooling.h.copy_(torch.tensor(bandwidths, dtype=torch.float64))
    x = inputs()
    key = normalised(x)
    query = pooling.query.detach().numpy()
    expected = np.zeros((B, 3, D))
    for b in range(B):
        for head, bandwidth in enumerate(bandwidths):
            u = np.sqrt(((query[head] - key[b]) ** 2).mean(1)) / bandwidth
            k = kernel_function(kernel, u)
            # of an empty window the nearest layer counts
            if k.sum() == 0:
                k[u.argmin()] = 1
            expected[b, head] = k @ x[b].numpy() / k.sum()
    np.testing.assert_allclose(pooling(x).detach().numpy(), expected, atol=1e-9)


def test_dot_equals_torch_attention_with_learned_queries() -> None:
    pooling = build_pooling("dot:heads=3")
    x = inputs()
    key = torch.from_numpy(normalised(x))
    query = pooling.query.expand(B, -1, -1)
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, x)
    torch.testing.assert_close(pooling(x), expected, atol=1e-12, rtol=0)


def test_additive_equals_loops() -> None:
    pooling = build_pooling("additive:heads=2,width=7")
    x = inputs()
    key = normalised(x)
    query = pooling.query.detach().numpy()
    w_q = pooling.query_proj.weight.detach().numpy()
    w_k = pooling.key_proj.weight.detach().numpy()
    w = pooling.w.detach().numpy()
    y = pooling(x).detach().numpy()
    for b in range(B):
        for head in range(2):
            score = np.array([w @ np.tanh(w_q @ query[head] + w_k @ k) for k in key[b]])
            weight = np.exp(score) / np.exp(score).sum()
            expected = weight @ x[b].numpy()
            np.testing.assert_allclose(y[b, head], expected, atol=1e-12)


def attend(module: Any, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """Torch's attention with the weights of a part of the perceiver."""
    projections = (module.q_proj, module.k_proj, module.v_proj)
    attention = torch_multihead_attention(projections, module.out_proj, 2)
    y, _ = attention(query, key, key, need_weights=False)
    return torch.as_tensor(y)


def test_perceiver_equals_torch_modules() -> None:
    perceiver: Any = build("perceiver:latents=3,heads=2,width=12")
    x = inputs().float()
    z = perceiver.latents.expand(B, -1, -1)
    z = z + attend(perceiver.cross, z, perceiver.in_norm(perceiver.in_proj(x)))
    normed = perceiver.self_norm(z)
    z = z + attend(perceiver.self_attention, normed, normed)
    z = z + perceiver.mlp(perceiver.mlp_norm(z))
    expected = perceiver.out_proj(perceiver.out_norm(z))
    torch.testing.assert_close(perceiver(x), expected, atol=1e-6, rtol=0)
