from __future__ import annotations

import re
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
    "gaam_cache.encoders.poolings",
    "gaam_decoder.attention",
    "gaam_decoder.heads",
    "gaam_decoder.reports.formats",
]


def test_every_listed_name_loads_one_documented_class() -> None:
    for package in PACKAGES:
        names = plugins.names(package)
        assert names
        for name in names:
            assert "_" not in name
            cls = plugins.load(package, name, kind="plug-in")
            assert cls.__doc__, f"{name} says nothing about itself"
        with pytest.raises(ConfigError, match=names[0]):
            plugins.load(package, "gauss", kind="mechanism")


@pytest.mark.parametrize("package", [gaam_cache, gaam_decoder])
def test_a_package_shows_what_it_offers_and_offers_it(package: ModuleType) -> None:
    assert {name for name in dir(package) if name[0] != "_"} == set(package.__all__)
    for name in package.__all__:
        assert getattr(package, name).__name__.rpartition(".")[2] == name
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = package.nothing
    assert (Path(str(package.__file__)).parent / "py.typed").exists()


def test_what_people_hold_says_what_it_is(tiny_cache: Path, tmp_path: Path) -> None:
    cache = gaam_cache.open_cache(tiny_cache)
    assert re.fullmatch(
        r"<EmbeddingCache '.*': .*, 6 layers x 32, train \d+, .* rows>", repr(cache)
    )
    assert repr(cache["train"]) == f"<Split 'train': {len(cache['train'])} rows>"
    states = cache["train"].embeddings
    assert repr(states) == f"<ShardedArray {states.shape} float16>"
    config = gaam_decoder.TrainConfig(
        lr=3e-4, cache=tiny_cache, runs=tmp_path, attn=("none",), seeds=(0, 1), epochs=1
    )
    (run,) = gaam_decoder.train(config)
    assert repr(run) == f"<RunResult '{run.path}': {run.title}, 2 seeds>"
