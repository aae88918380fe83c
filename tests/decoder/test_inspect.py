"""``gaam inspect`` of runs: who is at work, what is done, and what is damaged."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import gaam_decoder
from gaam_cache.common.errors import NotFoundError
from gaam_decoder import TrainConfig
from gaam_decoder.inspect import inspect
from gaam_decoder.runs.folders import LEASE_FOLDER
from gaam_decoder.training import checkpoint
from tests.decoder.configs import train_config

DEAD = 2**22 + 1
"""No process has this number."""


def inspected(folder: Path) -> dict[str, Any]:
    return dict(inspect(folder).to_dict())


class Interruption:
    """Stops a training at its sixth message, and notes who is at work before."""

    def __init__(self, config: TrainConfig) -> None:
        self.config = config
        self.num_messages = 0
        self.lease = Path()
        self.holder: dict[str, Any] = {}
        self.at_work: list[dict[str, Any]] = []

    def __call__(self, done: int, total: int, text: str) -> None:
        self.num_messages += 1
        if self.num_messages == 6:
            [self.lease] = (self.config.runs / LEASE_FOLDER).iterdir()
            self.holder = json.loads(self.lease.read_text())
            self.at_work = inspected(self.config.runs)["at_work"]
            raise KeyboardInterrupt


@pytest.fixture
def interruption(
    tiny_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Interruption:
    """Of two mechanisms with five seeds; the process has died and its lease is left."""
    monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
    monkeypatch.setattr(checkpoint, "CHECKPOINT_SHARE", float("inf"))
    config = train_config(
        tiny_cache,
        tmp_path / "runs",
        lr=3e-4,
        attn=("gaam", "none"),
        seeds=5,
        seed_batch=2,
        epochs=3,
        compile="off",
        device="cpu",
    )
    interruption = Interruption(config)
    with pytest.raises(KeyboardInterrupt):
        gaam_decoder.train(config, progress=interruption)
    interruption.lease.write_text(json.dumps(interruption.holder | {"pid": DEAD}))
    return interruption


def test_of_unfinished_runs_it_tells_which_seeds_are_done(
    interruption: Interruption,
) -> None:
    unfinished = inspected(interruption.config.runs)["runs"][0]
    left = [seed for batch in unfinished["groups"] for seed in batch["seeds"]]
    all_seeds = list(interruption.config.seeds)
    assert sorted(left + unfinished["done"]) == all_seeds
    assert unfinished["planned"] == all_seeds
    assert interruption.lease.stem in [batch["claim"] for batch in unfinished["groups"]]


def test_it_tells_who_is_at_work_and_who_has_died(interruption: Interruption) -> None:
    [worker] = interruption.at_work
    assert worker["name"] == interruption.lease.stem
    assert worker["process"] == os.getpid()
    assert worker["dead"] is False
    [worker] = inspected(interruption.config.runs)["at_work"]
    assert worker["name"] == interruption.lease.stem
    assert worker["process"] == DEAD
    assert worker["dead"] is True


def test_of_finished_runs_it_tells_what_is_damaged(
    interruption: Interruption, tmp_path: Path
) -> None:
    runs = interruption.config.runs
    gaam_decoder.train(interruption.config)
    inspection = inspect(runs)
    assert inspection.complete is True
    assert inspection.damage == []
    assert len(inspection.to_dict()["runs"]) == 2
    run = next(runs.glob("gaam*"))
    assert inspected(run)["attention"] == "gaam:heads=2"
    (run / "run.json").unlink()
    states = [entry["state"] for entry in inspected(runs)["runs"]]
    assert states == ["damaged", "finished"]
    with pytest.raises(NotFoundError):
        inspect(tmp_path)
