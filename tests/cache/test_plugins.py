"""Plug-ins are found by their names, and packages show the names they offer."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import pytest

import gaam_cache
import gaam_decoder
from gaam_cache.common import plugins
from gaam_cache.common.errors import ConfigError

PACKAGES = [
    "gaam_cache.sources",
    "gaam_cache.encoders",
    "gaam_cache.encoders.poolings",
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


@pytest.mark.parametrize("package", PACKAGES)
def test_a_name_that_is_not_listed_is_refused_with_those_that_are(package: str) -> None:
    first_name = plugins.names(package)[0]
    with pytest.raises(ConfigError, match=first_name):
        plugins.load(package, "gauss", kind="mechanism")


@pytest.mark.parametrize("package", [gaam_cache, gaam_decoder])
def test_a_package_shows_what_it_offers_and_offers_it(package: ModuleType) -> None:
    assert {name for name in dir(package) if name[0] != "_"} == set(package.__all__)
    for name in package.__all__:
        assert getattr(package, name).__name__.rpartition(".")[2] == name
    with pytest.raises(AttributeError, match="'nothing'"):
        _ = package.nothing
    assert (Path(str(package.__file__)).parent / "py.typed").exists()
