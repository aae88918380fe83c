"""A bag of words as a cache: against scikit-learn, from the training rows alone."""

from __future__ import annotations

import shutil
import unicodedata
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gaam_cache
from gaam_cache.common.errors import ConfigError
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.tfidf import TfidfEncoder
from tests.conftest import random_rows, write_csv


@pytest.fixture
def config(dataset: Path, tmp_path: Path) -> ExtractConfig:
    return ExtractConfig(
        encoder="tfidf",
        dataset=str(dataset),
        out=tmp_path / "cache",
        shard_rows=10,
        storage_dtype="float32",
    )


def texts(config: ExtractConfig, split: str) -> list[str]:
    lines = (Path(config.dataset) / f"{split}.csv").read_text().splitlines()[1:]
    return [line.partition(",")[2] for line in lines]


@pytest.mark.parametrize(
    ("spec", "ngrams", "features"),
    [("tfidf", 1, 4096), ("tfidf:ngrams=2,features=50", 2, 50)],
)
def test_states_are_those_of_scikit_learn(
    spec: str, ngrams: int, features: int, config: ExtractConfig
) -> None:
    sklearn_text = pytest.importorskip("sklearn.feature_extraction.text")
    config = replace(config, encoder=spec)
    gaam_cache.extract(config)
    cache = gaam_cache.open_cache(config.out)
    train = texts(config, "train")
    vectorizer = sklearn_text.TfidfVectorizer(
        token_pattern=r"\w+", ngram_range=(1, ngrams), sublinear_tf=True
    )
    vectorizer.fit(train)
    words = vectorizer.get_feature_names_out()
    counter = sklearn_text.CountVectorizer(
        token_pattern=r"\w+", vocabulary=words, ngram_range=(1, ngrams)
    )
    # in how many texts each word is
    frequency = (counter.fit_transform(train) > 0).sum(0).A1
    ranked = sorted(zip(-frequency, words, strict=True))
    kept_words = sorted(word for _, word in ranked[:features])
    vectorizer.vocabulary = kept_words
    vectorizer.fit(train)
    assert cache.hidden_size == len(kept_words)
    for split in ("train", "test"):
        expected = vectorizer.transform(texts(config, split)).toarray()
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
    cache = gaam_cache.open_cache(config.out)
    changed_cache = gaam_cache.open_cache(changed.out)
    states = cache["train"].embeddings[:]
    np.testing.assert_array_equal(changed_cache["train"].embeddings[:], states)
    identity = cache.plan.fingerprint_fields["encoder"]
    assert changed_cache.plan.fingerprint_fields["encoder"] == identity
    assert identity["fitted_on"] == "train"


WORDS = {
    "Don't PANIC!": ["don", "t", "panic"],
    "STRASSE straße": ["strasse", "strasse"],
    "\ufb01ne \uff11\uff12\uff13": ["fine", "123"],
    "नमस्ते दुनिया": ["नमस्ते", "दुनिया"],
    "東京へ行く": ["東", "京", "へ", "行", "く"],
    "cafe\u0301 café": ["café", "café"],
    "a\u200bb — 🙂 _x_": ["a", "b", "_x_"],
}


@pytest.mark.parametrize("text", WORDS)
def test_words_of_every_script(text: str) -> None:
    encoder = TfidfEncoder.open(ExtractConfig(encoder="tfidf"))
    words = [unicodedata.normalize("NFKC", word) for word in WORDS[text]]
    assert encoder.prepare([text]).items == [words]


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


SETTINGS: dict[str, Any] = {
    "prompt": "a {text}",
    "chat_template": True,
    "pool_over": "text",
    "clip_seconds": 3.0,
    "clip_mode": "split",
    "published_audio": True,
    "grey_bits": 12,
    "layers": "0-3",
    "layer_zero": True,
    "pool": ("last",),
    "untrained_encoder": True,
    "encoder_seed": 3,
    "dtype": "float16",
    "revision": "main",
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_setting_that_would_change_nothing_is_refused(
    name: str, config: ExtractConfig
) -> None:
    """With a prompt, for example, its cache would be that of no prompt."""
    assert set(SETTINGS) == set(TfidfEncoder.unused_settings)
    changed = replace(config, **{name: SETTINGS[name]})
    for act in (gaam_cache.extract, gaam_cache.estimate):
        with pytest.raises(ConfigError, match="means nothing for this encoder"):
            act(changed)
    assert not config.out.exists()
