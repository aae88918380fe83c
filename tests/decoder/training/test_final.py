"""Final models beside what is evaluated: which there are, when, and of which recipe."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gaam_cache
import gaam_decoder
import gaam_decoder.inspect
from gaam_cache.cache import open_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.errors import ConfigError, GaamWarning
from gaam_cache.store.digest import sealed_text, unsealed
from gaam_decoder import RunResult, TrainConfig
from gaam_decoder.runs.listing import verify
from gaam_decoder.runs.result import TEST_FILE, WEIGHTS_FILE, read_run
from tests.conftest import build_encoder, random_rows, write_csv


@pytest.fixture
def config(tiny_cache: Path, tmp_path: Path) -> TrainConfig:
    return TrainConfig(
        attn=("gaam",), cache=tiny_cache, runs=tmp_path / "runs", seeds=(0, 1), epochs=2, lr=0.01
    )


@pytest.mark.parametrize("folds", [None, 3])
def test_final_adds_one_model_after_what_is_evaluated(
    folds: int | None, config: TrainConfig
) -> None:
    config = replace(config, attn=("gaam", "none"), folds=folds, final=True, probe=True)
    estimate = gaam_decoder.estimate(config)
    assert not list(config.runs.rglob("*"))
    finished: list[RunResult] = []
    runs = gaam_decoder.train(config, on_run=finished.append)
    assert [run.path for run in finished] == [run.path for run in runs]
    assert [run.evaluated for run in runs] == [True] * (3 * (folds or 1)) + [False] * 2
    assert [(run.attention, run.head) for run in runs[-2:]] == [
        ("gaam", "linear"),
        ("none", "linear"),  # and none of the probe
    ]
    assert [run.title for run in estimate.runs] == [run.title for run in runs]
    assert estimate.trainings == sum(len(run.seeds) for run in runs)
    assert estimate.in_words().count("final model") == 2
    alone = replace(config, final=False, folds=None, test_split="none")
    for again in (config, alone):
        kept = gaam_decoder.train(again, on_run=lambda run: pytest.fail("trained again"))
        assert [run.path for run in kept if not run.evaluated] == [run.path for run in runs[-2:]]
    assert gaam_decoder.estimate(config).trainings == 0


def test_a_final_model_has_all_rows_of_train_and_those_of_folds_do_not(
    config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gaam_decoder.training import seed_groups

    seen: list[tuple[bool, int, int | None, int | None]] = []
    prepare = seed_groups.prepare_data

    def watched(cache: Any, recipe: Any, *rest: Any) -> Any:
        data = prepare(cache, recipe, *rest)
        counts = [None if part is None else len(part) for part in (data.selection, data.test)]
        seen.append((recipe.final, len(data.train), counts[0], counts[1]))
        return data

    monkeypatch.setattr(seed_groups, "prepare_data", watched)
    rows = len(open_cache(config.cache)["train"])
    gaam_decoder.train(replace(config, folds=3, final=True, select="last"))
    assert seen == [(False, rows * 2 // 3, None, rows // 3)] * 3 + [(True, rows, None, None)]
    seen.clear()
    gaam_decoder.train(replace(config, folds=3, final=True))
    assert seen[-1][0]
    assert seen[-1][1] + (seen[-1][2] or 0) == rows
    assert seen[-1][3] is None


def test_what_only_decides_test_rows_is_not_in_a_final_recipe(
    config: TrainConfig, tmp_path: Path
) -> None:
    """Groups, repeats and split seeds of folds: one final model of all, under one key.

    Groups decide which rows choose, where any do: then it is another.
    """
    groups = tmp_path / "groups.txt"
    groups.write_text("".join(f"{row // 4}\n" for row in range(60)))
    ways: list[dict[str, Any]] = [
        {"folds": 2},
        {"folds": 3, "groups": groups},
        {"folds": 2, "repeats": 2},
        {"folds": 2, "fold": 2},
        {"test_split": "train", "allow_train_as_test": True},
        {},
    ]
    for select in ("val", "last"):
        more = [{"folds": 2, "split_seed": 5}] if select == "last" else []
        keys: dict[bool, set[str]] = {}
        for way in ways + more:
            runs = gaam_decoder.train(replace(config, final=True, select=select, **way))
            (final,) = (run for run in runs if not run.evaluated)
            keys.setdefault("groups" in final.recipe, set()).add(final.key)
            assert ("groups" in final.recipe) == ("groups" in way and select == "val")
            assert final.recipe["fold"] is None
            assert final.recipe["allow_train_as_test"] is False
        assert all(len(same) == 1 for same in keys.values())
        assert len(set().union(*keys.values())) == len(keys)


@pytest.mark.parametrize("folds", [None, 2])
def test_of_a_grid_only_what_validation_chose_becomes_a_final_model(
    folds: int | None, config: TrainConfig
) -> None:
    """Of folds, by the mean over all of them, whatever each of them has chosen."""
    rates = (1e-4, 1e-2, 3e-2)
    config = replace(config, lr=rates, tune_seeds=(7, 8), folds=folds, val_fraction=0.3, final=True)
    estimate = gaam_decoder.estimate(config)
    runs = gaam_decoder.train(config)
    tuned = [run for run in runs if run.seeds == (7, 8)]
    assert all(run.evaluated for run in tuned)
    scores = {}
    for rate in rates:
        kept = [
            e for run in tuned for e in run.log
            if run.recipe["lr"] == rate and e["epoch"] == run.epochs[e["seed"]]
        ]  # fmt: skip
        assert len(kept) == 2 * (folds or 1)
        of = np.mean([e["accuracy"] for e in kept]), -np.mean([e["selection_loss"] for e in kept])
        scores[of] = rate
    (final,) = (run for run in runs if not run.evaluated)
    assert (final.recipe["lr"], final.seeds) == (scores[max(scores)], (0, 1))
    assert runs[-1].path == final.path
    planned = [run for run in estimate.runs if "final model" in run.title]
    assert [(run.candidates, len(run.seeds)) for run in planned] == [(3, 2)]
    assert estimate.trainings == sum(len(run.seeds) for run in runs)
    again = gaam_decoder.train(config, on_run=lambda run: pytest.fail("trained again"))
    assert [run.path for run in again] == [run.path for run in runs]
    tables = gaam_decoder.report(config.runs).tables
    [[shown]] = [table.finals for table in tables if table.finals]
    assert [one.seeds for one in shown.expected] == [(0, 1)]


def test_where_no_rate_was_finished_in_all_folds_the_final_model_is_left_out(
    config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gaam_decoder.training import finals

    monkeypatch.setattr(finals, "mean_validation", lambda runs, seeds: (None, 0.0))
    config = replace(config, lr=(1e-3, 1e-2), tune_seeds=(7, 8), folds=2, final=True)
    with pytest.warns(GaamWarning, match="left out: gaam .*final model: no rate was finished by"):
        runs = gaam_decoder.train(config)
    assert all(run.evaluated for run in runs)
    assert any(run.seeds == (0, 1) for run in runs)


def test_tuned_without_test_rows_the_final_models_validate_themselves(config: TrainConfig) -> None:
    config = replace(config, lr=(1e-4, 3e-2), tune_seeds=(7, 8), test_split="none")
    runs = gaam_decoder.train(config)
    assert [run.seeds for run in runs] == [(7, 8), (7, 8), (0, 1)]
    assert not any(run.evaluated for run in runs)
    [table] = gaam_decoder.report(runs).tables
    assert [final.seeds for final in table.finals] == [(0, 1)]


@pytest.mark.parametrize("after", [1, 2, 3])
def test_interrupted_after_any_run_and_called_again_it_is_the_same(
    after: int, config: TrainConfig, tmp_path: Path
) -> None:
    config = replace(config, folds=2, final=True)
    whole = gaam_decoder.train(replace(config, runs=tmp_path / "whole"))
    count = 0

    def stop(run: RunResult) -> None:
        nonlocal count
        count += 1
        if count == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gaam_decoder.train(config, on_run=stop)
    runs = gaam_decoder.train(config)
    for mine, theirs in zip(runs, whole, strict=True):
        for name in (TEST_FILE, WEIGHTS_FILE):
            assert (mine.path / name).read_bytes() == (theirs.path / name).read_bytes()


def test_seeds_that_wait_for_others_of_a_final_model_are_kept(
    config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill between two groups: what is finished has logits of no rows, and is read again."""
    from gaam_decoder.training import seed_groups

    config = replace(config, test_split="none", seed_batch=1)
    trained: list[int] = []
    train_group = seed_groups.train_group

    def watched(spec: Any, data: Any, recipe: Any, seeds: Any, **rest: Any) -> Any:
        if trained == [0]:
            trained.append(-1)
            raise KeyboardInterrupt
        trained.extend(seeds)
        return train_group(spec, data, recipe, seeds, **rest)

    monkeypatch.setattr(seed_groups, "train_group", watched)
    with pytest.raises(KeyboardInterrupt):
        gaam_decoder.train(config)
    said = gaam_decoder.inspect.inspect(config.runs).in_words()
    assert "final model: 1 of 2 seeds finished" in said
    (run,) = gaam_decoder.train(config)
    assert trained == [0, -1, 1]
    assert run.seeds == (0, 1)
    assert verify(config.runs).good


