"""Rows that differ and become one, and differences that rounding takes away: never in silence."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gaam_cache
from gaam_cache.common.errors import DataError, GaamWarning, NumericsError
from gaam_cache.config import ExtractConfig
from tests.conftest import shard_bytes
from tests.tiny import WORDS, build_encoder, random_rows, write_csv

STRANGE = [
    f"strange{number}" for number in range(40)
]  # words that no tiny tokenizer knows
HEADER = " ".join(WORDS * 5)  # longer than what a tiny encoder reads
USUAL = [text for _, text in random_rows(40, 3)]


def data_of(folder: Path, texts: list[str]) -> str:
    rows = [("ab"[number % 2], text) for number, text in enumerate(texts)]
    for split in ("train", "test"):
        write_csv(folder / f"{split}.csv", rows)
    return str(folder)


def said_of(config: ExtractConfig) -> list[str]:
    """What an extraction warns of, but for rows that splits share."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GaamWarning)
        gaam_cache.extract(config)
    messages = [str(one.message) for one in caught if one.category is GaamWarning]
    return [
        text for text in messages if "inflates" not in text and "copies of" not in text
    ]


ALL_ONE: dict[str, tuple[str, list[str], dict[str, Any], str]] = {
    "unknown words": ("bert", STRANGE, {}, "unknown to the tokenizer"),
    "a header before the cut": (
        "bert",
        [f"{HEADER} {x}" for x in WORDS],
        {},
        "100% of the rows",
    ),
    "the first token of a causal encoder": (
        "llama",
        USUAL,
        {"pool": "first"},
        "left to right",
    ),
    "shards of few rows": (
        "bert",
        STRANGE,
        {"shard_rows": 2},
        "unknown to the tokenizer",
    ),
    "the input of the class token": (
        "bert",
        USUAL,
        {"pool": "first", "layers": "0"},
        "explain",
    ),
}
"""Encoder, texts, settings, and the reason that is named."""


@pytest.mark.parametrize("case", ALL_ONE)
def test_rows_that_all_become_one_are_refused(
    case: str, encoders: dict[str, Path], tmp_path: Path
) -> None:
    architecture, texts, settings, reason = ALL_ONE[case]
    config = ExtractConfig(
        encoder=str(encoders[architecture]),
        dataset=data_of(tmp_path / "data", texts),
        out=tmp_path / "cache",
        **settings,
    )
    with pytest.raises(DataError, match="one and the same state") as caught:
        gaam_cache.extract(config)
    assert reason in caught.value.details["found"]
    assert "train.csv, row" in caught.value.details["where"]
    if "shard_rows" not in settings:
        assert not list((config.out / "shards").glob("*.json"))


PART: dict[str, tuple[str, list[str], dict[str, Any], list[str]]] = {
    "usual rows": ("bert", USUAL, {}, []),
    "one text alone": ("bert", ["goal bank"] * 9, {}, []),
    "one row a shard": ("bert", USUAL[:6], {"shard_rows": 1}, []),
    "texts that differ in case and space": ("bert", ["goal  bank", "goal bank "] * 4, {}, []),
    "unknown words of several lengths": (
        "bert",
        [" ".join(STRANGE[n : n + 1 + n % 3]) for n in range(36)],
        {},
        ["100.0% of all tokens are unknown", "that differ have the state of another"],
    ),
    "a few rows of unknown words": (
        "bert", [*USUAL, *STRANGE[:4]], {}, ["8 of 88 rows hold no other"],
    ),
    "the first token among other poolings": (
        "llama", USUAL, {"pool": "mean,first"}, ["left to right", "first, layer 1; first, layer 2"],
    ),
    "a layer of one state": (
        "bert", USUAL, {"pool": "first", "layer_zero": True}, ["same state", "first, layer 0"],
    ),
}  # fmt: skip
"""Encoder, texts, settings, and what is warned of: nothing else."""


@pytest.mark.parametrize("case", PART)
def test_rows_some_of_which_become_one_are_warned_of_and_no_others(
    case: str, encoders: dict[str, Path], tmp_path: Path
) -> None:
    architecture, texts, settings, expected = PART[case]
    config = ExtractConfig(
        encoder=str(encoders[architecture]),
        dataset=data_of(tmp_path / "data", texts),
        out=tmp_path / "cache",
        storage_dtype="float32",
        **settings,
    )
    messages = said_of(config)
    for words in expected:
        assert any(words in text for text in messages), (words, messages)
    assert bool(messages) == bool(expected), messages


