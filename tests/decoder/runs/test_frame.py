"""Runs as a DataFrame: a row per seed, whatever kind of run it is, with sane types."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas

import gaam_decoder
from gaam_cache.store.files import read_json
from gaam_decoder import Runs, TrainConfig, load_runs
from gaam_decoder.runs.tuning import first_runs

KINDS: list[dict[str, Any]] = [
    {"folds": 2}, {"attn": "none", "head": "lbfgs"}, {"lr": 1e30}, {"select": "last"},
    {"lr": (0.01, 0.1), "tune_seeds": (5,)}, {"test_split": "none"}, {"seeds": (3, 4)}, {},
    {"batch_size": 7},
]  # fmt: skip


def test_every_seed_of_every_run_is_a_row_that_says_what_the_run_says(
    tiny_cache: Path, tmp_path: Path
) -> None:
    base = TrainConfig(
        lr=3e-4, cache=tiny_cache, runs=tmp_path / "runs", seeds=(0, 3), epochs=2, compile="off",
        device="cpu", probe=False,
    )  # fmt: skip
    for kind in KINDS:
        gaam_decoder.train(dataclasses.replace(base, **kind))
    run = next(base.runs.glob("gaam*"))
    shutil.copytree(run, run.with_name(f"copy-{run.name}"))
    runs = load_runs(base.runs)
    for run in runs:
        content = read_json(run.path / "run.json")
        assert run.recipe.to_dict() == run.settings == content["recipe"]
        assert run.cache.to_dict() == content["cache"]
    table = runs.to_frame()
    assert (Runs().to_frame().dtypes == table.dtypes).all()
    decoders = {run.key for run in runs if run.recipe.val_folds is None}
    names = table.loc[table["key"].isin(decoders)].groupby("decoder", observed=True)[
        "key"
    ]
    assert names.nunique().eq(1).all()
    assert len(names) == len(decoders)
    expected = "gaam:heads=2 + linear, pool mean, lr 0.0003, batch size 7, select val"
    assert expected in set(table["decoder"])
    rows = iter(table.to_dict("records"))
    for run, seed in [(one, seed) for one in runs for seed in one.seeds]:
        row = next(rows)
        assert (row["run"], row["seed"], row["key"]) == (run.path.name, seed, run.key)
        if seed in run.failed:
            assert row["failed"] == run.failed[seed]
            assert np.isnan(
                [row["accuracy"], row["macro_f1"], row["selection_accuracy"]]
            ).all()
            continue
        assert (
            np.isnan(row["accuracy"]) == (not run.evaluated) == (not row["evaluated"])
        )
        assert np.isnan(row["selection_accuracy"]) == (run.select == "last")
        assert pandas.isna(row["epoch"]) == np.isnan(row["lr"]) == bool(run.fit)
        if run.evaluated:
            place = run.finished.index(seed)
            assert row["accuracy"] == run.accuracy[place] == run.hits[place].mean()
    assert next(rows, None) is None
    reports = [
        row for of in gaam_decoder.report(list(runs)).tables for row in of.entries
    ]
    reported = {run.key: row.seeds for row in reports for run in row.runs}
    for key, of_key in table[table["evaluated"]].groupby("key", observed=True):
        counted = of_key[of_key["counts"]]
        expected = first_runs(run for run in runs if run.key == key)
        found = dict(zip(counted["seed"], counted["run"], strict=True))
        assert found == {
            seed: expected[seed].path.name for seed in reported.get(key, ())
        }
