"""Runs as a DataFrame: a row per seed, whatever kind of run it is, with sane types."""

from __future__ import annotations

import builtins
import dataclasses
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

import gaam_decoder
from gaam_cache.errors import ConfigError
from gaam_decoder import RunResult, Runs, TrainConfig
from gaam_decoder.runs.loading import COLUMNS, load_runs
from gaam_decoder.runs.tuning import first_runs
from tests.conftest import GOLDEN
from tests.decoder.reports.conftest import build_run
from tests.hostile_strings import HOSTILE


@pytest.fixture(scope="module")
def runs(tiny_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Of every kind: folds, a fit, all failed, shuffled labels, several rates, other protocols."""
    base = TrainConfig(
        cache=tiny_cache,
        runs=tmp_path_factory.mktemp("kinds") / "runs",
        attn=("gaam",),
        seeds=(0, 3),
        epochs=2,
        compile="off",
        device="cpu",
        probe=False,
    )
    kinds: list[dict[str, Any]] = [
        {"folds": 2},
        {"attn": ("none",), "head": "lbfgs"},
        {"lr": 1e30},
        {"shuffle_labels": True},
        {"lr": (0.01, 0.1), "tune_seeds": (5,)},
        {"select": "last", "layers": ((1, 4),)},
        {"select": "test"},
        {"test_split": "train", "allow_train_as_test": True},
        {"seeds": (3, 4)},
        {},
    ]
    for kind in kinds:
        gaam_decoder.train(dataclasses.replace(base, **kind))
    run = next(base.runs.glob("gaam-*"))
    shutil.copytree(run, run.with_name(f"copy-{run.name}"))
    return load_runs(base.runs)


def test_every_seed_of_every_run_is_a_row_that_says_what_the_run_says(runs: Runs) -> None:
    table = runs.to_frame()
    assert list(table.columns) == list(COLUMNS)
    rows = iter(table.to_dict("records"))
    for run in runs:
        for seed in run.seeds:
            row = next(rows)
            assert (row["run"], row["seed"], row["attention"]) == (
                run.path.name,
                seed,
                run.attention,
            )
            assert row["parameters"] == run.parameters["total"]
            assert row["fingerprint"] == run.cache["fingerprint"]
            assert row["created"].strftime("%Y-%m-%dT%H:%M:%SZ") == run.created
            if seed in run.failed:
                assert row["failed"] == run.failed[seed]
                assert np.isnan([row["accuracy"], row["macro_f1"], row["selection_accuracy"]]).all()
                assert pandas.isna(row["epoch"])
                continue
            assert pandas.isna(row["failed"])
            assert row["accuracy"] == run.accuracy[run.finished.index(seed)]
            assert row["macro_f1"] == run.macro_f1[run.finished.index(seed)]
            logits_NC = run.logits[run.seeds.index(seed)].astype(np.float64)
            of_label_N = logits_NC[np.arange(row["test_rows"]), run.labels]
            loss = np.mean(np.log(np.exp(logits_NC).sum(1)) - of_label_N)
            assert row["log_loss"] == pytest.approx(loss)
            assert np.isnan(row["selection_accuracy"]) == (run.select == "last")
            assert (pandas.isna(row["epoch"])) == bool(run.fit)
            assert np.isnan(row["lr"]) == bool(run.fit)
    assert next(rows, None) is None
    kinds = ("fold", "failed", "layers", "epoch", "shuffled_labels", "on_training_rows")
    for kind in (*kinds, "tuning_seed", "counts"):
        assert table[kind].nunique(dropna=False) > 1, kind


def test_the_seeds_that_count_are_those_of_reports(runs: Runs) -> None:
    table = runs.to_frame()
    for key, rows in table.groupby("key", observed=True):
        same = [run for run in runs if run.key == key]
        counted = rows[rows["counts"]]
        expected = {seed: run.path.name for seed, run in first_runs(same).items()}
        assert dict(zip(counted["seed"], counted["run"], strict=True)) == expected


def test_types_depend_on_no_content(runs: Runs) -> None:
    frames = [runs.to_frame(), Runs().to_frame(), Runs([runs[0]]).to_frame()]
    frames.append(load_runs(GOLDEN / "v0.1.0" / "runs").to_frame())
    for table in frames:
        for name, kind in COLUMNS.items():
            assert str(table[name].dtype).startswith(kind.partition("[")[0]), (name, kind)
    assert len(frames[1]) == 0


def test_names_are_as_they_are(tmp_path: Path) -> None:
    made = []
    names = [name for name in HOSTILE.values() if name.isprintable() or name.isascii()]
    for name in names:
        run = build_run("gaam", np.ones((2, 5)), cache={"dataset": name, "encoder": name})
        made.append(dataclasses.replace(run, failed={0: name or "?", 1: name or "?"}))
    table = Runs(made).to_frame()
    assert list(table["dataset"][::2]) == names
    assert list(table["failed"][::2]) == [name or "?" for name in names]


def test_a_run_that_was_not_evaluated_has_no_accuracy(monkeypatch: pytest.MonkeyPatch) -> None:
    run = build_run("gaam", np.ones((2, 5)), log=None, validation=0.5)
    monkeypatch.setattr(RunResult, "evaluated", False, raising=False)
    table = Runs([run]).to_frame()
    assert table["accuracy"].isna().all()
    assert not table["evaluated"].any()
    assert list(table["selection_accuracy"]) == [0.5, 0.5]


def test_what_is_not_evaluated_does_not_count(tiny_cache: Path, tmp_path: Path) -> None:
    config = TrainConfig(
        cache=tiny_cache, runs=tmp_path, attn=("none",), seeds=(0, 1), epochs=1, final=True
    )
    gaam_decoder.train(config)
    table = load_runs(tmp_path).to_frame()
    assert sorted(table["evaluated"]) == [False, False, True, True]
    assert list(table["counts"]) == list(table["evaluated"])


def test_without_pandas_one_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **options: Any) -> Any:
        if name == "pandas":
            raise ImportError("No module named 'pandas'")
        return real(name, *rest, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match="pip install pandas"):
        Runs().to_frame()
