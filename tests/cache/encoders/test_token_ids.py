from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import transformers

from gaam_cache.encoders._tokens import TokenIds, Tokens
from gaam_cache.errors import ConfigError
from tests.tiny import WORDS


class Drawing:
    """A tokenizer that ends every text with another token."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer, self.drawn = tokenizer, 0

    def __call__(self, rows: list[str], **options: Any) -> dict[str, list[list[int]]]:
        self.drawn += 1
        ids = self.tokenizer(rows, **options)["input_ids"]
        return {"input_ids": [[*one, self.drawn] for one in ids]}


def ragged(rng: np.random.Generator, most: int) -> list[list[int]]:
    lengths = rng.integers(0, most, rng.integers(1, 40))
    return [rng.integers(0, 2**31, length).tolist() for length in lengths]


def test_texts_in_one_array_are_the_texts() -> None:
    rng = np.random.default_rng(0)
    for case in range(500):
        texts = ragged(rng, (2, 9, 70)[case % 3])
        ids = TokenIds.of(texts)
        assert len(ids) == len(texts)
        assert [one.tolist() for one in ids] == texts
        assert ids[-1].tolist() == texts[-1]
        assert ids.length_N.tolist() == list(map(len, texts))
        assert [one.tolist() for one in ids[1:5]] == texts[1:5]
        assert TokenIds.of(ids) is ids
        assert [one.tolist() for one in TokenIds.of(list(ids))] == texts
        rows = rng.integers(0, len(texts), rng.integers(1, 30))
        some = ids.take(rows)
        assert [one.tolist() for one in some] == [texts[row] for row in rows]
        longest = int(some.length_N.max())
        padded = [texts[row] + [7] * (longest - len(texts[row])) for row in rows]
        assert some.padded(7).tolist() == padded


def texts_of(seed: int) -> list[str]:
    """Empty ones, long ones, scripts without words, what looks like a special token."""
    rng = random.Random(seed)
    odd = [
        "",
        " ",
        "a",
        "\u6771\u4eac",
        "\U0001f600 ok",
        "[CLS] goal [SEP]",
        "</s>",
        "caf\u00e9",
        "e\u0301",
    ]
    known = [" ".join(rng.choices(WORDS, k=rng.randint(1, 90))) for _ in range(40)]
    unknown = ["".join(rng.choices("abcxyz ,.\n", k=rng.randint(1, 60))) for _ in range(40)]
    chosen = [*odd, *known, *unknown]
    rng.shuffle(chosen)
    return chosen


def held_to_the_library(tokenizer: Any, texts: list[str], max_length: int) -> None:
    """Arrays against what the library itself says of one text after the other."""
    tokens = Tokens(tokenizer, transformers.BertConfig(), Path(tokenizer.name_or_path))
    found = tokens.prepare(texts, max_length)
    for number, text in enumerate(texts):
        whole = tokenizer(text, verbose=False)["input_ids"]
        cut = tokenizer(text, truncation=True, max_length=max_length)["input_ids"]
        assert found.items[number].tolist() == cut
        assert found.lengths[number] == len(cut) == min(len(whole), max_length)
        assert found.truncated[number] == (len(whole) > max_length)


def test_arrays_of_tokenizers_in_python_and_of_fast_ones(encoders: dict[str, Path]) -> None:
    fast = [transformers.AutoTokenizer.from_pretrained(folder) for folder in encoders.values()]
    for tokenizer in (transformers.ByT5Tokenizer(), transformers.CanineTokenizer(), *fast):
        for seed, max_length in enumerate((4, 17, 60)):
            held_to_the_library(tokenizer, texts_of(seed), max_length)


def test_a_tokenizer_that_draws_its_tokens_is_refused(encoders: dict[str, Path]) -> None:
    tokenizer = transformers.AutoTokenizer.from_pretrained(encoders["bert"])
    tokens = Tokens(tokenizer, transformers.BertConfig(), encoders["bert"])
    tokens.tokenizer = Drawing(tokenizer)
    with pytest.raises(ConfigError, match="tokens at random"):
        tokens.prepare(["goal", "bank"], 9)
