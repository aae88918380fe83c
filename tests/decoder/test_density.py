"""The laws of the density gates, against SciPy and by loops in float64."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gaam_cache.errors import ConfigError
from gaam_decoder.attention._density import DensityGate, positive
from gaam_decoder.attention.gaam import GAAM
from gaam_decoder.attention.gct import GCT
from gaam_decoder.decoder import build_attention
from gaam_decoder.specs import parse_attention

Array = NDArray[np.float64]
L, D, B = 6, 16, 5
R = np.linspace(-9, 9, 721)
DENSITIES = (
    "gaam",
    "laplace",
    "student-t",
    "chi2",
    "generalized-gaussian",
    "skew-gaussian",
    "asymmetric-gaussian",
)


def gate(text: str, **values: float) -> DensityGate:
    """A gate in float64 with the same parameters for all heads and features."""
    return filled(text, L, D, values)


def filled(text: str, num_layers: int, hidden_size: int, values: dict[str, float]) -> DensityGate:
    attention = build_attention(parse_attention(text), num_layers, hidden_size).double()
    assert isinstance(attention, DensityGate)
    with torch.no_grad():
        for name, value in values.items():
            getattr(attention, name).fill_(value)
    return attention


def curve(text: str, **values: float) -> DensityGate:
    """A gate of one head and one feature: all that a density over r needs."""
    return filled(text, 2, 1, values)


def density(attention: DensityGate, r: Array = R) -> Array:
    """Density at r of a gate of one head and one feature."""
    grid = torch.from_numpy(r).view(1, 1, -1, 1)
    w = attention.density(grid)
    if attention.normalize == "density":
        w = w * attention.constant()[:, None]
    return w[0, 0, :, 0].detach().numpy()


def inputs(seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(B, L, D, generator=generator, dtype=torch.float64)


shapes = st.floats(0.2, 8.0)


@settings(deadline=None, max_examples=40)
@given(scale=shapes, shape=shapes, skew=st.floats(-20, 20))
def test_densities_are_scipys_up_to_the_peak(scale: float, shape: float, skew: float) -> None:
    root = scale**0.5
    cases = [
        (curve("gaam", xi=scale), scipy.stats.norm(scale=root)),
        (curve("laplace", b=scale), scipy.stats.laplace(scale=scale)),
        (curve("student-t", nu=shape, xi=scale), scipy.stats.t(shape, scale=root)),
        (
            curve("generalized-gaussian", alpha=scale, beta=shape),
            scipy.stats.gennorm(shape, scale=scale),
        ),
        (curve("skew-gaussian", xi=scale, a=skew), scipy.stats.skewnorm(skew, scale=root)),
    ]
    for attention, theirs in cases:
        ours = density(attention)
        place = ours.argmax()
        expected = theirs.pdf(R)
        np.testing.assert_allclose(
            ours * expected[place], expected * ours[place], atol=1e-10 * expected[place]
        )


@settings(deadline=None, max_examples=40)
@given(xi=shapes, k=st.floats(2.0, 12.0))
def test_chi2_is_scipys_density_of_the_squared_residual(xi: float, k: float) -> None:
    # for a k within rounding of 2 the logarithm of m is not to be compared
    assume(k == 2 or k > 2.001)
    q = R[R != 0] ** 2 / xi
    expected = scipy.stats.chi2(k).pdf(q) / scipy.stats.chi2(k).pdf(k - 2)
    ours = density(curve("chi2", excess=k - 2, xi=xi), R[R != 0])
    np.testing.assert_allclose(ours, expected, atol=1e-8)


def test_the_skewed_peak_is_one_wherever_it_lies() -> None:
    fine = np.linspace(-2, 2, 400_001)
    for a in (-1000.0, -60.0, -3.0, -0.1, 0.0, 0.5, 7.0, 200.0):
        peak = density(curve("skew-gaussian", xi=1.0, a=a), fine).max()
        np.testing.assert_allclose(peak, 1.0, atol=1e-9)


@settings(deadline=None, max_examples=30)
@given(xi=shapes, b=shapes, seed=st.integers(0, 1000))
def test_identities_between_mechanisms(xi: float, b: float, seed: int) -> None:
    x = inputs(seed)
    gaam, laplace = gate("gaam", xi=xi), gate("laplace", b=b)
    # the paper's offset moves the centre: the identities hold wherever it is
    offset = 0.3 * torch.randn(gaam.offset.shape, dtype=torch.float64)
    same = [
        (gaam, gate("chi2", excess=0.0, xi=xi)),
        (gaam, gate("generalized-gaussian", beta=2.0, alpha=(2 * xi) ** 0.5)),
        (gaam, gate("skew-gaussian", xi=xi, a=0.0)),
        (gaam, gate("asymmetric-gaussian", xi_left=xi, xi_right=xi)),
        (laplace, gate("generalized-gaussian", beta=1.0, alpha=b)),
    ]
    for one, other in same:
        for attention in (one, other):
            with torch.no_grad():
                attention.offset.copy_(offset)
        torch.testing.assert_close(one(x), other(x), atol=1e-12, rtol=0)
    near = gate("student-t", nu=1e8, xi=xi)
    with torch.no_grad():
        near.offset.copy_(offset)
    torch.testing.assert_close(near(x), gaam(x), atol=1e-6, rtol=0)


@settings(deadline=None, max_examples=30)
@given(shift=st.floats(-5, 5), scale=st.floats(0.5, 20), seed=st.integers(0, 1000))
def test_shift_and_scale_leave_the_gate_unchanged(shift: float, scale: float, seed: int) -> None:
    x = inputs(seed)
    assume(x.var(1, correction=0).min() > 0.05)  # where the two epsilons do not matter
    for name in DENSITIES:
        attention = gate(f"{name}:heads=1")
        moved = attention.attention_map(scale * x + shift)
        torch.testing.assert_close(moved, attention.attention_map(x), atol=2e-3, rtol=0)


@pytest.mark.parametrize("name", DENSITIES)
def test_the_peak_of_a_gate_is_one(name: str) -> None:
    attention = gate(name)
    assert density(curve(name)).max() <= 1 + 1e-12
    assert attention.attention_map(torch.zeros(1, L, D, dtype=torch.float64)).sub(1).abs().max() < (
        1e-12
    )
    assert attention.attention_map(inputs()).le(1).all()


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("gaam", {"xi": 0.1}),
        ("gaam", {"xi": 7.0}),
        ("laplace", {"b": 0.1}),
        ("laplace", {"b": 7.0}),
        ("student-t", {"nu": 3.0, "xi": 1.2}),
        ("student-t", {"nu": 40.0, "xi": 4.0}),
        ("chi2", {"excess": 0.0, "xi": 2.0}),
        ("chi2", {"excess": 3.0, "xi": 0.5}),
        ("generalized-gaussian", {"alpha": 2.0, "beta": 2.0}),
        ("generalized-gaussian", {"alpha": 0.5, "beta": 0.7}),
        ("generalized-gaussian", {"alpha": 3.0, "beta": 9.0}),
        ("skew-gaussian", {"xi": 2.0, "a": 0.0}),
        ("skew-gaussian", {"xi": 0.3, "a": -4.0}),
        ("asymmetric-gaussian", {"xi_left": 0.5, "xi_right": 5.0}),
    ],
)
def test_normalised_densities_integrate_to_one(name: str, values: dict[str, float]) -> None:
    attention = curve(f"{name}:normalize=density", **values)
    r = np.linspace(-400, 400, 1_600_001)
    np.testing.assert_allclose(np.trapezoid(density(attention, r), r), 1.0, atol=1e-3)


def brute_force_gate(x: Array, heads: int, offset: Array, pdf, median: bool = False) -> Array:
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
                w[b, h * size : (h + 1) * size, d] = pdf(r, h, d)
    return w


@pytest.mark.parametrize("location", ["mean", "median"])
@pytest.mark.parametrize("heads", [1, 2, 3])
@pytest.mark.parametrize("name", ["gaam", "laplace", "student-t", "generalized-gaussian"])
def test_gates_equal_brute_force(name: str, heads: int, location: str) -> None:
    attention = gate(f"{name}:heads={heads},location={location}")
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        attention.offset.normal_(std=0.2, generator=generator)
        for parameter in attention.parameters():
            if parameter is not attention.offset:
                parameter.uniform_(0.5, 3.0, generator=generator)
    p = {key: value.detach().numpy() for key, value in attention.learned().items()}

    def pdf(r: Array, h: int, d: int) -> Array:
        at = {key: value[h, d] for key, value in p.items() if key != "offset"}
        frozen = {
            "gaam": lambda xi: scipy.stats.norm(scale=xi**0.5),
            "laplace": lambda b: scipy.stats.laplace(scale=b),
            "student-t": lambda nu, xi: scipy.stats.t(nu, scale=xi**0.5),
            "generalized-gaussian": lambda alpha, beta: scipy.stats.gennorm(beta, scale=alpha),
        }[name](**at)
        return frozen.pdf(r) / frozen.pdf(0)

    x = inputs()
    expected = brute_force_gate(x.numpy(), heads, p["offset"], pdf, location == "median")
    np.testing.assert_allclose(attention.attention_map(x).detach().numpy(), expected, atol=1e-12)
    y = attention(x).detach().numpy()
    np.testing.assert_allclose(y, x.numpy() * expected, atol=1e-12)


def test_gct_equals_loops() -> None:
    x = inputs()
    expected = np.zeros((B, L, 1))
    for b in range(B):
        context = np.array([np.mean(x[b, layer].numpy()) for layer in range(L)])
        z = (context - context.mean()) / np.sqrt(context.var() + 1e-5)
        expected[b, :, 0] = np.exp(-(z**2) / (2 * 1.5**2))
    attention = GCT(L, D, scale=1.5).double()
    np.testing.assert_allclose(attention.attention_map(x).numpy(), expected, atol=1e-12)
    assert not list(attention.parameters())
    assert not attention.state_dict()


def test_mixture_weights_sum_to_one_over_a_group() -> None:
    attention = build_attention(parse_attention("gaussian-mixture"), L, D).double()
    w = attention.attention_map(inputs()).unflatten(1, (3, 2))
    np.testing.assert_allclose(w.sum(2).detach().numpy(), 1.0, atol=1e-12)


def test_a_clamped_parameter_keeps_its_value_above_the_floor_and_its_gradient_below() -> None:
    parameter = torch.tensor([-3.0, -1e30, 0.0, 1e-3, 0.7, 5.0], requires_grad=True)
    value = positive(parameter)
    expected = torch.tensor([1e-3, 1e-3, 1e-3, 1e-3, 0.7, 5.0])
    assert torch.equal(value, expected)
    value.sum().backward()
    assert torch.equal(parameter.grad, torch.ones(6))


def test_chi2_leaves_the_gaussian_and_comes_back_to_it() -> None:
    attention = gate("chi2")
    for start in (0.0, -0.2):
        with torch.no_grad():
            attention.excess.fill_(start)
        attention.zero_grad()
        # more weight to what is far from the centre asks for k > 2
        x = inputs()
        loss = -(attention.attention_map(x) * (x - x.mean(1, keepdim=True)).abs()).sum()
        loss.backward()
        assert attention.excess.grad.isfinite().all()
        assert (attention.excess.grad < 0).any()
        assert (attention.learned()["k"] == 2).all()


@pytest.mark.parametrize(("layers", "heads"), [(40, 8), (24, 8), (12, 6), (6, 3), (7, 1), (2, 1)])
def test_default_heads_divide_the_layers(layers: int, heads: int) -> None:
    assert GAAM(layers, 4).heads == heads


@pytest.mark.parametrize("heads", [0, 4, 6, 12])
def test_heads_that_leave_single_layers_are_refused(heads: int) -> None:
    with pytest.raises(ConfigError, match="1, 2, 3"):
        GAAM(6, 4, heads=heads)


def test_an_encoder_of_one_layer_is_refused_by_density_gates() -> None:
    with pytest.raises(ConfigError, match="at least two of them"):
        GAAM(1, 4)
