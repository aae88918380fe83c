"""Whatever is loaded is hashed; what lies outside the encoder's folder is refused."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer, models
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME as INDEX

from gaam_cache.common.errors import ConfigError
from tests.cache.encoders.folders import change_json, opened, split_weights
from tests.conftest import build_encoder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return build_encoder(tmp_path / "encoder", "bert")


def test_split_weights_are_loaded_and_hashed_and_no_others(folder: Path) -> None:
    whole = transformers.AutoModel.from_pretrained(folder).state_dict()
    save_file({"x": torch.zeros(1)}, folder / "model-other.safetensors")
    weight_map = split_weights(folder)
    encoder = opened(folder)
    files = encoder.identity()["files"]
    assert {INDEX, *weight_map.values()} <= set(files)
    assert "model-other.safetensors" not in files
    encoder.load()
    loaded = encoder._forward.running_model.state_dict()
    assert loaded.keys() == whole.keys()
    assert all(torch.equal(loaded[key], whole[key]) for key in whole)


FILES_ELSEWHERE = [
    "../elsewhere/model.safetensors",
    "sub/model.safetensors",
    "w.safetensors",
    "model-x/../../elsewhere/model.safetensors",
]


@pytest.mark.parametrize(
    "name", [*FILES_ELSEWHERE, "model-gone.safetensors", "model.bin", "..", 7]
)
def test_an_index_names_weight_files_of_its_own_folder_only(
    name: object, folder: Path
) -> None:
    weight_map: dict[str, object] = {**split_weights(folder)}
    first_tensor = next(iter(weight_map))
    if name in FILES_ELSEWHERE:
        (folder / "model-x").mkdir()
        file = folder / str(name)
        file.parent.mkdir(exist_ok=True)
        shutil.copy(folder / str(weight_map[first_tensor]), file)
    weight_map[first_tensor] = name
    change_json(folder / INDEX, weight_map=weight_map)
    with pytest.raises(ConfigError, match=INDEX):
        opened(folder).identity()


def test_an_index_names_a_file(folder: Path) -> None:
    split_weights(folder)
    change_json(folder / INDEX, weight_map={})
    with pytest.raises(ConfigError, match=INDEX):
        opened(folder).identity()


OUTSIDE = ["../elsewhere/config.5.json"]


@pytest.mark.parametrize(
    ("file", "change", "words"),
    [
        (
            "tokenizer_config.json",
            {"fast_tokenizer_files": OUTSIDE},
            "fast_tokenizer_files",
        ),
        ("config.json", {"configuration_files": OUTSIDE}, "configuration_files"),
        ("config.json", {"attn_implementation": "someone/kernels"}, "someone/kernels"),
        (
            "config.json",
            {"transformers_weights": "model-other.safetensors"},
            "model-other",
        ),
        ("config.json", {"hidden_size": 256}, "256"),
        ("config.json", {"num_hidden_layers": 24}, r"layer\.\d+"),
    ],
    ids=["tokenizer", "configuration", "kernels", "weights", "width", "layers"],
)
def test_what_a_configuration_must_not_name_is_refused(
    file: str, change: dict[str, Any], words: str, folder: Path
) -> None:
    change_json(folder / file, **change)
    with pytest.raises(ConfigError, match=words):
        opened(folder).load()


def test_a_text_that_the_tokenizer_cannot_read_is_one_message(folder: Path) -> None:
    model = models.WordLevel({"goal": 0, "bank": 1}, unk_token="[UNK]")
    Tokenizer(model).save(str(folder / "tokenizer.json"))
    encoder = opened(folder)
    assert encoder.prepare(["goal"]).lengths == [1]
    with pytest.raises(ConfigError, match=str(folder)):
        encoder.prepare(["goal", "zzz"])
