"""Final models beside what is evaluated: which there are, when, and of which recipe."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import gaam_decoder
from gaam_decoder import RunResult, TrainConfig
from tests.decoder.configs import train_config


class Score(NamedTuple):
    """Mean validation accuracy of a rate; of equal ones the smaller loss is better."""

    accuracy: float
    negative_loss: float


def score_of_rate(tuned_runs: list[RunResult], rate: float) -> Score:
    """Over all seeds and folds, in the epoch that each of them kept."""
    kept_epochs = [
        entry
        for run in tuned_runs
        if run.recipe.lr == rate
        for entry in run.log
        if entry["epoch"] == run.epochs[entry["seed"]]
    ]
    num_folds = sum(run.recipe.lr == rate for run in tuned_runs)
    assert len(kept_epochs) == 2 * num_folds
    return Score(
        float(np.mean([entry["accuracy"] for entry in kept_epochs])),
        -float(np.mean([entry["selection_loss"] for entry in kept_epochs])),
    )


RATES = (1e-4, 1e-2, 3e-2)
TINY_RATES = (1e-6, 2e-6, 3e-6)
"""Too small for anything but the loss."""


@pytest.mark.parametrize(
    ("folds", "rates"),
    [
        pytest.param(None, RATES, id="rates"),
        pytest.param(2, RATES, id="rates and folds"),
        pytest.param(None, TINY_RATES, id="tiny rates"),
    ],
)
def test_only_the_tuned_rate_of_a_grid_becomes_a_final_model(
    folds: int | None, rates: tuple[float, ...], tiny_cache: Path, tmp_path: Path
) -> None:
    """Of folds, by the mean over all of them, whatever each of them has chosen."""
    config = train_config(
        tiny_cache,
        tmp_path / "runs",
        attn=("gaam",),
        seeds=(0, 1),
        epochs=2,
        lr=rates,
        tune_seeds=(7, 8),
        folds=folds,
        val_fraction=0.3,
        final=True,
    )
    estimate = gaam_decoder.estimate(config)
    runs = gaam_decoder.train(config)
    check_final_model(runs, rates, folds)
    planned = [run for run in estimate.runs if "final model" in run.title]
    assert [run.candidates for run in planned] == [3]
    assert [len(run.seeds) for run in planned] == [2]
    assert estimate.trainings == sum(len(run.seeds) for run in runs)
    check_nothing_is_trained_again(config, runs)


def check_final_model(
    runs: list[RunResult], rates: tuple[float, ...], folds: int | None
) -> None:
    """There is one, it has the best rate, and it comes last of what reports."""
    tuned_runs = [run for run in runs if run.seeds == (7, 8)]
    assert all(run.evaluated for run in tuned_runs)
    assert len(tuned_runs) == len(rates) * (folds or 1)
    scores = {rate: score_of_rate(tuned_runs, rate) for rate in rates}
    assert len(set(scores.values())) == len(rates)
    if rates == TINY_RATES:
        assert len({score.accuracy for score in scores.values()}) == 1
    [final] = [run for run in runs if not run.evaluated]
    assert final.recipe.lr == max(rates, key=lambda rate: scores[rate])
    assert final.seeds == (0, 1)
    reporting_runs = [run for run in runs if run not in tuned_runs]
    assert reporting_runs[-1].path == final.path


def check_nothing_is_trained_again(config: TrainConfig, runs: list[RunResult]) -> None:
    def fail(run: RunResult) -> None:
        pytest.fail(f"trained again: {run.path}")

    again = gaam_decoder.train(config, on_run=fail)
    assert [run.path for run in again] == [run.path for run in runs]
