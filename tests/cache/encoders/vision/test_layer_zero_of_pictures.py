"""Layer 0 of encoders of pictures: what transformers calls ``hidden_states[0]``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.cache.encoders.vision.models import FAMILIES
from tests.cache.encoders.vision.pictures import noise
from tests.cache.encoders.vision.test_vision_states import folders, opened

__all__ = ["folders"]


@pytest.mark.parametrize("name", FAMILIES)
def test_layer_zero_is_there_and_the_others_are_as_without_it(
    name: str, folders: dict[str, Path]
) -> None:
    encoder, plain = (opened(folders[name], layer_zero=zero) for zero in (True, False))
    assert encoder.num_layers == 4
    assert encoder._forward.stack is not None, "hooks were not taken"
    inputs = encoder.prepare(noise())
    batch = inputs.batch(np.arange(5))
    states = encoder.encode(batch)["mean"]
    assert torch.equal(states[:, 1:], plain.encode(batch)["mean"])
    first, last = encoder._forward.layout
    for row in range(5):
        alone = encoder.encode_alone(inputs.items[row])["mean"][0]
        np.testing.assert_allclose(states[row], alone, atol=1e-5, rtol=1e-5)
        made = encoder._forward.batch([inputs.items[row]])
        with torch.no_grad():
            output = encoder._forward.run(made, None, output_hidden_states=True)
        x_D = output.hidden_states[0][0, first:last].mean(0)
        np.testing.assert_allclose(states[row, 0], x_D, atol=1e-5, rtol=1e-5)
    encoder.outline()
    assert encoder.num_layers == 4
