"""Whoever watches a training is told how far every decoder is."""

from __future__ import annotations

from pathlib import Path

import pytest

import gaam_decoder
from gaam_decoder import TrainConfig
from gaam_decoder.training.status import DecoderStatus
from tests.decoder.configs import change, train_config

RATES = (1e-3, 1e-2)
DECODERS = ("gaam:heads=2 + linear", "none + linear")


@pytest.fixture
def config(tiny_cache: Path, tmp_path: Path) -> TrainConfig:
    return train_config(
        tiny_cache,
        tmp_path / "runs",
        attn=("gaam:heads=2", "none"),
        seeds=(0, 1),
        tune_seeds=(7, 8),
        lr=RATES,
        epochs=2,
        probe=False,
    )


def watch(config: TrainConfig) -> dict[str, list[DecoderStatus]]:
    """Train, and return the statuses of each decoder in order."""
    statuses: dict[str, list[DecoderStatus]] = {}

    def on_status(status: DecoderStatus) -> None:
        earlier = statuses.setdefault(status.decoder, [])
        if not earlier or earlier[-1] != status:
            earlier.append(status)

    gaam_decoder.train(config, on_status=on_status)
    return statuses


def states_of(statuses: list[DecoderStatus]) -> list[str]:
    """The states in order, without losses and repetitions."""
    states = [status.state.partition(", loss")[0] for status in statuses]
    return list(dict.fromkeys(states))


def test_a_decoder_is_tuned_trained_and_done(config: TrainConfig) -> None:
    statuses = watch(config)
    assert tuple(statuses) == DECODERS
    for statuses_of_decoder in statuses.values():
        states = states_of(statuses_of_decoder)
        assert states[:4] == ["waiting", "tuning 1 of 2", "tuning 2 of 2", "tuned"]
        assert "seeds 0-1, epoch 2 of 2" in states
        assert states[-1] == "done"


def test_the_last_status_has_what_the_summary_says(config: TrainConfig) -> None:
    last = {decoder: statuses[-1] for decoder, statuses in watch(config).items()}
    runs = gaam_decoder.train(config)
    for decoder, status in last.items():
        own_runs = [run for run in runs if run.title.startswith(decoder)]
        reporting = [run for run in own_runs if not run.tuning_only]
        assert [f"{run.recipe.lr:g}" for run in reporting] == [status.learning_rate]
        candidates = {
            f"{run.recipe.lr:g}": run.validation_score.mean()
            for run in own_runs
            if run.tuning_only
        }
        assert status.validation == f"{max(candidates.values()):.1%}"
        seconds = sum(sum(run.seconds.values()) for run in own_runs)
        assert status.seconds == pytest.approx(seconds)


def test_existing_runs_are_done_at_once(config: TrainConfig) -> None:
    first = watch(config)
    again = watch(config)
    for decoder, statuses in again.items():
        assert states_of(statuses) == ["waiting", "tuned", "done"]
        assert statuses[-1] == first[decoder][-1]


def test_folds_and_a_final_model(config: TrainConfig) -> None:
    folds = change(config, attn=("none",), folds=2, final=True)
    statuses = watch(folds)
    assert tuple(statuses) == ("none + linear", "none + linear, final model")
    states = states_of(statuses["none + linear"])
    assert "tuning 4 of 4" in states
    assert any(state.startswith("fold 2 of 2: seeds 0-1, epoch") for state in states)
    assert states_of(statuses["none + linear, final model"])[0] == "waiting"
    assert all(each[-1].state == "done" for each in statuses.values())


def test_without_tuning_the_rate_is_the_requested_one(config: TrainConfig) -> None:
    statuses = watch(change(config, lr=(1e-2,), tune_seeds=None, select="last"))
    for statuses_of_decoder in statuses.values():
        last = statuses_of_decoder[-1]
        assert (last.state, last.learning_rate) == ("done", "0.01")
        assert last.validation == ""


def test_workers_tell_it_too(config: TrainConfig) -> None:
    statuses = watch(change(config, devices=2))
    assert sorted(statuses) == sorted(DECODERS)
    for statuses_of_decoder in statuses.values():
        last = statuses_of_decoder[-1]
        assert last.learning_rate in [f"{rate:g}" for rate in RATES]
        assert last.state == "done"
