from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats

import gaam_decoder
from gaam_cache.errors import ConfigError
from gaam_decoder import RunResult, TrainConfig, load_runs
from gaam_decoder.analysis.ablate import choose_layers
from gaam_decoder.analysis.importance import Importance


@pytest.fixture
def config(tiny_cache: Path, tmp_path: Path) -> TrainConfig:
    return TrainConfig(
        attn=("gaam",), cache=tiny_cache, runs=tmp_path / "runs", seeds=(0, 1, 2), epochs=3, lr=0.05
    )


def one(config: TrainConfig) -> RunResult:
    return gaam_decoder.train(config)[0]


def importance(factor: list[float], layers: tuple[int, ...] | None = None) -> Importance:
    return Importance(
        layers=layers or tuple(range(1, len(factor) + 1)),
        seeds=(0,),
        contribution=tuple(factor),
        contribution_sd=None,
        factor=tuple(factor),
        factor_sd=None,
    )


@given(
    st.lists(st.floats(0, 1), min_size=3, max_size=40, unique=True).filter(
        lambda values: max(values) - min(values) > 1e-3
    ),
    st.data(),
)
def test_chosen_layers_are_the_highest_the_lowest_and_others(factor: list, data) -> None:
    count = data.draw(st.integers(1, len(factor) // 2))
    chosen = choose_layers(importance(factor), count, seed=data.draw(st.integers(0, 99)))
    ranked = sorted(range(1, len(factor) + 1), key=lambda layer: factor[layer - 1])
    assert set(chosen["low"]) == set(ranked[:count])
    assert set(chosen["high"]) == set(ranked[-count:])
    assert len(set(chosen["random"])) == count
    assert list(chosen["random"]) == sorted(chosen["random"])
    assert chosen["random"] not in (chosen["low"], chosen["high"])
    if len(factor) >= 3 * count:
        assert not set(chosen["random"]) & {*chosen["low"], *chosen["high"]}


def test_groups_are_trained_on_their_layers_with_the_recipe_and_seeds_of_the_run(
    config: TrainConfig, tmp_path: Path
) -> None:
    like = replace(config, loss="focal:gamma=1.0", head="mlp", weight_decay=0.1, seeds=(0, 1, 7))
    run = one(like)
    result = gaam_decoder.ablate(run.path)
    groups = {group.name: group for group in result.groups}
    assert list(groups) == ["all", "high", "low", "random"]
    assert groups["all"].accuracy == dict(zip(run.seeds, run.accuracy, strict=True))
    ranked = np.argsort(result.importance.factor)
    assert set(groups["high"].layers) == set((ranked[-3:] + 1).tolist())
    for name in ("high", "low", "random"):
        alone = one(replace(like, runs=tmp_path / name, layers=groups[name].layers))
        assert groups[name].accuracy == dict(zip(alone.seeds, alone.accuracy, strict=True))
        there = load_runs(groups[name].runs[0])[0]
        assert (there.key, there.path.parent) == (alone.key, run.path.parent)
    for pair in result.differences():
        first, second = (list(groups[pair[key]].accuracy.values()) for key in ("first", "second"))
        assert pair["seeds"] == [0, 1, 7]
        assert pair["mean"] == pytest.approx(np.mean(first) - np.mean(second))
        if np.ptp(np.subtract(first, second)) > 0:
            interval = scipy_stats.ttest_rel(first, second).confidence_interval(0.95)
            assert pair["ci95"] == pytest.approx(np.clip(interval, -1, 1).tolist())


def test_options_that_do_not_fit_are_told_and_replaced_by_attn(config: TrainConfig) -> None:
    run = one(replace(config, attn=("gaam:heads=3",)))
    with pytest.raises(ConfigError, match=r"heads=3(.|\n)*--attn"):
        gaam_decoder.ablate(run.path)
    assert len(load_runs(config.runs)) == 1
    result = gaam_decoder.ablate(run.path, attn="gaam")
    assert (result.ranked_by, result.attention) == ("gaam:heads=3", "gaam")
    assert len(load_runs(config.runs)) == 4
