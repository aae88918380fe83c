"""What one training keeps of its epochs, logs and leaves behind."""

from __future__ import annotations

import gc
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import gaam_decoder
from gaam_cache.common.errors import ConfigError
from gaam_decoder import RunResult, TrainConfig
from gaam_decoder.training.data import Subset
from gaam_decoder.training.seed_batch import SeedBatch
from tests.decoder.configs import change, train_config, train_single_run


@pytest.fixture
def config(tiny_cache: Path, tmp_path: Path) -> TrainConfig:
    return train_config(
        tiny_cache,
        tmp_path / "runs",
        attn=("gaam",),
        seeds=(0, 1, 2),
        epochs=3,
        lr=0.01,
    )


def log_of_seed(run: RunResult, seed: int) -> list[dict[str, Any]]:
    """The entries of a seed in the log of a run."""
    lines = (run.path / "log.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    return [entry for entry in entries if entry["seed"] == seed]


@pytest.mark.parametrize("ties", ["loss", "first"])
def test_validation_keeps_the_most_accurate_epoch(
    ties: str, config: TrainConfig
) -> None:
    """Of several the one with the smallest loss, or the first one."""
    run = train_single_run(config, select="val", ties=ties, epochs=12, lr=0.05)

    def rank(entry: dict[str, Any]) -> tuple[float, ...]:
        if ties == "first":
            return entry["accuracy"], -entry["epoch"]
        return entry["accuracy"], -entry["selection_loss"], -entry["epoch"]

    for seed in run.seeds:
        best = max(log_of_seed(run, seed), key=rank)
        assert run.epochs[seed] == best["epoch"]


def test_the_test_rows_keep_the_most_accurate_epoch_where_they_may_choose(
    config: TrainConfig,
) -> None:
    run = train_single_run(config, select="test", ties="loss", epochs=12, lr=0.05)
    for place, seed in enumerate(run.seeds):
        best = max(
            log_of_seed(run, seed),
            key=lambda entry: (
                entry["accuracy"],
                -entry["selection_loss"],
                -entry["epoch"],
            ),
        )
        assert run.epochs[seed] == best["epoch"]
        assert run.accuracy[place] == pytest.approx(best["accuracy"])


def test_the_last_epoch_is_kept_where_nothing_chooses(config: TrainConfig) -> None:
    run = train_single_run(config, select="last", ties="loss", epochs=12, lr=0.05)
    for seed in run.seeds:
        assert run.epochs[seed] == 12
        assert "accuracy" not in log_of_seed(run, seed)[0]


def count_tensors() -> int:
    """Tensors that are still referred to."""
    gc.collect()
    return sum(isinstance(thing, torch.Tensor) for thing in gc.get_objects())


def test_trainings_leave_no_tensor_behind(config: TrainConfig) -> None:
    counts = []
    for rate in (0.01, 0.02, 0.03):
        gaam_decoder.train(change(config, attn=("mha", "gaam"), epochs=1, lr=rate))
        counts.append(count_tensors())
    assert len(set(counts)) == 1, counts


def test_a_log_has_the_rate_of_the_last_step_of_every_epoch(
    config: TrainConfig,
) -> None:
    """Of 54 rows in 14 batches and 3 epochs: the first 2 of 42 steps are warm-up."""
    run = train_single_run(config, schedule="cosine", batch_size=4, seeds=(0,))
    expected = [0.005 * (1 + np.cos(np.pi * (step - 3) / 40)) for step in (14, 28, 42)]
    np.testing.assert_allclose([entry["lr"] for entry in run.log], expected)


def test_a_run_whose_logits_are_not_finite_fails_the_seed(
    config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loss of the last step was still a number; its update lost the weights."""
    finite_logits = SeedBatch.logits

    def infinite_logits(self: SeedBatch, subset: Subset, state: Any) -> torch.Tensor:
        logits = finite_logits(self, subset, state)
        if subset is self.data.test:
            logits = logits.clone()
            logits[1, 3, 0] = torch.inf
        return logits

    monkeypatch.setattr(SeedBatch, "logits", infinite_logits)
    run = train_single_run(config)
    assert [*run.failed] == [1]
    assert run.finished == (0, 2)
    assert np.isnan(run.logits[1]).all()


def test_another_default_type_is_refused(config: TrainConfig) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        with pytest.raises(ConfigError, match="autocast"):
            gaam_decoder.train(config)
    finally:
        torch.set_default_dtype(torch.float32)
    assert len(gaam_decoder.train(config)) == 1, "the session is as before"


def test_a_session_with_autocast_is_refused(config: TrainConfig) -> None:
    with (
        torch.autocast("cpu", torch.bfloat16),
        pytest.raises(ConfigError, match="autocast"),
    ):
        gaam_decoder.train(config)


def test_another_default_device_is_refused(config: TrainConfig) -> None:
    with torch.device("meta"), pytest.raises(ConfigError, match="autocast"):
        gaam_decoder.train(config)


@pytest.mark.parametrize("was_set", [False, True], ids=["not before", "before"])
def test_denormal_numbers_are_zero_while_a_decoder_trains(
    was_set: bool, config: TrainConfig
) -> None:
    """Afterwards the thread computes with them as it did before."""
    smallest = torch.finfo(torch.float32).tiny
    halves: list[float] = []

    def on_progress(done: int, total: int, text: str) -> None:
        halves.append((torch.tensor(smallest) / 2).item())

    torch.set_flush_denormal(was_set)
    try:
        gaam_decoder.train(config, progress=on_progress)
        half_afterwards = (torch.tensor(smallest) / 2).item()
    finally:
        torch.set_flush_denormal(False)
    assert halves
    assert set(halves) == {0}
    assert (half_afterwards == 0) == was_set
