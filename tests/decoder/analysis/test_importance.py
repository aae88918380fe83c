from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import gaam_decoder
from gaam_cache import open_cache
from gaam_decoder import RunResult, TrainConfig
from gaam_decoder.analysis.importance import (
    importance_factor,
    importance_of,
    layer_contribution,
)
from gaam_decoder.decoder import build_attention
from gaam_decoder.specs import parse_attention


@pytest.fixture
def config(tiny_cache: Path, tmp_path: Path) -> TrainConfig:
    return TrainConfig(
        attn=("gaam",),
        cache=tiny_cache,
        runs=tmp_path / "runs",
        seeds=(0, 1, 2),
        epochs=3,
        lr=0.05,
        probe=False,
    )


def one(config: TrainConfig) -> RunResult:
    return gaam_decoder.train(config)[0]


def mean_map(run: RunResult, cache: Path, place: int) -> np.ndarray:
    """The mean map of one seed in float64, from its weights and the test rows."""
    x = torch.from_numpy(open_cache(cache)["test"].embeddings[:]).double()
    attention = build_attention(parse_attention(run.attention), *x.shape[1:]).double()
    stored = load_file(run.path / "weights.safetensors")
    prefix = "attention."
    attention.load_state_dict(
        {
            k.removeprefix(prefix): v[place]
            for k, v in stored.items()
            if k.startswith(prefix)
        }
    )
    with torch.inference_mode():
        return np.mean(
            [attention.attention_map(row[None])[0].numpy() for row in x], axis=0
        )


@pytest.mark.parametrize("name", ["laplace:heads=2", "mha"])
def test_importance_of_a_run_equals_brute_force(
    name: str, config: TrainConfig, tiny_cache: Path
) -> None:
    run = one(replace(config, attn=(name,)))
    found = importance_of([run])
    assert found is not None
    factors, shares = [], []
    for place in range(3):
        weights = mean_map(run, tiny_cache, place)
        if weights.ndim == 3:  # heads, queries, layers
            weights = np.array([[weights[:, :, layer].mean()] for layer in range(6)])
        low, high = weights.min(), weights.max()
        factors.append(
            [np.mean([(w - low) / (high - low) for w in row]) for row in weights]
        )
        shares.append([100 * row.sum() / weights.sum() for row in weights])
    np.testing.assert_allclose(found.factor, np.mean(factors, 0), atol=2e-5)
    np.testing.assert_allclose(found.contribution, np.mean(shares, 0), atol=2e-4)
    assert found.factor_sd is not None
    assert found.contribution_sd is not None
    np.testing.assert_allclose(found.factor_sd, np.std(factors, 0, ddof=1), atol=2e-5)
    np.testing.assert_allclose(
        found.contribution_sd, np.std(shares, 0, ddof=1), atol=2e-4
    )
    assert sum(found.contribution) == pytest.approx(100)
    assert found.layers == (1, 2, 3, 4, 5, 6)


def test_a_constant_map_has_no_importance_and_equal_shares() -> None:
    for value in (0.0, 0.25, 1.0):
        weights = np.full((2, 4, 3), value, np.float32)
        np.testing.assert_array_equal(importance_factor(weights), 0)
        np.testing.assert_allclose(layer_contribution(weights), 25)
        weights[1, 2, 1] += np.spacing(
            np.float32(value)
        )  # rounding of a mean, not a finding
        np.testing.assert_array_equal(
            importance_factor(weights[1:] if value else weights[:1]), 0
        )
