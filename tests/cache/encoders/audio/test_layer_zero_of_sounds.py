"""Layer 0 of encoders of sounds: what transformers calls ``hidden_states[0]``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.audio import AudioEncoder
from gaam_cache.extraction.batching import token_budget_batches
from tests.cache.encoders.audio import sounds


@pytest.mark.parametrize("name", sounds.CONFIGS)
def test_layer_zero_is_there_and_the_others_are_as_without_it(
    name: str, audio_encoders: dict[str, Path]
) -> None:
    encoder, plain = (
        AudioEncoder.open(ExtractConfig(encoder=str(audio_encoders[name]), layer_zero=zero))
        for zero in (True, False)
    )
    encoder.outline()
    assert encoder.num_layers == 4
    encoder.load()
    plain.load()
    assert encoder.num_layers == 4
    assert encoder._forward.stack is not None, "hooks were not taken"
    rows = sounds.sounds(8)
    inputs = encoder.prepare(rows)
    alone = [encoder.encode_alone(inputs.items[row])["mean"][0].numpy() for row in range(len(rows))]
    for batch in token_budget_batches(inputs.sizes, 4096, encoder.batching, inputs.extents):
        states = encoder.encode(inputs.batch(batch))["mean"]
        assert torch.equal(states[:, 1:], plain.encode(inputs.batch(batch))["mean"])
        for place, row in enumerate(batch):
            assert sounds.deviation(states[place].numpy(), alone[row]) < 1e-5
    # of one sound, by transformers alone and none of ours
    item = inputs.items[0]
    with torch.no_grad():
        made = encoder._forward.batch([item])
        output = encoder._forward.run(
            made, encoder._forward.mask_of(made), output_hidden_states=True
        )
    x_TD = output.hidden_states[0][0, : int(made.length_B[0])].numpy()
    np.testing.assert_allclose(alone[0][0], x_TD.mean(0), atol=1e-5, rtol=1e-5)
