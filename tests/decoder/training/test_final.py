"""Final models beside what is evaluated: which there are, when, and of which recipe."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gaam_decoder
import gaam_decoder.inspect
from gaam_decoder import TrainConfig


@pytest.fixture
def config(tiny_cache: Path, tmp_path: Path) -> TrainConfig:
    return TrainConfig(
        attn=("gaam",),
        cache=tiny_cache,
        runs=tmp_path / "runs",
        seeds=(0, 1),
        epochs=2,
        lr=0.01,
        probe=False,
    )


@pytest.mark.parametrize(
    ("folds", "rates"),
    [(None, (1e-4, 1e-2, 3e-2)), (2, (1e-4, 1e-2, 3e-2)), (None, (1e-6, 2e-6, 3e-6))],
)
def test_of_a_grid_only_what_validation_chose_becomes_a_final_model(
    folds: int | None, rates: tuple[float, ...], config: TrainConfig
) -> None:
    """Of folds, by the mean over all of them, whatever each of them has chosen."""
    config = replace(
        config, lr=rates, tune_seeds=(7, 8), folds=folds, val_fraction=0.3, final=True
    )
    estimate = gaam_decoder.estimate(config)
    runs = gaam_decoder.train(config)
    tuned = [run for run in runs if run.seeds == (7, 8)]
    assert all(run.evaluated for run in tuned)
    scores = {}
    for rate in rates:
        kept = [
            e for run in tuned for e in run.log
            if run.recipe.lr == rate and e["epoch"] == run.epochs[e["seed"]]
        ]  # fmt: skip
        assert len(kept) == 2 * (folds or 1)
        of = (
            np.mean([e["accuracy"] for e in kept]),
            -np.mean([e["selection_loss"] for e in kept]),
        )
        scores[of] = rate
    if rates[-1] < 1e-5:  # too small for anything but the loss
        assert (len({of[0] for of in scores}), len(scores)) == (1, 3)
    (final,) = (run for run in runs if not run.evaluated)
    assert (final.recipe.lr, final.seeds) == (scores[max(scores)], (0, 1))
    assert [run for run in runs if run not in tuned][-1].path == final.path
    planned = [run for run in estimate.runs if "final model" in run.title]
    assert [(run.candidates, len(run.seeds)) for run in planned] == [(3, 2)]
    assert estimate.trainings == sum(len(run.seeds) for run in runs)
    again = gaam_decoder.train(config, on_run=lambda run: pytest.fail("trained again"))
    assert [run.path for run in again] == [run.path for run in runs]
