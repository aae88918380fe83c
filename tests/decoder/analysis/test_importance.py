"""The importance of layers is that of the attention maps of every seed and row."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file

import gaam_decoder
from gaam_cache import open_cache
from gaam_decoder import RunResult
from gaam_decoder.analysis.importance import (
    importance_factor,
    importance_of,
    layer_contribution,
)
from gaam_decoder.attention import Attention
from gaam_decoder.decoder import build_attention
from gaam_decoder.specs import parse_attention
from tests.decoder.configs import loose_config

SEEDS = (0, 1, 2)


def map_of(attention: Attention, x_LD: torch.Tensor) -> NDArray[np.float64]:
    map_BLD = attention.attention_map(x_LD[None])
    assert map_BLD is not None
    return np.asarray(map_BLD[0])


def mean_map(run: RunResult, cache: Path, place: int) -> NDArray[np.float64]:
    """The mean map of one seed in float64, from its weights and the test rows."""
    x_NLD = torch.from_numpy(open_cache(cache)["test"].embeddings[:]).double()
    spec = parse_attention(run.attention)
    attention = build_attention(spec, *x_NLD.shape[1:]).double()
    prefix = "attention."
    weights = {
        name.removeprefix(prefix): tensor[place]
        for name, tensor in load_file(run.path / "weights.safetensors").items()
        if name.startswith(prefix)
    }
    attention.load_state_dict(weights)
    with torch.inference_mode():
        maps = [map_of(attention, x_LD) for x_LD in x_NLD]
    return np.asarray(np.mean(maps, axis=0))


def weights_by_layer(run: RunResult, cache: Path, place: int) -> NDArray[np.float64]:
    """Weights of layers (L, ...): of maps with queries their means over these."""
    weights = mean_map(run, cache, place)
    # heads, queries, layers
    if weights.ndim == 3:
        return weights.mean((0, 1))[:, None]
    return weights


@pytest.mark.parametrize("name", ["laplace:heads=2", "mha"])
def test_importance_of_a_run_equals_brute_force(
    name: str, tiny_cache: Path, tmp_path: Path
) -> None:
    config = loose_config(
        attn=(name,),
        cache=tiny_cache,
        runs=tmp_path / "runs",
        seeds=SEEDS,
        epochs=3,
        lr=0.05,
        probe=False,
    )
    [run] = gaam_decoder.train(config)
    importance = importance_of([run])
    assert importance is not None
    assert importance.layers == (1, 2, 3, 4, 5, 6)
    factors: list[list[float]] = []
    shares: list[list[float]] = []
    for place in range(len(SEEDS)):
        weights = weights_by_layer(run, tiny_cache, place)
        low = weights.min()
        high = weights.max()
        factors.append([np.mean((layer - low) / (high - low)) for layer in weights])
        shares.append([100 * layer.sum() / weights.sum() for layer in weights])
    np.testing.assert_allclose(importance.factor, np.mean(factors, 0), atol=2e-5)
    np.testing.assert_allclose(importance.contribution, np.mean(shares, 0), atol=2e-4)
    assert importance.factor_sd is not None
    factor_sd = np.std(factors, 0, ddof=1)
    np.testing.assert_allclose(importance.factor_sd, factor_sd, atol=2e-5)
    assert importance.contribution_sd is not None
    share_sd = np.std(shares, 0, ddof=1)
    np.testing.assert_allclose(importance.contribution_sd, share_sd, atol=2e-4)
    assert sum(importance.contribution) == pytest.approx(100)


@pytest.mark.parametrize("value", [0.0, 0.25, 1.0])
def test_a_constant_map_has_no_importance_and_equal_shares(value: float) -> None:
    weights = np.full((2, 4, 3), value, np.float32)
    np.testing.assert_array_equal(importance_factor(weights), 0)
    np.testing.assert_allclose(layer_contribution(weights), 25)


@pytest.mark.parametrize("value", [0.25, 1.0])
def test_the_rounding_of_a_mean_is_no_importance(value: float) -> None:
    weights = np.full((1, 4, 3), value, np.float32)
    weights[0, 2, 1] += np.spacing(np.float32(value))
    np.testing.assert_array_equal(importance_factor(weights), 0)
