"""The published code's numbers, reproduced."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import load_file

from gaam_decoder.attention.gaam import GAAM
from gaam_decoder.config import parse_attention, parse_head
from gaam_decoder.decoder import Decoder, DecoderSpec, build_decoder
from gaam_decoder.heads.conv import ConvHead
from tests.conftest import GOLDEN

CASES = [("L6_D24_heads1", 1), ("L8_D32_heads4", 4)]


def golden_gaam(tensors: dict[str, torch.Tensor], heads: int) -> GAAM:
    _, num_layers, hidden_size = tensors["input"].shape
    gaam = GAAM(num_layers, hidden_size, heads=heads)
    with torch.no_grad():
        gaam.offset.copy_(tensors["mean_offset"])
        gaam.xi.copy_(tensors["scaled_variance"])
    return gaam


@pytest.mark.parametrize(("case", "heads"), CASES)
def test_gaam_equals_the_published_code(case: str, heads: int) -> None:
    tensors = load_file(GOLDEN / f"gaam_{case}.safetensors")
    assert (tensors["mean_offset"] != 0).any(), "the vectors do not exercise the offset"
    gaam = golden_gaam(tensors, heads)
    for ours, name in (
        (gaam.attention_map(tensors["input"]), "attention"),
        (gaam(tensors["input"]), "output"),
    ):
        torch.testing.assert_close(ours, tensors[name], atol=1e-5, rtol=0)


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


@pytest.mark.parametrize(
    ("spec", "num_layers", "hidden_size", "parameters"),
    [
        ("gaam", 40, 5120, 81_920),
        ("gaam:heads=1", 40, 5120, 10_240),
        ("gaam", 24, 1024, 16_384),
        ("gaam:heads=1", 24, 1024, 2_048),
        ("laplace", 40, 5120, 81_920),
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
