"""Tiny encoders and tiny data sets, made on the fly; fixtures of them are in ``conftest``."""

from __future__ import annotations

import csv
import random
from collections.abc import Sequence
from pathlib import Path

WORDS = [
    "goal",
    "bank",
    "star",
    "vote",
    "cup",
    "loan",
    "atom",
    "army",
    "team",
    "price",
    "robot",
    "treaty",
    "race",
    "market",
    "gene",
    "court",
]


def build_encoder(
    folder: Path, architecture: str, *, num_layers: int = 3, seed: int = 0
) -> Path:
    """Save a random encoder of a few thousand weights, with its tokenizer, as safetensors."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    vocabulary = {
        word: i for i, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])
    }
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    special = [("[CLS]", 2), ("[SEP]", 3)]
    if architecture == "bert":
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=special
        )
    elif architecture == "llama":
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A", special_tokens=special
        )
    size = len(vocabulary)
    config = {
        "llama": lambda: transformers.LlamaConfig(
            vocab_size=size,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=num_layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
            bos_token_id=2,
            eos_token_id=3,
        ),
        "gpt2": lambda: transformers.GPT2Config(
            vocab_size=size,
            n_embd=32,
            n_layer=num_layers,
            n_head=4,
            n_positions=64,
            bos_token_id=2,
            eos_token_id=3,
        ),
        "bert": lambda: transformers.BertConfig(
            vocab_size=size,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=num_layers,
            num_attention_heads=4,
            max_position_embeddings=64,
        ),
    }[architecture]()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = transformers.AutoModel.from_config(config)
        for parameter in model.parameters():
            # larger than the usual initialisation, so that errors have room to show
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder, safe_serialization=True)
    names = (
        {} if architecture == "llama" else {"pad_token": "[PAD]"}
    )  # as Llama: no pad token
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", **names
    ).save_pretrained(folder)
    return folder


def write_csv(
    path: Path, rows: Sequence[tuple[str, str]], header: str = "label,text"
) -> Path:
    """Write label-text rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(header.split(","))
        writer.writerows(rows)
    return path


def random_rows(count: int, seed: int, *, longest: int = 20) -> list[tuple[str, str]]:
    """Texts of 1 to ``longest`` known words; the class is decided by the first word."""
    generator = random.Random(seed)
    rows = []
    for _ in range(count):
        words = generator.choices(WORDS, k=generator.randint(1, longest))
        rows.append(("ab"[WORDS.index(words[0]) % 2], " ".join(words)))
    return rows
