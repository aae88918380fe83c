"""Token ids against what the library itself says of one text after the other."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import transformers

from gaam_cache.common.errors import ConfigError
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders._tokens import Tokens
from tests.tiny import WORDS


def texts_of(seed: int) -> list[str]:
    """Empty ones, long ones, scripts without words, what looks like a special token."""
    rng = random.Random(seed)
    odd = [
        "",
        " ",
        "東京",
        "\U0001f600 ok",
        "[CLS] goal [SEP]",
        "</s>",
        "café",
        "e\u0301",
    ]
    known = [" ".join(rng.choices(WORDS, k=rng.randint(1, 90))) for _ in range(40)]
    unknown = [
        "".join(rng.choices("abcxyz ,.\n", k=rng.randint(1, 60))) for _ in range(40)
    ]
    chosen = [*odd, *known, *unknown]
    rng.shuffle(chosen)
    return chosen


def tokens_of(tokenizer: Any, longest: int) -> Tokens:
    config, folder = transformers.BertConfig(), Path(tokenizer.name_or_path)
    return Tokens(tokenizer, config, folder, ExtractConfig(max_length=longest))


def test_ids_lengths_and_cuts_are_those_of_tokenizers_in_python_and_of_fast_ones(
    encoders: dict[str, Path],
) -> None:
    fast = [
        transformers.AutoTokenizer.from_pretrained(folder)
        for folder in encoders.values()
    ]
    for tokenizer in (
        transformers.ByT5Tokenizer(),
        transformers.CanineTokenizer(),
        *fast,
    ):
        for seed, longest in enumerate((4, 17, 60)):
            texts = texts_of(seed)
            found = tokens_of(tokenizer, longest).prepare(texts)
            for number, text in enumerate(texts):
                whole = tokenizer(text, verbose=False)["input_ids"]
                cut = tokenizer(text, truncation=True, max_length=longest)["input_ids"]
                assert found.items[number].tolist() == cut
                assert found.lengths[number] == len(cut) == min(len(whole), longest)
                assert found.truncated[number] == (len(whole) > longest)


def test_a_tokenizer_that_draws_its_tokens_is_refused(
    encoders: dict[str, Path],
) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(encoders["bert"])
    tokens, drawn = tokens_of(tokenizer, 9), iter(range(9))

    def draw(rows: list[str], **options: Any) -> dict[str, list[list[int]]]:
        last = next(drawn)
        return {
            "input_ids": [
                [*ids, last] for ids in tokenizer(rows, **options)["input_ids"]
            ]
        }

    tokens.tokenizer.pretrained = draw
    with pytest.raises(ConfigError, match="dropout"):
        tokens.prepare(["goal", "bank"])
