"""One contract over every mechanism that is listed."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.func import functional_call, grad_and_value, stack_module_state, vmap

from gaam_cache import plugins
from gaam_cache.errors import ConfigError
from gaam_decoder.attention._base import Attention
from gaam_decoder.attention._density import DensityGate
from gaam_decoder.decoder import build_attention
from gaam_decoder.specs import parse_attention, plugin_options

NAMES = plugins.names("gaam_decoder.attention")
CLASSES = {name: plugins.load("gaam_decoder.attention", name, kind="mechanism") for name in NAMES}
OPTIONS = {"published": "true", "location": "median", "normalize": "density"}
"""Of whatever mechanisms have them."""
VARIANTS = [
    *(
        f"{name}:{option}={value}"
        for option, value in OPTIONS.items()
        for name, cls in CLASSES.items()
        if option in plugin_options(cls)
    ),
    "chi2:k=5",
    "gct:learn_scale=true",
    "nadaraya-watson:kernel=boxcar",
    "nadaraya-watson:kernel=epanechnikov",
]
SPECS = NAMES + VARIANTS
KINDS = ("ordinary", "constant", "huge", "tiny", "massive")
L, D, B = 6, 16, 5


def build(text: str, seed: int = 0, num_layers: int = L, hidden_size: int = D) -> Attention:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build_attention(parse_attention(text), num_layers, hidden_size)


def inside(text: str, seed: int = 0) -> Attention:
    """A mechanism in float64 whose parameters are off their starts, inside their domain."""
    attention = build(text, seed).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter += 0.05 + 0.2 * torch.rand(
                parameter.shape, generator=generator, dtype=torch.float64
            )
    return attention


def inputs(kind: str = "ordinary", dtype: torch.dtype = torch.float32) -> torch.Tensor:
    x = torch.randn(B, L, D, generator=torch.Generator().manual_seed(1), dtype=dtype)
    if kind == "constant":
        x = torch.ones_like(x)
    elif kind == "massive":
        x[0, 3, 2] = 1e4
    return x * {"huge": 1e4, "tiny": 1e-6}.get(kind, 1.0)


def test_no_name_that_runs_were_recorded_under_is_lost() -> None:
    assert set(NAMES) >= {
        *("gaam", "laplace", "student-t", "chi2", "generalized-gaussian", "skew-gaussian"),
        *("asymmetric-gaussian", "gct", "gaussian-mixture"),
        *("mha", "mha-bn", "mqa", "gqa", "gqgaam"),
        *("dot", "additive", "nadaraya-watson", "perceiver"),
        *("none", "layer-mean", "last-layer", "scalar-mix"),
    }


def without_gradient(name: str) -> bool:
    """Parameters whose gradient is zero by mathematics: a softmax ignores what its row shares."""
    return name in {"k_proj.bias", "core.k_proj.bias", "cross.k_proj.bias"} or name.endswith(
        "attention.k_proj.bias"
    )


@pytest.mark.parametrize("text", SPECS)
@pytest.mark.parametrize("kind", KINDS)
def test_output_and_gradients_are_finite(text: str, kind: str) -> None:
    attention = build(text)
    x = inputs(kind).requires_grad_()
    y = attention(x)
    assert y.dtype == torch.float32
    assert y.shape == (B, *attention.output_shape)
    assert y.isfinite().all()
    weight = torch.randn(y.shape, generator=torch.Generator().manual_seed(2))
    (y * weight).sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    for key, parameter in attention.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key
        # layers that are all alike give most mechanisms nothing to choose between, and of huge ones
        # a softmax reads a single one
        if kind not in ("constant", "huge") and not without_gradient(key):
            assert parameter.grad.abs().sum() > 0, key


@pytest.mark.parametrize("text", SPECS)
def test_single_layers_that_cannot_be_standardised_do_no_harm(text: str) -> None:
    attention = build(text)
    x = inputs()
    x[:, 1] = 0
    x[1] = 0
    assert attention(x).isfinite().all()


@pytest.mark.parametrize("text", SPECS)
def test_a_sample_does_not_depend_on_its_neighbours(text: str) -> None:
    attention = build(text).double().eval()
    x = inputs(dtype=torch.float64)
    alone = torch.cat([attention(x[i : i + 1]) for i in range(B)])
    independent = (attention(x) - alone).abs().max() < 1e-12
    assert independent != attention.depends_on_batch


def test_only_what_was_published_so_attends_across_samples() -> None:
    depends = {text for text in SPECS if build(text).depends_on_batch}
    assert depends == {"mha:published=true", "mha-bn:published=true"}


@pytest.mark.parametrize("text", SPECS)
def test_bfloat16_autocast_stays_near_float32(text: str) -> None:
    attention = build(text)
    x = inputs()
    with torch.autocast("cpu", torch.bfloat16):
        half = attention(x).float()
    full = attention(x)
    assert half.isfinite().all()
    if "boxcar" not in text:  # rounding may carry a layer over the window's edge
        assert (half - full).norm() < 3e-2 * full.norm()


@pytest.mark.parametrize("text", SPECS)
def test_gradients_equal_finite_differences(text: str) -> None:
    attention = inside(text)
    if not attention.smooth:
        pytest.skip("its gradient is a stand-in, as its docstring says")
    x = inputs(dtype=torch.float64)[:2].requires_grad_()
    assert torch.autograd.gradcheck(attention, (x,), atol=1e-5, fast_mode=True)
    names, values = (
        zip(*attention.named_parameters(), strict=True)
        if list(attention.parameters())
        else ((), ())
    )
    buffers = {name: value.clone() for name, value in attention.named_buffers()}

    def of_parameters(*replaced: torch.Tensor) -> torch.Tensor:
        # fresh buffers: batch normalisation counts its calls in place
        state = {name: value.clone() for name, value in buffers.items()}
        state |= dict(zip(names, replaced, strict=True))
        return functional_call(attention, state, (x.detach(),))

    if values:
        assert torch.autograd.gradcheck(of_parameters, values, atol=1e-5, fast_mode=True)


@pytest.mark.parametrize("text", SPECS)
def test_the_attention_map_is_per_sample_and_has_a_known_shape(text: str) -> None:
    attention = build(text)
    weights = attention.attention_map(inputs())
    if weights is None:
        return
    assert (weights >= 0).all()
    if weights.ndim == 4:
        assert weights.shape[0] == B
        assert weights.shape[-1] == L
        torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1]))
    else:
        assert weights.shape in ((B, L, D), (B, L, 1))


@pytest.mark.parametrize("text", SPECS)
def test_parameters_stay_in_their_domain_under_aggressive_steps(text: str) -> None:
    attention = build(text)
    if not list(attention.parameters()):
        pytest.skip("no parameters")
    optimizer = torch.optim.AdamW(attention.parameters(), lr=0.3, weight_decay=0.5)
    for step in range(200):
        optimizer.zero_grad()
        y = attention(inputs(KINDS[step % len(KINDS)]) * (1 if step % 2 else 5))
        (y.sum() + y.square().mean()).backward()
        assert all(p.grad.isfinite().all() for p in attention.parameters())
        optimizer.step()
    assert attention(inputs()).isfinite().all()
    lowest = {"k": 2.0, "c": 9.9e-4, "h": 1e-3, "weight": 0.0, "xi": 1e-3}
    if isinstance(attention, DensityGate):
        floors = {one.name: one.floor for one in attention.learns}
        lowest |= {name: floor for name, floor in floors.items() if floor is not None}
    for name, value in attention.learned().items():
        assert value.isfinite().all()
        assert value.min() >= lowest.get(name, -torch.inf), name


@pytest.mark.parametrize("text", SPECS)
def test_weights_survive_a_safetensors_file(text: str, tmp_path: Path) -> None:
    attention, other = build(text, seed=0), build(text, seed=1)
    attention.train()
    attention(inputs())  # batch normalisation has something to remember
    state = {name: value.contiguous() for name, value in attention.state_dict().items()}
    save_file(state, tmp_path / "weights.safetensors")
    other.load_state_dict(load_file(tmp_path / "weights.safetensors"))
    assert torch.equal(attention.eval()(inputs()), other.eval()(inputs()))


@pytest.mark.parametrize("text", SPECS)
def test_seeds_stacked_equal_seeds_alone(text: str) -> None:
    seeds = [build(text, seed).double() for seed in range(3)]
    if not seeds[0].stackable or not list(seeds[0].parameters()):
        pytest.skip("declares that it is not stacked, or has nothing to stack")
    parameters, buffers = stack_module_state(seeds)
    x = torch.stack([inputs(dtype=torch.float64) + place for place in range(3)])
    weight = torch.randn(B, *seeds[0].output_shape, dtype=torch.float64)

    def loss(parameters: dict, buffers: dict, x: torch.Tensor) -> torch.Tensor:
        return (functional_call(seeds[0], (parameters, buffers), (x,)) * weight).sum()

    gradients, values = vmap(grad_and_value(loss))(parameters, buffers, x)
    for place, attention in enumerate(seeds):
        # the first shares no memory with the stack: batch normalisation counts in place
        alone = build(text, place).double()
        value = (alone(x[place]) * weight).sum()
        value.backward()
        torch.testing.assert_close(values[place], value.detach(), atol=1e-9, rtol=1e-9)
        for name, parameter in alone.named_parameters():
            torch.testing.assert_close(gradients[name][place], parameter.grad, atol=1e-9, rtol=1e-9)
        for name, buffer in alone.named_buffers():
            torch.testing.assert_close(buffers[name][place], buffer, atol=1e-12, rtol=0)
        assert attention.output_shape == seeds[0].output_shape


@pytest.mark.parametrize("text", NAMES)
@pytest.mark.parametrize(("num_layers", "hidden_size"), [(2, 8), (12, 40), (7, 24)])
def test_other_encoders_fit(text: str, num_layers: int, hidden_size: int) -> None:
    attention = build(text, num_layers=num_layers, hidden_size=hidden_size)
    x = torch.randn(2, num_layers, hidden_size, generator=torch.Generator().manual_seed(0))
    y = attention(x)
    assert y.shape == (2, *attention.output_shape)
    assert y.isfinite().all()


@pytest.mark.parametrize("text", NAMES)
def test_a_docstring_has_the_formula_and_the_source(text: str) -> None:
    cls = plugins.load("gaam_decoder.attention", text, kind="mechanism")
    assert "Formula: ``" in cls.__doc__
    control = "control" in (inspect.getmodule(cls).__doc__ or "")
    assert ("Source: " in cls.__doc__) != control


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("laplace:location=median,heads=2", "laplace:heads=2,location=median"),
        ("gaam:normalize=peak", "gaam"),
        (" mha ", "mha"),
        ("mha:published=false", "mha"),
        ("chi2:k=2", "chi2"),
    ],
)
def test_specs_have_one_canonical_form(text: str, canonical: str) -> None:
    assert str(parse_attention(text)) == canonical


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gaam:head=2", r"heads=\.\.\., location=\.\.\., normalize=\.\.\."),
        ("gaam:heads", r"unknown option 'heads'"),
        ("gaam:heads=two", r"a whole number"),
        ("gaam:location=mode", r"mean, median"),
        ("none:x=1", r"no options"),
        ("", r"unknown mechanism ''"),
        ("GAAM", r"unknown mechanism 'GAAM'"),
    ],
)
def test_bad_specs_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_attention(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gaam:heads=4", "1, 2, 3"),
        ("mha:heads=5", "divisor of 16"),
        ("gqa:query_heads=7", "divisor of 512"),
        ("gqa:kv_heads=3", "divisor of 8"),
        ("mqa:width=0", "width"),
        ("gqgaam:heads=6", "1, 2, 3"),
        ("dot:heads=0", "heads"),
        ("additive:width=0", "width"),
        ("perceiver:latents=0", "latents"),
        ("perceiver:heads=3", "divisor of 256"),
        ("gct:scale=0", "scale"),
        ("gaussian-mixture:components=0", "components"),
        ("chi2:k=1", "k is out of range"),
        ("chi2:k=1001", "k is out of range"),
        ("gct:scale=1e-4", "scale"),
    ],
)
def test_options_that_do_not_fit_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build(text)


def test_inputs_are_not_changed() -> None:
    for text in SPECS:
        x = inputs()
        before = x.clone()
        build(text)(x)
        np.testing.assert_array_equal(x.numpy(), before.numpy())
