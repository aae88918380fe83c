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
from gaam_decoder.attention import Attention, DensityGate, Learned
from gaam_decoder.attention.gaam import GAAM
from gaam_decoder.attention.gct import GCT
from gaam_decoder.decoder import build_attention
from gaam_decoder.specs import parse_attention

Array = NDArray[np.float64]
PACKAGE = "gaam_decoder.attention"
L = 6
D = 16
B = 5


def gates() -> dict[str, type[DensityGate]]:
    """All mechanisms that are density gates."""
    mechanisms = {
        name: plugins.load(PACKAGE, name, kind="mechanism")
        for name in plugins.names(PACKAGE)
    }
    return {
        name: mechanism
        for name, mechanism in mechanisms.items()
        if issubclass(mechanism, DensityGate)
    }


GATES = gates()


def scipy_gaussian(xi: float) -> Any:
    return scipy.stats.norm(scale=xi**0.5)


def scipy_laplace(b: float) -> Any:
    return scipy.stats.laplace(scale=b)


def scipy_cauchy(gamma: float) -> Any:
    return scipy.stats.cauchy(scale=gamma)


def scipy_student_t(nu: float, xi: float) -> Any:
    return scipy.stats.t(nu, scale=xi**0.5)


def scipy_generalized_gaussian(alpha: float, beta: float) -> Any:
    return scipy.stats.gennorm(beta, scale=alpha)


def scipy_skew_gaussian(xi: float, a: float) -> Any:
    return scipy.stats.skewnorm(a, scale=xi**0.5)


SCIPY: dict[str, Callable[..., Any]] = {
    "gaam": scipy_gaussian,
    "laplace": scipy_laplace,
    "cauchy": scipy_cauchy,
    "student-t": scipy_student_t,
    "generalized-gaussian": scipy_generalized_gaussian,
    "skew-gaussian": scipy_skew_gaussian,
}
"""Independent references; of the others the laws below are all that is known."""


def residuals() -> Array:
    """Where densities are compared."""
    return np.linspace(-9, 9, 721)


def build_gate(
    text: str, num_layers: int = L, hidden_size: int = D, **values: float
) -> Any:
    """A gate in float64 with the same parameters for all heads and features."""
    gate = build_attention(parse_attention(text), num_layers, hidden_size).double()
    assert isinstance(gate, DensityGate)
    with torch.no_grad():
        for name, value in values.items():
            getattr(gate, name).fill_(value)
    return gate


def density(text: str, values: dict[str, float], r: Array) -> Array:
    """Density at r of a gate of one head and one feature."""
    gate = build_gate(text, 2, 1, **values)
    r_BHLD = torch.from_numpy(r).view(1, 1, -1, 1)
    return np.asarray(gate.gate(r_BHLD)[0, 0, :, 0].detach().numpy())


def existing_map(attention: Attention, x: torch.Tensor) -> torch.Tensor:
    """The attention map of a mechanism that has one."""
    weights = attention.attention_map(x)
    assert weights is not None
    return weights


def values_of(parameter: Learned) -> st.SearchStrategy[float]:
    """Values in the domain of what a density learns; the start is tried, too."""
    start = st.just(parameter.start)
    if parameter.floor is None:
        return start | st.floats(-8, 8)
    return start | st.floats(max(0.2, parameter.floor), 8)


@st.composite
def parameters(draw: st.DrawFn, name: str) -> dict[str, float]:
    """A value for everything that a density learns."""
    learns = GATES[name].learns
    return {parameter.name: draw(values_of(parameter)) for parameter in learns}


