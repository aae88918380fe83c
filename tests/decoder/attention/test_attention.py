"""One contract over every mechanism that is listed."""

from __future__ import annotations

import inspect
import re

import pytest
import torch

from gaam_cache.common import plugins
from gaam_cache.common.errors import ConfigError
from gaam_decoder.attention import Attention, DensityGate
from gaam_decoder.decoder import DecoderSpec, build_attention, build_decoder
from gaam_decoder.specs import parse_attention, parse_head, plugin_options

PACKAGE = "gaam_decoder.attention"
NAMES = plugins.names(PACKAGE)
OPTIONS = {"published": "true", "location": "median", "normalize": "density"}
"""Of whatever mechanisms have them."""
MORE_VARIANTS = [
    "chi2:k=5",
    "gct:learn_scale=true",
    "nadaraya-watson:kernel=boxcar",
    "nadaraya-watson:kernel=epanechnikov",
]


def mechanism_class(name: str) -> type[Attention]:
    mechanism: type[Attention] = plugins.load(PACKAGE, name, kind="mechanism")
    return mechanism


def variants_of(name: str) -> list[str]:
    """The mechanism with each of the options that it has."""
    existing = plugin_options(mechanism_class(name))
    return [
        f"{name}:{option}={value}"
        for option, value in OPTIONS.items()
        if option in existing
    ]


SPECS = [
    *NAMES,
    *(variant for name in NAMES for variant in variants_of(name)),
    *MORE_VARIANTS,
]
KINDS = ("ordinary", "constant", "huge", "tiny", "massive", "lost")
L = 6
D = 16
B = 5
SCALES = {"huge": 1e4, "tiny": 1e-6}


def build(
    text: str, seed: int = 0, num_layers: int = L, hidden_size: int = D
) -> Attention:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return build_attention(parse_attention(text), num_layers, hidden_size)


def inputs(kind: str = "ordinary", dtype: torch.dtype = torch.float32) -> torch.Tensor:
    x = torch.randn(B, L, D, generator=torch.Generator().manual_seed(1), dtype=dtype)
    if kind == "constant":
        x = torch.ones_like(x)
    elif kind == "massive":
        x[0, 3, 2] = 1e4
    elif kind == "lost":
        x[:, 1] = 0
        x[1] = 0
    return x * SCALES.get(kind, 1.0)


def has_no_gradient(name: str) -> bool:
    """Whether the gradient of a parameter is zero by mathematics.

    A softmax ignores what its row shares.
    """
    biases = ("k_proj.bias", "core.k_proj.bias", "cross.k_proj.bias")
    return name in biases or name.endswith("attention.k_proj.bias")


@pytest.mark.parametrize("text", SPECS)
@pytest.mark.parametrize("kind", KINDS)
def test_output_and_gradients_are_finite(kind: str, text: str) -> None:
    attention = build(text)
    x = inputs(kind).requires_grad_()
    before = x.detach().clone()
    y = attention(x)
    assert torch.equal(x.detach(), before)
    assert y.dtype == torch.float32
    assert y.shape == (B, *attention.output_shape)
    assert y.isfinite().all()
    weight = torch.randn(y.shape, generator=torch.Generator().manual_seed(2))
    (y * weight).sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    # Layers that are all alike give most mechanisms nothing to choose between, and of
    # huge ones a softmax reads a single one.
    teaches = kind not in ("constant", "huge")
    for name, parameter in attention.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        if teaches and not has_no_gradient(name):
            assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize("text", SPECS)
def test_a_sample_does_not_depend_on_its_neighbours(text: str) -> None:
    attention = build(text).double().eval()
    x = inputs(dtype=torch.float64)
    alone = torch.cat([attention(x[row : row + 1]) for row in range(B)])
    is_independent = bool((attention(x) - alone).abs().max() < 1e-12)
    assert is_independent != attention.depends_on_batch


@pytest.mark.parametrize("text", SPECS)
def test_bfloat16_autocast_stays_near_float32(text: str) -> None:
    attention = build(text)
    x = inputs()
    with torch.autocast("cpu", torch.bfloat16):
        half = attention(x).float()
    full = attention(x)
    assert half.isfinite().all()
    # rounding may carry a layer over the edge of a boxcar's window
    if "boxcar" not in text:
        assert (half - full).norm() < 3e-2 * full.norm()


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
    # after 24 steps the same parameters have left their domains as after 60
    for step in range(24):
        optimizer.zero_grad()
        scale = 1 if step % 2 else 5
        y = attention(scale * inputs(KINDS[step % len(KINDS)]))
        (y.sum() + y.square().mean()).backward()
        for parameter in attention.parameters():
            assert parameter.grad is not None
            assert parameter.grad.isfinite().all()
        optimizer.step()
    assert attention(inputs()).isfinite().all()
    lowest = lowest_values(attention)
    for name, value in attention.learned().items():
        assert value.isfinite().all()
        assert value.min() >= lowest.get(name, -torch.inf), name


def lowest_values(attention: Attention) -> dict[str, float]:
    """Of what mechanisms learn: the smallest value in its domain."""
    lowest = {"k": 2.0, "c": 9.9e-4, "h": 1e-3, "weight": 0.0, "xi": 1e-3}
    if isinstance(attention, DensityGate):
        for parameter in attention.learns:
            if parameter.floor is not None:
                lowest[parameter.name] = parameter.floor
    return lowest


