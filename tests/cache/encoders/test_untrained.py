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
from gaam_cache.common.errors import ConfigError
from gaam_cache.config import ExtractConfig
from tests.cache.encoders.test_states import TEXTS, config_for, reference
from tests.conftest import shard_bytes


@pytest.mark.parametrize(("architecture", "seed"), [("bert", None), ("llama", 7)])
def test_states_equal_a_model_built_from_the_configuration(
    architecture: str, seed: int | None, encoders: dict[str, Path], tmp_path: Path
) -> None:
    config = config_for(encoders[architecture], tmp_path)
    gaam_cache.extract(replace(config, untrained_encoder=True, encoder_seed=seed))
    folder = shutil.copytree(encoders[architecture], tmp_path / "reference")
    with torch.random.fork_rng():
        torch.manual_seed(seed or 0)
        model = transformers.AutoModel.from_config(
            transformers.AutoConfig.from_pretrained(folder)
        )
    model.save_pretrained(folder)
    states = gaam_cache.open_cache(config.out)["train"].embeddings[:]
    np.testing.assert_allclose(
        states, reference(folder, TEXTS, 60), atol=1e-5, rtol=1e-5
    )


@pytest.mark.parametrize("seed", [0, 3])
def test_a_seed_of_no_random_weights_is_refused(
    seed: int, tiny_config: ExtractConfig
) -> None:
    changed = replace(tiny_config, encoder_seed=seed)
    for act in (gaam_cache.extract, gaam_cache.estimate):
        with pytest.raises(ConfigError, match=r"encoder-seed.* means nothing"):
            act(changed)
    assert not tiny_config.out.exists()


def test_no_weights_need_be_there_and_whatever_was_drawn_before_bytes_are_equal(
    tiny_config: ExtractConfig, tmp_path: Path
) -> None:
    bare = Path(shutil.copytree(tiny_config.encoder, tmp_path / "bare"))
    (bare / "model.safetensors").unlink()
    first = replace(tiny_config, encoder=str(bare))
    with pytest.raises(ConfigError, match=r"model\.safetensors"):
        gaam_cache.extract(first)
    first = replace(first, untrained_encoder=True)
    second = replace(tiny_config, untrained_encoder=True, out=tmp_path / "b")
    torch.manual_seed(1)
    gaam_cache.extract(first)
    torch.manual_seed(2)
    state = torch.random.get_rng_state()
    gaam_cache.extract(second)
    assert torch.equal(state, torch.random.get_rng_state())
    shards = {
        name: x for name, x in shard_bytes(first.out).items() if name != "cache.json"
    }
    assert shards.items() <= shard_bytes(second.out).items()