@pytest.mark.slow  # workers are processes, and import torch
def test_workers_train_final_models_as_one_process_does(
    config: TrainConfig, tmp_path: Path, engine: str
) -> None:
    config = replace(config, attn=("gaam", "none"), folds=2, final=True)
    alone = gaam_decoder.train(replace(config, runs=tmp_path / "alone"))
    shared = gaam_decoder.train(replace(config, engine=engine, devices="2", seed_batch=2))
    assert [run.key for run in alone] == [run.key for run in shared]
    for mine, theirs in zip(shared, alone, strict=True):
        for name in (TEST_FILE, WEIGHTS_FILE):
            assert (mine.path / name).read_bytes() == (theirs.path / name).read_bytes()


@pytest.mark.parametrize(
    "given",
    [
        {"test_split": "none", "final": True},
        {"test_split": "none", "allow_train_as_test": True},
        *(
            {**asked, **other}
            for asked in ({"test_split": "none"}, {"final": True})
            for other in ({"select": "test"}, {"shuffle_labels": True})
        ),
        {"final": True, "folds": 3, "select": "test"},
        {"test_split": "none", "folds": 3},
        {"test_split": "none", "repeats": 2},
        {"test_split": "none", "groups": "session", "select": "last"},
        {"test_split": "none", "select": "last", "split_seed": 3},
        {"final": True, "train_split": "test", "test_split": "test"},
    ],
)
def test_what_a_final_model_cannot_go_with_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError) as refused:
        TrainConfig(**given)
    assert "expected" in refused.value.details
    assert "found" in refused.value.details


