"""A cache that is expected is the one that comes, but for its states."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import gaam_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.expected import ExpectedCache
from gaam_cache.extraction import rate
from gaam_cache.extraction.estimate import estimate_and_plan
from gaam_cache.format.plan import Plan, read_plan


def test_what_is_expected_of_an_extraction_has_its_plan_and_its_labels(
    tiny_config: ExtractConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rate, "SAMPLE_SECONDS", 0.05)
    _, plan, labels = estimate_and_plan(tiny_config)
    expected = ExpectedCache(tiny_config.out, plan, labels)
    assert not tiny_config.out.exists()
    gaam_cache.extract(tiny_config)
    cache = gaam_cache.open_cache(tiny_config.out)
    assert expected.plan == cache.plan
    assert list(expected) == list(cache)
    for name in cache:
        np.testing.assert_array_equal(expected[name].labels, cache[name].labels)
        mine, right = expected[name].embeddings, cache[name].embeddings
        assert (mine.shape, mine.dtype, mine.stored) == (right.shape, right.dtype, right.stored)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_its_states_are_numbers_as_a_shard_stores_them(dtype: str, tiny_cache: Path) -> None:
    plan: Plan = read_plan(tiny_cache)
    object.__setattr__(plan, "storage_dtype", dtype)
    labels = {name: np.zeros(rows, np.int64) for name, rows in plan.rows.items()}
    split = ExpectedCache(tiny_cache, plan, labels)["train"]
    states = np.asarray(split.embeddings).astype(np.float64)
    assert states.shape == (plan.rows["train"], plan.num_layers, plan.hidden_size)
    assert abs(states.mean()) < 0.1
    assert abs(states.std() - 1) < 0.1
    assert split.embeddings.keeping([0, 2])[5:9].shape == (4, 2, plan.hidden_size)


def test_more_states_than_are_drawn_are_the_same_again(
    tiny_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gaam_cache.expected.DRAWN", 7)
    plan = read_plan(tiny_cache)
    labels = {name: np.zeros(rows, np.int64) for name, rows in plan.rows.items()}
    states = np.asarray(ExpectedCache(tiny_cache, plan, labels)["test"].embeddings).ravel()
    np.testing.assert_array_equal(states, np.resize(states[:7], states.size))
