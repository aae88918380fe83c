"""Token ids are those of the library for one text after the other."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
import transformers

from gaam_cache.common.errors import ConfigError
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders._tokens import Tokens
from tests.conftest import ARCHITECTURES
from tests.tiny import WORDS


def draw_texts(seed: int) -> list[str]:
    """Empty texts, long ones, scripts without words, and special tokens in texts."""
    rng = random.Random(seed)
    odd_texts = [
        "",
        " ",
        "東京",
        "\U0001f600 ok",
        "[CLS] goal [SEP]",
        "</s>",
        "café",
        "e\u0301",
    ]
    known_words = [
        " ".join(rng.choices(WORDS, k=rng.randint(1, 90))) for _ in range(40)
    ]
    unknown_words = [
        "".join(rng.choices("abcxyz ,.\n", k=rng.randint(1, 60))) for _ in range(40)
    ]
    texts = [*odd_texts, *known_words, *unknown_words]
    rng.shuffle(texts)
    return texts


def open_tokens(tokenizer: Any, longest: int) -> Tokens:
    folder = Path(tokenizer.name_or_path)
    settings = ExtractConfig(max_length=longest)
    return Tokens(tokenizer, transformers.BertConfig(), folder, settings)


def open_tokenizer(name: str, encoders: dict[str, Path]) -> Any:
    if name in encoders:
        return transformers.AutoTokenizer.from_pretrained(encoders[name])
    return getattr(transformers, name)()


@pytest.mark.parametrize(("seed", "longest"), [(0, 4), (1, 17), (2, 60)])
@pytest.mark.parametrize("name", ["ByT5Tokenizer", "CanineTokenizer", *ARCHITECTURES])
def test_ids_lengths_and_cuts_are_those_of_tokenizers_in_python_and_of_fast_ones(
    name: str, seed: int, longest: int, encoders: dict[str, Path]
) -> None:
    tokenizer = open_tokenizer(name, encoders)
    texts = draw_texts(seed)
    inputs = open_tokens(tokenizer, longest).prepare(texts)
    for number, text in enumerate(texts):
        whole = tokenizer(text, verbose=False)["input_ids"]
        cut = tokenizer(text, truncation=True, max_length=longest)["input_ids"]
        assert inputs.items[number].tolist() == cut, text
        assert inputs.lengths[number] == len(cut) == min(len(whole), longest), text
        assert inputs.truncated[number] == (len(whole) > longest), text


def test_a_tokenizer_that_draws_its_tokens_is_refused(
    encoders: dict[str, Path],
) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(encoders["bert"])
    tokens = open_tokens(tokenizer, 9)
    last_ids = iter(range(9))

    def draw(rows: list[str], **options: Any) -> dict[str, list[list[int]]]:
        last_id = next(last_ids)
        ids_of_rows = tokenizer(rows, **options)["input_ids"]
        return {"input_ids": [[*ids, last_id] for ids in ids_of_rows]}

    tokens.tokenizer.pretrained = draw
    with pytest.raises(ConfigError, match="dropout"):
        tokens.prepare(["goal", "bank"])
