"""What no temperature is fitted on is refused, and what has no best one is said."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gaam_decoder
from gaam_cache.errors import ConfigError, GaamWarning
from gaam_decoder import RunResult
from gaam_decoder.use.export import export_run
from gaam_decoder.use.predictor import Predictions
from tests.decoder.use.exports import train


def test_no_temperature_overflows() -> None:
    logits_SNC = np.array([[[3e38, -3e38, 0]], [[1e-30, 0, 2e-30]]], np.float32)
    for low in (1e-300, 1e-9, 1.0, 1e9, 1e300):
        found = Predictions.of(logits_SNC, "abc", temperatures=(low, 1 / low))
        assert found.probabilities_NC.sum() == pytest.approx(1)


def test_where_nothing_is_fitted_on_it_is_refused(tiny_cache: Path, tmp_path: Path) -> None:
    [run] = train(tiny_cache, tmp_path, "none", select="last").values()
    export_run(run.path, tmp_path / "exported")
    for path in (run.path, tmp_path / "exported"):
        with pytest.raises(ConfigError, match="nothing that a temperature is fitted on"):
            gaam_decoder.load(path, temperature=True)


def test_a_seed_without_a_best_temperature_is_said_and_one_without_answers_refused(
    tiny_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [run] = train(tiny_cache, tmp_path, "none", val_fraction=0.5, lr=0.05, epochs=4).values()
    held = run.validation
    assert held is not None
    logits_SVC = held.logits.copy()
    logits_SVC[1] = np.eye(2, dtype=np.float32)[held.labels]
    monkeypatch.setattr(RunResult, "validation", replace(held, logits=logits_SVC))
    with pytest.warns(GaamWarning, match="seeds 1 of"):
        assert gaam_decoder.load(run.path, temperature=True).temperatures[1] == 1
    logits_SVC[1] = np.nan
    with pytest.raises(ConfigError, match="nothing that a temperature is fitted on"):
        gaam_decoder.load(run.path, temperature=True)
    assert len(gaam_decoder.load(run.path, seed=0, temperature=True).temperatures) == 1
