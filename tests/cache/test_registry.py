from __future__ import annotations

import subprocess
import sys

import pytest

from gaam_cache import registry
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
    names = registry.names(package)
    assert names
    for name in names:
        assert "_" not in name
        cls = registry.load(package, name, kind="plug-in")
        assert cls.__doc__, f"{name} says nothing about itself"


def test_unknown_names_list_the_valid_ones() -> None:
    with pytest.raises(ConfigError, match=r"unknown mechanism 'gauss'(.|\n)*gaam, laplace"):
        registry.load("gaam_decoder.attention", "gauss", kind="mechanism")


@pytest.mark.parametrize(
    "code",
    [
        "import gaam_cache.extraction.extract; assert callable(gaam_cache.extract)",
        "import gaam_cache; assert callable(gaam_cache.extract); assert gaam_cache.open_cache",
        "import gaam_decoder.training.train; assert callable(gaam_decoder.train)",
        "from gaam_decoder import train, load_runs, TrainConfig, RunResult; assert callable(train)",
    ],
)
def test_functions_called_like_their_module_stay_functions(code: str) -> None:
    subprocess.run([sys.executable, "-c", code], check=True)
