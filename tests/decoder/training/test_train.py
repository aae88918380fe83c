from __future__ import annotations

import gc
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import gaam_decoder
from gaam_cache.common.errors import ConfigError
from gaam_decoder import RunResult, TrainConfig
from gaam_decoder.training.seed_batch import SeedBatch


@pytest.fixture
def config(tiny_cache: Path, tmp_path: Path) -> TrainConfig:
    return TrainConfig(
        attn=("gaam",),
        cache=tiny_cache,
        runs=tmp_path / "runs",
        seeds=(0, 1, 2),
        epochs=3,
        lr=0.01,
        probe=False,
    )


def one(config: TrainConfig) -> RunResult:
    runs = gaam_decoder.train(config)
    assert len(runs) == 1
    return runs[0]


@pytest.mark.parametrize(
    ("select", "ties"),
    [("val", "loss"), ("test", "loss"), ("last", "loss"), ("val", "first")],
)
def test_the_kept_epoch_follows_the_protocol(
    select: str, ties: str, config: TrainConfig
) -> None:
    run = one(replace(config, select=select, ties=ties, epochs=12, lr=0.05))
    log = [
        json.loads(line) for line in (run.path / "log.jsonl").read_text().splitlines()
    ]
    for place, seed in enumerate(run.seeds):
        entries = [entry for entry in log if entry["seed"] == seed]
        if select == "last":
            assert run.epochs[seed] == 12
            assert "accuracy" not in entries[0]
            continue
        known = 0 if ties == "first" else 1
        best = max(
            entries,
            key=lambda e: (e["accuracy"], -known * e["selection_loss"], -e["epoch"]),
        )
        assert run.epochs[seed] == best["epoch"]
        if select == "test":
            assert run.accuracy[place] == pytest.approx(best["accuracy"])


def test_trainings_leave_no_tensor_behind(config: TrainConfig) -> None:
    def left(rate: float) -> int:
        gaam_decoder.train(replace(config, attn=("mha", "gaam"), epochs=1, lr=rate))
        gc.collect()
        return sum(isinstance(one, torch.Tensor) for one in gc.get_objects())

    assert left(0.01) == left(0.02) == left(0.03)


def test_a_log_has_the_rate_of_the_last_step_of_every_epoch(
    config: TrainConfig,
) -> None:
    """Of 54 rows in 14 batches and 3 epochs: the first 2 of 42 steps are warm-up."""
    run = one(replace(config, schedule="cosine", batch_size=4, seeds=(0,)))
    expected = [0.005 * (1 + np.cos(np.pi * (step - 3) / 40)) for step in (14, 28, 42)]
    np.testing.assert_allclose([entry["lr"] for entry in run.log], expected)


def test_a_run_whose_logits_are_not_finite_fails_the_seed(
    config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss of the last step was still a number, its update made the weights something else."""
    logits = SeedBatch.logits

    def lost(self, subset, state):
        found = logits(self, subset, state)
        if subset is self.data.test:
            found = found.clone()
            found[1, 3, 0] = torch.inf
        return found

    monkeypatch.setattr(SeedBatch, "logits", lost)
    run = one(config)
    assert [*run.failed] == [1]
    assert run.finished == (0, 2)
    assert np.isnan(run.logits[1]).all()


def test_a_session_that_would_change_the_numbers_is_refused(
    config: TrainConfig,
) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(ConfigError, match="autocast"):
            gaam_decoder.train(config)
    finally:
        torch.set_default_dtype(torch.float32)
    with (
        torch.autocast("cpu", torch.bfloat16),
        pytest.raises(ConfigError, match="autocast"),
    ):
        gaam_decoder.train(config)
    with torch.device("meta"), pytest.raises(ConfigError, match="autocast"):
        gaam_decoder.train(config)
    assert len(gaam_decoder.train(config)) == 1