@pytest.fixture(scope="module")
def odd_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a split that is called none."""
    root = tmp_path_factory.mktemp("odd")
    for seed, split in enumerate(("train", "none", "other")):
        write_csv(root / "data" / f"{split}.csv", random_rows(30, seed))
    encoder = build_encoder(root / "encoder", "bert", num_layers=2)
    config = ExtractConfig(
        encoder=str(encoder),
        dataset=str(root / "data"),
        out=root / "cache",
        splits=("train", "none", "other"),
    )
    gaam_cache.extract(config)
    return config.out


def test_a_split_that_is_called_none_is_never_taken_for_no_split(
    odd_cache: Path, config: TrainConfig
) -> None:
    odd = replace(config, cache=odd_cache)
    for given in ({"test_split": "none"}, {"final": True, "test_split": "other"}):
        with pytest.raises(ConfigError, match="split 'none', which means no split") as refused:
            gaam_decoder.train(replace(odd, **given))
        assert refused.value.details["to do"]
        with pytest.raises(ConfigError, match="split 'none', which means no split"):
            gaam_decoder.estimate(replace(odd, **given))
    for given in ({"test_split": "other"}, {"folds": 2}, {"train_split": "none", "folds": 2}):
        assert all(run.evaluated for run in gaam_decoder.train(replace(odd, **given)))


def test_a_run_that_an_earlier_version_tested_on_such_a_split_is_evaluated(
    odd_cache: Path, config: TrainConfig
) -> None:
    (run,) = gaam_decoder.train(replace(config, cache=odd_cache, test_split="other"))
    content = unsealed(json.loads((run.path / "run.json").read_text()))
    content["recipe"]["test_split"] = "none"
    (run.path / "run.json").write_text(sealed_text(content))
    again = read_run(run.path)
    assert again.evaluated
    assert "final" not in again.title
    np.testing.assert_array_equal(again.accuracy, run.accuracy)


def test_without_a_test_split_there_is_still_a_final_model(
    config: TrainConfig, tmp_path: Path, encoders: dict[str, Path]
) -> None:
    write_csv(tmp_path / "data" / "train.csv", random_rows(30, 1))
    gaam_cache.extract(
        ExtractConfig(
            encoder=str(encoders["bert"]),
            dataset=str(tmp_path / "data"),
            out=tmp_path / "cache",
            splits=("train",),
        )
    )
    lone = replace(config, cache=tmp_path / "cache")
    with pytest.raises(ConfigError, match="no split 'test'"):
        gaam_decoder.train(lone)
    (final,) = gaam_decoder.train(replace(lone, test_split="none"))
    assert not final.evaluated
    assert verify(final.path).good
    assert [run.evaluated for run in gaam_decoder.train(replace(lone, folds=2, final=True))] == [
        True,
        True,
        False,
    ]
