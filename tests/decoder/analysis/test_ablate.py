"""Sets of important, unimportant and random layers, trained as the run was."""

from __future__ import annotations

from math import comb
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import gaam_cache
import gaam_decoder
from gaam_cache.common.errors import ConfigError, NotFoundError
from gaam_decoder import RunResult, TrainConfig, load_runs, stats
from gaam_decoder.analysis.ablate import choose_layers
from gaam_decoder.analysis.importance import Importance
from tests.decoder.configs import change, loose_config


@pytest.fixture
def config(tiny_cache: Path, tmp_path: Path) -> TrainConfig:
    return loose_config(
        attn=("gaam",),
        cache=tiny_cache,
        runs=tmp_path / "runs",
        seeds=(0, 1, 2),
        epochs=3,
        lr=0.05,
        probe=False,
    )


def train(config: TrainConfig) -> RunResult:
    [run] = gaam_decoder.train(config)
    return run


def importance_with(factor: list[float]) -> Importance:
    """Layers from 1 with these factors."""
    return Importance(
        layers=tuple(range(1, len(factor) + 1)),
        seeds=(0,),
        contribution=tuple(factor),
        contribution_sd=None,
        factor=tuple(factor),
        factor_sd=None,
    )


def differ(values: list[float]) -> bool:
    return max(values) - min(values) > 1e-3


FACTORS = st.lists(st.floats(0, 1), min_size=3, max_size=40, unique=True).filter(differ)


