"""A bag of words as a cache: against scikit-learn, and what no other row may have a say in."""

from __future__ import annotations

import shutil
import unicodedata
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gaam_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.tfidf import TfidfEncoder
from tests.conftest import random_rows, write_csv

FITTED = ["tfidf", "tfidf:ngrams=2,features=50"]


@pytest.fixture
def config(dataset: Path, tmp_path: Path) -> ExtractConfig:
    return ExtractConfig(
        encoder="tfidf", dataset=str(dataset), out=tmp_path / "cache", shard_rows=10,
        storage_dtype="float32",
    )  # fmt: skip


def texts(config: ExtractConfig, split: str) -> list[str]:
    lines = (Path(config.dataset) / f"{split}.csv").read_text().splitlines()[1:]
    return [line.partition(",")[2] for line in lines]


@pytest.mark.parametrize("spec", FITTED)
def test_states_are_those_of_scikit_learn(spec: str, config: ExtractConfig) -> None:
    text = pytest.importorskip("sklearn.feature_extraction.text")
    config = replace(config, encoder=spec)
    gaam_cache.extract(config)
    cache = gaam_cache.open_cache(config.out)
    options = dict(
        part.split("=") for part in spec.partition(":")[2].split(",") if part
    )
    train = texts(config, "train")
    theirs = text.TfidfVectorizer(
        token_pattern=r"\w+",
        ngram_range=(1, int(options.get("ngrams", 1))),
        sublinear_tf=True,
    ).fit(train)
    words = theirs.get_feature_names_out()
    frequency = (text.CountVectorizer(
        token_pattern=r"\w+", vocabulary=words, ngram_range=theirs.ngram_range
    ).fit_transform(train) > 0).sum(0).A1  # fmt: skip
    ranked = sorted(zip(-frequency, words, strict=True))[
        : int(options.get("features", 4096))
    ]
    chosen = sorted(word for _, word in ranked)
    theirs.vocabulary = chosen
    theirs.fit(train)
    assert cache.hidden_size == len(chosen)
    for split in ("train", "test"):
        expected = theirs.transform(texts(config, split)).toarray()
        np.testing.assert_allclose(cache[split].embeddings[:, 0], expected, atol=1e-6)


def test_no_row_that_is_tested_has_a_say(config: ExtractConfig, tmp_path: Path) -> None:
    gaam_cache.extract(config)
    other = Path(shutil.copytree(config.dataset, tmp_path / "other"))
    write_csv(
        other / "test.csv",
        [(label, f"{text} unseen") for label, text in random_rows(24, 7)],
    )
    changed = replace(config, dataset=str(other), out=tmp_path / "changed")
    gaam_cache.extract(changed)
    first, second = (gaam_cache.open_cache(one.out) for one in (config, changed))
    np.testing.assert_array_equal(
        first["train"].embeddings[:], second["train"].embeddings[:]
    )
    identity = [cache.plan.fingerprint_fields["encoder"] for cache in (first, second)]
    assert identity[0] == identity[1]
    assert identity[0]["fitted_on"] == "train"


WORDS = {
    "Don't PANIC!": ["don", "t", "panic"],
    "STRASSE straße": ["strasse", "strasse"],
    "\ufb01ne \uff11\uff12\uff13": ["fine", "123"],
    "नमस्ते दुनिया": ["नमस्ते", "दुनिया"],
    "東京へ行く": ["東", "京", "へ", "行", "く"],
    "cafe\u0301 café": ["café", "café"],
    "a\u200bb — 🙂 _x_": ["a", "b", "_x_"],
}


def test_words_of_every_script() -> None:
    encoder = TfidfEncoder.open(ExtractConfig(encoder="tfidf"))
    for text, words in WORDS.items():
        expected = [unicodedata.normalize("NFKC", word) for word in words]
        assert encoder.prepare([text]).items == [expected]


def test_a_text_without_a_known_word_has_the_state_zero(tmp_path: Path) -> None:
    write_csv(
        tmp_path / "d" / "train.csv",
        [("a", "one two"), ("b", "two three"), ("a", "!!")],
    )
    write_csv(tmp_path / "d" / "test.csv", [("a", "four"), ("b", "??")])
    config = ExtractConfig(
        encoder="tfidf", dataset=str(tmp_path / "d"), out=tmp_path / "c"
    )
    gaam_cache.extract(config)
    cache = gaam_cache.open_cache(config.out)
    assert not cache["test"].embeddings[:].any()
    assert not cache["train"].embeddings[2].any()
    assert gaam_cache.verify(config.out, recompute_rows=5).good