def test_further_rows_that_become_one_are_warned_of_once(
    encoders: dict[str, Path], tmp_path: Path
) -> None:
    from gaam_cache.extraction.rows import RowEncoder

    config = ExtractConfig(
        encoder=str(encoders["bert"]),
        dataset=data_of(tmp_path / "data", USUAL),
        out=tmp_path / "cache",
    )
    gaam_cache.extract(config)
    encoder = RowEncoder.open(gaam_cache.open_cache(config.out).plan)
    with pytest.warns(GaamWarning, match="100.0% of all tokens are unknown"):
        encoder.encode(STRANGE, pooling="mean")
    with warnings.catch_warnings():
        warnings.simplefilter("error", GaamWarning)
        encoder.encode(STRANGE, pooling="mean")


def test_an_encoder_with_the_vocabulary_of_another_is_warned_of(tmp_path: Path) -> None:
    import transformers

    folder = build_encoder(tmp_path / "encoder", "bert")
    config = transformers.AutoConfig.from_pretrained(folder, vocab_size=400)
    transformers.AutoModel.from_config(config).save_pretrained(folder)
    config = ExtractConfig(
        encoder=str(folder),
        dataset=data_of(tmp_path / "data", USUAL),
        out=tmp_path / "cache",
    )
    assert any("another model's" in text for text in said_of(config))


def states_with(feature: Any, features: int, rows: int = 200) -> np.ndarray:
    """States of two layers; in the second, one of the features is as given."""
    x_NLD = np.random.default_rng(0).normal(size=(rows, 2, features)).astype(np.float32)
    x_NLD[:, 1, 3] = feature
    return x_NLD


LABEL = np.arange(200) % 2
OFFSET = 3000 + 0.4 * (2 * LABEL - 1)  # both round to 3000 in float16
DIGITS: dict[str, tuple[np.ndarray, str, str | None]] = {
    "small beside its size": (states_with(OFFSET, 64), "float16", "1 of 64 features lost"),
    "the same in bfloat16": (states_with(OFFSET, 999), "bfloat16", "1 of 999 features lost"),
    "the same in float32": (states_with(OFFSET, 64), "float32", None),
    "large and constant": (states_with(3000.3, 64), "float16", None),
    "large and wide": (states_with(3000 + 300 * LABEL, 64), "float16", None),
    "usual": (states_with(0.0, 64), "bfloat16", None),
    "small, not lost": (2e-5 * states_with(0.0, 64), "float16", None),
    "all with an offset": (states_with(0.0, 64) + 1000, "float16", "roundings"),
    "all lost": (0.01 * states_with(0.0, 64) + 300, "float16", "refused"),
    "too small": (1e-9 * states_with(0.0, 64), "float16", "refused"),
    "a single row that is too small": (1e-9 * states_with(0.0, 64, 1), "float16", "refused"),
    "all rows one": (states_with(0.0, 64)[:1].repeat(200, 0), "float16", "in layers 1, 2"),
}  # fmt: skip
"""States, storage type, and what is warned of."""


@pytest.mark.parametrize("case", DIGITS)
def test_what_rounding_takes_away_is_held_against_the_spread_over_rows(
    case: str, tmp_path: Path
) -> None:
    states, storage_dtype, expected = DIGITS[case]
    splits = {"train": (states, LABEL[: len(states)])}
    how: dict[str, Any] = {"storage_dtype": storage_dtype, "class_names": ("a", "b")}
    if expected == "refused":
        with pytest.raises(NumericsError, match=f"{storage_dtype} rounds away"):
            gaam_cache.write(tmp_path / "cache", splits, **how)
        assert not (tmp_path / "cache").exists()
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GaamWarning)
        gaam_cache.write(tmp_path / "cache", splits, **how)
    messages = [
        str(one.message) for one in caught if "copies of" not in str(one.message)
    ]
    if expected is None:
        assert messages == []
    else:
        assert any(expected in text for text in messages), messages


def test_an_extraction_says_what_rounding_takes_away(
    tiny_cache: Path, tmp_path: Path
) -> None:
    """Six random layers of one another make rows alike: float16 keeps few roundings of them."""
    plan = gaam_cache.open_cache(tiny_cache).plan
    config = ExtractConfig(
        encoder=plan.encoder.path,
        dataset=plan.dataset.path,
        out=tmp_path / "cache",
    )
    assert any(
        "float16 rounds away part of what tells texts" in one for one in said_of(config)
    )
    assert shard_bytes(config.out) == shard_bytes(tiny_cache), (
        "what is measured decides no byte"
    )
    exact = ExtractConfig(
        encoder=plan.encoder.path, dataset=plan.dataset.path, out=tmp_path / "exact",
        storage_dtype="float32",
    )  # fmt: skip
    assert said_of(exact) == []
