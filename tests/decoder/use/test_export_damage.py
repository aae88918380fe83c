"""Whatever is wrong with an exported folder, it is refused with one message."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

import gaam_decoder
from gaam_cache.errors import CacheError, ConfigError, GaamError
from gaam_cache.store.digest import sealed_text, unsealed
from gaam_decoder.runs.result import RunResult
from gaam_decoder.use.export import export_run
from gaam_decoder.use.exported import CONFIG_FILE, WEIGHTS_FILE
from gaam_decoder.use.hub_model import HubDecoder
from tests.decoder.use.exports import train


@pytest.fixture(scope="module")
def run(tiny_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    [found] = train(tiny_cache, tmp_path_factory.mktemp("runs"), "gaam").values()
    return found


@pytest.fixture
def folder(run: RunResult, tmp_path: Path) -> Path:
    """One that is whole."""
    export_run(run.path, tmp_path / "out")
    return tmp_path / "out"


def reseal(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], object]:
    """A configuration with another content and a right digest."""

    def apply(folder: Path) -> None:
        content = unsealed(json.loads((folder / CONFIG_FILE).read_text()))
        change(content)
        (folder / CONFIG_FILE).write_text(sealed_text(content))

    return apply


def flip(place: int) -> Callable[[Path], object]:
    """Weights with a bit changed."""

    def apply(folder: Path) -> None:
        content = bytearray((folder / WEIGHTS_FILE).read_bytes())
        content[place] ^= 1
        (folder / WEIGHTS_FILE).write_bytes(content)

    return apply


def write(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "no configuration": lambda folder: (folder / CONFIG_FILE).unlink(),
    "no weights": lambda folder: (folder / WEIGHTS_FILE).unlink(),
    "no weights but a pickle": lambda folder: (folder / WEIGHTS_FILE).rename(
        folder / "pytorch_model.bin"
    ),
    "no JSON": write(CONFIG_FILE, b"{"),
    "of another library": write(CONFIG_FILE, b'{"model_type": "bert"}'),
    "a key more": reseal(lambda content: content.update(more=1)),
    "another version": reseal(lambda content: content.update(format_version=2)),
    "a code that is not ours": reseal(lambda content: content.update(attention="evil")),
    "another mechanism": reseal(lambda content: content.update(attention="none")),
    "another head": reseal(lambda content: content.update(head="conv")),
    "another seed": reseal(lambda content: content["seeds"].append(7)),
    "layers beyond": reseal(lambda content: content["layers"].append(99)),
    "a pooling that is not there": reseal(lambda content: content.update(pooling="last")),
    "no encoding": reseal(lambda content: content.update(encoding=None)),
    "other weights": reseal(lambda content: content["files"][WEIGHTS_FILE].update(sha256="0")),
    **{f"bit {place} of the weights": flip(place) for place in (0, 9, 100, -1)},
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_and_foreign_folders_are_refused(damage: str, folder: Path) -> None:
    DAMAGE[damage](folder)
    for load in (gaam_decoder.load, HubDecoder.from_pretrained):
        with pytest.raises(GaamError) as refused:
            load(folder)
        assert isinstance(refused.value, (CacheError, ConfigError)), refused.value
        assert refused.value.details["expected"]


def test_every_key_of_the_configuration_is_needed_and_sealed(folder: Path) -> None:
    whole = (folder / CONFIG_FILE).read_text()
    content = unsealed(json.loads(whole))
    model = HubDecoder.from_pretrained(folder)
    assert set(asdict(model.config)) < set(content)
    for key in content:
        reseal(lambda content, key=key: content.pop(key))(folder)
        with pytest.raises(CacheError):
            gaam_decoder.load(folder)
        (folder / CONFIG_FILE).write_text(whole)
    (folder / CONFIG_FILE).write_text(whole.replace('"linear"', '"mlp"'))
    with pytest.raises(CacheError, match="no decoder") as refused:
        gaam_decoder.load(folder)
    assert "it was changed" in str(refused.value)
