"""What an encoder's folder holds: read and hashed, known to play no part, or refused by name."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

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
SECOND = "model-00002-of-00002.safetensors"


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    return build_encoder(tmp_path / "bert", "bert")


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    return build_encoder(tmp_path / "llama", "llama")


def with_prefix(prefix: str) -> Callable[[State], State]:
    return lambda tensors: {
        f"{prefix}{name}": tensor for name, tensor in tensors.items()
    }


def added(*shape: int, name: str) -> Callable[[State], State]:
    return lambda tensors: tensors | {name: torch.ones(shape)}


@pytest.mark.parametrize("place", ["tokenizer_config.json", "chat_template.jinja"])
def test_a_chat_template_is_no_file_of_the_tokenizer(llama: Path, place: str) -> None:
    before = opened(llama).identity()
    if place.endswith(".json"):
        change_json(llama / place, chat_template=LONG)
    else:
        (llama / place).write_text(LONG)
    after = opened(llama).identity()
    differ = {
        name
        for name in after["files"]
        if after["files"][name] != before["files"].get(name)
    }
    assert differ == ({place} if place.endswith(".json") else set())


HARMLESS: dict[str, Callable[[State], State]] = {
    "buffers": added(1, 64, name="embeddings.position_ids"),
    "head of a language model": added(20, 32, name="cls.predictions.decoder.weight"),
    "head of a class of its own": added(4, 32, name="linear.weight"),
    "prefix of a model for a task": with_prefix("bert."),
    "other tower": added(4, 4, name="vision_model.embeddings.weight"),
}


@pytest.mark.parametrize("case", HARMLESS)
def test_what_plays_no_part_changes_no_state(bert: Path, case: str) -> None:
    expected = states(bert)
    change_weights(bert, HARMLESS[case])
    np.testing.assert_array_equal(states(bert), expected)


def in_bytes(tensors: State) -> State:
    return {
        n: t.to(torch.int8) if "query.weight" in n else t for n, t in tensors.items()
    }


REFUSED: dict[str, tuple[Callable[[State], State], str]] = {
    "adapter": (added(4, 32, name="encoder.layer.0.attention.lora_A.weight"), "lora_A"),
    "prompt": (added(4, 32, name="prompt_encoder.embedding.weight"), "prompt_encoder"),
    "layer more": (
        added(32, name="encoder.layer.3.output.dense.bias"),
        "num_hidden_layers 3",
    ),
    "parameter more": (
        added(32, name="encoder.layer.0.attention.norm.bias"),
        "attention.norm",
    ),
    "scales": (
        added(32, name="encoder.layer.0.output.dense.SCB"),
        "quantization_config",
    ),
    "whole numbers": (in_bytes, "quantised"),
    "prefix of a wrapper": (with_prefix("module."), "begin with 'module.'"),
    "second copy": (added(32, name="bert.encoder.layer.0.output.dense.bias"), "twice"),
    "second model": (
        added(32, name="teacher.encoder.layer.0.output.dense.bias"),
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
    config = transformers.CONFIG_MAPPING[TASKS[task]](
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


def links(folder: Path) -> Path:
    """The folder as a cache of the hub keeps it."""
    snapshot, blobs = folder.parent / "snapshots" / "0", folder.parent / "blobs"
    for place in (snapshot, blobs):
        place.mkdir(parents=True)
    for number, file in enumerate(sorted(folder.iterdir())):
        shutil.copy(file, blobs / f"{number}")
        (snapshot / file.name).symlink_to(
            os.path.relpath(blobs / f"{number}", snapshot)
        )
    return snapshot


def test_a_folder_of_links_is_read_as_what_they_lead_to(llama: Path) -> None:
    split_weights(llama)
    there = links(llama)
    assert opened(there).identity() == opened(llama).identity()
    np.testing.assert_array_equal(states(there), states(llama))


def dangling(folder: Path, name: str) -> None:
    (folder / name).unlink()
    (folder / name).symlink_to("gone")


def without_a_shard(folder: Path) -> None:
    split_weights(folder)
    (folder / SECOND).unlink()


def with_a_link_of_a_shard(folder: Path) -> None:
    split_weights(folder)
    dangling(folder, SECOND)


def with_a_tensor_twice(folder: Path) -> None:
    split_weights(folder)
    first = load_file(folder / SECOND.replace("00002", "00001", 1))
    save_file(load_file(folder / SECOND) | first, folder / SECOND)


def cut_off(folder: Path) -> None:
    (folder / WEIGHTS).write_bytes((folder / WEIGHTS).read_bytes()[:-100])


BROKEN: dict[str, tuple[Callable[[Path], object], str, int]] = {
    "link to nothing": (
        lambda folder: dangling(folder, "tokenizer.json"), "tokenizer.json' is a link", 2,
    ),
    "link of a shard": (with_a_link_of_a_shard, f"{SECOND}' is a link", 2),
    "missing shard": (without_a_shard, f"missing: {SECOND}", 2),
    "tensor in two files": (with_a_tensor_twice, "twice", 2),
    "pointer to weights": (
        lambda folder: (folder / WEIGHTS).write_text(LFS), "Git LFS pointer.*git lfs pull", 2,
    ),
    "pointer to a tokenizer": (
        lambda folder: (folder / "tokenizer.json").write_text(LFS), "'tokenizer.json'.*Git LFS", 2,
    ),
    "weights cut off": (cut_off, "cut off", 3),
    "weights of DVC": (
        lambda folder: (folder / WEIGHTS).rename(folder / f"{WEIGHTS}.dvc"), "dvc pull", 2,
    ),
    "pickled weights": (
        lambda folder: (folder / WEIGHTS).rename(folder / "pytorch_model.bin"), "safetensors", 2,
    ),
    "adapter without configuration": (
        lambda folder: (folder / "adapter_model.safetensors").touch(), "adapter_config.json", 2,
    ),
    "adapter of another program": (
        lambda folder: change_json(folder / "adapter_config.json", model_name="x"), "peft's", 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_wrong_with_a_file_is_said(llama: Path, case: str) -> None:
    change, message, code = BROKEN[case]
    change(llama)
    with pytest.raises(GaamError) as refused:
        opened(llama).load()
    assert re.search(message, str(refused.value), re.DOTALL)
    assert refused.value.exit_code == code


POOLING = {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True}
NOTICES: dict[str, tuple[dict[str, dict[str, object]], dict[str, object], str | None]] = {
    "as here": ({"1_Pooling/config.json": POOLING}, {}, None),
    "shorter": (
        {"sentence_bert_config.json": {"max_seq_length": 32}}, {},
        r"cuts at 32 tokens where gaam cuts at 64 \(--max-length 32\); gaam stores",
    ),
    "as short": ({"sentence_bert_config.json": {"max_seq_length": 32}}, {"max_length": 32}, None),
    "class token": ({"1_Pooling/config.json": {"pooling_mode": "cls"}}, {}, "--pool first"),
    "as pooled": ({"1_Pooling/config.json": {"pooling_mode": "cls"}}, {"pool": ("first",)}, None),
    "prompt": (
        {"config_sentence_transformers.json":
            {"prompts": {"query": "query: "}, "default_prompt_name": "query"}},
        {}, "'query: ' before every text",
    ),
    "as prompted": (
        {"config_sentence_transformers.json":
            {"prompts": {"query": "query: "}, "default_prompt_name": "query"}},
        {"prompt": "query: {text}"}, None,
    ),
}  # fmt: skip


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
    assert "not applied: other, and 1 more" in notice


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


def test_weights_beside_that_are_not_read_are_said(llama: Path) -> None:
    tensors = load_file(llama / WEIGHTS)
    save_file(tensors, llama / "model_ema.safetensors")
    torch.save(
        tensors, llama / "pytorch_model.bin", _use_new_zipfile_serialization=False
    )
    first, second = opened(llama).notices()
    assert "gaam reads model.safetensors, not model_ema.safetensors beside it" in first
    assert "not pytorch_model.bin beside it, whose weights cannot be compared" in second
