"""What ``gaam describe`` says is what the modules are."""

from __future__ import annotations

from math import prod

from gaam_cache import plugins
from gaam_decoder.catalogue import (
    catalogue,
    catalogue_in_words,
    describe_mechanism,
    mechanism_in_words,
)

NAMES = plugins.names("gaam_decoder.attention")


def test_every_mechanism_is_described_without_memory() -> None:
    for name in NAMES:
        about = describe_mechanism(name, 40, 5120)
        assert about["formula"], name
        assert all(option["value"] is not None for option in about["options"]), name
        sizes = about["parameters"]["tensors"].values()
        assert about["parameters"]["total"] == sum(map(prod, sizes)), name


def test_what_is_said_is_what_the_module_says() -> None:
    about = describe_mechanism("laplace:heads=4,location=median", 24, 1024)
    assert about["formula"] == "w = exp(-|r| / b), with r as in DensityGate."
    assert about["output_shape"] == ["B", 24, 1024]
    assert about["parameters"]["tensors"] == {"offset": [4, 1024], "b": [4, 1024]}
    assert [option["value"] for option in about["options"]] == [4, "median", "peak"]
    assert "offset 4 x 1024" in mechanism_in_words(about)
    assert describe_mechanism("gaam", 24, 1024)["options"][0]["value"] == 8
    listed = catalogue(40, 5120)
    assert [entry["name"] for entry in listed["mechanism"]] == NAMES
    for said in ("81,920", "gamma=2.5, alpha=0.25", "init=xavier-uniform", "A control"):
        assert said in catalogue_in_words(listed, 80)
    assert "does not fit" in catalogue_in_words(catalogue(1, 64))
