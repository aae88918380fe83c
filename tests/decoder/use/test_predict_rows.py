"""Raw rows are predicted as the same rows out of a cache are."""

from __future__ import annotations

import random
import shutil
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gaam_cache
import gaam_decoder
from gaam_cache.config import ExtractConfig
from gaam_cache.errors import ConfigError, DataError
from gaam_cache.importing.write import write
from gaam_decoder.config import TrainConfig
from gaam_decoder.use.predictor import CHUNK_ROWS, Predictor
from tests.cache.encoders.audio import sounds, spoken
from tests.cache.encoders.vision.models import FAMILIES
from tests.cache.encoders.vision.pictures import write_figures
from tests.tiny import WORDS, random_rows

WAYS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"pool": ("mean", "max")}, {}),
    ({"pool": ("mean", "max")}, {"pool": "max", "layers": (2, 3)}),
    ({"storage_dtype": "float32"}, {"attn": ("mha",)}),
    ({"storage_dtype": "bfloat16"}, {"head": "mlp"}),
    ({"layer_zero": True}, {"layers": (0, 2)}),
    ({"prompt": "race {text} vote", "max_length": 9}, {"attn": ("laplace",)}),
    ({"batch_tokens": 1}, {}),
    ({"encoder": "tfidf"}, {"attn": ("none",)}),
    ({"untrained_encoder": True, "encoder_seed": 5}, {"head": "lbfgs", "attn": ("none",)}),
]


