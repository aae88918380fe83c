"""What ``gaam describe`` prints is what the modules are."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest

from gaam_cache.common import plugins
from gaam_decoder.catalogue import catalogue, catalogue_in_words, describe_mechanism


@pytest.mark.parametrize("name", plugins.names("gaam_decoder.attention"))
def test_every_mechanism_is_described_without_memory(name: str) -> None:
    """Of an encoder whose mechanisms have many millions of parameters."""
    description = describe_mechanism(name, 40, 5120)
    assert description["formula"]
    for option in description["options"]:
        assert option["value"] is not None, option
    parameters = description["parameters"]
    assert parameters["total"] == sum(map(prod, parameters["tensors"].values()))


def test_a_mechanism_is_described_with_its_options() -> None:
    description = describe_mechanism("laplace:heads=4,location=median", 24, 1024)
    assert description["parameters"]["tensors"] == {"offset": [4, 1024], "b": [4, 1024]}
    values = [option["value"] for option in description["options"]]
    assert values == [4, "median", "peak"]


def test_only_options_of_a_mechanism_are_explained() -> None:
    """``mqa`` fixes the number of key-value heads of its base class."""
    assert "    kv_heads: " not in describe_mechanism("mqa", 6, 32)["text"]
    assert "    query_heads: " in describe_mechanism("mqa", 6, 32)["text"]
    assert "    kv_heads: " in describe_mechanism("gqa", 6, 32)["text"]


def test_a_mechanism_that_does_not_load_is_listed_with_its_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load = plugins.load

    def load_all_but_mha(package: str, name: str, **options: Any) -> Any:
        if name == "mha":
            raise ZeroDivisionError
        return load(package, name, **options)

    monkeypatch.setattr(plugins, "load", load_all_but_mha)
    text = catalogue_in_words(catalogue(40, 5120))
    assert "ZeroDivisionError" in text
    assert "81,920" in text, "the others are described"
