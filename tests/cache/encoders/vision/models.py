"""Tiny random image encoders with their families' image processors, and pictures of many kinds."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True, kw_only=True)
class Family:
    """An architecture, and where its patches stand as its publication has it."""

    config: Any
    processor: str
    prefix: int
    """Positions before the patches."""
    sizes: dict[str, Any]
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
    return getattr(transformers, f"{kind}Config")(text_config=TEXT, vision_config=vision)


FAMILIES = {
    "beit": Family(
        config=lambda: transformers.BeitConfig(
            **SMALL, use_relative_position_bias=True, use_mask_token=True
        ),
        processor="BeitImageProcessorPil",
        prefix=1,
        sizes={"size": SQUARE},
    ),
    "vit": Family(
        config=lambda: transformers.ViTConfig(**SMALL),
        processor="ViTImageProcessorPil",
        prefix=1,
        sizes={"size": SQUARE},
    ),
    "dinov2": Family(
        config=lambda: transformers.Dinov2Config(**SMALL | {"image_size": 56}),
        processor="BitImageProcessorPil",
        prefix=1,
        sizes=CROPPED,
    ),
    "dinov2-registers": Family(
        config=lambda: transformers.Dinov2WithRegistersConfig(**SMALL, num_register_tokens=4),
        processor="BitImageProcessorPil",
        prefix=5,
        sizes=CROPPED,
    ),
    "clip": Family(
        config=lambda: _both("CLIP"), processor="CLIPImageProcessorPil", prefix=1, sizes=CROPPED
    ),
    "siglip": Family(
        config=lambda: _both("Siglip"),
        processor="SiglipImageProcessorPil",
        prefix=0,
        sizes={"size": SQUARE},
    ),
    "siglip-vision": Family(
        # 35 pixels: those that fill no patch are left out
        config=lambda: transformers.SiglipVisionConfig(**SMALL | {"image_size": 35}),
        processor="SiglipImageProcessorPil",
        prefix=0,
        sizes={"size": {"height": 35, "width": 35}},
    ),
    "yolos": Family(  # what it detects with stands behind the patches
        config=lambda: transformers.YolosConfig(
            **SMALL | {"image_size": [32, 32]}, num_detection_tokens=5
        ),
        processor="ViTImageProcessorPil",
        prefix=1,
        sizes={"size": SQUARE},
    ),
}
