"""Files of an encoder are read and hashed, play no part, or are refused by name."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.utils import SAFE_WEIGHTS_NAME as WEIGHTS

from gaam_cache.common.errors import GaamError
from tests.cache.encoders.folders import (
    State,
    change_json,
    change_weights,
    opened,
    split_weights,
    states,
    states_of,
)
from tests.tiny import build_encoder

LONG = "{% for message in messages %}" + "x" * 300
LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
Change = Callable[[State], State]
SECOND = "model-00002-of-00002.safetensors"


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    return build_encoder(tmp_path / "bert", "bert")


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return build_encoder(tmp_path / "llama", "llama")


def prefix_names(prefix: str, tensors: State) -> State:
    return {f"{prefix}{name}": tensor for name, tensor in tensors.items()}


def with_prefix(prefix: str) -> Change:
    return partial(prefix_names, prefix)


def add_tensor(name: str, shape: tuple[int, ...], tensors: State) -> State:
    return tensors | {name: torch.ones(shape)}


def with_tensor(*shape: int, name: str) -> Change:
    return partial(add_tensor, name, shape)


@pytest.mark.parametrize("place", ["tokenizer_config.json", "chat_template.jinja"])
def test_a_chat_template_is_no_file_of_the_tokenizer(llama: Path, place: str) -> None:
    before = opened(llama).identity()
    if place.endswith(".json"):
        change_json(llama / place, chat_template=LONG)
    else:
        (llama / place).write_text(LONG)
    after = opened(llama).identity()
    files = before["files"]
    changed = {
        name for name, digest in after["files"].items() if digest != files.get(name)
    }
    assert changed == ({place} if place.endswith(".json") else set())


HARMLESS: dict[str, Change] = {
    "buffers": with_tensor(1, 64, name="embeddings.position_ids"),
    "head of a language model": with_tensor(
        20, 32, name="cls.predictions.decoder.weight"
    ),
    "head of a class of its own": with_tensor(4, 32, name="linear.weight"),
    "prefix of a model for a task": with_prefix("bert."),
    "other tower": with_tensor(4, 4, name="vision_model.embeddings.weight"),
}


@pytest.mark.parametrize("case", HARMLESS)
def test_what_plays_no_part_changes_no_state(bert: Path, case: str) -> None:
    expected = states(bert)
    change_weights(bert, HARMLESS[case])
    np.testing.assert_array_equal(states(bert), expected)


def in_bytes(tensors: State) -> State:
    return {
        name: tensor.to(torch.int8) if "query.weight" in name else tensor
        for name, tensor in tensors.items()
    }


REFUSED: dict[str, tuple[Change, str]] = {
    "adapter": (
        with_tensor(4, 32, name="encoder.layer.0.attention.lora_A.weight"),
        "lora_A",
    ),
    "prompt": (
        with_tensor(4, 32, name="prompt_encoder.embedding.weight"),
        "prompt_encoder",
    ),
    "layer more": (
        with_tensor(32, name="encoder.layer.3.output.dense.bias"),
        "num_hidden_layers 3",
    ),
    "parameter more": (
        with_tensor(32, name="encoder.layer.0.attention.norm.bias"),
        "attention.norm",
    ),
    "scales": (
        with_tensor(32, name="encoder.layer.0.output.dense.SCB"),
        "quantization_config",
    ),
    "whole numbers": (in_bytes, "quantised"),
    "prefix of a wrapper": (with_prefix("module."), "begin with 'module.'"),
    "second copy": (
        with_tensor(32, name="bert.encoder.layer.0.output.dense.bias"),
        "twice",
    ),
    "second model": (
        with_tensor(32, name="teacher.encoder.layer.0.output.dense.bias"),
        "teacher",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_may_play_a_part_is_refused_by_name(bert: Path, case: str) -> None:
    change, message = REFUSED[case]
    change_weights(bert, change)
    with pytest.raises(GaamError, match=message):
        opened(bert).load()


TASKS = {
    "BertForPreTraining": "bert",
    "RobertaForSequenceClassification": "roberta",
    "DebertaV2ForMaskedLM": "deberta-v2",
    "MPNetForMaskedLM": "mpnet",
    "GPT2LMHeadModel": "gpt2",
    "LlamaForSequenceClassification": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForTokenClassification": "qwen2",
    "T5ForConditionalGeneration": "t5",
    "T5EncoderModel": "t5",
    "BartForSequenceClassification": "bart",
    "MarianMTModel": "marian",
}


@pytest.mark.parametrize("task", TASKS)
def test_checkpoints_of_models_for_a_task_are_read(task: str, tmp_path: Path) -> None:
    """Their heads play no part; what a version of transformers left out is computed."""
    sizes = {
        "d_kv": 8,
        "num_heads": 4,
        "d_ff": 48,
        "num_layers": 2,
        "n_head": 4,
        "n_layer": 2,
    }
    config_class: Any = transformers.CONFIG_MAPPING[TASKS[task]]
    config = config_class(
        vocab_size=24,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=4,
        intermediate_size=48,
        max_position_embeddings=64,
        pad_token_id=0,
        eos_token_id=3,
        **(sizes if TASKS[task] in ("t5", "gpt2") else {}),
    )
    build_encoder(tmp_path, "bert")
    getattr(transformers, task)._from_config(config).save_pretrained(tmp_path)
    read = (
        transformers.T5EncoderModel
        if task == "T5EncoderModel"
        else transformers.AutoModel
    )
    model = read.from_pretrained(tmp_path)
    part = model.get_encoder() if model.config.is_encoder_decoder else model
    np.testing.assert_allclose(
        states(tmp_path), states_of(part, tmp_path), atol=1e-5, rtol=1e-4
    )


def link_files(folder: Path) -> Path:
    """The folder as a cache of the hub keeps it."""
    snapshot = folder.parent / "snapshots" / "0"
    snapshot.mkdir(parents=True)
    blobs = folder.parent / "blobs"
    blobs.mkdir()
    for number, file in enumerate(sorted(folder.iterdir())):
        blob = blobs / f"{number}"
        shutil.copy(file, blob)
        (snapshot / file.name).symlink_to(os.path.relpath(blob, snapshot))
    return snapshot


def test_a_folder_of_links_is_read_as_what_they_lead_to(llama: Path) -> None:
    split_weights(llama)
    snapshot = link_files(llama)
    assert opened(snapshot).identity() == opened(llama).identity()
    np.testing.assert_array_equal(states(snapshot), states(llama))


def link_to_nothing(folder: Path, name: str = "tokenizer.json") -> None:
    (folder / name).unlink()
    (folder / name).symlink_to("gone")


def remove_a_shard(folder: Path) -> None:
    split_weights(folder)
    (folder / SECOND).unlink()


def link_a_shard_to_nothing(folder: Path) -> None:
    split_weights(folder)
    link_to_nothing(folder, SECOND)


def save_a_tensor_twice(folder: Path) -> None:
    split_weights(folder)
    first_tensors = load_file(folder / SECOND.replace("00002", "00001", 1))
    save_file(load_file(folder / SECOND) | first_tensors, folder / SECOND)


def cut_the_weights(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-100])


def point_to_the_weights(folder: Path) -> None:
    (folder / WEIGHTS).write_text(LFS)


def point_to_the_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").write_text(LFS)


def leave_weights_to_dvc(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / f"{WEIGHTS}.dvc")


def pickle_the_weights(folder: Path) -> None:
    (folder / WEIGHTS).rename(folder / "pytorch_model.bin")


def add_an_adapter_alone(folder: Path) -> None:
    (folder / "adapter_model.safetensors").touch()


def add_an_adapter_of_another_program(folder: Path) -> None:
    change_json(folder / "adapter_config.json", model_name="x")


BROKEN: dict[str, tuple[Callable[[Path], None], str, int]] = {
    "link to nothing": (link_to_nothing, "tokenizer.json' is a link", 2),
    "link of a shard": (link_a_shard_to_nothing, f"{SECOND}' is a link", 2),
    "missing shard": (remove_a_shard, f"missing: {SECOND}", 2),
    "tensor in two files": (save_a_tensor_twice, "twice", 2),
    "pointer to weights": (point_to_the_weights, "Git LFS pointer.*git lfs pull", 2),
    "pointer to a tokenizer": (point_to_the_tokenizer, "'tokenizer.json'.*Git LFS", 2),
    "weights cut off": (cut_the_weights, "cut off", 3),
    "weights of DVC": (leave_weights_to_dvc, "dvc pull", 2),
    "pickled weights": (pickle_the_weights, "safetensors", 2),
    "adapter without configuration": (add_an_adapter_alone, "adapter_config.json", 2),
    "adapter of another program": (add_an_adapter_of_another_program, "peft's", 2),
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_wrong_with_a_file_is_said(llama: Path, case: str) -> None:
    change, message, code = BROKEN[case]
    change(llama)
    with pytest.raises(GaamError) as refused:
        opened(llama).load()
    assert re.search(message, str(refused.value), re.DOTALL)
    assert refused.value.exit_code == code


POOLING = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
SHORTER = {"sentence_bert_config.json": {"max_seq_length": 32}}
CLASS_TOKEN = {"1_Pooling/config.json": {"pooling_mode": "cls"}}
PROMPTED = {
    "config_sentence_transformers.json": {
        "prompts": {"query": "query: "},
        "default_prompt_name": "query",
    }
}


class Besides(NamedTuple):
    """Files of sentence-transformers, settings of gaam, and the notice of both."""

    files: Mapping[str, dict[str, Any]]
    settings: dict[str, Any]
    notice: str | None


NOTICES = {
    "as here": Besides({"1_Pooling/config.json": POOLING}, {}, None),
    "shorter": Besides(
        SHORTER,
        {},
        r"cuts at 32 tokens where gaam cuts at 64 \(--max-length 32\); gaam stores",
    ),
    "as short": Besides(SHORTER, {"max_length": 32}, None),
    "class token": Besides(CLASS_TOKEN, {}, "--pool first"),
    "as pooled": Besides(CLASS_TOKEN, {"pool": ("first",)}, None),
    "prompt": Besides(PROMPTED, {}, "'query: ' before every text"),
    "as prompted": Besides(PROMPTED, {"prompt": "query: {text}"}, None),
}


@pytest.mark.parametrize("case", NOTICES)
def test_what_sentence_transformers_does_besides_is_one_line(
    bert: Path, case: str
) -> None:
    files, options, message = NOTICES[case]
    kinds = {"": "Transformer", "1_Pooling": "Pooling", "2_Normalize": "Normalize"}
    modules = [{"path": path, "type": f"models.{kind}"} for path, kind in kinds.items()]
    (bert / "modules.json").write_text(json.dumps(modules))
    for name, content in files.items():
        change_json(bert / name, **content)
    notices = opened(bert, **options).notices()
    assert len(notices) == (message is not None)
    assert all(re.search(message or "", notice) for notice in notices)


def test_adapters_beside_weights_that_nobody_applies_are_said(llama: Path) -> None:
    (llama / "pytorch_lora_weights.safetensors").touch()
    change_json(llama / "other" / "adapter_config.json", peft_type="LORA")
    [notice] = opened(llama).notices()
    assert "not applied: other and 1 more" in notice


@pytest.mark.parametrize("same", [True, False], ids=["same", "other"])
def test_pickled_weights_beside_are_compared_and_never_read(
    llama: Path, same: bool
) -> None:
    tensors = load_file(llama / WEIGHTS)
    if not same:
        tensors["norm.weight"] = tensors["norm.weight"] + 1
    torch.save(tensors, llama / "pytorch_model.bin")
    notices = opened(llama).notices()
    assert len(notices) == (not same)
    assert all(
        "gaam reads model.safetensors, not pytorch_model.bin" in notice
        for notice in notices
    )


def test_numbered_weights_that_no_index_names_are_said(llama: Path) -> None:
    tensors = load_file(llama / WEIGHTS)
    save_file(tensors, llama / "model-00001-of-00005.safetensors")
    [notice] = opened(llama).notices()
    assert "not model-00001-of-00005.safetensors beside it" in notice


def test_weights_beside_that_are_not_read_are_said(llama: Path) -> None:
    tensors = load_file(llama / WEIGHTS)
    save_file(tensors, llama / "model_ema.safetensors")
    torch.save(
        tensors, llama / "pytorch_model.bin", _use_new_zipfile_serialization=False
    )
    first, second = opened(llama).notices()
    assert "gaam reads model.safetensors, not model_ema.safetensors beside it" in first
    assert "not pytorch_model.bin beside it, whose weights cannot be compared" in second
