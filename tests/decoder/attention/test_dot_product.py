"""Dot-product mechanisms against torch's own and against loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gaam_decoder.attention import Attention
from gaam_decoder.attention.mha import MHA
from gaam_decoder.decoder import build_attention
from gaam_decoder.specs import parse_attention
from tests.decoder.attention.references import torch_multihead_attention

L, D, B = 6, 16, 5


def build(text: str) -> Attention:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build_attention(parse_attention(text), L, D)


def inputs() -> torch.Tensor:
    return torch.randn(B, L, D, generator=torch.Generator().manual_seed(1))


def torch_attention(ours: MHA, *, batch_first: bool) -> torch.nn.MultiheadAttention:
    theirs = torch.nn.MultiheadAttention(D, ours.heads, batch_first=batch_first)
    theirs.load_state_dict(
        {
            "in_proj_weight": ours.in_proj.weight,
            "in_proj_bias": ours.in_proj.bias,
            "out_proj.weight": ours.out_proj.weight,
            "out_proj.bias": ours.out_proj.bias,
        }
    )
    return theirs


def test_mha_equals_torch_multihead_attention_over_layers() -> None:
    attention = build("mha:heads=4")
    x = inputs()
    theirs = torch_attention(attention, batch_first=True)
    expected, weights = theirs(x, x, x, average_attn_weights=False)
    torch.testing.assert_close(attention(x), expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(attention.attention_map(x), weights, atol=1e-6, rtol=0)


def test_published_mha_equals_torch_multihead_attention_over_samples() -> None:
    attention = build("mha:heads=4,published=true")
    x = inputs()
    expected = torch_attention(attention, batch_first=False)(x, x, x)[0]
    torch.testing.assert_close(attention(x), expected, atol=1e-6, rtol=0)
    assert (attention(x) - build("mha:heads=4")(x)).abs().max() > 1e-2


@pytest.mark.parametrize("training", [True, False])
def test_mha_bn_is_mha_and_then_batch_normalisation_of_layers(training: bool) -> None:
    attention, plain = build("mha-bn").train(training), build("mha")
    plain.load_state_dict(attention.state_dict(), strict=False)
    y = plain(inputs()).detach().numpy()
    if training:
        mean, variance = y.mean((0, 2), keepdims=True), y.var((0, 2), keepdims=True)
    else:
        mean, variance = 0.0, 1.0
    expected = (y - mean) / np.sqrt(variance + 1e-5)
    np.testing.assert_allclose(
        attention(inputs()).detach().numpy(), expected, atol=1e-5
    )


def test_mha_starts_like_torch_multihead_attention() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(5)
        theirs = torch.nn.MultiheadAttention(256, 8)
        ours = MHA(4, 256)
    for mine, other in (
        (ours.in_proj.weight, theirs.in_proj_weight),
        (ours.out_proj.weight, theirs.out_proj.weight),
    ):
        np.testing.assert_allclose(mine.std().item(), other.std().item(), rtol=0.02)
    assert ours.in_proj.bias.abs().sum() == ours.out_proj.bias.abs().sum() == 0


def test_grouped_queries_with_a_head_each_are_multi_head_attention() -> None:
    ours = build("gqa:kv_heads=4,query_heads=4,width=32")
    projections = (ours.core.q_proj, ours.core.k_proj, ours.core.v_proj)
    theirs = torch_multihead_attention(projections, ours.core.out_proj, 4)
    x = inputs()
    expected, weights = theirs(*[ours.map(x)] * 3, average_attn_weights=False)
    torch.testing.assert_close(ours(x), expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(ours.attention_map(x), weights, atol=1e-6, rtol=0)
