"""Which comparisons of densities are named as none, for all numbers of layers and heads."""

from __future__ import annotations

import warnings

import pytest

from gaam_cache import plugins
from gaam_cache.errors import GaamWarning
from gaam_decoder.attention import DensityGate
from gaam_decoder.decoder import DecoderSpec
from gaam_decoder.specs import parse_attention, parse_head
from gaam_decoder.training.pairs_of_layers import warn_of_pairs_of_layers

DENSITIES = [
    name
    for name in plugins.names("gaam_decoder.attention")
    if issubclass(plugins.load("gaam_decoder.attention", name, kind="mechanism"), DensityGate)
]


def said(*mechanisms: str, layers: int) -> list[str]:
    specs = [
        DecoderSpec(
            attention=parse_attention(name), head=parse_head("linear"),
            num_layers=layers, hidden_size=8, num_classes=3,
        )
        for name in mechanisms
    ]  # fmt: skip
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GaamWarning)
        warn_of_pairs_of_layers(specs)
    return [str(one.message) for one in caught]


@pytest.mark.parametrize("layers", range(2, 41))
def test_two_densities_are_named_where_heads_have_two_layers(layers: int) -> None:
    for heads in (n for n in range(1, layers // 2 + 1) if layers % n == 0):
        found = said(f"gaam:heads={heads}", f"laplace:heads={heads}", "none", layers=layers)
        assert len(found) == (layers == 2 * heads)
        for text in found:
            assert text.startswith(f"gaam:heads={heads}, laplace:heads={heads}: {layers} layers")
            assert ("heads=1 has all layers" in text) == (layers > 2)


def test_every_density_is_one_and_one_alone_is_no_comparison() -> None:
    for name in DENSITIES:
        assert not said(name, f"{name}:location=median", "mha", "none", layers=6)
        other = "laplace" if name == "gaam" else "gaam"
        [text] = said(name, other, "none", layers=6)
        assert text.startswith(f"{name}, {other}: 6 layers in heads of two")
        assert not said(f"{name}:heads=1", other, layers=6)
    assert len(DENSITIES) >= 8
