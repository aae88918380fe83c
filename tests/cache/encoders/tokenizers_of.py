"""Fast tokenizers of every kind, trained on a few lines, each with its encoder."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers
from tokenizers import (
    Tokenizer,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

LINES = [
    "Topic of this news item: the goal of the bank is a star",
    "Hello world, hello news! The vote on the price of loans",
    "preamble postscript item topic about (text) {curly} [0]",
    "👍🏽 👨‍👩‍👧 naïve café Zürich e\u0301te\u0301",
    "שלום עולם مرحبا بالعالم 東京 news",
]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]


def special_tokens_around() -> Any:
    """[CLS] before a text, [SEP] after it."""
    return processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )


def wordpiece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(
        LINES, trainers.WordPieceTrainer(vocab_size=220, special_tokens=SPECIAL)
    )
    tokenizer.post_processor = special_tokens_around()
    return tokenizer


def byte_level(*, trim: bool, prefix: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=prefix)
    trainer = trainers.BpeTrainer(
        vocab_size=330,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(LINES, trainer)
    byte_offsets = processors.ByteLevel(trim_offsets=trim, add_prefix_space=prefix)
    if trim:
        tokenizer.post_processor = byte_offsets
    else:
        steps = [byte_offsets, special_tokens_around()]
        tokenizer.post_processor = processors.Sequence(steps)
    return tokenizer


def unigram(*, nfkc: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.Unigram())
    if nfkc:
        tokenizer.normalizer = normalizers.Sequence(
            [normalizers.NFKC(), normalizers.Lowercase()]
        )
    scheme = "always" if nfkc else "never"
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(
        prepend_scheme=scheme, split=nfkc
    )
    trainer = trainers.UnigramTrainer(
        vocab_size=180, special_tokens=SPECIAL, unk_token="[UNK]"
    )
    tokenizer.train_from_iterator(LINES, trainer)
    tokenizer.post_processor = special_tokens_around()
    return tokenizer


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "wordpiece": wordpiece,
    "byte-level": partial(byte_level, trim=False, prefix=False),
    "byte-level, trimmed": partial(byte_level, trim=True, prefix=False),
    "byte-level, with a space before": partial(byte_level, trim=True, prefix=True),
    "unigram": partial(unigram, nfkc=False),
    "unigram, nfkc": partial(unigram, nfkc=True),
}


def save(kind: str, folder: Path, *, layers: int = 2) -> Path:
    """Save an encoder with a tokenizer of a kind; it is causal for byte-level ones."""
    tokenizer = KINDS[kind]()
    sizes: dict[str, Any] = {
        "vocab_size": max(tokenizer.get_vocab().values()) + 1,
        "hidden_size": 16,
        "intermediate_size": 24,
        "num_hidden_layers": layers,
        "num_attention_heads": 2,
        "max_position_embeddings": 512,
        "pad_token_id": 0,
    }
    config: Any = transformers.BertConfig(**sizes)
    if kind.startswith("byte-level"):
        config = transformers.LlamaConfig(**sizes, bos_token_id=2, eos_token_id=3)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.AutoModel.from_config(config)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
    model.save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token="[UNK]", pad_token="[PAD]"
    ).save_pretrained(folder)
    return folder
