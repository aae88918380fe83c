"""Tiny random audio encoders, generated sounds, and their states by transformers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import soxr
import torch
import transformers

SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "conv_dim": (16,) * 7,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
}
"""With the convolutions of the real ones: a frame every 20 ms, of 25 ms."""


@dataclass(frozen=True)
class Tone:
    """A sound as the source of rows hands it on."""

    wave: np.ndarray
    rate: int = 16000
    where: str = "memory"

    @property
    def frames(self) -> int:
        return len(self.wave)

    def samples(self) -> np.ndarray:
        return self.wave


def _wav2vec2_config(cls: Any, norm: str) -> Any:
    is_stable = norm == "layer"
    return cls(
        **SMALL,
        feat_extract_norm=norm,
        do_stable_layer_norm=is_stable,
        conv_bias=is_stable,
    )


def _data2vec_config() -> Any:
    positions = {"num_conv_pos_embeddings": 2, "conv_pos_kernel_size": 5}
    return transformers.Data2VecAudioConfig(**SMALL | positions)


SMALL_WITH_DECODER: dict[str, Any] = {
    "d_model": 32,
    "encoder_layers": 3,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "vocab_size": 64,
}


def _whisper_config() -> Any:
    return transformers.WhisperConfig(
        **SMALL_WITH_DECODER,
        num_mel_bins=16,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )


def _speech_to_text_config() -> Any:
    return transformers.Speech2TextConfig(**SMALL_WITH_DECODER, conv_channels=32)


CONFIGS: dict[str, Callable[[], Any]] = {
    "wavlm-group": partial(_wav2vec2_config, transformers.WavLMConfig, "group"),
    "wavlm-layer": partial(_wav2vec2_config, transformers.WavLMConfig, "layer"),
    "hubert-group": partial(_wav2vec2_config, transformers.HubertConfig, "group"),
    "hubert-layer": partial(_wav2vec2_config, transformers.HubertConfig, "layer"),
    "wav2vec2-group": partial(_wav2vec2_config, transformers.Wav2Vec2Config, "group"),
    "data2vec-audio": _data2vec_config,
    "whisper": _whisper_config,
    # its features are divided by their standard deviation: one alone is not finite
    "speech-to-text": _speech_to_text_config,
}


def extractor_for(config: Any) -> Any:
    if config.model_type == "whisper":
        return transformers.WhisperFeatureExtractor(feature_size=config.num_mel_bins)
    if config.model_type == "speech_to_text":
        return transformers.Speech2TextFeatureExtractor()
    return transformers.Wav2Vec2FeatureExtractor(
        do_normalize=True,
        return_attention_mask=getattr(config, "feat_extract_norm", "") == "layer",
    )


def draw(config: Any, seed: int = 0) -> Any:
    """A model with weights larger than usual, so that errors show."""
    torch.manual_seed(seed)
    model = transformers.AutoModel.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.15 * torch.randn_like(parameter)
    return model


def save(name: str, folder: Path) -> Path:
    config = CONFIGS[name]()
    draw(config).save_pretrained(folder)
    extractor_for(config).save_pretrained(folder)
    return folder


RATES = (16000, 8000, 44100, 22050, 48000, 16000)
SECONDS = (0.03, 0.2, 1.0, 0.5, 0.5, 0.77, 1.3, 0.2, 0.045, 2.1, 0.5, 0.77)


def sounds(count: int = 12) -> list[Tone]:
    """Mixed lengths (some equal) and rates: noise, tones, silence and clicks."""
    rng = np.random.default_rng(0)
    tones: list[Tone] = []
    for number in range(count):
        rate = RATES[number % len(RATES)]
        seconds = SECONDS[number % len(SECONDS)]
        t = np.arange(int(seconds * rate)) / rate
        wave = rng.normal(scale=0.02, size=len(t))
        tone = 0.3 * np.sin(2 * np.pi * (200 + 130 * number) * t)
        wave += tone * (t > 0.3 * seconds)
        wave += 0.01 * (number % 3)
        tones.append(Tone(wave.astype(np.float32), rate))
    return tones


def encoder_of(model: Any) -> Any:
    return model.get_encoder() if model.config.is_encoder_decoder else model


def reference(folder: Path, rows: Sequence[Tone]) -> dict[str, list[np.ndarray]]:
    """Pooled ``hidden_states[1:]`` of transformers, of every sound alone."""
    extractor = transformers.AutoFeatureExtractor.from_pretrained(folder)
    model = encoder_of(transformers.AutoModel.from_pretrained(folder).eval())
    pooled: dict[str, list[np.ndarray]] = {
        name: [] for name in ("mean", "first", "last", "max")
    }
    for row in rows:
        wave = row.samples()
        if row.rate != extractor.sampling_rate:
            wave = soxr.resample(wave, row.rate, extractor.sampling_rate, quality="VHQ")
        inputs = extractor(
            wave, sampling_rate=extractor.sampling_rate, return_tensors="pt"
        )
        with torch.no_grad():
            output = model(**inputs, output_hidden_states=True)
        states = torch.stack([x[0] for x in output.hidden_states[1:]]).double()
        if model.config.model_type == "whisper":
            states = states[:, : -(-len(wave) // 320)]
        pooled["mean"].append(states.mean(1).numpy())
        pooled["first"].append(states[:, 0].numpy())
        pooled["last"].append(states[:, -1].numpy())
        pooled["max"].append(states.amax(1).numpy())
    return pooled


def deviation(states: np.ndarray, alone: np.ndarray) -> float:
    """Relative to the norm of the layer, the largest."""
    norm = np.linalg.norm(alone, axis=-1)
    return float((np.linalg.norm(states - alone, axis=-1) / norm).max())
