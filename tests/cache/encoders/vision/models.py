"""Tiny random image encoders with their families' image processors, and pictures of many kinds."""

from __future__ import annotations

from dataclasses import dataclass, field
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
TEXT = {
    "vocab_size": 64,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 16,
}
SQUARE = {"height": 32, "width": 32}
CROPPED = {"size": {"shortest_edge": 36}, "crop_size": SQUARE}
PATCHES = 16


@dataclass(frozen=True)
class Family:
    """An architecture, and where its patches stand as its publication has it."""

    config: Any
    processor: str
    prefix: int
    """Positions before the patches."""
    sizes: dict[str, Any] = field(default_factory=lambda: {"size": SQUARE})
    """Of the image processor."""

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


def _both(kind: str) -> Any:
    """A configuration of a model of texts and pictures."""
    vision = {**SMALL, "projection_dim": 16} if kind == "CLIP" else SMALL
    return getattr(transformers, f"{kind}Config")(
        text_config=TEXT, vision_config=vision
    )


FAMILIES = {
    "beit": Family(
        lambda: transformers.BeitConfig(
            **SMALL, use_relative_position_bias=True, use_mask_token=True
        ),
        "BeitImageProcessorPil", 1,
    ),
    "vit": Family(lambda: transformers.ViTConfig(**SMALL), "ViTImageProcessorPil", 1),
    "dinov2": Family(
        lambda: transformers.Dinov2Config(**SMALL | {"image_size": 56}),
        "BitImageProcessorPil", 1, CROPPED,
    ),
    "dinov2-registers": Family(
        lambda: transformers.Dinov2WithRegistersConfig(**SMALL, num_register_tokens=4),
        "BitImageProcessorPil", 5, CROPPED,
    ),
    "clip": Family(lambda: _both("CLIP"), "CLIPImageProcessorPil", 1, CROPPED),
    "siglip": Family(lambda: _both("Siglip"), "SiglipImageProcessorPil", 0),
    "siglip-vision": Family(  # 35 pixels: those that fill no patch are left out
        lambda: transformers.SiglipVisionConfig(**SMALL | {"image_size": 35}),
        "SiglipImageProcessorPil", 0, {"size": {"height": 35, "width": 35}},
    ),
    "yolos": Family(  # what it detects with stands behind the patches
        lambda: transformers.YolosConfig(
            **SMALL | {"image_size": [32, 32]}, num_detection_tokens=5
        ),
        "ViTImageProcessorPil", 1,
    ),
}  # fmt: skip
