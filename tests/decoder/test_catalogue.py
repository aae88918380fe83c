from __future__ import annotations

import json

import pytest

from gaam_cache import plugins
from gaam_cache.errors import ConfigError
from gaam_decoder.catalogue import (
    catalogue,
    catalogue_in_words,
    describe_mechanism,
    mechanism_in_words,
)
from gaam_decoder.specs import plugin_options

NAMES = plugins.names("gaam_decoder.attention")


@pytest.mark.parametrize("name", NAMES)
def test_every_mechanism_is_described_without_memory(name: str) -> None:
    about = describe_mechanism(name, 40, 5120)
    json.dumps(about, allow_nan=False)
    assert about["formula"]
    cls = plugins.load("gaam_decoder.attention", name, kind="mechanism")
    assert [option["name"] for option in about["options"]] == list(plugin_options(cls))
    for option in about["options"]:
        assert option["meaning"], option["name"]
        assert option["value"] is not None, option["name"]
    sizes = about["parameters"]["tensors"].values()
    assert about["parameters"]["total"] == sum(_product(size) for size in sizes)
    words = mechanism_in_words(about, 80)
    assert f"{about['parameters']['total']:,}" in words
    assert all(len(line) <= 80 for line in words.splitlines())
    assert "``" not in words


def _product(size: list[int]) -> int:
    product = 1
    for number in size:
        product *= number
    return product


def test_what_is_said_is_what_the_module_says() -> None:
    about = describe_mechanism("laplace:heads=4,location=median", 24, 1024)
    assert about["formula"] == "w = exp(-|r| / b), with r as in DensityGate."
    assert about["output_shape"] == ["B", 24, 1024]
    assert about["parameters"]["tensors"] == {"offset": [4, 1024], "b": [4, 1024]}
    values = {option["name"]: option["value"] for option in about["options"]}
    assert values == {"heads": 4, "location": "median", "normalize": "peak"}
    assert "spread^2" in mechanism_in_words(about)
    assert describe_mechanism("gaam", 24, 1024)["options"][0]["value"] == 8


def test_batch_dependence_is_said() -> None:
    assert describe_mechanism("mha:published=true", 6, 384)["depends_on_batch"]
    assert "shares a batch" in mechanism_in_words(describe_mechanism("mha:published=true", 6, 384))


def test_the_list_has_everything_and_says_what_does_not_fit() -> None:
    listed = catalogue(40, 5120)
    assert [entry["name"] for entry in listed["mechanism"]] == NAMES
    assert {entry["name"] for entry in listed["head"]} == {"conv", "lbfgs", "linear", "mlp"}
    words = catalogue_in_words(listed, 80)
    assert all(len(line) <= 80 for line in words.splitlines())
    assert "81,920" in words
    assert all(
        said in words for said in ("gamma=2.5, alpha=0.25", "init=xavier-uniform", "A control")
    )
    single = {entry["name"]: entry for entry in catalogue(1, 64)["mechanism"]}
    assert single["gaam"]["parameters"] is None
    assert "does not fit" in catalogue_in_words(catalogue(1, 64))


def test_unknown_names_and_options_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ConfigError, match="student-t"):
        describe_mechanism("student", 40, 5120)
    with pytest.raises(ConfigError, match="heads=7"):
        describe_mechanism("gaam:heads=7", 40, 5120)
