"""Runs as a DataFrame: a row per seed, whatever kind of run it is, with sane types."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import gaam_decoder
from gaam_cache.store.files import read_json
from gaam_decoder import RunResult, Runs, load_runs
from gaam_decoder.runs.tuning import first_run_by_seed
from tests.decoder.configs import change, train_config

KINDS: dict[str, dict[str, Any]] = {
    "folds": {"folds": 2},
    "fitted": {"attn": "none", "head": "lbfgs"},
    "failed": {"lr": 1e30},
    "without validation": {"select": "last"},
    "tuned": {"lr": (0.01, 0.1), "tune_seeds": (5,)},
    "final": {"test_split": "none"},
    "other seeds": {"seeds": (3, 4)},
    "usual": {},
    "small batches": {"batch_size": 7},
}


@pytest.fixture(scope="module")
def runs(tiny_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Runs of every kind, one of them twice."""
    folder = tmp_path_factory.mktemp("frame") / "runs"
    config = train_config(
        tiny_cache,
        folder,
        lr=3e-4,
        seeds=(0, 3),
        epochs=2,
        compile="off",
        device="cpu",
    )
    for settings in KINDS.values():
        gaam_decoder.train(change(config, **settings))
    run = next(folder.glob("gaam*"))
    shutil.copytree(run, run.with_name(f"copy-{run.name}"))
    return load_runs(folder)


@pytest.fixture(scope="module")
def table(runs: Runs) -> pandas.DataFrame:
    return runs.to_frame()


def test_a_run_has_the_recipe_and_the_cache_of_its_record(runs: Runs) -> None:
    for run in runs:
        record = read_json(run.path / "run.json")
        assert run.recipe.to_dict() == run.settings == record["recipe"]
        assert run.cache.to_dict() == record["cache"]


def test_a_table_without_rows_has_the_same_types(table: pandas.DataFrame) -> None:
    assert (Runs().to_frame().dtypes == table.dtypes).all()


def test_every_decoder_has_a_name_of_its_own(
    runs: Runs, table: pandas.DataFrame
) -> None:
    decoders = {run.key for run in runs if run.recipe.val_folds is None}
    rows = table.loc[table["key"].isin(decoders)]
    keys_by_name = rows.groupby("decoder", observed=True)["key"]
    assert keys_by_name.nunique().eq(1).all()
    assert len(keys_by_name) == len(decoders)
    expected = "gaam:heads=2 + linear, pool mean, lr 0.0003, batch size 7, select val"
    assert expected in set(table["decoder"])


def check_row(row: dict[Any, Any], run: RunResult, seed: int) -> None:
    """A row has what its run has of a seed."""
    assert row["run"] == run.path.name
    assert row["seed"] == seed
    assert row["key"] == run.key
    if seed in run.failed:
        assert row["failed"] == run.failed[seed]
        for name in ("accuracy", "macro_f1", "selection_accuracy"):
            assert np.isnan(row[name]), name
        return
    assert row["evaluated"] == run.evaluated
    assert np.isnan(row["accuracy"]) == (not run.evaluated)
    assert np.isnan(row["selection_accuracy"]) == (run.select == "last")
    is_fitted = run.fit is not None
    assert pandas.isna(row["epoch"]) == is_fitted
    assert np.isnan(row["lr"]) == is_fitted
    if run.evaluated:
        place = run.finished.index(seed)
        assert row["accuracy"] == run.accuracy[place] == run.hits[place].mean()


def test_every_seed_of_every_run_is_a_row_with_what_the_run_has(
    runs: Runs, table: pandas.DataFrame
) -> None:
    seeds = [(run, seed) for run in runs for seed in run.seeds]
    assert any(run.failed for run in runs)
    assert any(run.fit is not None for run in runs)
    assert not all(run.evaluated for run in runs)
    for row, (run, seed) in zip(table.to_dict("records"), seeds, strict=True):
        check_row(row, run, seed)


def test_the_seeds_that_count_are_those_of_the_report(
    runs: Runs, table: pandas.DataFrame
) -> None:
    """Of a seed that two runs have, the first counts."""
    reported_seeds: dict[str, Any] = {}
    for report_table in gaam_decoder.report(list(runs)).tables:
        for entry in report_table.entries:
            for run in entry.runs:
                reported_seeds[run.key] = entry.seeds
    assert reported_seeds
    for key, rows in table[table["evaluated"]].groupby("key", observed=True):
        counted = rows[rows["counts"]]
        counted_runs = dict(zip(counted["seed"], counted["run"], strict=True))
        first = first_run_by_seed(run for run in runs if run.key == key)
        seeds = reported_seeds.get(str(key), ())
        assert counted_runs == {seed: first[seed].path.name for seed in seeds}
