"""Rows that become one, and differences that rounding takes away, are never silent."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import gaam_cache
from gaam_cache.common.errors import DataError, GaamWarning, NumericsError
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders._tokenizer import EncoderTokenizer
from gaam_cache.extraction.rows import RowEncoder
from tests.conftest import shard_bytes
from tests.tiny import WORDS, build_encoder, random_rows, write_csv

STRANGE = [f"strange{number}" for number in range(40)]
"""Words that no tiny tokenizer knows."""
HEADER = " ".join(WORDS * 5)
"""Longer than a tiny encoder reads."""
USUAL = [text for _, text in random_rows(40, 3)]


def write_texts(folder: Path, texts: list[str]) -> str:
    rows = [("ab"[number % 2], text) for number, text in enumerate(texts)]
    for split in ("train", "test"):
        write_csv(folder / f"{split}.csv", rows)
    return str(folder)


@contextmanager
def collect_warnings(*ignored: str) -> Iterator[list[str]]:
    """The warnings within, but for those with ignored words."""
    messages: list[str] = []
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GaamWarning)
        yield messages
    for warning in caught:
        text = str(warning.message)
        is_ignored = any(words in text for words in ignored)
        if warning.category is GaamWarning and not is_ignored:
            messages.append(text)


def warnings_of(config: ExtractConfig) -> list[str]:
    """The warnings of an extraction, but for those of rows that splits share."""
    with collect_warnings("inflates", "copies of") as messages:
        gaam_cache.extract(config)
    return messages


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
"""Encoder, texts, settings, and a word of the reason."""


@pytest.mark.parametrize("case", ALL_ONE)
def test_rows_that_all_become_one_are_refused(
    case: str, encoders: dict[str, Path], tmp_path: Path
) -> None:
    architecture, texts, settings, reason = ALL_ONE[case]
    config = ExtractConfig(
        encoder=str(encoders[architecture]),
        dataset=write_texts(tmp_path / "data", texts),
        out=tmp_path / "cache",
        **settings,
    )
    with pytest.raises(DataError, match="one and the same state") as caught:
        gaam_cache.extract(config)
    assert reason in caught.value.details["found"]
    assert "train.csv, row" in caught.value.details["where"]
    if "shard_rows" not in settings:
        assert not list((config.out / "shards").glob("*.json"))


SEVERAL_LENGTHS = [" ".join(STRANGE[n : n + 1 + n % 3]) for n in range(36)]
PART: dict[str, tuple[str, list[str], dict[str, Any], list[str]]] = {
    "usual rows": ("bert", USUAL, {}, []),
    "one text alone": ("bert", ["goal bank"] * 9, {}, []),
    "one row a shard": ("bert", USUAL[:6], {"shard_rows": 1}, []),
    "texts that differ in case and space": (
        "bert",
        ["goal  bank", "goal bank "] * 4,
        {},
        [],
    ),
    "unknown words of several lengths": (
        "bert",
        SEVERAL_LENGTHS,
        {},
        ["100.0% of all tokens are unknown", "that differ have the state of another"],
    ),
    "a few rows of unknown words": (
        "bert",
        [*USUAL, *STRANGE[:4]],
        {},
        ["8 of 88 rows hold no other"],
    ),
    "the first token among other poolings": (
        "llama",
        USUAL,
        {"pool": "mean,first"},
        ["left to right", "first, layer 1; first, layer 2"],
    ),
    "a layer of one state": (
        "bert",
        USUAL,
        {"pool": "first", "layer_zero": True},
        ["same state", "first, layer 0"],
    ),
}
"""Encoder, texts, settings, and all warnings."""


@pytest.mark.parametrize("case", PART)
def test_rows_some_of_which_become_one_are_warned_of_and_no_others(
    case: str, encoders: dict[str, Path], tmp_path: Path
) -> None:
    architecture, texts, settings, expected = PART[case]
    config = ExtractConfig(
        encoder=str(encoders[architecture]),
        dataset=write_texts(tmp_path / "data", texts),
        out=tmp_path / "cache",
        storage_dtype="float32",
        **settings,
    )
    messages = warnings_of(config)
    for words in expected:
        assert any(words in text for text in messages), (words, messages)
    assert bool(messages) == bool(expected), messages


def open_row_encoder(encoder: Path, folder: Path) -> RowEncoder:
    """The encoder of a cache of usual texts, for further rows."""
    config = ExtractConfig(
        encoder=str(encoder),
        dataset=write_texts(folder / "data", USUAL),
        out=folder / "cache",
    )
    gaam_cache.extract(config)
    return RowEncoder.open(gaam_cache.open_cache(config.out).plan)


def test_further_rows_that_become_one_are_warned_of_once(
    encoders: dict[str, Path], tmp_path: Path
) -> None:
    encoder = open_row_encoder(encoders["bert"], tmp_path)
    with pytest.warns(GaamWarning, match="100.0% of all tokens are unknown"):
        encoder.encode(STRANGE, pooling="mean")
    with warnings.catch_warnings():
        warnings.simplefilter("error", GaamWarning)
        encoder.encode(STRANGE, pooling="mean")


@pytest.mark.parametrize(
    ("num_short", "share"),
    [pytest.param(0, "100.0%", id="alone"), pytest.param(200, "0.5%", id="of many")],
)
def test_a_row_to_predict_that_is_cut_is_warned_of_in_every_call(
    num_short: int, share: str, encoders: dict[str, Path], tmp_path: Path
) -> None:
    encoder = open_row_encoder(encoders["bert"], tmp_path)
    rows = [USUAL[0]] * num_short + [" ".join(USUAL[:1] * 600)]
    text = rf"1 of {len(rows)} rows \({share}\) are cut at 64 .* training rows"
    for _ in range(2):
        with pytest.warns(GaamWarning, match=text):
            encoder.encode(rows, pooling="mean")


def test_an_encoder_with_the_vocabulary_of_another_is_warned_of(tmp_path: Path) -> None:
    import transformers

    folder = build_encoder(tmp_path / "encoder", "bert")
    larger = transformers.AutoConfig.from_pretrained(folder, vocab_size=400)
    transformers.AutoModel.from_config(larger).save_pretrained(folder)
    config = ExtractConfig(
        encoder=str(folder),
        dataset=write_texts(tmp_path / "data", USUAL),
        out=tmp_path / "cache",
    )
    assert any("another model's" in text for text in warnings_of(config))


def test_tokens_without_embeddings_are_warned_of(tmp_path: Path) -> None:
    import transformers

    folder = build_encoder(tmp_path / "encoder", "bert")
    pretrained = transformers.AutoTokenizer.from_pretrained(folder)
    config = transformers.AutoConfig.from_pretrained(folder)
    tokenizer = EncoderTokenizer(pretrained, folder, config)
    with pytest.warns(GaamWarning, match="another model's tokenizer"):
        tokenizer.check_vocabulary(pretrained.vocab_size - 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", GaamWarning)
        tokenizer.check_vocabulary(pretrained.vocab_size)


def labels(rows: int = 200) -> np.ndarray:
    return np.arange(rows) % 2


def states_with(feature: Any, features: int = 64, rows: int = 200) -> np.ndarray:
    """States of two layers; in the second, one of the features is as given."""
    x_NLD = np.random.default_rng(0).normal(size=(rows, 2, features)).astype(np.float32)
    x_NLD[:, 1, 3] = feature
    return x_NLD


def offset() -> np.ndarray:
    """Two values that both round to 3000 in float16."""
    return 3000 + 0.4 * (2 * labels() - 1)


def wide_feature() -> np.ndarray:
    return states_with(3000 + 300 * labels())


def equal_rows() -> np.ndarray:
    return states_with(0.0)[:1].repeat(200, 0)


class Digits(NamedTuple):
    """States, their storage type, and the warning, 'refused' or none."""

    make_states: Callable[[], np.ndarray]
    storage_dtype: str
    expected: str | None


DIGITS = {
    "small beside its size": Digits(
        lambda: states_with(offset()), "float16", "1 of 64 features lost"
    ),
    "the same in bfloat16": Digits(
        lambda: states_with(offset(), 999), "bfloat16", "1 of 999 features lost"
    ),
    "the same in float32": Digits(lambda: states_with(offset()), "float32", None),
    "large and constant": Digits(lambda: states_with(3000.3), "float16", None),
    "large and wide": Digits(wide_feature, "float16", None),
    "usual": Digits(lambda: states_with(0.0), "bfloat16", None),
    "small, not lost": Digits(lambda: 2e-5 * states_with(0.0), "float16", None),
    "all with an offset": Digits(
        lambda: states_with(0.0) + 1000, "float16", "roundings"
    ),
    "all lost": Digits(lambda: 0.01 * states_with(0.0) + 300, "float16", "refused"),
    "too small": Digits(lambda: 1e-9 * states_with(0.0), "float16", "refused"),
    "a single row that is too small": Digits(
        lambda: 1e-9 * states_with(0.0, rows=1), "float16", "refused"
    ),
    "all rows one": Digits(equal_rows, "float16", "in layers 1, 2"),
}


@pytest.mark.parametrize("case", DIGITS)
def test_what_rounding_takes_away_is_held_against_the_spread_over_rows(
    case: str, tmp_path: Path
) -> None:
    make_states, storage_dtype, expected = DIGITS[case]
    states = make_states()
    out = tmp_path / "cache"
    splits = {"train": (states, labels(len(states)))}
    settings: dict[str, Any] = {
        "storage_dtype": storage_dtype,
        "class_names": ("a", "b"),
    }
    if expected == "refused":
        with pytest.raises(NumericsError, match=f"{storage_dtype} rounds away"):
            gaam_cache.write(out, splits, **settings)
        assert not out.exists()
        return
    with collect_warnings("copies of") as messages:
        gaam_cache.write(out, splits, **settings)
    if expected is None:
        assert messages == []
    else:
        assert any(expected in text for text in messages), messages


def test_an_extraction_says_what_rounding_takes_away(
    tiny_cache: Path, tmp_path: Path
) -> None:
    """Six random layers make rows alike: float16 keeps few roundings of them."""
    plan = gaam_cache.open_cache(tiny_cache).plan
    encoder = plan.encoder.path
    dataset = plan.dataset.path
    out = tmp_path / "cache"
    assert encoder is not None
    assert dataset is not None
    config = ExtractConfig(encoder=encoder, dataset=dataset, out=out)
    warning = "float16 rounds away part of what tells texts"
    assert any(warning in text for text in warnings_of(config))
    assert shard_bytes(out) == shard_bytes(tiny_cache), "measuring decides no byte"
    exact = replace(config, out=tmp_path / "exact", storage_dtype="float32")
    assert warnings_of(exact) == []
