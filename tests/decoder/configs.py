"""Training configurations of tests, with settings as loose as callers write them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import gaam_decoder
from gaam_decoder import RunResult, TrainConfig


def train_config(cache: Path, runs: Path, **settings: Any) -> TrainConfig:
    """A configuration without the linear probe, unless the settings ask for it."""
    return TrainConfig(cache=cache, runs=runs, **({"probe": False} | settings))


def change(config: TrainConfig, **settings: Any) -> TrainConfig:
    """The configuration with other settings."""
    return replace(config, **settings)


def train_single_run(config: TrainConfig, **settings: Any) -> RunResult:
    """Train what makes one run."""
    [run] = gaam_decoder.train(change(config, **settings))
    return run
