"""The laws of the density gates, against SciPy and by loops in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gaam_cache.common import plugins
from gaam_cache.common.errors import ConfigError
from gaam_decoder.attention import DensityGate, Learned
from gaam_decoder.attention.gaam import GAAM
from gaam_decoder.attention.gct import GCT
from gaam_decoder.decoder import build_attention
from gaam_decoder.specs import parse_attention

Array = NDArray[np.float64]
L, D, B = 6, 16, 5
R = np.linspace(-9, 9, 721)
GATES: dict[str, type[DensityGate]] = {
    name: cls
    for name in plugins.names("gaam_decoder.attention")
    if issubclass(
        cls := plugins.load("gaam_decoder.attention", name, kind="mechanism"),
        DensityGate,
    )
}
SCIPY: dict[str, Callable[..., Any]] = {
    "gaam": lambda xi: scipy.stats.norm(scale=xi**0.5),
    "laplace": lambda b: scipy.stats.laplace(scale=b),
    "cauchy": lambda gamma: scipy.stats.cauchy(scale=gamma),
    "student-t": lambda nu, xi: scipy.stats.t(nu, scale=xi**0.5),
    "generalized-gaussian": lambda alpha, beta: scipy.stats.gennorm(beta, scale=alpha),
    "skew-gaussian": lambda xi, a: scipy.stats.skewnorm(a, scale=xi**0.5),
}
"""Independent references; of the others the laws below are all that is known."""


def gate(text: str, **values: float) -> DensityGate:
    """A gate in float64 with the same parameters for all heads and features."""
    return filled(text, L, D, values)


def filled(
    text: str, num_layers: int, hidden_size: int, values: dict[str, float]
) -> DensityGate:
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
    return (
        attention.gate(torch.from_numpy(r).view(1, 1, -1, 1))[0, 0, :, 0]
        .detach()
        .numpy()
    )


@st.composite
def inside(draw: st.DrawFn, cls: type[DensityGate]) -> dict[str, float]:
    """A value in its domain for everything that a density learns."""
    return {
        parameter.name: draw(
            st.just(parameter.start)
            | (st.floats(-8, 8) if parameter.floor is None else st.floats(0.2, 8))
        )
        for parameter in cls.learns
    }


def inputs(seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(B, L, D, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("name", GATES)
def test_a_gate_starts_where_it_says(name: str) -> None:
    attention = build_attention(parse_attention(name), L, D)
    learns = GATES[name].learns
    declared = {parameter.name: parameter.start for parameter in learns}
    values = {
        key: set(value.ravel().tolist()) for key, value in attention.named_parameters()
    }
    assert list(values) == ["offset", *declared]
    shown = torch.tensor(list(declared.values())).tolist()
    assert list(values.values()) == [{0.0}, *({start} for start in shown)]
    for parameter in learns:
        assert parameter.floor is None or parameter.start >= parameter.floor


@pytest.mark.parametrize("name", GATES)
@settings(max_examples=20)
@given(draws=st.data())
def test_the_peak_is_one_wherever_it_lies(name: str, draws: st.DataObject) -> None:
    attention = curve(name, **draws.draw(inside(GATES[name])))
    peak = R[density(attention).argmax()]
    fine = density(attention, np.linspace(peak - 0.025, peak + 0.025, 20_001))
    np.testing.assert_allclose(fine.max(), 1.0, atol=1e-5)
    assert fine.max() <= 1 + 1e-9


@pytest.mark.parametrize("name", GATES)
@settings(max_examples=20)
@given(draws=st.data())
def test_a_normalised_density_integrates_to_one(
    name: str, draws: st.DataObject
) -> None:
    attention = curve(f"{name}:normalize=density", **draws.draw(inside(GATES[name])))
    # over log |r|, to 1e34: the heaviest tails end there, and a density of 1e-44 counts for none
    log_r = np.linspace(-40, 80, 24_001)
    sides = [
        density(attention, sign * np.exp(log_r)) * np.exp(log_r) for sign in (-1, 1)
    ]
    whole = sum(scipy.integrate.simpson(side, x=log_r) for side in sides)
    np.testing.assert_allclose(whole, 1.0, atol=1e-5)


@pytest.mark.parametrize("name", SCIPY)
@settings(max_examples=20)
@given(draws=st.data())
def test_a_density_is_scipys_up_to_the_peak(name: str, draws: st.DataObject) -> None:
    values = draws.draw(inside(GATES[name]))
    expected = SCIPY[name](**values).pdf(R)
    ours = density(curve(name, **values))
    place = ours.argmax()
    np.testing.assert_allclose(
        ours * expected[place], expected * ours[place], atol=1e-10 * expected[place]
    )
    ours = density(curve(f"{name}:normalize=density", **values))
    np.testing.assert_allclose(ours, expected, atol=1e-8 * expected[place])


@settings(deadline=None, max_examples=40)
@given(xi=st.floats(0.2, 8.0), k=st.floats(2.0, 12.0))
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
    w = attention.attention_map(inputs()).unflatten(1, (2, 3))
    np.testing.assert_allclose(w.sum(2).detach().numpy(), 1.0, atol=1e-12)


def test_a_clamped_parameter_keeps_its_value_above_the_floor_and_its_gradient_below() -> (
    None
):
    parameter = torch.tensor([-3.0, -1e30, 0.0, 1e-3, 0.7, 5.0], requires_grad=True)
    value = Learned("b", start=1.0).inside(parameter)
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


def test_default_heads_leave_three_layers_each() -> None:
    expected = {40: 8, 24: 8, 16: 4, 12: 4, 7: 1, 6: 2, 4: 1, 2: 1}
    assert {layers: GAAM(layers, 4).heads for layers in expected} == expected


def test_an_encoder_of_one_layer_is_refused_by_density_gates() -> None:
    with pytest.raises(ConfigError, match=r"1 layer(.|\n)*--layers"):
        GAAM(1, 4)


STANDARDISING = [
    *GATES,
    *(f"{name}:location=median" for name in GATES),
    "gaussian-mixture",
    "gct",
    "gqgaam",
]
"""All that reads how far a layer is from the others."""


@pytest.mark.parametrize("text", STANDARDISING)
def test_what_layers_share_does_not_drown_what_they_differ_in(text: str) -> None:
    """A feature far from zero in all layers, as language models have: float32 as float64."""
    for shared in (0.0, 30.0, 1e3, 1e4):
        attention = build_attention(parse_attention(text), L, D).eval()
        x = (inputs() + shared).float()
        weights = attention.attention_map(x)
        exact = attention.double().attention_map(x.double())
        assert weights is not None
        assert exact is not None
        torch.testing.assert_close(weights.double(), exact, rtol=0, atol=1e-5)
