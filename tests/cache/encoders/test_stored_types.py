"""A checkpoint may be stored in half precision, whatever it reads and is computed in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import transformers
from PIL import Image

from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.audio import AudioEncoder
from gaam_cache.encoders.text import TextEncoder
from gaam_cache.encoders.vision import VisionEncoder
from tests.cache.encoders.audio import sounds
from tests.cache.encoders.vision import pictures
from tests.cache.encoders.vision.models import FAMILIES
from tests.tiny import build_encoder

NEAR = {"float16": 1e-2, "bfloat16": 8e-2, "float32": 1e-5}
"""To the states of transformers in the same arithmetic: what rounding makes of other kernels."""
TEXTS = ["goal bank star", "vote", "cup loan atom army team", "price robot"]


class Kind(NamedTuple):
    """An encoder of a kind of rows."""

    encoder: type[TextEncoder | AudioEncoder | VisionEncoder]
    save: Callable[[Path], object]
    rows: list[Any]
    inputs: Callable[[Path, Any], Any]  # of a row, as transformers takes them
    pooled: Callable[[torch.Tensor], torch.Tensor]  # positions of a state that are


def of_text(folder: Path, row: str) -> Any:
    return transformers.AutoTokenizer.from_pretrained(folder)(row, return_tensors="pt")


def of_sound(folder: Path, row: sounds.Tone) -> Any:
    extractor = transformers.AutoFeatureExtractor.from_pretrained(folder)
    return extractor(row.samples(), sampling_rate=row.rate, return_tensors="pt")


def of_picture(folder: Path, row: pictures.Drawn) -> Any:
    processor = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil")
    return processor(Image.fromarray(row.array), return_tensors="pt")


KINDS = {
    "text": Kind(
        TextEncoder,
        lambda folder: build_encoder(folder, "bert"),
        TEXTS,
        of_text,
        lambda x_TD: x_TD,
    ),
    "audio": Kind(
        AudioEncoder,
        lambda folder: sounds.save("hubert-layer", folder),
        [sounds.Tone(tone.wave, 16000) for tone in sounds.sounds(2)],
        of_sound,
        lambda x_TD: x_TD,
    ),
    "vision": Kind(
        VisionEncoder,
        lambda folder: FAMILIES["vit"].save(folder),
        pictures.noise()[:3],
        of_picture,
        lambda x_TD: x_TD[1:],
    ),
}


@pytest.mark.parametrize("computed", NEAR)
@pytest.mark.parametrize("stored", NEAR)
@pytest.mark.parametrize("kind", KINDS)
def test_states_are_those_of_transformers_whatever_the_stored_type(
    kind: str, stored: str, computed: Any, tmp_path: Path, counted_once: None
) -> None:
    cls, save, rows, inputs, pooled = KINDS[kind]
    folder = tmp_path / "encoder"
    save(folder)
    model = transformers.AutoModel.from_pretrained(folder, dtype=getattr(torch, stored))
    model.save_pretrained(folder)

    config = ExtractConfig(encoder=str(folder), dtype=computed, device="cpu")
    encoder = cls.open(config)
    encoder.load()
    prepared = encoder.prepare(rows)
    states = encoder.encode(prepared.batch(np.arange(len(rows))))["mean"]

    model = transformers.AutoModel.from_pretrained(
        folder, dtype=getattr(torch, computed)
    ).eval()
    part = model.get_encoder() if model.config.is_encoder_decoder else model
    for row, x_LD in zip(rows, states, strict=True):
        given = {
            name: value.to(part.dtype) if value.is_floating_point() else value
            for name, value in inputs(folder, row).items()
        }
        with torch.no_grad():
            layers = part(**given, output_hidden_states=True).hidden_states[1:]
        expected_LD = torch.stack(
            [pooled(x_BTD[0]).float().mean(0) for x_BTD in layers]
        )
        apart_L = (x_LD - expected_LD).norm(dim=-1) / expected_LD.norm(dim=-1)
        assert apart_L.max() < NEAR[computed]
