"""Whatever is loaded is hashed; what lies outside the encoder's folder is refused."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models

from gaam_cache.config import ExtractConfig
from gaam_cache.encoders._located import INDEX, WEIGHTS
from gaam_cache.encoders.text import TextEncoder
from gaam_cache.errors import ConfigError
from tests.conftest import build_encoder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return build_encoder(tmp_path / "encoder", "bert")


def split(folder: Path) -> dict[str, str]:
    """Weights in two files with an index; returns its map."""
    weights = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    weight_map = {}
    for part in (0, 1):
        name = f"model-{part + 1:05d}-of-00002.safetensors"
        some = {key: weights[key] for key in sorted(weights)[part::2]}
        save_file(some, folder / name, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(some, name)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return weight_map


def opened(folder: Path) -> TextEncoder:
    return TextEncoder.open(ExtractConfig(encoder=str(folder), device="cpu"))


def test_split_weights_are_loaded_and_hashed(folder: Path) -> None:
    whole = transformers.AutoModel.from_pretrained(folder).state_dict()
    save_file({"x": torch.zeros(1)}, folder / "model-other.safetensors")
    weight_map = split(folder)
    encoder = opened(folder)
    files = encoder.identity()["files"]
    assert {INDEX, *weight_map.values()} <= set(files)
    assert "model-other.safetensors" not in files
    encoder.load()
    loaded = encoder._forward.model.state_dict()
    assert loaded.keys() == whole.keys()
    assert all(torch.equal(loaded[key], whole[key]) for key in whole)


def test_an_index_names_weight_files_of_its_own_folder_only(folder: Path) -> None:
    weight_map = split(folder)
    there = ["../elsewhere/model.safetensors", "sub/model.safetensors", "w.safetensors"]
    for file in there:
        (folder / file).parent.mkdir(exist_ok=True)
        shutil.copy(folder / next(iter(weight_map.values())), folder / file)
    for name in [*there, "model-gone.safetensors", "model.bin", "", "..", 7, None]:
        changed = {} if name is None else weight_map | {next(iter(weight_map)): name}
        (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": changed}))
        with pytest.raises(ConfigError, match="weights that can be found"):
            opened(folder).identity()


def test_a_configuration_cannot_choose_other_weights(folder: Path) -> None:
    whole = load_file(folder / WEIGHTS)
    others = {key: x + 1 for key, x in whole.items()}
    save_file(others, folder / "other.safetensors", metadata={"format": "pt"})
    content = json.loads((folder / "config.json").read_text())
    for name in ("other.safetensors", "../other.safetensors"):
        named = content | {"transformers_weights": name}
        (folder / "config.json").write_text(json.dumps(named))
        encoder = opened(folder)
        encoder.load()
        loaded = encoder._forward.model.state_dict()
        assert all(torch.equal(loaded[key], whole[key]) for key in whole)


def test_weights_that_are_not_those_of_the_configuration_are_refused(folder: Path) -> None:
    content = json.loads((folder / "config.json").read_text())
    for setting in ("hidden_size", "vocab_size", "num_hidden_layers"):
        (folder / "config.json").write_text(json.dumps(content | {setting: 8 * content[setting]}))
        with pytest.raises(ConfigError):
            opened(folder).load()


def test_lists_of_versions_name_no_other_folder(folder: Path) -> None:
    for file, key in (("tokenizer_config.json", "fast_tokenizer_files"),
                      ("config.json", "configuration_files")):  # fmt: skip
        content = json.loads((folder / file).read_text())
        (folder / file).write_text(json.dumps(content | {key: ["../elsewhere/config.5.json"]}))
        with pytest.raises(ConfigError, match=f"{file}' names files outside"):
            opened(folder)
        (folder / file).write_text(json.dumps(content))


def test_a_text_that_the_tokenizer_cannot_read_is_one_message(folder: Path) -> None:
    model = models.WordLevel({"goal": 0, "bank": 1}, unk_token="[UNK]")
    Tokenizer(model).save(str(folder / "tokenizer.json"))
    encoder = opened(folder)
    encoder.load()
    assert encoder.prepare(["goal"]).lengths == [1]
    with pytest.raises(ConfigError, match="cannot read a text"):
        encoder.prepare(["goal", "zzz"])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_loaded_weights_are_no_view_of_their_file(dtype: str, folder: Path) -> None:
    config = ExtractConfig(encoder=str(folder), device="cpu", dtype=dtype)
    encoder = TextEncoder.open(config)
    encoder.load()
    before = {key: x.clone() for key, x in encoder._forward.model.state_dict().items()}
    with (folder / WEIGHTS).open("r+b") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(size // 4)
        file.write(os.urandom(size // 2))
    after = encoder._forward.model.state_dict()
    assert all(torch.equal(after[key], before[key]) for key in before)


def test_attention_that_is_fetched_from_elsewhere_is_code(folder: Path) -> None:
    content = json.loads((folder / "config.json").read_text())
    for change in ({"attn_implementation": "someone/kernels"},
                   {"text_config": {"_attn_implementation": {"text_config": "a/b"}}}):  # fmt: skip
        (folder / "config.json").write_text(json.dumps(content | change))
        with pytest.raises(ConfigError, match="brings its own code"):
            opened(folder)