@given(FACTORS, st.data())
def test_chosen_layers_are_the_highest_the_lowest_and_others(
    factor: list[float], data: st.DataObject
) -> None:
    num_layers = len(factor)
    count = data.draw(st.integers(1, num_layers // 2))
    random_sets = data.draw(st.integers(1, 12))
    seed = data.draw(st.integers(0, 99))
    chosen = choose_layers(importance_with(factor), count, seed, random_sets)
    ranked = sorted(range(1, num_layers + 1), key=lambda layer: factor[layer - 1])
    lowest = ranked[:count]
    highest = ranked[-count:]
    assert set(chosen.pop("low")) == set(lowest)
    assert set(chosen.pop("high")) == set(highest)
    # sets of the layers between, where these are enough
    between = comb(num_layers - 2 * count, count)
    are_enough = between >= random_sets
    possible = between if are_enough else comb(num_layers, count) - 2
    assert len(chosen) == len(set(chosen.values())) == min(random_sets, possible)
    for layers in chosen.values():
        assert len(set(layers)) == count
        assert list(layers) == sorted(layers)
        assert list(layers) not in (sorted(lowest), sorted(highest))
        if are_enough:
            assert not set(layers) & {*lowest, *highest}


def accuracy_by_seed(run: RunResult) -> dict[int, float]:
    return dict(zip(run.seeds, run.accuracy, strict=True))


def test_sets_are_trained_on_their_layers_with_the_recipe_and_seeds_of_the_run(
    config: TrainConfig, tmp_path: Path
) -> None:
    config = change(
        config,
        loss="focal:gamma=1.0",
        head="mlp",
        weight_decay=0.1,
        seeds=(0, 1, 7, 8, 9, 10),
    )
    run = train(config)
    result = gaam_decoder.ablate(run.path, random_sets=4)
    sets = {layer_set.name: layer_set for layer_set in result.layer_sets}
    random_names = [f"random {number}" for number in range(1, 5)]
    assert list(sets) == ["all", "high", "low", *random_names]
    assert "4 sets" in result.in_words()
    assert sets["all"].accuracy == accuracy_by_seed(run)
    ranked = np.argsort(result.importance.factor)
    assert set(sets["high"].layers) == set((ranked[-3:] + 1).tolist())
    for name in ("high", "low", "random 3"):
        layers = sets[name].layers
        alone = train(change(config, runs=tmp_path / name, layers=layers))
        assert sets[name].accuracy == accuracy_by_seed(alone), name
        [set_run] = load_runs(sets[name].runs[0])
        assert set_run.key == alone.key, name
        assert set_run.path.parent.parent == run.path.parent, name

    hits = {
        name: np.stack(list(sets[name].hits.values())).astype(float) for name in sets
    }
    hits["random"] = np.mean([hits[name] for name in random_names], axis=0)
    for (first, second), claim in result.claims().items():
        expected = stats.claim(
            hits[first],
            hits[second],
            train_rows=run.cache.rows["train"],
            groups=result.groups,
        )
        assert claim.difference == pytest.approx(expected.difference)
        assert claim.interval == pytest.approx(expected.interval)
        assert claim.p_holm is not None
        assert expected.p is not None
        assert claim.p_holm >= expected.p
    # nobody recommends a run that was trained on few layers
    assert [run.path for run in load_runs(run.path.parent)] == [run.path]


def test_claims_allow_for_groups_and_few_training_rows_as_a_report_does(
    tmp_path: Path,
) -> None:
    """Each test row stands there four times, in a group, beside few training rows."""
    generator = np.random.default_rng(0)
    label_N = np.arange(60) % 2
    x_NLD = (
        generator.normal(size=(60, 5, 4)).astype(np.float32) + label_N[:, None, None]
    )
    test_N = np.repeat(np.arange(40, 60), 4)
    noise_NLD = 1e-3 * generator.normal(size=(len(test_N), 5, 4))
    speakers = {"train": [f"train {row}" for row in range(40)]}
    speakers["test"] = [f"test {row}" for row in test_N]
    gaam_cache.write(
        tmp_path / "cache",
        {
            "train": (x_NLD[:40], label_N[:40]),
            "test": ((x_NLD[test_N] + noise_NLD).astype(np.float32), label_N[test_N]),
        },
        columns={"speaker": speakers},
    )
    run = train(
        loose_config(
            attn=("gaam:heads=1",),
            cache=tmp_path / "cache",
            runs=tmp_path / "runs",
            groups="speaker",
            val_fraction=0.2,
            seeds=tuple(range(6)),
            epochs=2,
            lr=0.05,
            probe=False,
        )
    )
    result = gaam_decoder.ablate(run.path, num_layers=2, random_sets=1)
    assert result.groups is not None
    assert len(result.groups) == 20
    sets = {layer_set.name: layer_set for layer_set in result.layer_sets}
    high, low = (np.stack(list(sets[name].hits.values())) for name in ("high", "low"))
    expected = stats.claim(high, low, train_rows=40 * 4, groups=test_N)
    claim = result.claims()["high", "low"]
    assert claim.interval == pytest.approx(expected.interval)
    without_groups = stats.claim(high, low)
    assert width(claim) > 1.1 * width(without_groups)


def width(claim: stats.Claim) -> float:
    assert claim.interval is not None
    low, high = claim.interval
    return high - low


def test_a_folder_of_runs_is_refused_with_a_run_in_it(config: TrainConfig) -> None:
    run = train(config)
    with pytest.raises(NotFoundError, match=f"name one of its runs.*{run.path.name}"):
        gaam_decoder.ablate(config.runs)


def test_options_that_do_not_fit_are_told_and_replaced_by_attn(
    config: TrainConfig,
) -> None:
    run = train(change(config, attn=("gaam:heads=3",)))
    with pytest.raises(ConfigError, match=r"heads=3(.|\n)*--attn"):
        gaam_decoder.ablate(run.path)
    assert len(load_runs(config.runs)) == 1
    assert not list(config.runs.glob("ablation/*/run.json"))
    result = gaam_decoder.ablate(run.path, attn="gaam", random_sets=1)
    assert result.ranked_by == "gaam:heads=3"
    # the row of all layers is the run itself, which has another number of heads
    by_name = {layer_set.name: layer_set.attention for layer_set in result.layer_sets}
    assert by_name["all"] == "gaam:heads=3"
    assert by_name["high"] == by_name["low"] == result.attention != "gaam:heads=3"
    [all_line] = [line for line in result.in_words().splitlines() if "  all " in line]
    assert all_line.endswith(", with gaam:heads=3")
    # with the number of heads that fits the layers of a set
    set_runs = load_runs(config.runs / "ablation")
    assert {result.attention} == {run.attention for run in set_runs}
    assert result.attention.startswith("gaam:heads=")
    assert len(load_runs(config.runs / "ablation")) == 3