@pytest.mark.parametrize("text", NAMES)
@pytest.mark.parametrize(("num_layers", "hidden_size"), [(2, 8), (12, 40), (7, 24)])
def test_other_encoders_fit(num_layers: int, hidden_size: int, text: str) -> None:
    attention = build(text, num_layers=num_layers, hidden_size=hidden_size)
    generator = torch.Generator().manual_seed(0)
    y = attention(torch.randn(2, num_layers, hidden_size, generator=generator))
    assert y.shape == (2, *attention.output_shape)
    assert y.isfinite().all()


@pytest.mark.parametrize("text", NAMES)
def test_a_docstring_has_the_formula_and_the_source(text: str) -> None:
    mechanism = mechanism_class(text)
    docstring = mechanism.__doc__
    assert docstring is not None
    assert "Formula: ``" in docstring
    is_control = "control" in (inspect.getmodule(mechanism).__doc__ or "")
    assert ("Source: " in docstring) != is_control


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


BAD = [
    "gaam:head=2",
    "gaam:heads",
    "gaam:heads=two",
    "gaam:location=mode",
    "none:x=1",
    "",
    "GAAM",
]
# fmt: off
UNFIT = [
    "gaam:heads=0", "gaam:heads=4", "gaam:heads=6", "gaam:heads=12",
    "gqgaam:heads=6", "mha:heads=5", "mqa:width=0", "dot:heads=0", "additive:width=0",
    "gqa:query_heads=7", "gqa:kv_heads=3",
    "perceiver:latents=0", "perceiver:heads=3",
    "gct:scale=0", "gct:scale=1e-4",
    "gaussian-mixture:components=0",
    "chi2:k=1", "chi2:k=1001",
]
# fmt: on


@pytest.mark.parametrize("text", BAD)
def test_bad_specs_are_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        parse_attention(text)


@pytest.mark.parametrize("text", UNFIT)
def test_options_that_do_not_fit_are_refused_by_name(text: str) -> None:
    parse_attention(text)
    option = re.split("[:=]", text)[1]
    with pytest.raises(ConfigError, match=option):
        build(text)


@pytest.mark.parametrize(
    ("spec", "num_layers", "hidden_size", "parameters"),
    [
        ("gaam", 40, 5120, 81_920),
        ("gaam:heads=1", 40, 5120, 10_240),
        ("gaam", 24, 1024, 16_384),
        ("gaam:heads=1", 24, 1024, 2_048),
        ("gqa:published=true", 40, 5120, 3_082_240),
        ("gqgaam:published=true", 40, 5120, 3_164_160),
        ("gqa:published=true", 24, 1024, 985_088),
        ("gqgaam:published=true", 24, 1024, 1_001_472),
        ("laplace", 40, 5120, 81_920),
        ("mha", 40, 5120, 4 * 5120 * 5120 + 4 * 5120),
        ("mha-bn", 40, 5120, 4 * 5120 * 5120 + 4 * 5120 + 80),
        ("generalized-gaussian", 40, 5120, 3 * 8 * 5120),
        ("gaussian-mixture", 40, 5120, 2 * 8 * 3),
        ("none", 40, 5120, 0),
        ("scalar-mix", 40, 5120, 41),
    ],
)
def test_parameter_counts_without_memory(
    spec: str, num_layers: int, hidden_size: int, parameters: int
) -> None:
    decoder_spec = DecoderSpec(
        attention=parse_attention(spec),
        head=parse_head("conv"),
        num_layers=num_layers,
        hidden_size=hidden_size,
        num_classes=4,
    )
    with torch.device("meta"):
        decoder = build_decoder(decoder_spec, seed=0)
    assert all(parameter.is_meta for parameter in decoder.parameters())
    assert decoder.num_parameters()["attention"] == parameters


@pytest.mark.parametrize("num_classes", [3, 40])
@pytest.mark.parametrize("text", SPECS)
def test_a_decoder_is_its_head_after_its_mechanism(text: str, num_classes: int) -> None:
    """Also where a linear head joins the last map of a mechanism to its own."""
    spec = DecoderSpec(
        attention=parse_attention(text),
        head=parse_head("linear"),
        num_layers=L,
        hidden_size=D,
        num_classes=num_classes,
    )
    decoder = build_decoder(spec, seed=3).double()
    generator = torch.Generator().manual_seed(0)
    # biases start at zero
    with torch.no_grad():
        for parameter in decoder.parameters():
            noise = torch.rand(parameter.shape, generator=generator)
            parameter.add_(0.1 * noise)
    x = inputs(dtype=torch.float64)
    joined = decoder(x)
    plain = decoder.head(decoder.attention(x))
    torch.testing.assert_close(joined, plain, rtol=1e-12, atol=1e-12)
    weights = list(decoder.parameters())
    joined_gradients, plain_gradients = (
        torch.autograd.grad(logits.logsumexp(1).mean(), weights, retain_graph=True)
        for logits in (joined, plain)
    )
    torch.testing.assert_close(joined_gradients, plain_gradients, rtol=1e-10, atol=1e-8)