def load(
    extract: ExtractConfig, **changes: Any
) -> tuple[gaam_cache.cache.EmbeddingCache, Predictor]:
    """A cache, and a predictor that learned from it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gaam_cache.extract(extract)
        config = TrainConfig(
            **{
                "cache": extract.out, "runs": extract.out.parent / "runs", "attn": ("gaam",),
                "seeds": (0, 1, 2), "epochs": 2, "lr": 0.05, "compile": "off", "device": "cpu",
                **changes,
            }
        )  # fmt: skip
        [run] = gaam_decoder.train(config)
    return gaam_cache.open_cache(extract.out), gaam_decoder.load(run.path, device="cpu")


def texts_of(config: ExtractConfig) -> list[str]:
    lines = (Path(config.dataset) / "test.csv").read_text().splitlines()[1:]
    return [line.partition(",")[2] for line in lines]


@pytest.mark.parametrize(("extraction", "training"), WAYS, ids=str)
def test_texts_are_predicted_as_their_cached_states_are(
    extraction: dict[str, Any], training: dict[str, Any], tiny_config: ExtractConfig
) -> None:
    cache, predictor = load(replace(tiny_config, **extraction), **training)
    texts = texts_of(tiny_config)
    cached = predictor.predict_states(cache["test"].pooled(predictor.pooling))
    found = predictor.predictions(texts)
    np.testing.assert_allclose(found.probabilities_NC, cached.probabilities_NC, atol=1e-4, rtol=0)
    assert predictor.predict(texts) == found.labels
    assert (predictor.predict_proba(texts) == found.probabilities_NC).all()
    assert predictor.class_names == cache.class_names


def test_a_text_is_predicted_alone_as_among_many_in_any_order(tiny_config: ExtractConfig) -> None:
    _, predictor = load(replace(tiny_config, storage_dtype="float32"))
    texts = [text for _, text in random_rows(60, 9)]
    whole = predictor.predict_proba(texts)
    order = random.Random(0).sample(range(60), 60)
    moved = predictor.predict_proba([texts[place] for place in order])
    alone = np.concatenate([predictor.predict_proba([text]) for text in texts[:12]])
    np.testing.assert_allclose(moved, whole[order], atol=1e-5, rtol=0)
    np.testing.assert_allclose(alone, whole[:12], atol=1e-5, rtol=0)


def test_chunks_give_what_they_give_whatever_is_beside_them(tiny_config: ExtractConfig) -> None:
    _, predictor = load(tiny_config)
    chunks = [[" ".join(WORDS[: n + size]) for n in range(5)] for size in (1, 4, 9)]
    alone = [predictor.predictions(chunk) for chunk in chunks]
    for found, other in zip(predictor.stream(iter(chunks)), alone, strict=True):
        assert (found.probabilities_NC == other.probabilities_NC).all()
        assert (found.agreement_N == other.agreement_N).all()
    many = ["goal", "bank vote"] * (CHUNK_ROWS // 2 + 1)
    assert len(predictor.predictions(many)) == CHUNK_ROWS + 2


def test_rows_that_are_none_are_refused_by_their_number(tiny_config: ExtractConfig) -> None:
    _, predictor = load(tiny_config)
    with pytest.raises(ConfigError, match="rows are a list"):
        predictor.predict("goal")
    for bad in ("", " ", "\u200b"):
        with pytest.raises(DataError, match="empty") as caught:
            predictor.predictions(["goal", "bank", bad], origin="mine.csv")
        assert "mine.csv, row 3" in str(caught.value)
    assert predictor.predict([]) == []
    assert predictor.predict_proba([]).shape == (0, 2)


def test_another_encoder_is_refused_when_it_is_needed(
    tiny_config: ExtractConfig, encoders: dict[str, Path], tmp_path: Path
) -> None:
    folder = shutil.copytree(tiny_config.encoder, tmp_path / "encoder")
    cache, predictor = load(replace(tiny_config, encoder=str(folder)))
    [path] = (tmp_path / "runs").glob("gaam-*")
    other = gaam_decoder.load(path, encoder=str(encoders["llama"]), device="cpu")
    states = cache["test"].embeddings[:]
    whole = predictor.predict_states(states).probabilities_NC
    assert (other.predict_states(states).probabilities_NC == whole).all()
    with pytest.raises(ConfigError, match="another encoder") as caught:
        other.predict(["goal"])
    assert "config.json" in str(caught.value)
    assert "model.safetensors" in str(caught.value)
    folder.rename(tmp_path / "moved")
    moved = gaam_decoder.load(path, encoder=str(tmp_path / "moved"), device="cpu")
    texts = texts_of(tiny_config)
    np.testing.assert_allclose(moved.predict_proba(texts), whole, atol=1e-4, rtol=0)


def test_imported_states_are_predicted_from_states_alone(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x_NLD, label_N = rng.normal(size=(40, 3, 8)).astype(np.float32), [0, 1] * 20
    write(tmp_path / "cache", {"train": (x_NLD, label_N), "test": (x_NLD[:10], label_N[:10])})
    [run] = gaam_decoder.train(
        TrainConfig(
            cache=tmp_path / "cache", runs=tmp_path / "runs", attn=("gaam",), seeds=(0, 1),
            epochs=1, compile="off", device="cpu",
        )
    )  # fmt: skip
    predictor = gaam_decoder.load(run.path, device="cpu")
    assert predictor.encoding is None
    assert len(predictor.predict_states(x_NLD)) == 40
    with pytest.raises(ConfigError, match="no encoder here") as caught:
        predictor.predict(["a text"])
    assert "predict_states" in str(caught.value)


def test_files_are_predicted_as_their_cached_states_are(tmp_path: Path) -> None:
    spoken.write(tmp_path / "sounds", {"train": 2, "test": 1})
    write_figures(tmp_path / "pictures", {"train": 12, "test": 8})
    encoders = {
        "sounds": sounds.save("wavlm-layer", tmp_path / "wavlm"),
        "pictures": FAMILIES["dinov2-registers"].save(tmp_path / "dinov2-registers"),
    }
    for name, encoder in encoders.items():
        config = ExtractConfig(
            encoder=str(encoder), dataset=str(tmp_path / name), device="cpu",
            out=tmp_path / f"of-{name}" / "cache", keep_columns=("file",),
        )  # fmt: skip
        cache, predictor = load(config)
        files = [str(tmp_path / name / file) for file in cache["test"].column("file")]
        cached = predictor.predict_states(cache["test"].embeddings)
        found = predictor.predict_proba(files)
        np.testing.assert_allclose(found, cached.probabilities_NC, atol=1e-4, rtol=0)