def inputs(seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(B, L, D, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("name", GATES)
def test_a_gate_starts_where_it_says(name: str) -> None:
    gate = build_attention(parse_attention(name), L, D)
    learns = GATES[name].learns
    values = dict(gate.named_parameters())
    assert list(values) == ["offset", *(parameter.name for parameter in learns)]
    assert (values["offset"] == 0).all()
    for parameter in learns:
        assert (values[parameter.name] == torch.tensor(parameter.start)).all()
        assert parameter.floor is None or parameter.start >= parameter.floor


@pytest.mark.parametrize("name", GATES)
@settings(max_examples=20)
@given(data=st.data())
def test_the_peak_is_one_wherever_it_lies(name: str, data: st.DataObject) -> None:
    values = data.draw(parameters(name))
    r = residuals()
    peak = r[density(name, values, r).argmax()]
    near_peak = np.linspace(peak - 0.025, peak + 0.025, 20_001)
    highest = density(name, values, near_peak).max()
    np.testing.assert_allclose(highest, 1.0, atol=1e-5)
    assert highest <= 1 + 1e-9


@pytest.mark.parametrize("name", GATES)
@settings(max_examples=20)
@given(data=st.data())
def test_a_normalised_density_integrates_to_one(name: str, data: st.DataObject) -> None:
    values = data.draw(parameters(name))
    # Over log |r|, to 1e34: the heaviest tails end there. A density of 1e-44 counts for
    # none.
    log_r = np.linspace(-40, 80, 24_001)
    total = 0.0
    for sign in (-1, 1):
        r = sign * np.exp(log_r)
        side = density(f"{name}:normalize=density", values, r) * np.exp(log_r)
        total += scipy.integrate.simpson(side, x=log_r)
    np.testing.assert_allclose(total, 1.0, atol=1e-5)


@pytest.mark.parametrize("name", SCIPY)
@settings(max_examples=20)
@given(data=st.data())
def test_a_density_is_scipys_up_to_the_peak(name: str, data: st.DataObject) -> None:
    values = data.draw(parameters(name))
    r = residuals()
    expected = SCIPY[name](**values).pdf(r)
    relative = density(name, values, r)
    peak = relative.argmax()
    np.testing.assert_allclose(
        relative * expected[peak],
        expected * relative[peak],
        atol=1e-10 * expected[peak],
    )
    normalised = density(f"{name}:normalize=density", values, r)
    np.testing.assert_allclose(normalised, expected, atol=1e-8 * expected[peak])


@settings(deadline=None, max_examples=40)
@given(xi=st.floats(0.2, 8.0), k=st.floats(2.0, 12.0))
def test_chi2_is_scipys_density_of_the_squared_residual(xi: float, k: float) -> None:
    # for a k within rounding of 2 the logarithm of m is not to be compared
    assume(k == 2 or k > 2.001)
    r = residuals()
    r = r[r != 0]
    chi2 = scipy.stats.chi2(k)
    expected = chi2.pdf(r**2 / xi) / chi2.pdf(k - 2)
    relative = density("chi2", {"excess": k - 2, "xi": xi}, r)
    np.testing.assert_allclose(relative, expected, atol=1e-8)


@pytest.mark.parametrize("a", [-1000.0, -60.0, -3.0, -0.1, 0.0, 0.5, 7.0, 200.0])
def test_the_skewed_peak_is_one_wherever_it_lies(a: float) -> None:
    near_zero = np.linspace(-2, 2, 400_001)
    peak = density("skew-gaussian", {"xi": 1.0, "a": a}, near_zero).max()
    np.testing.assert_allclose(peak, 1.0, atol=1e-9)


def test_gct_equals_loops() -> None:
    x = inputs()
    expected = np.zeros((B, L, 1))
    for b in range(B):
        context = np.array([np.mean(x[b, layer].numpy()) for layer in range(L)])
        z = (context - context.mean()) / np.sqrt(context.var() + 1e-5)
        expected[b, :, 0] = np.exp(-(z**2) / (2 * 1.5**2))
    gct = GCT(L, D, scale=1.5).double()
    np.testing.assert_allclose(existing_map(gct, x).numpy(), expected, atol=1e-12)
    assert not list(gct.parameters())
    assert not gct.state_dict()


def test_mixture_weights_sum_to_one_over_a_group() -> None:
    mixture = build_attention(parse_attention("gaussian-mixture"), L, D).double()
    weights = existing_map(mixture, inputs()).unflatten(1, (2, 3))
    np.testing.assert_allclose(weights.sum(2).detach().numpy(), 1.0, atol=1e-12)


def test_a_clamped_parameter_stays_above_the_floor_and_has_a_gradient_below() -> None:
    parameter = torch.tensor([-3.0, -1e30, 0.0, 1e-3, 0.7, 5.0], requires_grad=True)
    value = Learned("b", start=1.0).clamped(parameter)
    expected = torch.tensor([1e-3, 1e-3, 1e-3, 1e-3, 0.7, 5.0])
    assert torch.equal(value, expected)
    value.sum().backward()
    assert parameter.grad is not None
    assert torch.equal(parameter.grad, torch.ones(6))


@pytest.mark.parametrize("excess", [0.0, -0.2])
def test_chi2_leaves_the_gaussian_and_comes_back_to_it(excess: float) -> None:
    chi2 = build_gate("chi2", excess=excess)
    x = inputs()
    # more weight to what is far from the centre asks for k > 2
    distance = (x - x.mean(1, keepdim=True)).abs()
    loss = -(existing_map(chi2, x) * distance).sum()
    loss.backward()
    assert chi2.excess.grad.isfinite().all()
    assert (chi2.excess.grad < 0).any()
    assert (chi2.learned()["k"] == 2).all()


@pytest.mark.parametrize(
    ("num_layers", "heads"),
    [(40, 8), (24, 8), (16, 4), (12, 4), (7, 1), (6, 2), (4, 1), (2, 1)],
)
def test_default_heads_leave_three_layers_each(num_layers: int, heads: int) -> None:
    assert GAAM(num_layers, 4).heads == heads


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
@pytest.mark.parametrize("shared", [0.0, 30.0, 1e3, 1e4])
def test_what_layers_share_does_not_drown_what_they_differ_in(
    shared: float, text: str
) -> None:
    """Features far from zero in all layers, as language models have them."""
    attention = build_attention(parse_attention(text), L, D).eval()
    x = (inputs() + shared).float()
    weights = existing_map(attention, x)
    exact = existing_map(attention.double(), x.double())
    torch.testing.assert_close(weights.double(), exact, rtol=0, atol=1e-5)
