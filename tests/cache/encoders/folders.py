"""Folders with tiny encoders in them, changed in one thing; and what is made of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME as INDEX
from transformers.utils import SAFE_WEIGHTS_NAME as WEIGHTS

from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.text import TextEncoder

TEXTS = [
    "goal",
    "bank star vote cup loan",
    "atom army goal team price robot treaty race",
]
State = dict[str, Tensor]


def opened(folder: Path, **options: Any) -> TextEncoder:
    return TextEncoder.open(ExtractConfig(encoder=str(folder), device="cpu", **options))


def states(folder: Path) -> np.ndarray:
    """Mean states of every layer and text: (N, L, D)."""
    encoder = opened(folder)
    encoder.load()
    items = encoder.prepare(TEXTS).items
    return np.concatenate([encoder.encode([item])["mean"].numpy() for item in items])


def states_of(model: Any, folder: Path) -> np.ndarray:
    """The same by transformers alone."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    return np.stack([pooled(model, tokenizer(text)["input_ids"]) for text in TEXTS])


@torch.no_grad()
def pooled(model: Any, ids: list[int]) -> np.ndarray:
    output = model.eval()(input_ids=torch.tensor([ids]), output_hidden_states=True)
    return torch.stack(output.hidden_states[1:])[:, 0].mean(1).numpy()


def change_weights(folder: Path, change: Callable[[State], State]) -> None:
    tensors = change(load_file(folder / WEIGHTS))
    tensors = {name: tensor.contiguous() for name, tensor in tensors.items()}
    save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})


def change_json(file: Path, **values: Any) -> None:
    content = json.loads(file.read_text()) if file.exists() else {}
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps(content | values))


def split_weights(folder: Path) -> dict[str, str]:
    """Two weight files with an index; returns its map."""
    weights = load_file(folder / WEIGHTS)
    (folder / WEIGHTS).unlink()
    weight_map: dict[str, str] = {}
    for part in (0, 1):
        name = f"model-{part + 1:05d}-of-00002.safetensors"
        some = {key: weights[key] for key in sorted(weights)[part::2]}
        save_file(some, folder / name, metadata={"format": "pt"})
        weight_map |= dict.fromkeys(some, name)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return weight_map
