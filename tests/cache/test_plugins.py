from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

import gaam_cache
import gaam_decoder
from gaam_cache import plugins
from gaam_cache.errors import ConfigError

PACKAGES = [
    "gaam_cache.sources",
    "gaam_cache.encoders",
    "gaam_decoder.attention",
    "gaam_decoder.heads",
    "gaam_decoder.reports.formats",
]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_listed_name_loads_one_documented_class(package: str) -> None:
    names = plugins.names(package)
    assert names
    for name in names:
        assert "_" not in name
        cls = plugins.load(package, name, kind="plug-in")
        assert cls.__doc__, f"{name} says nothing about itself"


def test_unknown_names_list_the_valid_ones() -> None:
    with pytest.raises(ConfigError, match=r"unknown mechanism 'gauss'(.|\n)*gaam, laplace"):
        plugins.load("gaam_decoder.attention", "gauss", kind="mechanism")


@pytest.mark.parametrize("package", [gaam_cache, gaam_decoder])
def test_a_package_shows_what_it_offers_and_offers_it(package: ModuleType) -> None:
    assert set(package.__all__) <= set(dir(package))
    for name in package.__all__:
        assert getattr(package, name).__name__ == name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = package.nothing
    assert (Path(str(package.__file__)).parent / "py.typed").exists()
