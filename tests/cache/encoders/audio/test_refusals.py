"""What cannot be heard, or not as asked, is refused before anything is computed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

import gaam_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.audio import AudioEncoder
from gaam_cache.errors import ConfigError, DataError


def opened(folder: Path, **settings: Any) -> AudioEncoder:
    return AudioEncoder.open(ExtractConfig(encoder=str(folder), **settings))


@pytest.fixture
def copied(audio_encoders: dict[str, Path], tmp_path: Path) -> Callable[[str], Path]:
    return lambda name: Path(shutil.copytree(audio_encoders[name], tmp_path / "copy"))


def change(path: Path, **settings: Any) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | settings))


def test_a_feature_extractor_that_draws_random_numbers_is_refused(
    copied: Callable[[str], Path],
) -> None:
    folder = copied("whisper")
    change(folder / "preprocessor_config.json", dither=0.01)
    with pytest.raises(ConfigError, match="draws random numbers"):
        opened(folder)


def test_whisper_hears_half_a_minute_at_most(audio_encoders: dict[str, Path]) -> None:
    with pytest.raises(ConfigError, match=r"at most 30 s(.|\n)*31"):
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
        encoder=str(audio_encoders["hubert-layer"]), dataset=str(tmp_path / "data"),
        splits=("train",), out=tmp_path / "cache",
    )  # fmt: skip
    with pytest.raises(DataError, match="too short") as caught:
        gaam_cache.extract(config)
    said = str(caught.value)
    assert "at least 25 ms" in said
    assert "24.94 ms" in said
    assert "1.wav" in said
    assert "row 3" in said
    assert not config.out.exists()
