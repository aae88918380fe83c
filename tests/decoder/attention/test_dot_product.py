"""Dot-product mechanisms against torch's own and against loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from gaam_decoder.attention._base import Attention
from gaam_decoder.attention._grouped_query import GroupedQueryAttention
from gaam_decoder.attention.mha import MHA
from gaam_decoder.attention.scalar_mix import ScalarMix
from gaam_decoder.decoder import build_attention
from gaam_decoder.specs import parse_attention
from tests.decoder.attention.references import torch_multihead_attention

L, D, B = 6, 16, 5


def build(text: str) -> Attention:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build_attention(parse_attention(text), L, D)


def inputs(width: int = D) -> torch.Tensor:
    return torch.randn(B, L, width, generator=torch.Generator().manual_seed(1))


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
    np.testing.assert_allclose(attention(inputs()).detach().numpy(), expected, atol=1e-5)


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
    torch.manual_seed(0)
    ours = GroupedQueryAttention(32, 4, 4, published=False)
    projections = (ours.q_proj, ours.k_proj, ours.v_proj)
    theirs = torch_multihead_attention(projections, ours.out_proj, 4)
    x = inputs(32)
    expected, weights = theirs(x, x, x, average_attn_weights=False)
    torch.testing.assert_close(ours(x), expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(ours.attention_map(x), weights, atol=1e-6, rtol=0)


@pytest.mark.parametrize("kv_heads", [1, 2])
def test_grouped_queries_equal_loops_over_heads(kv_heads: int) -> None:
    torch.manual_seed(0)
    core = GroupedQueryAttention(32, 8, kv_heads, published=False).double()
    x = inputs(32).double()
    q, k, v = core.q_proj(x), core.k_proj(x), core.v_proj(x)
    heads = []
    for i in range(8):
        own, shared = slice(4 * i, 4 * i + 4), i // (8 // kv_heads)
        kv = slice(4 * shared, 4 * shared + 4)
        weight = torch.softmax(q[..., own] @ k[..., kv].transpose(1, 2) / 2, dim=-1)
        heads.append(weight @ v[..., kv])
    expected = core.out_proj(torch.cat(heads, -1))
    torch.testing.assert_close(core(x), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("published", ["false", "true"])
def test_mqa_is_gqa_with_one_key_value_head(published: str) -> None:
    mqa = build(f"mqa:published={published}")
    gqa = build(f"gqa:kv_heads=1,published={published}")
    assert torch.equal(mqa(inputs()), gqa(inputs()))


def test_gqgaam_is_gaam_and_then_gqa() -> None:
    whole, gaam, gqa = build("gqgaam"), build("gaam"), build("gqa")
    with torch.no_grad():
        whole.gaam.offset.normal_()
    gaam.load_state_dict(whole.gaam.state_dict())
    gqa.load_state_dict(whole.state_dict(), strict=False)
    torch.testing.assert_close(whole(inputs()), gqa(gaam(inputs())), atol=0, rtol=0)
    assert whole.output_shape == (L, 512)


def test_scalar_mix_is_a_weighted_sum() -> None:
    attention = ScalarMix(L, D)
    with torch.no_grad():
        attention.s.copy_(torch.arange(L) / 3)
        attention.gamma.fill_(1.5)
    x = inputs()
    weight = np.exp(np.arange(L) / 3) / np.exp(np.arange(L) / 3).sum()
    expected = 1.5 * np.tensordot(weight, x.numpy(), axes=([0], [1]))
    np.testing.assert_allclose(attention(x)[:, 0].detach().numpy(), expected, atol=1e-5)
    np.testing.assert_allclose(attention.learned()["weight"].detach().numpy(), weight, atol=1e-6)
    assert attention.output_shape == (1, D)


def test_controls_read_what_they_say() -> None:
    x = inputs()
    assert torch.equal(build("none")(x), x)
    assert torch.equal(build("last-layer")(x), x[:, -1:])
    np.testing.assert_allclose(build("layer-mean")(x)[:, 0], x.numpy().mean(1), atol=1e-6)
