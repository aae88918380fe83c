"""An encoder that is not the one of the rows is refused by what differs, whatever else is wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import gaam_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.encode import Encoding
from gaam_cache.errors import ConfigError, NotFoundError
from gaam_cache.extraction.reopen import reopen
from gaam_cache.store.plan import read_plan
from tests.cache.encoders.vision.models import FAMILIES
from tests.conftest import build_encoder


def shorten(folder: Path) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"max_position_embeddings": 8}))


def change_byte(folder: Path) -> None:
    path = folder / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-5] + bytes([content[-5] ^ 1]) + content[-4:])


def be_of_pictures(folder: Path) -> None:
    shutil.rmtree(folder)
    FAMILIES["dinov2-registers"].save(folder)


WRONG: dict[str, Callable[[Path], Any]] = {
    "fewer positions": shorten,
    "an encoder of pictures": be_of_pictures,
    "a changed weight": change_byte,
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "a file more": lambda folder: (folder / "special_tokens_map.json").write_bytes(b"{}"),
}


@pytest.fixture(scope="module")
def encoding(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Encoding:
    """Of rows whose texts may be as long as the encoder has positions, with a prompt."""
    root = tmp_path_factory.mktemp("reopen")
    config = ExtractConfig(
        encoder=str(build_encoder(root / "encoder", "bert")), dataset=str(dataset),
        out=root / "cache", max_length=20, prompt="vote {text} cup", device="cpu",
    )  # fmt: skip
    gaam_cache.extract(config)
    return Encoding.of(read_plan(config.out))


def test_another_encoder_is_refused_as_another(encoding: Encoding, tmp_path: Path) -> None:
    folder = tmp_path / "encoder"
    for name, change in WRONG.items():
        shutil.copytree(encoding.encoder["path"], folder)
        change(folder)
        with pytest.raises(ConfigError, match="is another encoder; nothing was encoded") as caught:
            reopen(encoding, str(folder), "cpu", None)
        assert "files." in str(caught.value), name
        assert "--max-length" not in str(caught.value), name
        shutil.rmtree(folder)
    shutil.copytree(encoding.encoder["path"], folder)
    reopen(encoding, str(folder), "cpu", None)


def test_the_same_one_is_refused_for_what_is_wrong(encoding: Encoding, tmp_path: Path) -> None:
    longer = replace(encoding, identity=encoding.identity | {"max_length": 10**6})
    with pytest.raises(ConfigError, match="--max-length"):
        reopen(longer, None, "cpu", None)
    with pytest.raises(NotFoundError, match="no encoder at"):
        reopen(encoding, str(tmp_path / "nowhere"), "cpu", None)
