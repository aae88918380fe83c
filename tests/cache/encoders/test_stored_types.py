"""A checkpoint may be stored in half precision, whatever it reads and computes in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
"""Tolerance of states, by the type they are computed in: kernels round otherwise. Where
transformers itself rounds more on this processor, twice that is tolerated."""
TEXTS = ["goal bank star", "vote", "cup loan atom army team", "price robot"]


class Kind:
    """An encoder of a kind of rows, and how transformers reads a row."""

    encoder: type[TextEncoder | AudioEncoder | VisionEncoder]
    # positions before this one are no part of a state
    first_position = 0

    def save(self, folder: Path) -> None:
        raise NotImplementedError

    def rows(self) -> list[Any]:
        raise NotImplementedError

    def inputs(self, folder: Path, row: Any) -> Any:
        """A row as transformers takes it."""
        raise NotImplementedError


class TextKind(Kind):
    encoder = TextEncoder

    def save(self, folder: Path) -> None:
        build_encoder(folder, "bert")

    def rows(self) -> list[str]:
        return TEXTS

    def inputs(self, folder: Path, row: str) -> Any:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        return tokenizer(row, return_tensors="pt")


class AudioKind(Kind):
    encoder = AudioEncoder

    def save(self, folder: Path) -> None:
        sounds.save("hubert-layer", folder)

    def rows(self) -> list[sounds.Tone]:
        return [sounds.Tone(tone.wave, 16000) for tone in sounds.sounds(2)]

    def inputs(self, folder: Path, row: sounds.Tone) -> Any:
        extractor = transformers.AutoFeatureExtractor.from_pretrained(folder)
        return extractor(row.samples(), sampling_rate=row.rate, return_tensors="pt")


class VisionKind(Kind):
    encoder = VisionEncoder
    # the class token is no patch
    first_position = 1

    def save(self, folder: Path) -> None:
        FAMILIES["vit"].save(folder)

    def rows(self) -> list[pictures.Drawn]:
        return pictures.noise()[:3]

    def inputs(self, folder: Path, row: pictures.Drawn) -> Any:
        processor = transformers.AutoImageProcessor.from_pretrained(
            folder, backend="pil"
        )
        return processor(Image.fromarray(row.array), return_tensors="pt")


KINDS = {"text": TextKind(), "audio": AudioKind(), "vision": VisionKind()}


def load_model(folder: Path, dtype: str) -> Any:
    torch_dtype = getattr(torch, dtype)
    return transformers.AutoModel.from_pretrained(folder, dtype=torch_dtype)


@pytest.mark.parametrize("computed", NEAR)
@pytest.mark.parametrize("stored", NEAR)
@pytest.mark.parametrize("kind", KINDS)
def test_states_are_those_of_transformers_whatever_the_stored_type(
    kind: str, stored: str, computed: Any, tmp_path: Path, counted_once: None
) -> None:
    folder = tmp_path / "encoder"
    KINDS[kind].save(folder)
    load_model(folder, stored).save_pretrained(folder)

    config = ExtractConfig(encoder=str(folder), dtype=computed, device="cpu")
    encoder = KINDS[kind].encoder.open(config)
    encoder.load()
    rows = KINDS[kind].rows()
    prepared = encoder.prepare(rows)
    states = encoder.encode(prepared.batch(np.arange(len(rows))))["mean"]

    expected = _states_alone(kind, folder, computed)
    unrounded = _states_alone(kind, folder, "float32")
    # how far the library itself is from float32, which depends on the processor
    rounding = max(
        _largest_error(rounded_LD, x_LD)
        for rounded_LD, x_LD in zip(expected, unrounded, strict=True)
    )
    for x_LD, expected_LD in zip(states, expected, strict=True):
        error = _largest_error(x_LD, expected_LD)
        assert error < max(NEAR[computed], 2 * rounding)


def _states_alone(kind: str, folder: Path, dtype: str) -> list[torch.Tensor]:
    """The mean states of every row alone, (L, D), as transformers computes them."""
    model = load_model(folder, dtype).eval()
    part = model.get_encoder() if model.config.is_encoder_decoder else model
    first = KINDS[kind].first_position
    states = []
    for row in KINDS[kind].rows():
        inputs = {
            name: value.to(part.dtype) if value.is_floating_point() else value
            for name, value in KINDS[kind].inputs(folder, row).items()
        }
        with torch.no_grad():
            layers = part(**inputs, output_hidden_states=True).hidden_states[1:]
        states.append(
            torch.stack([x_BTD[0, first:].float().mean(0) for x_BTD in layers])
        )
    return states


def _largest_error(x_LD: torch.Tensor, expected_LD: torch.Tensor) -> float:
    """The largest ``|x - expected| / |expected|`` of a layer."""
    error_L = (x_LD - expected_LD).norm(dim=-1) / expected_LD.norm(dim=-1)
    return error_L.max().item()
