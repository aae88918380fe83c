"""Predictions at the temperatures that a report fits, compared with SciPy in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gaam_decoder
from gaam_cache.errors import ConfigError, GaamWarning
from gaam_decoder import RunResult, TrainConfig
from gaam_decoder.use.export import export_run
from gaam_decoder.use.predictor import Predictions
from tests.conftest import Outcome

Gaam = Callable[..., Outcome]
SEEDS = (0, 1, 2)


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


def test_no_temperature_overflows() -> None:
    logits_SNC = np.array([[[3e38, -3e38, 0]], [[1e-30, 0, 2e-30]]], np.float32)
    for low in (1e-300, 1e-9, 1.0, 1e9, 1e300):
        found = Predictions.of(logits_SNC, "abc", temperatures=(low, 1 / low))
        assert np.isfinite(found.probabilities_NC).all()
        assert found.probabilities_NC.sum() == pytest.approx(1)


def temperatures_of(run: RunResult) -> tuple[float, ...]:
    return gaam_decoder.load(run.path, temperature=True, device="cpu").temperatures


@pytest.mark.parametrize(
    ("options", "found"),
    [
        ({"select": "last"}, "--select last"),
        ({"select": "test"}, "--select test"),
        ({"test_split": "none", "select": "last"}, "--select last"),
        ({"shuffle_labels": True}, "shuffled labels"),
        ("export", "an exported decoder"),
    ],
)
def test_where_nothing_is_fitted_on_it_is_refused(
    options: Any, found: str, run: RunResult, config: TrainConfig, gaam: Gaam, tmp_path: Path
) -> None:
    if isinstance(options, dict):
        few = {"runs": tmp_path, "seeds": (0,), "epochs": 1, "val_fraction": 0.1}
        path = gaam_decoder.train(replace(config, **few, **options))[0].path
    else:
        path = tmp_path / "exported"
        export_run(run.path, path)
    with pytest.raises(ConfigError, match="nothing that a temperature is fitted on") as error:
        gaam_decoder.load(path, temperature=True)
    assert found in str(error.value)
    outcome = gaam("predict", path, "goal", "--temperature")
    assert (outcome.code, outcome.out, outcome.err.count("error: ")) == (2, "", 1)


def test_a_seed_without_a_best_temperature_is_said_and_one_without_answers_refused(
    run: RunResult, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = run.validation
    assert held is not None
    logits_SVC = held.logits.copy()
    logits_SVC[1] = np.eye(2, dtype=np.float32)[held.labels]
    monkeypatch.setattr(RunResult, "validation", replace(held, logits=logits_SVC))
    with pytest.warns(GaamWarning, match="seeds 1 of"):
        found = temperatures_of(run)
    assert found[1] == 1
    assert found[0] != 1
    logits_SVC[2] = np.nan
    with pytest.raises(ConfigError, match="not finite"):
        temperatures_of(run)
    assert len(gaam_decoder.load(run.path, seed=0, temperature=True).temperatures) == 1
