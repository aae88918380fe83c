"""An encoder's settings from elsewhere may be anything: each is right or one message."""

from __future__ import annotations

import json
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import gaam_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders._text.tokens import Tokens
from gaam_cache.encoders.text import TextEncoder
from gaam_cache.errors import ConfigError, GaamError

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


def test_a_maximum_leaves_something_of_a_text(tiny_config: ExtractConfig) -> None:
    for length in (1, 2):
        with pytest.raises(ConfigError, match="at least 3"):
            gaam_cache.extract(replace(tiny_config, max_length=length))
    assert not tiny_config.out.exists()
    gaam_cache.extract(replace(tiny_config, max_length=3))
    cache = gaam_cache.open_cache(tiny_config.out)
    assert cache["train"].num_tokens.max() == 3
    assert cache["train"].embeddings[:].shape[0] == len(cache["train"])


def test_a_tokenizer_that_cuts_nothing_is_refused(
    tiny_config: ExtractConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    encoder = TextEncoder.open(tiny_config)
    monkeypatch.setattr(Tokens, "ids", lambda _, rows, max_length=None: [[5] * 999 for _ in rows])
    with pytest.raises(ConfigError, match="does not cut"):
        encoder.prepare(["goal"])
