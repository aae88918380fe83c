"""An encoder that is not the one of the rows is refused by what differs, whatever else is wrong."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import gaam_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.encode import Encoding
from gaam_cache.errors import ConfigError, NotFoundError
from gaam_cache.extraction.again import open_again
from gaam_cache.store.plan import read_plan
from tests.cache.encoders.vision.models import FAMILIES
from tests.conftest import build_encoder


def set_in(name: str, **values: Any) -> Callable[[Path], None]:
    """Other values in a file of JSON."""

    def change(folder: Path) -> None:
        path = folder / name
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return change


def put(name: str, content: bytes) -> Callable[[Path], None]:
    """Another file."""
    return lambda folder: (folder / name).write_bytes(content) and None


def drop(name: str) -> Callable[[Path], None]:
    """No such file."""
    return lambda folder: (folder / name).unlink()


def change_byte(folder: Path) -> None:
    path = folder / "model.safetensors"
    content = path.read_bytes()
    path.write_bytes(content[:-5] + bytes([content[-5] ^ 1]) + content[-4:])


def empty(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def be_a_file(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_text("{}")


def be_of_pictures(folder: Path) -> None:
    shutil.rmtree(folder)
    FAMILIES["dinov2-registers"].save(folder)


def be(architecture: str, **about: Any) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        shutil.rmtree(folder)
        build_encoder(folder, architecture, **about)

    return change


WRONG: dict[str, Callable[[Path], None]] = {
    "fewer positions": set_in("config.json", max_position_embeddings=8),
    "a tokenizer of fewer positions": set_in("tokenizer_config.json", model_max_length=7),
    "positions that are no number": set_in("config.json", max_position_embeddings="many"),
    "another hidden size": set_in("config.json", hidden_size=64),
    "sizes that do not fit": set_in("config.json", num_attention_heads=7),
    "another number of layers": be("bert", num_layers=2),
    "far too many layers": set_in("config.json", num_hidden_layers=10**6),
    "another type": set_in("config.json", dtype="float16", torch_dtype="float16"),
    "another architecture": be("llama"),
    "another seed": be("bert", seed=3),
    "an encoder of pictures": be_of_pictures,
    "an unknown architecture": set_in("config.json", model_type="none-such"),
    "code of its own": set_in("config.json", auto_map={"AutoModel": "x.Y"}),
    "weights of another name": set_in("config.json", transformers_weights="x.safetensors"),
    "a changed weight": change_byte,
    "weights cut off": put("model.safetensors", b"\x01"),
    "no weights": drop("model.safetensors"),
    "no configuration": drop("config.json"),
    "a configuration that is none": put("config.json", b"{"),
    "no tokenizer": drop("tokenizer.json"),
    "a tokenizer that is none": put("tokenizer.json", b"{}"),
    "a file more": put("special_tokens_map.json", b"{}"),
    "an empty folder": empty,
    "a file": be_a_file,
}


@pytest.fixture(scope="module")
def encoding(dataset: Path, tmp_path_factory: pytest.TempPathFactory) -> Encoding:
    """Of rows whose texts may be as long as the encoder has positions, with a prompt."""
    root = tmp_path_factory.mktemp("again")
    config = ExtractConfig(
        encoder=str(build_encoder(root / "encoder", "bert")), dataset=str(dataset),
        out=root / "cache", max_length=20, prompt="vote {text} cup", device="cpu",
    )  # fmt: skip
    gaam_cache.extract(config)
    return Encoding.of(read_plan(config.out))


def changed(encoding: Encoding, folder: Path) -> Iterator[str]:
    """Encoders that are others, one after the other in a folder."""
    for name, change in WRONG.items():
        shutil.copytree(encoding.encoder["path"], folder)
        change(folder)
        yield name
        folder.unlink() if folder.is_file() else shutil.rmtree(folder)


def test_another_encoder_is_refused_as_another(encoding: Encoding, tmp_path: Path) -> None:
    folder = tmp_path / "encoder"
    for name in changed(encoding, folder):
        with pytest.raises(ConfigError, match="is another encoder; nothing was encoded") as caught:
            open_again(encoding, str(folder), "cpu", None)
        assert "files." in str(caught.value), name
        assert "--max-length" not in str(caught.value), name
    shutil.copytree(encoding.encoder["path"], folder)
    open_again(encoding, str(folder), "cpu", None)


def test_one_that_is_called_by_name_is_another(
    encoding: Encoding, dataset: Path, tmp_path: Path
) -> None:
    for name in ("tfidf", "tfidf:hashed=true", "tfidf:features=0", "tfidf:none=1"):
        with pytest.raises(ConfigError, match="is another encoder"):
            open_again(encoding, name, "cpu", None)
    config = ExtractConfig(
        encoder="tfidf", dataset=str(shutil.copytree(dataset, tmp_path / "data")),
        out=tmp_path / "cache", max_length=20,
    )  # fmt: skip
    gaam_cache.extract(config)
    of_words = Encoding.of(read_plan(config.out))
    shutil.rmtree(tmp_path / "data")
    with pytest.raises(ConfigError, match="is another encoder"):
        open_again(of_words, encoding.encoder["path"], "cpu", None)


def test_the_same_one_is_refused_for_what_is_wrong(encoding: Encoding, tmp_path: Path) -> None:
    longer = replace(encoding, identity=encoding.identity | {"max_length": 10**6})
    with pytest.raises(ConfigError, match="--max-length"):
        open_again(longer, None, "cpu", None)
    with pytest.raises(NotFoundError, match="no encoder at"):
        open_again(encoding, str(tmp_path / "nowhere"), "cpu", None)
