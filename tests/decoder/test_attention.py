"""One contract over every mechanism, and the laws of single ones."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gaam_cache import registry
from gaam_cache.errors import ConfigError
from gaam_decoder.attention._base import Attention
from gaam_decoder.attention.gaam import GAAM
from gaam_decoder.attention.laplace import Laplace
from gaam_decoder.attention.mha import MHA
from gaam_decoder.attention.scalar_mix import ScalarMix
from gaam_decoder.config import Spec, parse_attention
from gaam_decoder.decoder import build_attention

MECHANISMS = registry.names("gaam_decoder.attention")
L, D, B = 6, 16, 5


def build(name: str, **options: object) -> Attention:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build_attention(Spec(name, tuple(options.items())), L, D)


def inputs(kind: str = "ordinary", dtype: torch.dtype = torch.float32) -> torch.Tensor:
    x = torch.randn(B, L, D, generator=torch.Generator().manual_seed(1), dtype=dtype)
    if kind == "constant":
        x = torch.ones_like(x)
    elif kind == "massive":
        x[0, 3, 2] = 1e4
    return x * {"huge": 1e4, "tiny": 1e-6}.get(kind, 1.0)


@pytest.mark.parametrize("name", MECHANISMS)
@pytest.mark.parametrize("kind", ["ordinary", "constant", "huge", "tiny", "massive"])
def test_output_and_gradients_are_finite(name: str, kind: str) -> None:
    attention = build(name)
    x = inputs(kind).requires_grad_()
    y = attention(x)
    assert y.shape == (B, *attention.output_shape)
    assert y.isfinite().all()
    y.square().sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    for key, parameter in attention.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key
        if kind == "ordinary":
            assert parameter.grad.abs().sum() > 0, key


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_sample_does_not_depend_on_its_neighbours(name: str) -> None:
    attention = build(name).double()
    x = inputs(dtype=torch.float64)
    alone = torch.cat([attention(x[i : i + 1]) for i in range(B)])
    torch.testing.assert_close(attention(x), alone, atol=1e-12, rtol=0)


@pytest.mark.parametrize("name", MECHANISMS)
def test_bfloat16_autocast_stays_near_float32(name: str) -> None:
    attention = build(name)
    x = inputs()
    with torch.autocast("cpu", torch.bfloat16):
        half = attention(x).float()
    full = attention(x)
    assert (half - full).norm() < 2e-2 * full.norm()


@pytest.mark.parametrize("name", MECHANISMS)
def test_gradients_equal_finite_differences(name: str) -> None:
    attention = build(name).double()
    x = inputs(dtype=torch.float64)[:2].requires_grad_()
    assert torch.autograd.gradcheck(attention, (x,), atol=1e-5)


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_attention_map_is_per_sample(name: str) -> None:
    weights = build(name).attention_map(inputs())
    assert weights is None or (len(weights) == B and (weights >= 0).all())


@pytest.mark.parametrize("name", MECHANISMS)
def test_parameters_stay_in_their_domain_under_aggressive_steps(name: str) -> None:
    attention = build(name)
    if not list(attention.parameters()):
        pytest.skip("no parameters")
    optimizer = torch.optim.AdamW(attention.parameters(), lr=0.3, weight_decay=0.5)
    for step in range(200):
        optimizer.zero_grad()
        y = attention(inputs() * (1 if step % 2 else 5))
        (y.sum() + y.square().mean()).backward()
        optimizer.step()
    assert attention(inputs()).isfinite().all()


def brute_force_gate(
    x: np.ndarray, heads: int, offset: np.ndarray, density, median: bool = False
) -> np.ndarray:
    """The gate by loops in float64."""
    w = np.zeros_like(x)
    size = x.shape[1] // heads
    for b in range(x.shape[0]):
        for h in range(heads):
            for d in range(x.shape[2]):
                group = x[b, h * size : (h + 1) * size, d]
                if median:
                    loc = np.median(group)
                    spread2 = np.mean(np.abs(group - loc)) ** 2 + 1e-8
                else:
                    loc = np.mean(group)
                    spread2 = abs(np.mean(group**2) - loc**2) + 1e-8
                r = (group - (loc + offset[h, d])) / np.sqrt(spread2 + 1e-5)
                w[b, h * size : (h + 1) * size, d] = density(r, h, d)
    return w


@pytest.mark.parametrize("location", ["mean", "median"])
@pytest.mark.parametrize("heads", [1, 2, 3])
@pytest.mark.parametrize("name", ["gaam", "laplace"])
def test_density_gates_equal_brute_force(name: str, heads: int, location: str) -> None:
    attention = build(name, heads=heads, location=location).double()
    shape = attention.xi if name == "gaam" else attention.b
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        attention.offset.normal_(std=0.2, generator=generator)
        shape.uniform_(0.5, 3.0, generator=generator)
    scale = shape.detach().numpy()

    def density(r: np.ndarray, h: int, d: int) -> np.ndarray:
        if name == "gaam":
            return scipy.stats.norm.pdf(r, scale=scale[h, d] ** 0.5) / scipy.stats.norm.pdf(
                0, scale=scale[h, d] ** 0.5
            )
        return scipy.stats.laplace.pdf(r, scale=scale[h, d]) * 2 * scale[h, d]

    x = inputs(dtype=torch.float64)
    expected = brute_force_gate(
        x.numpy(), heads, attention.offset.detach().numpy(), density, location == "median"
    )
    np.testing.assert_allclose(attention.attention_map(x).detach().numpy(), expected, atol=1e-12)
    y = attention(x).detach().numpy()
    np.testing.assert_allclose(y, x.numpy() * expected, atol=1e-12)


@pytest.mark.parametrize(("cls", "parameter"), [(GAAM, "xi"), (Laplace, "b")])
@pytest.mark.parametrize("value", [0.1, 1.0, 7.0])
def test_normalised_densities_integrate_to_one(cls: type, parameter: str, value: float) -> None:
    attention = cls(L, D, normalize="density").double()
    with torch.no_grad():
        getattr(attention, parameter).fill_(value)
    r = torch.linspace(-200, 200, 400_001, dtype=torch.float64)
    grid = r.view(1, 1, -1, 1).expand(1, attention.heads, -1, D)
    w = (attention.density(grid) * attention.constant()[:, None]).detach()
    np.testing.assert_allclose(torch.trapezoid(w[0, 0, :, 0], r).item(), 1.0, atol=1e-4)


@settings(deadline=None, max_examples=30)
@given(shift=st.floats(-5, 5), scale=st.floats(0.5, 20), seed=st.integers(0, 1000))
def test_shift_and_scale_leave_the_gate_unchanged(shift: float, scale: float, seed: int) -> None:
    x = torch.randn(2, L, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    assume(x.var(1, correction=0).min() > 0.05)  # where the two epsilons do not matter
    for name in ("gaam", "laplace"):
        attention = build(name, heads=1).double()
        moved = attention.attention_map(scale * x + shift)
        torch.testing.assert_close(moved, attention.attention_map(x), atol=2e-3, rtol=0)


def test_peak_of_a_gate_is_one() -> None:
    for name in ("gaam", "laplace"):
        attention = build(name).double()
        assert attention.attention_map(torch.zeros(1, L, D, dtype=torch.float64)).eq(1).all()
        assert attention.attention_map(inputs(dtype=torch.float64)).le(1).all()


def test_mha_equals_torch_multihead_attention_over_layers() -> None:
    attention = build("mha", heads=4)
    theirs = torch.nn.MultiheadAttention(D, 4, batch_first=True)
    theirs.load_state_dict(
        {
            "in_proj_weight": attention.in_proj.weight,
            "in_proj_bias": attention.in_proj.bias,
            "out_proj.weight": attention.out_proj.weight,
            "out_proj.bias": attention.out_proj.bias,
        }
    )
    x = inputs()
    expected, weights = theirs(x, x, x, average_attn_weights=False)
    torch.testing.assert_close(attention(x), expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(attention.attention_map(x), weights, atol=1e-6, rtol=0)


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


def test_scalar_mix_is_a_weighted_sum() -> None:
    attention = ScalarMix(L, D)
    with torch.no_grad():
        attention.s.copy_(torch.arange(L) / 3)
        attention.gamma.fill_(1.5)
    x = inputs()
    weight = np.exp(np.arange(L) / 3) / np.exp(np.arange(L) / 3).sum()
    expected = 1.5 * np.tensordot(weight, x.numpy(), axes=([0], [1]))
    np.testing.assert_allclose(attention(x)[:, 0].detach().numpy(), expected, atol=1e-5)
    assert attention.output_shape == (1, D)


@pytest.mark.parametrize(("layers", "heads"), [(40, 8), (24, 8), (12, 6), (6, 3), (7, 1), (2, 1)])
def test_default_heads_divide_the_layers(layers: int, heads: int) -> None:
    assert GAAM(layers, 4).heads == heads


@pytest.mark.parametrize("heads", [0, 4, 6, 12])
def test_heads_that_leave_single_layers_are_refused(heads: int) -> None:
    with pytest.raises(ConfigError, match="1, 2, 3"):
        GAAM(6, 4, heads=heads)


def test_an_encoder_of_one_layer_is_refused_by_density_gates() -> None:
    with pytest.raises(ConfigError, match="at least two layers"):
        GAAM(1, 4)


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("laplace:location=median,heads=2", "laplace:heads=2,location=median"),
        ("gaam:normalize=peak", "gaam"),
        (" mha ", "mha"),
    ],
)
def test_specs_have_one_canonical_form(text: str, canonical: str) -> None:
    assert str(parse_attention(text)) == canonical


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gaam:head=2", r"heads=\.\.\., location=\.\.\., normalize=\.\.\."),
        ("gaam:heads", r"unknown option 'heads'"),
        ("gaam:heads=two", r"type int"),
        ("gaam:location=mode", r"mean, median"),
        ("none:x=1", r"no options"),
        ("", r"unknown mechanism ''"),
        ("GAAM", r"unknown mechanism 'GAAM'"),
    ],
)
def test_bad_specs_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_attention(text)
