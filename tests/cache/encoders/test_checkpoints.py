"""Checkpoints as people have them: half precision, a head on top, shards, a chat template."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

import gaam_cache
from tests.tiny import WORDS, build_encoder, random_rows, write_csv

EXPLAINED = {"float32": 1e-4, "bfloat16": 3e-2, "float16": 8e-3}
"""Largest difference that rounding explains, as the share of the norm of a state."""
TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"
SIZES = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4}
FAMILIES: dict[str, tuple[type, type, dict[str, Any]]] = {
    "llama": (
        transformers.LlamaConfig,
        transformers.LlamaForCausalLM,
        {
            **SIZES,
            "intermediate_size": 48,
            "num_key_value_heads": 2,
            "tie_word_embeddings": True,
        },
    ),
    "mistral": (
        transformers.MistralConfig,
        transformers.MistralForCausalLM,
        {
            **SIZES,
            "intermediate_size": 48,
            "num_key_value_heads": 2,
            "tie_word_embeddings": False,
        },
    ),
    "gpt2": (
        transformers.GPT2Config,
        transformers.GPT2LMHeadModel,
        {"n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64},
    ),
    "bert": (
        transformers.BertConfig,
        transformers.BertForMaskedLM,
        {**SIZES, "intermediate_size": 48, "max_position_embeddings": 64},
    ),
    "roberta": (
        transformers.RobertaConfig,
        transformers.RobertaForSequenceClassification,
        {
            **SIZES,
            "intermediate_size": 48,
            "max_position_embeddings": 70,
            "num_labels": 5,
        },
    ),
    "t5": (
        transformers.T5Config,
        transformers.T5ForConditionalGeneration,
        {"d_model": 32, "d_ff": 48, "d_kv": 8, "num_layers": 3, "num_heads": 4},
    ),
}


def save_checkpoint(folder: Path, family: str, dtype: str) -> Path:
    """A random model with its head, in several shards, as ``save_pretrained`` writes it."""
    build_encoder(folder, "bert")  # for its tokenizer
    (folder / "model.safetensors").unlink()
    config_class, model_class, sizes = FAMILIES[family]
    config = config_class(vocab_size=len(WORDS) + 4, pad_token_id=0, **sizes)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = model_class(config)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.2)
    model.to(getattr(torch, dtype)).save_pretrained(folder, max_shard_size="20KB")
    assert len(list(folder.glob("model-*.safetensors"))) > 1
    transformers.GenerationConfig(temperature=0.7, do_sample=True).save_pretrained(
        folder
    )
    filled = TEMPLATE + "{# " + "a template has many words " * 80 + "#}"
    (folder / "chat_template.jinja").write_text(filled)
    return folder


def lone_states(folder: Path, texts: list[str], dtype: str) -> np.ndarray:
    """Mean states by transformers alone, one row at a time: (N, L, D)."""
    model: Any = transformers.AutoModel.from_pretrained(
        folder, dtype=getattr(torch, dtype)
    ).eval()
    encoder = model.get_encoder() if model.config.is_encoder_decoder else model
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    rows = []
    with torch.inference_mode():
        for text in texts:
            ids = tokenizer(text, return_tensors="pt")["input_ids"]
            states = encoder(input_ids=ids, output_hidden_states=True).hidden_states[1:]
            rows.append(torch.stack([x_BTD[0].float().mean(0) for x_BTD in states]))
    return torch.stack(rows).numpy()


@pytest.mark.parametrize("dtype", EXPLAINED)
@pytest.mark.parametrize("family", FAMILIES)
def test_states_are_those_of_transformers(
    family: str, dtype: str, tmp_path: Path
) -> None:
    folder = save_checkpoint(tmp_path / "encoder", family, dtype)
    rows = random_rows(12, 1)
    write_csv(tmp_path / "rows/train.csv", [("a", "goal"), ("b", "bank"), *rows])
    config = gaam_cache.ExtractConfig(
        encoder=str(folder),
        dataset=str(tmp_path / "rows"),
        splits=("train",),
        dtype=dtype,  # type: ignore[arg-type]
        storage_dtype="float32",
        out=tmp_path / "cache",
    )
    gaam_cache.extract(config)
    states_NLD = gaam_cache.open_cache(config.out)["train"].embeddings[2:]
    expected_NLD = lone_states(folder, [text for _, text in rows], dtype)
    distance_NL = np.linalg.norm(states_NLD - expected_NLD, axis=-1)
    assert (distance_NL / np.linalg.norm(expected_NLD, axis=-1)).max() <= EXPLAINED[
        dtype
    ]


def test_a_vocabulary_alone_is_a_tokenizer(tmp_path: Path) -> None:
    with_json = build_encoder(tmp_path / "encoder", "bert")
    rows = write_csv(
        tmp_path / "rows.csv", [("a", "goal"), ("b", "bank"), *random_rows(20, 1)]
    )
    caches = []
    for name in ("tokenizer.json", "vocab.txt"):
        if name == "vocab.txt":
            (with_json / "tokenizer.json").unlink()
            vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS]
            (with_json / name).write_text("\n".join(vocabulary) + "\n")
            settings = {"tokenizer_class": "BertTokenizer", "do_lower_case": True}
            (with_json / "tokenizer_config.json").write_text(json.dumps(settings))
        config = gaam_cache.ExtractConfig(
            encoder=str(with_json), dataset=str(rows), out=tmp_path / name
        )
        gaam_cache.extract(config)
        caches.append(gaam_cache.open_cache(config.out))
    np.testing.assert_array_equal(
        caches[0]["train"].embeddings[:], caches[1]["train"].embeddings[:]
    )
