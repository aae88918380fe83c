"""Functions that make tiny encoders and data sets; ``conftest`` has their fixtures."""

from __future__ import annotations

import csv
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SPECIAL_TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
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
    """Save a random encoder of a few thousand weights, with its tokenizer."""
    import torch
    import transformers

    config = _encoder_config(architecture, num_layers)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = transformers.AutoModel.from_config(config)
        for parameter in model.parameters():
            # larger than the usual initialisation, so that errors have room to show
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder, safe_serialization=True)
    _tokenizer(architecture).save_pretrained(folder)
    return folder


def _encoder_config(architecture: str, num_layers: int) -> Any:
    """The configuration of a tiny encoder of 32 values a layer."""
    import transformers

    vocab_size = len(SPECIAL_TOKENS) + len(WORDS)
    if architecture == "llama":
        return transformers.LlamaConfig(
            vocab_size=vocab_size,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=num_layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=64,
            bos_token_id=2,
            eos_token_id=3,
        )
    if architecture == "gpt2":
        return transformers.GPT2Config(
            vocab_size=vocab_size,
            n_embd=32,
            n_layer=num_layers,
            n_head=4,
            n_positions=64,
            bos_token_id=2,
            eos_token_id=3,
        )
    if architecture == "bert":
        return transformers.BertConfig(
            vocab_size=vocab_size,
            hidden_size=32,
            intermediate_size=48,
            num_hidden_layers=num_layers,
            num_attention_heads=4,
            max_position_embeddings=64,
        )
    raise ValueError(f"no tiny encoder has the architecture {architecture!r}")


def _tokenizer(architecture: str) -> Any:
    """A tokenizer of words, with the special tokens that the architecture adds."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    vocabulary = {word: i for i, word in enumerate([*SPECIAL_TOKENS, *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    templates = {"bert": "[CLS] $A [SEP]", "llama": "[CLS] $A"}
    if architecture in templates:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=templates[architecture],
            special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
        )
    named_tokens = {"unk_token": "[UNK]"}
    # Llama has no token for padding
    if architecture != "llama":
        named_tokens["pad_token"] = "[PAD]"
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, **named_tokens
    )


def write_csv(
    path: Path, rows: Sequence[Sequence[str]], header: str = "label,text"
) -> Path:
    """Write rows, of label and text if the header is not another."""
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
        label = "ab"[WORDS.index(words[0]) % 2]
        rows.append((label, " ".join(words)))
    return rows
