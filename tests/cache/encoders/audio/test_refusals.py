"""Encoders as people saved them; what cannot be heard is refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
import transformers

import gaam_cache
from gaam_cache.common.errors import ConfigError, DataError
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.audio import AudioEncoder
from tests.cache.encoders.audio import sounds


def opened(folder: Path, **settings: Any) -> AudioEncoder:
    return AudioEncoder.open(ExtractConfig(encoder=str(folder), **settings))


@pytest.mark.parametrize(
    ("name", "cls"),
    [
        ("wavlm-layer", transformers.WavLMForCTC),
        ("whisper", transformers.WhisperForConditionalGeneration),
    ],
)
def test_a_model_with_a_head_is_the_model(
    name: str, cls: Any, audio_encoders: dict[str, Path], tmp_path: Path
) -> None:
    model = cls.from_pretrained(audio_encoders[name])
    model.save_pretrained(tmp_path)
    sounds.extractor_for(model.config).save_pretrained(tmp_path)
    assert torch.equal(encode(tmp_path), encode(audio_encoders[name]))


def encode(folder: Path) -> torch.Tensor:
    """The mean states of one sound."""
    encoder = opened(folder)
    encoder.load()
    inputs = encoder.prepare(sounds.sounds()[2:3])
    return encoder.encode(inputs.items)["mean"]


def test_a_feature_extractor_that_draws_random_numbers_is_refused(
    audio_encoders: dict[str, Path], tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(audio_encoders["whisper"], tmp_path / "copy"))
    path = folder / "preprocessor_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"dither": 0.01}))
    with pytest.raises(ConfigError, match="WhisperFeatureExtractor"):
        opened(folder)


def test_whisper_hears_half_a_minute_at_most(audio_encoders: dict[str, Path]) -> None:
    with pytest.raises(ConfigError, match=r"\b30 s(.|\n)*31"):
        opened(audio_encoders["whisper"], clip_seconds=31.0)
    assert opened(audio_encoders["wavlm-group"], clip_seconds=31.0).max_length == 1549


def test_a_sound_without_a_frame_is_refused_by_name_and_length(
    audio_encoders: dict[str, Path], tmp_path: Path
) -> None:
    for number, samples in enumerate((8000, 399, 400)):
        path = tmp_path / "data" / "train" / "ab"[number % 2] / f"{number}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, np.ones(samples) / 4, 16000)
    config = ExtractConfig(
        encoder=str(audio_encoders["hubert-layer"]),
        dataset=str(tmp_path / "data"),
        splits=("train",),
        out=tmp_path / "cache",
    )
    with pytest.raises(DataError) as caught:
        gaam_cache.extract(config)
    details = caught.value.details
    assert "25 ms" in details["expected"]
    assert "24.94 ms" in details["found"]
    assert "1.wav" in details["found"]
    assert details["where"].endswith("row 3")
    assert not config.out.exists()


@pytest.mark.parametrize("settings", [{"prompt": "{text}!"}, {"grey_bits": 12}])
def test_a_setting_of_other_rows_is_refused(
    settings: dict[str, Any], audio_encoders: dict[str, Path], tmp_path: Path
) -> None:
    for letter in "ab":
        path = tmp_path / "data" / "train" / letter / "1.wav"
        path.parent.mkdir(parents=True)
        soundfile.write(path, np.ones(8000) / 4, 16000)
    config = ExtractConfig(
        encoder=str(audio_encoders["hubert-layer"]),
        dataset=str(tmp_path / "data"),
        splits=("train",),
        out=tmp_path / "cache",
        **settings,
    )
    with pytest.raises(ConfigError, match="means nothing for this encoder"):
        gaam_cache.extract(config)
