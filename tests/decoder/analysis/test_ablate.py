from __future__ import annotations

from dataclasses import replace
from math import comb
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gaam_decoder
from gaam_cache.common.errors import ConfigError
from gaam_decoder import RunResult, TrainConfig, load_runs, stats
from gaam_decoder.analysis.ablate import choose_layers
from gaam_decoder.analysis.importance import Importance


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


def importance(
    factor: list[float], layers: tuple[int, ...] | None = None
) -> Importance:
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
def test_chosen_layers_are_the_highest_the_lowest_and_others(
    factor: list, data
) -> None:
    count = data.draw(st.integers(1, len(factor) // 2))
    number = data.draw(st.integers(1, 12))
    chosen = choose_layers(
        importance(factor), count, data.draw(st.integers(0, 99)), number
    )
    ranked = sorted(range(1, len(factor) + 1), key=lambda layer: factor[layer - 1])
    assert set(chosen.pop("low")) == set(ranked[:count])
    assert set(chosen.pop("high")) == set(ranked[-count:])
    beside = {tuple(sorted(ranked[:count])), tuple(sorted(ranked[-count:]))}
    between = comb(len(factor) - 2 * count, count)
    possible = between if between >= number else comb(len(factor), count) - 2
    assert len(chosen) == len(set(chosen.values())) == min(number, possible)
    for layers in chosen.values():
        assert len(set(layers)) == count
        assert list(layers) == sorted(layers)
        assert layers not in beside
        if between >= number:
            assert not set(layers) & set(ranked[:count] + ranked[-count:])


def test_sets_are_trained_on_their_layers_with_the_recipe_and_seeds_of_the_run(
    config: TrainConfig, tmp_path: Path
) -> None:
    seeds = (0, 1, 7, 8, 9, 10)
    like = replace(
        config, loss="focal:gamma=1.0", head="mlp", weight_decay=0.1, seeds=seeds
    )
    run = one(like)
    result = gaam_decoder.ablate(run.path, random_sets=4)
    sets = {layer_set.name: layer_set for layer_set in result.layer_sets}
    assert list(sets) == ["all", "high", "low", *(f"random {n}" for n in range(1, 5))]
    assert sets["all"].accuracy == dict(zip(run.seeds, run.accuracy, strict=True))
    ranked = np.argsort(result.importance.factor)
    assert set(sets["high"].layers) == set((ranked[-3:] + 1).tolist())
    for name in ("high", "low", "random 3"):
        alone = one(replace(like, runs=tmp_path / name, layers=sets[name].layers))
        assert sets[name].accuracy == dict(
            zip(alone.seeds, alone.accuracy, strict=True)
        )
        there = load_runs(sets[name].runs[0])[0]
        assert (there.key, there.path.parent.parent) == (alone.key, run.path.parent)
    claims = result.claims()
    hits = {
        name: np.stack(list(sets[name].hits.values())).astype(float) for name in sets
    }
    hits["random"] = np.mean([hits[f"random {n}"] for n in range(1, 5)], axis=0)
    for (first, second), claim in claims.items():
        alone = stats.claim(hits[first], hits[second])
        assert claim.difference == pytest.approx(alone.difference)
        assert claim.interval == pytest.approx(alone.interval)
        assert claim.p_holm >= alone.p
    # what was trained on few layers is no run that anybody recommends
    assert [found.path for found in load_runs(run.path.parent)] == [run.path]
    assert "4 sets" in result.in_words()


def test_options_that_do_not_fit_are_told_and_replaced_by_attn(
    config: TrainConfig,
) -> None:
    run = one(replace(config, attn=("gaam:heads=3",)))
    with pytest.raises(ConfigError, match=r"heads=3(.|\n)*--attn"):
        gaam_decoder.ablate(run.path)
    assert len(load_runs(config.runs)) == 1
    assert not list(config.runs.glob("ablation/*/run.json"))
    result = gaam_decoder.ablate(run.path, attn="gaam", random_sets=1)
    assert (result.ranked_by, result.attention) == ("gaam:heads=3", "gaam")
    assert len(load_runs(config.runs / "ablation")) == 3
