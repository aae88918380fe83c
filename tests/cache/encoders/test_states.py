"""Cached states against transformers' own hidden states, one text at a time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import gaam_cache
from gaam_cache.config import DEFAULT_ENCODER, ExtractConfig
from gaam_cache.encoders.text import TextEncoder
from tests.conftest import ARCHITECTURES, needs_minilm
from tests.tiny import WORDS, write_csv

TEXTS = [
    "goal",
    "bank star",
    " ".join(WORDS),
    "atom army " * 20,
    "unheard words between treaty and race",
    " ".join(WORDS * 9),  # longer than any maximum used here
    "cup",
    "vote loan " * 7,
]
LABELS = ["a", "b"] * 4


def reference(
    folder: Path, texts: list[str], max_length: int, pool: str = "mean", dtype: str = "float32"
) -> np.ndarray:
    """Pooled ``hidden_states[1:]`` of one text at a time: (N, L, D), written without our code."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
    pooled = []
    for text in texts:
        ids = tokenizer(text, truncation=True, max_length=max_length)["input_ids"]
        with torch.no_grad():
            output = model(input_ids=torch.tensor([ids]), output_hidden_states=True)
        layers = torch.stack(output.hidden_states[1:])[:, 0].double()
        if pool == "mean":
            pooled.append(layers.mean(1))
        elif pool == "last":
            pooled.append(layers[:, -1])
        elif pool == "first":
            pooled.append(layers[:, 0])
        else:
            pooled.append(layers.amax(1))
    return torch.stack(pooled).numpy()


def config_for(encoder: str | Path, tmp_path: Path, texts: list[str] = TEXTS) -> ExtractConfig:
    rows = [(label, text) for label, text in zip(LABELS, texts, strict=False)]
    write_csv(tmp_path / "data" / "train.csv", rows)
    return ExtractConfig(
        encoder=str(encoder),
        dataset=str(tmp_path / "data"),
        splits=("train",),
        storage_dtype="float32",
        out=tmp_path / "cache",
        batch_tokens=100,
        max_length=60,
    )


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_states_equal_transformers_one_text_at_a_time(
    architecture: str, encoders: dict[str, Path], tmp_path: Path
) -> None:
    config = config_for(encoders[architecture], tmp_path)
    summary = gaam_cache.extract(config)
    states = gaam_cache.open_cache(config.out)["train"].embeddings[:]
    expected = reference(encoders[architecture], TEXTS, 60)
    assert summary.truncated == 1
    assert summary.padding_share > 0, "no batch padded: the test shows less than it says"
    assert states.shape == expected.shape
    np.testing.assert_allclose(states, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("architecture", "causal"), [("llama", True), ("gpt2", True), ("bert", False)]
)
def test_probe_finds_out_whether_a_model_is_causal(
    architecture: str, causal: bool, encoders: dict[str, Path], tmp_path: Path
) -> None:
    encoder = TextEncoder.open(config_for(encoders[architecture], tmp_path))
    encoder.load()
    assert (encoder._forward.mask == "never") is causal


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_encoder_stays_near_float32(
    dtype: str, encoders: dict[str, Path], tmp_path: Path
) -> None:
    config = replace(config_for(encoders["bert"], tmp_path), dtype=dtype)
    gaam_cache.extract(config)
    states = gaam_cache.open_cache(config.out)["train"].embeddings[:]
    exact = reference(encoders["bert"], TEXTS, 60)
    error = np.linalg.norm(states - exact) / np.linalg.norm(exact)
    assert 0 < error < {"bfloat16": 3e-2, "float16": 4e-3}[dtype]


@needs_minilm
def test_minilm_equals_transformers(tmp_path: Path) -> None:
    from gaam_cache.encoders._located import locate

    folder = locate(DEFAULT_ENCODER, None).path
    texts = [
        "Club finances under scrutiny as the league opens its books.",
        "Goal!",
        "x",
        "A space agency signs a contract for a lander. " * 12,
        "Naïve café owners in Zürich — 東京 — protest.",
        "word " * 600,
        "Chips",
        "The court ruled on Tuesday that the export ban stands.",
    ]
    config = replace(
        config_for(DEFAULT_ENCODER, tmp_path, texts), max_length=None, batch_tokens=512
    )
    summary = gaam_cache.extract(config)
    states = gaam_cache.open_cache(config.out)["train"].embeddings[:]
    assert (summary.max_length, summary.truncated) == (512, 1)
    np.testing.assert_allclose(states, reference(folder, texts, 512), atol=1e-5, rtol=1e-5)
