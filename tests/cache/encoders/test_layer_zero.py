"""Layer 0, what the first layer reads: its states, its number, and caches without it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

import gaam_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.encoders.text import TextEncoder
from gaam_cache.errors import ConfigError
from gaam_cache.format.plan import read_plan
from tests.cache.encoders.test_states import TEXTS, config_for
from tests.conftest import ARCHITECTURES

POOLS = ("mean", "last", "first", "max")
ZERO = [False, True]


def reference(folder: Path, texts: list[str]) -> dict[str, np.ndarray]:
    """All pooled ``hidden_states`` of one text at a time: (N, L + 1, D) for every pooling."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = transformers.AutoModel.from_pretrained(folder).eval()
    pooled: dict[str, list[torch.Tensor]] = {pool: [] for pool in POOLS}
    for text in texts:
        ids = tokenizer(text, truncation=True, max_length=60)["input_ids"]
        with torch.no_grad():
            output = model(input_ids=torch.tensor([ids]), output_hidden_states=True)
        x_LTD = torch.stack(output.hidden_states)[:, 0].double()
        for pool, of in (
            ("mean", x_LTD.mean(1)),
            ("last", x_LTD[:, -1]),
            ("first", x_LTD[:, 0]),
            ("max", x_LTD.amax(1)),
        ):
            pooled[pool].append(of)
    return {pool: torch.stack(states).numpy() for pool, states in pooled.items()}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_all_hidden_states_are_there_and_the_others_keep_their_bits(
    architecture: str, encoders: dict[str, Path], tmp_path: Path
) -> None:
    config = replace(config_for(encoders[architecture], tmp_path), pool=POOLS)
    gaam_cache.extract(config)
    zero = replace(config, layer_zero=True, out=tmp_path / "zero")
    assert gaam_cache.extract(zero).padding_share > 0
    plain, cache = gaam_cache.open_cache(config.out), gaam_cache.open_cache(zero.out)
    assert (plain.num_layers, plain.first_layer) == (3, 1)
    assert (cache.num_layers, cache.first_layer) == (4, 0)
    expected = reference(encoders[architecture], TEXTS)
    for pool in POOLS:
        states = cache["train"].pooled(pool)[:]
        np.testing.assert_allclose(states, expected[pool], atol=1e-5, rtol=1e-5)
        np.testing.assert_array_equal(states[:, 1:], plain["train"].pooled(pool)[:])
    assert gaam_cache.verify(zero.out, recompute_rows=8).good
    layers = [read_plan(one.out).fingerprint_fields["encoder"]["layers"] for one in (config, zero)]
    assert layers == ["transformers.hidden_states[1:]", "transformers.hidden_states"]
    encoder = TextEncoder.open(zero)
    encoder.load()
    assert encoder._forward.stack is not None, "hooks were not taken"


def test_a_cache_with_layer_zero_is_another_cache(tiny_config: ExtractConfig) -> None:
    gaam_cache.extract(tiny_config)
    with pytest.raises(ConfigError, match=r"encoder\.layers"):
        gaam_cache.extract(replace(tiny_config, layer_zero=True))


@pytest.mark.parametrize("layer_zero", ZERO)
def test_a_dry_run_counts_it(layer_zero: bool, tiny_config: ExtractConfig) -> None:
    config = replace(tiny_config, layer_zero=layer_zero)
    timed = gaam_cache.estimate(config)
    named = gaam_cache.estimate(replace(config, tokens_per_second=1000.0))
    rows = sum(timed.rows.values())
    assert timed.bytes == named.bytes == rows * (3 + layer_zero) * 32 * 2
