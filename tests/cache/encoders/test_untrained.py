"""Random weights as a control: the states of the architecture's own initialisation."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import gaam_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.errors import ConfigError
from tests.cache.encoders.test_states import TEXTS, config_for, reference
from tests.conftest import ARCHITECTURES, shard_bytes


def untrained(config: ExtractConfig, seed: int | None = None) -> ExtractConfig:
    return replace(config, untrained_encoder=True, encoder_seed=seed)


def saved_reference(encoder: Path, seed: int, folder: Path) -> Path:
    """A model of transformers' own, built from the configuration under a seed, with tokenizer."""
    shutil.copytree(encoder, folder)
    (folder / "model.safetensors").unlink()
    config = transformers.AutoConfig.from_pretrained(encoder)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = transformers.AutoModel.from_config(config)
    model.save_pretrained(folder, safe_serialization=True)
    return folder


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("seed", [None, 7])
def test_states_equal_a_model_built_from_the_configuration(
    architecture: str, seed: int | None, encoders: dict[str, Path], tmp_path: Path
) -> None:
    config = untrained(config_for(encoders[architecture], tmp_path), seed)
    summary = gaam_cache.extract(config)
    assert summary.padding_share > 0
    folder = saved_reference(encoders[architecture], seed or 0, tmp_path / "reference")
    states = gaam_cache.open_cache(config.out)["train"].embeddings[:]
    np.testing.assert_allclose(states, reference(folder, TEXTS, 60), atol=1e-5, rtol=1e-5)


def test_two_extractions_give_equal_bytes_whatever_was_drawn_before(
    tiny_config: ExtractConfig, tmp_path: Path
) -> None:
    first, second = (replace(untrained(tiny_config), out=tmp_path / name) for name in "ab")
    torch.manual_seed(1)
    gaam_cache.extract(first)
    torch.manual_seed(2)
    state = torch.random.get_rng_state()
    gaam_cache.extract(second)
    assert torch.equal(state, torch.random.get_rng_state())
    assert shard_bytes(first.out) == shard_bytes(second.out)


def test_no_weights_need_be_there(
    tiny_config: ExtractConfig, encoders: dict[str, Path], tmp_path: Path
) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(encoders["bert"], bare)
    (bare / "model.safetensors").unlink()
    config = replace(tiny_config, encoder=str(bare))
    with pytest.raises(ConfigError, match="no safetensors"):
        gaam_cache.extract(config)
    summary = gaam_cache.extract(untrained(config))
    there = gaam_cache.extract(untrained(replace(tiny_config, out=tmp_path / "with")))
    assert summary.fingerprint == there.fingerprint
