"""What ``gaam describe`` says is what the modules are."""

from __future__ import annotations

from math import prod
from typing import Any

import pytest

from gaam_cache.common import plugins
from gaam_decoder.catalogue import catalogue, catalogue_in_words, describe_mechanism

NAMES = plugins.names("gaam_decoder.attention")


def test_every_mechanism_is_described_without_memory() -> None:
    for name in NAMES:
        description = describe_mechanism(name, 40, 5120)
        assert description["formula"], name
        assert all(option["value"] is not None for option in description["options"]), (
            name
        )
        sizes = description["parameters"]["tensors"].values()
        assert description["parameters"]["total"] == sum(map(prod, sizes)), name
    description = describe_mechanism("laplace:heads=4,location=median", 24, 1024)
    assert description["parameters"]["tensors"] == {"offset": [4, 1024], "b": [4, 1024]}
    assert [option["value"] for option in description["options"]] == [
        4,
        "median",
        "peak",
    ]


def test_only_options_of_a_mechanism_are_explained() -> None:
    """``mqa`` fixes the number of key-value heads of its base class."""
    assert "    kv_heads: " not in describe_mechanism("mqa", 6, 32)["text"]
    assert "    query_heads: " in describe_mechanism("mqa", 6, 32)["text"]
    assert "    kv_heads: " in describe_mechanism("gqa", 6, 32)["text"]


def test_what_does_not_load_is_listed_as_that(monkeypatch: pytest.MonkeyPatch) -> None:
    load = plugins.load

    def loaded(package: str, name: str, **more: Any) -> Any:
        return load(package, name, **more) if name != "mha" else 1 / 0

    monkeypatch.setattr(plugins, "load", loaded)
    text = catalogue_in_words(catalogue(40, 5120))
    assert "ZeroDivisionError" in text
    assert "81,920" in text, "the others are described"
