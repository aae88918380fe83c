"""Training configurations of tests, with settings as loose as callers write them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import gaam_decoder
from gaam_decoder import RunResult, TrainConfig
from gaam_decoder.use.predictor import AnyPredictions
from gaam_decoder.use.results import NumberPredictions


def train_config(cache: Path, runs: Path, **settings: Any) -> TrainConfig:
    """A configuration without the linear probe, unless the settings ask for it."""
    return TrainConfig(cache=cache, runs=runs, **({"probe": False} | settings))


def loose_config(**settings: Any) -> TrainConfig:
    """A configuration of settings in any form that it reads, such as ``seeds="0-3"``."""
    return TrainConfig(**settings)


def change(config: TrainConfig, **settings: Any) -> TrainConfig:
    """The configuration with other settings."""
    return replace(config, **settings)


def train_single_run(config: TrainConfig, **settings: Any) -> RunResult:
    """Train what makes one run."""
    [run] = gaam_decoder.train(change(config, **settings))
    return run


def probabilities_of(predictions: AnyPredictions) -> NDArray[np.floating]:
    """The probabilities of predictions that are no numbers."""
    assert not isinstance(predictions, NumberPredictions)
    return predictions.probabilities_NC
