"""``--published-audio`` is what the published code computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.audio import AudioEncoder
from tests.cache.encoders.audio import sounds


@pytest.mark.parametrize("name", ["wavlm-layer", "data2vec-audio"])
def test_published_states_are_the_mean_over_five_seconds_of_raw_samples(
    name: str, audio_encoders: dict[str, Path]
) -> None:
    folder = audio_encoders[name]
    encoder = AudioEncoder.open(
        ExtractConfig(encoder=str(folder), published_audio=True)
    )
    encoder.load()
    assert encoder.batching == "padded"  # all are of one length
    rows = [tone for tone in sounds.sounds() if tone.rate == 16000]
    rows.append(sounds.Tone(np.tile(rows[1].wave, 20)))
    inputs = encoder.prepare(rows)
    assert inputs.truncated == [False] * (len(rows) - 1) + [True]
    assert list(inputs.lengths) == [249] * len(rows)
    states = encoder.encode(inputs.batch(np.arange(len(rows))))["mean"]
    model = transformers.AutoModel.from_pretrained(folder).eval()
    for row, tone in enumerate(rows):
        x = torch.zeros(1, 80_000)
        wave = torch.from_numpy(tone.wave[:80_000])
        x[0, : len(wave)] = wave
        with torch.no_grad():
            layers = model(x, output_hidden_states=True).hidden_states[1:]
        alone = torch.stack([layer[0].double().mean(0) for layer in layers]).numpy()
        assert sounds.deviation(states[row].numpy(), alone) < 1e-5
    usual = AudioEncoder.open(ExtractConfig(encoder=str(folder), clip_seconds=5.0))
    assert usual.identity() != encoder.identity()
    assert "published" in encoder.identity()
