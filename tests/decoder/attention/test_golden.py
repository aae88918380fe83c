"""The published code's numbers, reproduced."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from gaam_decoder.attention._grouped_query import GroupedQueryAttention
from gaam_decoder.attention.gaam import GAAM
from gaam_decoder.attention.gaussian_mixture import GaussianMixture
from gaam_decoder.attention.mha import MHA
from gaam_decoder.decoder import Decoder, DecoderSpec, build_decoder
from gaam_decoder.heads.conv import ConvHead
from gaam_decoder.specs import parse_attention, parse_head
from tests.conftest import GOLDEN

CASES = [("L6_D24_heads1", 1), ("L8_D32_heads4", 4)]


def golden_gaam(tensors: dict[str, torch.Tensor], heads: int) -> GAAM:
    _, num_layers, hidden_size = tensors["input"].shape
    gaam = GAAM(num_layers, hidden_size, heads=heads)
    with torch.no_grad():
        gaam.offset.copy_(tensors["mean_offset"])
        gaam.xi.copy_(tensors["scaled_variance"])
    return gaam


def published_gate(x: torch.Tensor, offset: torch.Tensor, xi: torch.Tensor) -> torch.Tensor:
    """The published gate of (B, L, D), written from its formula, in the type of its arguments."""
    groups = x.unflatten(1, (len(offset), -1))
    loc = groups.mean(2, keepdim=True)
    variance = (groups.square().mean(2, keepdim=True) - loc.square()).abs() + 1e-8
    r = (groups - (loc + offset[:, None])) / (variance + 1e-5).sqrt()
    return torch.exp(-r.square() / (2 * xi[:, None])).flatten(1, 2)


@pytest.mark.parametrize(("case", "heads"), CASES)
def test_gaam_equals_the_published_code(case: str, heads: int) -> None:
    """The published formula, without the rounding of its difference of two moments.

    Where the layers of a group are close, that rounding reaches 1.1e-4 in the published numbers.
    """
    tensors = load_file(GOLDEN / f"gaam_{case}.safetensors")
    assert (tensors["mean_offset"] != 0).any(), "the vectors do not exercise the offset"
    x, offset, xi = (tensors[name] for name in ("input", "mean_offset", "scaled_variance"))
    rounded = published_gate(x, offset, xi)
    torch.testing.assert_close(rounded, tensors["attention"], atol=1e-5, rtol=0)
    torch.testing.assert_close(x * rounded, tensors["output"], atol=1e-5, rtol=0)

    gaam, exact = (
        golden_gaam(tensors, heads),
        published_gate(x.double(), offset.double(), xi.double()),
    )
    for ours, wide, golden in (
        (gaam.attention_map(x), exact, tensors["attention"]),
        (gaam(x), x.double() * exact, tensors["output"]),
    ):
        torch.testing.assert_close(ours.double(), wide, atol=2e-6, rtol=0)
        theirs = (golden.double() - wide).abs()
        assert ((ours - golden).abs() <= 1e-5 + theirs).all()
    wide_gaam = gaam.double().attention_map(x.double())
    torch.testing.assert_close(wide_gaam, exact, atol=1e-10, rtol=0)


@pytest.mark.parametrize(("case", "heads"), CASES)
def test_gaam_decoder_equals_the_published_code(case: str, heads: int) -> None:
    tensors = load_file(GOLDEN / f"gaam_decoder_{case}.safetensors")
    attention = golden_gaam(tensors, heads)
    head = ConvHead(attention.num_layers, attention.hidden_size, tensors["logits"].shape[1])
    head.load_state_dict(
        {
            name: value
            for name, value in tensors.items()
            if name.split(".")[0] in dict(head.named_children())
        }
    )
    logits = Decoder(attention, head)(tensors["input"])
    torch.testing.assert_close(logits, tensors["logits"], atol=1e-5, rtol=0)


def test_gaussian_mixture_equals_the_published_code() -> None:
    tensors = load_file(GOLDEN / "gaussian_mixture_L8_D16_heads2_k3.safetensors")
    mixture = GaussianMixture(8, 16, heads=2, components=3)
    mixture.load_state_dict({"offset": tensors["mean_offsets"], "c": tensors["c"]})
    for ours, name in (
        (mixture.attention_map(tensors["input"]), "attention"),
        (mixture(tensors["input"]), "output"),
    ):
        torch.testing.assert_close(ours, tensors[name], atol=1e-5, rtol=0)
    # one group of the vectors is so far out that the floor of the sum decides
    assert (tensors["attention"].unflatten(1, (2, 4)).sum(2) < 0.9).any()


def test_gqa_equals_the_published_code() -> None:
    tensors = load_file(GOLDEN / "gqa_published_L8_D64_q8_kv2.safetensors")
    core = GroupedQueryAttention(64, 8, 2, published=True)
    core.load_state_dict({k: v for k, v in tensors.items() if k not in ("input", "output")})
    torch.testing.assert_close(core(tensors["input"]), tensors["output"], atol=1e-5, rtol=0)


def test_mha_equals_the_published_code() -> None:
    tensors = load_file(GOLDEN / "mha_published_L8_D32_heads4.safetensors")
    mha = MHA(8, 32, heads=4, published=True)
    names = {"in_proj_weight": "in_proj.weight", "in_proj_bias": "in_proj.bias"}
    state = {names.get(k, k): v for k, v in tensors.items() if k not in ("input", "output")}
    mha.load_state_dict(state)
    torch.testing.assert_close(mha(tensors["input"]), tensors["output"], atol=1e-5, rtol=0)


def test_every_golden_file_is_used() -> None:
    text = Path(__file__).read_text("utf-8")
    for file in GOLDEN.glob("*.safetensors"):
        case = file.stem.removeprefix("gaam_decoder_").removeprefix("gaam_")
        assert case in text, file.name


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
