"""Dot-product mechanisms against torch's own and against loops."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from gaam_decoder.attention import Attention
from gaam_decoder.attention.mha import MHA
from gaam_decoder.decoder import build_attention
from gaam_decoder.specs import parse_attention
from tests.decoder.attention.references import torch_multihead_attention

L = 6
D = 16
B = 5


def build(text: str) -> Attention:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build_attention(parse_attention(text), L, D)


def build_mha(text: str) -> MHA:
    attention = build(text)
    assert isinstance(attention, MHA)
    return attention


def inputs() -> torch.Tensor:
    return torch.randn(B, L, D, generator=torch.Generator().manual_seed(1))


def torch_attention(mha: MHA, *, batch_first: bool) -> torch.nn.MultiheadAttention:
    """Torch's module with the weights of this mechanism."""
    attention = torch.nn.MultiheadAttention(D, mha.heads, batch_first=batch_first)
    attention.load_state_dict(
        {
            "in_proj_weight": mha.in_proj.weight,
            "in_proj_bias": mha.in_proj.bias,
            "out_proj.weight": mha.out_proj.weight,
            "out_proj.bias": mha.out_proj.bias,
        }
    )
    return attention


def test_mha_equals_torch_multihead_attention_over_layers() -> None:
    mha = build_mha("mha:heads=4")
    x = inputs()
    reference = torch_attention(mha, batch_first=True)
    expected, weights = reference(x, x, x, average_attn_weights=False)
    torch.testing.assert_close(mha(x), expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(mha.attention_map(x), weights, atol=1e-6, rtol=0)


def test_published_mha_equals_torch_multihead_attention_over_samples() -> None:
    mha = build_mha("mha:heads=4,published=true")
    x = inputs()
    expected, _ = torch_attention(mha, batch_first=False)(x, x, x)
    torch.testing.assert_close(mha(x), expected, atol=1e-6, rtol=0)
    assert (mha(x) - build("mha:heads=4")(x)).abs().max() > 1e-2


@pytest.mark.parametrize("is_training", [True, False], ids=["training", "evaluating"])
def test_mha_bn_is_mha_and_then_batch_normalisation_of_layers(
    is_training: bool,
) -> None:
    mha_bn = build("mha-bn").train(is_training)
    mha = build("mha")
    mha.load_state_dict(mha_bn.state_dict(), strict=False)
    y = mha(inputs()).detach().numpy()
    mean = np.zeros(1)
    variance = np.ones(1)
    if is_training:
        mean = y.mean((0, 2), keepdims=True)
        variance = y.var((0, 2), keepdims=True)
    expected = (y - mean) / np.sqrt(variance + 1e-5)
    normalised = mha_bn(inputs()).detach().numpy()
    np.testing.assert_allclose(normalised, expected, atol=1e-5)


def test_mha_starts_like_torch_multihead_attention() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        reference = torch.nn.MultiheadAttention(256, 8)
        mha = MHA(4, 256)
    for weight, expected in (
        (mha.in_proj.weight, reference.in_proj_weight),
        (mha.out_proj.weight, reference.out_proj.weight),
    ):
        std = weight.std().item()
        np.testing.assert_allclose(std, expected.std().item(), rtol=0.02)
    assert mha.in_proj.bias.abs().sum() == 0
    assert mha.out_proj.bias.abs().sum() == 0


def test_grouped_queries_with_a_head_each_are_multi_head_attention() -> None:
    gqa: Any = build("gqa:kv_heads=4,query_heads=4,width=32")
    core = gqa.core
    projections = (core.q_proj, core.k_proj, core.v_proj)
    reference = torch_multihead_attention(projections, core.out_proj, 4)
    x = inputs()
    mapped = gqa.map(x)
    expected, weights = reference(mapped, mapped, mapped, average_attn_weights=False)
    torch.testing.assert_close(gqa(x), expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(gqa.attention_map(x), weights, atol=1e-6, rtol=0)
