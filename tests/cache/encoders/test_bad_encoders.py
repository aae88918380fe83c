"""An encoder's settings from elsewhere may be anything: each is right or one message."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.text import TextEncoder
from gaam_cache.errors import GaamError

KEYS = ("config.json", "model_type"), ("config.json", "num_hidden_layers"), (
    "config.json", "hidden_size"), ("config.json", "num_attention_heads"), (
    "config.json", "max_position_embeddings"), ("config.json", "pad_token_id"), (
    "config.json", "dtype"), ("config.json", "tie_word_embeddings"), (
    "config.json", "attn_implementation"), ("config.json", "is_encoder_decoder"), (
    "config.json", "quantization_config"), ("config.json", "text_config"), (
    "tokenizer_config.json", "model_max_length"), (
    "tokenizer_config.json", "tokenizer_class"), ("tokenizer_config.json", "pad_token"), (
    "tokenizer_config.json", "padding_side")  # fmt: skip
VALUES: list[Any] = [0, -1, 5, 99999, 2.5, "64", "nonsense/kernel", [3], {"a": 1}, True, None]


@pytest.mark.parametrize("untrained", [False, True], ids=["trained", "untrained"])
@pytest.mark.parametrize(("file", "key"), KEYS)
def test_every_setting_is_right_or_one_message(
    file: str, key: str, untrained: bool, encoders: dict[str, Path], tmp_path: Path
) -> None:
    folder = tmp_path / "encoder"
    shutil.copytree(encoders["bert"], folder)
    path = folder / file
    content = json.loads(path.read_text())
    for value in VALUES:
        if value == 99999 and key in {"hidden_size", "num_hidden_layers"}:
            continue  # weights of that size could be drawn
        path.write_text(json.dumps(content | {key: value}))
        config = ExtractConfig(encoder=str(folder), untrained_encoder=untrained)
        with suppress(GaamError):
            encoder = TextEncoder.open(config)
            encoder.load()
            encoder.encode(encoder.prepare(["goal bank", "star"]).items)
