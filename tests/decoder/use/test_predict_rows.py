"""Raw rows are predicted as the same rows out of a cache are."""

from __future__ import annotations

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
from gaam_cache.store.importing import write
from gaam_decoder.config import TrainConfig
from gaam_decoder.use.predictor import Predictor


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
