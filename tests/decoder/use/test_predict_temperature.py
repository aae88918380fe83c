"""Predictions at the temperatures that a report fits, compared with SciPy in float64."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import softmax

import gaam_decoder
from gaam_cache.cache import open_cache
from gaam_cache.errors import ConfigError, GaamWarning
from gaam_decoder import RunResult, TrainConfig, report
from gaam_decoder.runs.result import read_run
from gaam_decoder.use.export import export_run
from gaam_decoder.use.predictions import Predictions
from tests.conftest import Outcome
from tests.decoder.reports.test_temperature import as_before, temperature_of

Gaam = Callable[..., Outcome]
SEEDS = (0, 1, 2)
BINS = 15


@pytest.fixture(scope="module")
def config(tiny_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> TrainConfig:
    return TrainConfig(
        attn=("gaam",), cache=tiny_cache, runs=tmp_path_factory.mktemp("scaled"), seeds=SEEDS,
        epochs=4, lr=0.05, val_fraction=0.5, probe=False, device="cpu",
    )  # fmt: skip


@pytest.fixture(scope="module")
def run(config: TrainConfig) -> RunResult:
    (found,) = gaam_decoder.train(config)
    return found


def test_probabilities_are_the_mean_of_what_every_seed_says_at_its_temperature(
    run: RunResult, config: TrainConfig
) -> None:
    states = open_cache(config.cache)["test"].embeddings
    by_seed = [temperature_of(run, place) for place in range(len(SEEDS))]
    assert len(set(by_seed)) == len(SEEDS)
    for seed in (None, *SEEDS):
        places = range(len(SEEDS)) if seed is None else [run.seeds.index(seed)]
        predictor = gaam_decoder.load(run.path, seed=seed, temperature=True, device="cpu")
        assert predictor.temperatures == pytest.approx([by_seed[p] for p in places], rel=1e-4)
        used = zip(places, predictor.temperatures, strict=True)
        each = [softmax(run.logits[p].astype(np.float64) / t, axis=-1) for p, t in used]
        found = predictor.predict_states(states)
        np.testing.assert_allclose(found.probabilities_NC, np.mean(each, 0), atol=1e-6)
        plain = gaam_decoder.load(run.path, seed=seed, device="cpu").predict_states(states)
        assert np.abs(found.probabilities_NC - plain.probabilities_NC).max() > 1e-3
        if seed is not None:
            np.testing.assert_array_equal(found.predicted_N, plain.predicted_N)


def test_no_temperature_overflows() -> None:
    logits_SNC = np.array([[[3e38, -3e38, 0]], [[1e-30, 0, 2e-30]]], np.float32)
    for low in (1e-300, 1e-9, 1.0, 1e9, 1e300):
        found = Predictions.of(logits_SNC, "abc", temperatures=(low, 1 / low))
        assert np.isfinite(found.probabilities_NC).all()
        assert found.probabilities_NC.sum() == pytest.approx(1)


@pytest.mark.parametrize("seed", SEEDS)
def test_log_loss_and_ece_of_what_is_predicted_are_those_of_the_report(
    seed: int, run: RunResult, config: TrainConfig, gaam: Gaam, tmp_path: Path
) -> None:
    """By the file of ``--cache --split test``, from its text."""
    out = tmp_path / "out.jsonl"
    options = ("--cache", config.cache, "--split", "test", "--seed", seed, "--top", 2, "--device")
    outcome = gaam("predict", run.path, *options, "cpu", "--temperature", "--json", "-o", out)
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["temperatures"] == pytest.approx([temperature_of(run, seed)])
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    names = run.cache["class_names"]
    log_loss, sure, right = [], [], []
    for row, label in zip(rows, run.labels, strict=True):
        likely = {row["predicted"]: row["probability"], row["predicted_2"]: row["probability_2"]}
        log_loss.append(-math.log(likely[names[label]]))
        sure.append(row["probability"])
        right.append(row["predicted"] == names[label])
    bins = np.minimum((np.array(sure) * BINS).astype(int), BINS - 1)
    gaps = [
        abs(np.mean(np.array(sure)[bins == one]) - np.mean(np.array(right)[bins == one]))
        * np.mean(bins == one)
        for one in set(bins.tolist())
    ]
    (row,) = report(run.path, temperature=True).tables[0].rows
    found = row.scores.every
    place = run.seeds.index(seed)
    assert np.mean(log_loss) == pytest.approx(found["log-loss"][place], abs=1e-6)
    assert sum(gaps) == pytest.approx(found["ece"][place], abs=1e-6)


def test_what_is_averaged_is_said(run: RunResult, config: TrainConfig, gaam: Gaam) -> None:
    texts = ("predict", run.path, "goal cup", "bank loan", "--device", "cpu")
    plain, scaled = gaam(*texts), gaam(*texts, "--temperature")
    *lines, said = scaled.out.splitlines()
    assert len(lines) == len(plain.out.splitlines())
    assert said.startswith("probabilities: the average of 3 seeds, logits of each divided by its")
    low, high = min(temperatures := temperatures_of(run)), max(temperatures)
    assert said.endswith(f"temperature, {low:.3g} to {high:.3g}")
    found = json.loads(gaam(*texts, "--temperature", "--json").out)
    predictor = gaam_decoder.load(run.path, temperature=True, device="cpu")
    likely_NC = predictor.predict_proba(["goal cup", "bank loan"])
    assert [row["probability"] for row in found] == pytest.approx(likely_NC.max(1).tolist())


def temperatures_of(run: RunResult) -> tuple[float, ...]:
    return gaam_decoder.load(run.path, temperature=True, device="cpu").temperatures


def test_of_a_file_too(run: RunResult, gaam: Gaam, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("text\ngoal cup\nbank loan\n")
    outcome = gaam(
        *("predict", run.path, "--file", tmp_path / "in.csv", "--out", tmp_path / "out.csv"),
        *("--temperature", "--device", "cpu"),
    )
    assert "2 rows predicted by the average of 3 seeds, logits of each divided by" in outcome.out
    text = (tmp_path / "out.csv").read_text().splitlines()[1:]
    predictor = gaam_decoder.load(run.path, temperature=True, device="cpu")
    likely = predictor.predict_proba(["goal cup", "bank loan"]).max(1)
    assert [float(line.split(",")[2]) for line in text] == pytest.approx(likely.tolist())


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"select": "last"}, "--select last"),
        ({"select": "test"}, "--select test"),
        ({"test_split": "none", "select": "last"}, "--select last"),
        ({"shuffle_labels": True}, "shuffled labels"),
        (None, "earlier version"),
        ("export", "an exported decoder"),
    ],
)
def test_where_nothing_is_fitted_on_it_is_refused(
    options: Any, found: str, run: RunResult, config: TrainConfig, gaam: Gaam, tmp_path: Path
) -> None:
    if isinstance(options, dict):
        few = {"runs": tmp_path, "seeds": (0,), "epochs": 1, "val_fraction": 0.1}
        path = gaam_decoder.train(replace(config, **few, **options))[0].path
    elif options == "export":
        path = tmp_path / "exported"
        export_run(run.path, path)
    else:
        path = Path(shutil.copytree(run.path, tmp_path / run.path.name))
        as_before(read_run(path))
    with pytest.raises(ConfigError, match="nothing that a temperature is fitted on") as error:
        gaam_decoder.load(path, temperature=True)
    assert found in str(error.value)
    outcome = gaam("predict", path, "goal", "--temperature")
    assert (outcome.code, outcome.out, outcome.err.count("error: ")) == (2, "", 1)


def test_a_final_model_that_held_rows_back_has_its_temperature(
    config: TrainConfig, tmp_path: Path
) -> None:
    (final,) = gaam_decoder.train(replace(config, runs=tmp_path, test_split="none"))
    assert temperatures_of(final) == pytest.approx(
        [temperature_of(final, place) for place in range(len(SEEDS))], rel=1e-4
    )


def test_a_seed_without_a_best_temperature_is_said_and_one_without_answers_refused(
    run: RunResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = run.validation
    assert held is not None
    logits_SVC = held.logits.copy()
    logits_SVC[1] = np.eye(2, dtype=np.float32)[held.labels]
    monkeypatch.setattr(RunResult, "validation", replace(held, logits=logits_SVC))
    with pytest.warns(GaamWarning, match="no temperature was fitted for seeds 1 of"):
        found = temperatures_of(run)
    assert found[1] == 1
    assert found[0] != 1
    logits_SVC[2] = np.nan
    with pytest.raises(ConfigError, match="not finite"):
        temperatures_of(run)
    assert len(gaam_decoder.load(run.path, seed=0, temperature=True).temperatures) == 1
