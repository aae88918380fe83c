"""Tiny random image encoders with the image processors of their families."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import transformers

SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "image_size": 32,
    "patch_size": 8,
}
TEXT: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 16,
}
SQUARE = {"height": 32, "width": 32}
RESIZED = {"size": SQUARE}
CROPPED = {"size": {"shortest_edge": 36}, "crop_size": SQUARE}
PATCHES = 16


@dataclass(frozen=True)
class Family:
    """An architecture, and where its patches stand as its publication has it."""

    config: Callable[[], Any]
    processor: str
    # positions before the patches
    prefix: int
    # of the image processor
    sizes: dict[str, Any]

    def save(self, folder: Path, seed: int = 0) -> Path:
        """With weights larger than the usual initialisation, so that errors show."""
        save_model(self.config(), folder, seed)
        getattr(transformers, self.processor)(**self.sizes).save_pretrained(folder)
        return folder


def save_model(config: Any, folder: Path, seed: int = 0) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = transformers.AutoModel.from_config(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter += 0.15 * torch.randn_like(parameter)
        model.save_pretrained(folder)


def _text_and_vision_config(kind: str) -> Any:
    """A configuration of a model of texts and pictures."""
    vision = {**SMALL, "projection_dim": 16} if kind == "CLIP" else SMALL
    config_class = getattr(transformers, f"{kind}Config")
    return config_class(text_config=TEXT, vision_config=vision)


FAMILIES = {
    "beit": Family(
        partial(
            transformers.BeitConfig,
            **SMALL,
            use_relative_position_bias=True,
            use_mask_token=True,
        ),
        "BeitImageProcessorPil",
        1,
        RESIZED,
    ),
    "vit": Family(
        partial(transformers.ViTConfig, **SMALL), "ViTImageProcessorPil", 1, RESIZED
    ),
    "dinov2": Family(
        partial(transformers.Dinov2Config, **SMALL | {"image_size": 56}),
        "BitImageProcessorPil",
        1,
        CROPPED,
    ),
    "dinov2-registers": Family(
        partial(transformers.Dinov2WithRegistersConfig, **SMALL, num_register_tokens=4),
        "BitImageProcessorPil",
        5,
        CROPPED,
    ),
    "clip": Family(
        partial(_text_and_vision_config, "CLIP"), "CLIPImageProcessorPil", 1, CROPPED
    ),
    "siglip": Family(
        partial(_text_and_vision_config, "Siglip"),
        "SiglipImageProcessorPil",
        0,
        RESIZED,
    ),
    # 35 pixels: those that fill no patch are left out
    "siglip-vision": Family(
        partial(transformers.SiglipVisionConfig, **SMALL | {"image_size": 35}),
        "SiglipImageProcessorPil",
        0,
        {"size": {"height": 35, "width": 35}},
    ),
    # what it detects with stands behind the patches
    "yolos": Family(
        partial(
            transformers.YolosConfig,
            **SMALL | {"image_size": [32, 32]},
            num_detection_tokens=5,
        ),
        "ViTImageProcessorPil",
        1,
        RESIZED,
    ),
}
