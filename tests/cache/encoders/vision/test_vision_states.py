"""Pooled states of pictures against transformers' own processor and model, one at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from gaam_cache.common.errors import ConfigError
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.vision import VisionEncoder
from gaam_cache.extraction.batches import token_budget_batches
from tests.cache.encoders.audio.sounds import deviation
from tests.cache.encoders.vision.models import FAMILIES, PATCHES
from tests.cache.encoders.vision.pictures import Drawn, noise

POOLS = ("mean", "max", "last")
RIGHT = 1e-5


def reference(
    folder: Path, rows: list[Drawn], prefix: int, first_layer: int = 1
) -> dict[str, np.ndarray]:
    """Of one picture at a time, pooled as the publication has it: (N, L, D), without our code."""
    name = FAMILIES[folder.name].processor
    processor = getattr(transformers, name).from_pretrained(folder)
    model: Any = transformers.AutoModel.from_pretrained(
        folder, dtype=torch.float32
    ).eval()
    model = getattr(model, "vision_model", model)
    pooled: dict[str, list[torch.Tensor]] = {name: [] for name in (*POOLS, "first")}
    for row in rows:
        pixels = processor(images=Image.fromarray(row.array), return_tensors="pt")
        with torch.no_grad():
            output = model(
                pixel_values=pixels["pixel_values"], output_hidden_states=True
            )
        layers = torch.stack(output.hidden_states[first_layer:])[:, 0].double()
        patches = layers[:, prefix : prefix + PATCHES]
        pooled["mean"].append(patches.mean(1))
        pooled["max"].append(patches.amax(1))
        pooled["last"].append(patches[:, -1])
        pooled["first"].append(layers[:, 0])
    return {name: torch.stack(states).numpy() for name, states in pooled.items()}


def opened(folder: Path, **options: Any) -> VisionEncoder:
    encoder = VisionEncoder.open(
        ExtractConfig(encoder=str(folder), device="cpu", **options)
    )
    encoder.load()
    return encoder


def encoded(
    encoder: VisionEncoder, rows: list[Drawn], budget: int
) -> dict[str, np.ndarray]:
    """As the extraction does it."""
    inputs = encoder.prepare(rows)
    batches = token_budget_batches(inputs.lengths, budget, encoder.batching)
    states: dict[str, np.ndarray] = {}
    for batch, items in zip(batches, inputs.batches(batches), strict=True):
        for name, x_BLD in encoder.encode(items).items():
            whole = states.setdefault(
                name, np.zeros((len(rows), *x_BLD.shape[1:]), np.float32)
            )
            whole[batch] = x_BLD.numpy()
    return states


@pytest.mark.parametrize("name", FAMILIES)
def test_states_equal_transformers_one_picture_at_a_time(
    name: str, tmp_path: Path
) -> None:
    family, rows = FAMILIES[name], noise()
    folder = family.save(tmp_path / name)
    pools = (*POOLS, "first") if family.prefix else POOLS
    encoder = opened(folder, pool=pools)
    expected = reference(folder, rows, family.prefix)
    forward: Any = encoder._forward
    assert forward.layout == range(family.prefix, family.prefix + PATCHES)
    assert (encoder.num_layers, encoder.hidden_size, encoder.batching) == (
        3,
        32,
        "padded",
    )
    if not family.prefix:
        with pytest.raises(ConfigError, match="--pool first"):
            opened(folder, pool=("first",))
    assert list(encoder.prepare(rows).lengths) == [PATCHES] * len(rows)
    for budget in (1, 3 * PATCHES, 10**6):
        states = encoded(encoder, rows, budget)
        assert set(states) == set(pools)
        for pool in pools:
            assert deviation(states[pool], expected[pool]) <= RIGHT, (pool, budget)
    alone = encoder.encode_alone(encoder.prepare(rows).items[3])
    for pool in pools:
        assert deviation(alone[pool].numpy(), expected[pool][3:4]) <= RIGHT
    zero = opened(folder, layer_zero=True)
    expected = reference(folder, rows, family.prefix, first_layer=0)
    assert (
        deviation(encoded(zero, rows, 10 * PATCHES)["mean"], expected["mean"]) <= RIGHT
    )
