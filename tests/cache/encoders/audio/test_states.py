"""States of sounds are those of transformers, one sound at a time, whatever shares the batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

import gaam_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.audio import AudioEncoder
from gaam_cache.extraction.batches import token_budget_batches
from tests.cache.encoders.audio import sounds

POOLS = ("mean", "first", "last", "max")
BATCHING = {
    "wavlm-group": "equal lengths",
    "wavlm-layer": "padded",
    "hubert-group": "equal lengths",
    "hubert-layer": "padded",
    "wav2vec2-group": "equal lengths",
    "data2vec-audio": "equal lengths",  # its second convolution of positions sees the first's
    "whisper": "padded",  # to 30 s, all of them
    "speech-to-text": "equal lengths",
}


def loaded(folder: Path, **settings: Any) -> AudioEncoder:
    encoder = AudioEncoder.open(
        ExtractConfig(encoder=str(folder), pool=POOLS, **settings)
    )
    encoder.load()
    return encoder


@pytest.mark.parametrize("name", sounds.CONFIGS)
def test_states_are_those_of_transformers_alone_at_every_budget_and_in_every_order(
    name: str, audio_encoders: dict[str, Path]
) -> None:
    encoder = loaded(audio_encoders[name])
    assert encoder.batching == BATCHING[name]
    assert (encoder.num_layers, encoder.hidden_size) == (3, 32)
    rows = sounds.sounds(6 if name == "whisper" else 12)  # which hears 30 s of each
    if name == "speech-to-text":
        # features of less than 35 ms are not finite, and such sounds are refused
        rows = [row for row in rows if row.frames >= 0.035 * row.rate]
    expected = sounds.reference(audio_encoders[name], rows)
    shared = 0
    for number, budget in enumerate((1, 300, 4096)):
        order = np.random.default_rng(number).permutation(len(rows))
        inputs = encoder.prepare([rows[i] for i in order])
        for batch in token_budget_batches(
            inputs.sizes, budget, encoder.batching, inputs.extents
        ):
            shared += len(batch) > 1
            states = encoder.encode(inputs.batch(batch))
            for pool, x_BLD in states.items():
                for place, row in enumerate(batch):
                    alone = expected[pool][order[row]]
                    assert sounds.deviation(x_BLD[place].numpy(), alone) < 1e-5
    assert shared >= 2
    for row in (0, 2, len(rows) - 3):
        alone = encoder.encode_alone(encoder.prepare(rows).items[row])
        for pool in POOLS:
            assert sounds.deviation(alone[pool][0].numpy(), expected[pool][row]) < 1e-5


def test_a_sound_that_is_too_long_is_cut_and_counted(
    audio_encoders: dict[str, Path],
) -> None:
    encoder = loaded(audio_encoders["wavlm-layer"], clip_seconds=1.0)
    [long] = [tone for tone in sounds.sounds() if tone.frames > 2 * tone.rate]
    rows = [long, sounds.Tone(long.wave[: long.rate], long.rate)]
    inputs = encoder.prepare(rows)
    assert inputs.truncated == [True, False]
    assert inputs.lengths[0] == inputs.lengths[1] == encoder.max_length
    states = encoder.encode(inputs.batch(np.arange(2)))["mean"]
    assert sounds.deviation(states[0].numpy(), states[1].numpy()) < 1e-5


def test_an_interruption_loses_few_sounds_because_their_shards_are_small(
    audio_encoders: dict[str, Path], tmp_path: Path
) -> None:
    generator = np.random.default_rng(0)
    for number in range(130):
        path = tmp_path / "data" / "train" / "ab"[number % 2] / f"{number}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, generator.uniform(-0.5, 0.5, 800), 16000)
    config = ExtractConfig(
        encoder=str(audio_encoders["hubert-layer"]),
        dataset=str(tmp_path / "data"),
        splits=("train",),
        out=tmp_path / "cache",
    )
    gaam_cache.extract(config)
    receipts = sorted(path.name for path in config.out.glob("shards/*.json"))
    assert receipts == ["train-00000.json", "train-00001.json"]
