"""Weights as people have saved them: with heads, under old names, without what is for training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.audio import AudioEncoder
from gaam_cache.errors import ConfigError
from tests.cache.encoders.audio import sounds


def states(folder: Path) -> torch.Tensor:
    encoder = AudioEncoder.open(ExtractConfig(encoder=str(folder)))
    encoder.load()
    return encoder.encode([encoder.prepare(sounds.sounds()).items[2]])["mean"]


def rename(folder: Path, change: Any) -> int:
    tensors = load_file(folder / "model.safetensors")
    changed = {change(name): x for name, x in tensors.items()}
    changed.pop(None, None)
    save_file(changed, folder / "model.safetensors", metadata={"format": "pt"})
    return len(tensors.keys() - changed.keys())


@pytest.mark.parametrize("name", ["wavlm-layer", "hubert-group", "wav2vec2-layer", "whisper"])
def test_a_model_with_a_head(name: str, audio_encoders: dict[str, Path], tmp_path: Path) -> None:
    heads = {
        "wavlm-layer": transformers.WavLMForCTC,
        "hubert-group": transformers.HubertForSequenceClassification,
        "wav2vec2-layer": transformers.Wav2Vec2ForPreTraining,
        "whisper": transformers.WhisperForConditionalGeneration,
    }
    model = heads[name].from_pretrained(audio_encoders[name])
    model.save_pretrained(tmp_path)
    sounds.extractor_for(model.config).save_pretrained(tmp_path)
    assert torch.equal(states(tmp_path), states(audio_encoders[name]))


@pytest.mark.parametrize(
    "lost", ["weight.original0", "rel_attn_embed", "feature_projection.projection.weight"]
)
def test_what_plays_a_part_may_not(lost: str, tmp_path: Path) -> None:
    sounds.save("wavlm-layer", tmp_path)
    assert rename(tmp_path, lambda key: None if lost in key else key) == 1
    with pytest.raises(ConfigError, match="not those of its configuration"):
        states(tmp_path)
