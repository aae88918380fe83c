"""Estimate what a training has to do and how long it takes. Nothing is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from gaam_cache.common import devices
from gaam_cache.common.messages import counted, duration
from gaam_cache.store.reader import EmbeddingCache, open_cache
from gaam_decoder.config import TrainConfig
from gaam_decoder.decoder import DecoderSpec
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.runs.folders import check_runs_folder, runs_of_key
from gaam_decoder.runs.tuning import TUNED_SETTINGS
from gaam_decoder.specs import decoder_title
from gaam_decoder.training.arithmetic.engine import (
    COMPILER_SECONDS,
    Engine,
    choose_engine,
    divide_seeds,
    without_denormals,
)
from gaam_decoder.training.data import LoadedFeatures, TrainData, prepare_data
from gaam_decoder.training.experiments import (
    Experiment,
    candidate_grids,
    candidates_of,
    plan_experiments,
)
from gaam_decoder.training.probe import fit_cost
from gaam_decoder.training.seed_batch import SeedBatch
from gaam_decoder.training.splits import num_rows

TIMED_STEPS = 3
# a compiled step is assumed to be 4 times as fast as an uncompiled one; measured on two
# cores: 1 for matrix products, 7 for gates
COMPILED_SPEED = 4.0


class EstimatedRun(NamedTuple):
    """A run that a training would make, of one of the candidates of a decoder."""

    title: str
    recipe: dict[str, Any]
    candidates: int  # number of recipes of which tuning chooses one
    epochs: int | None  # None where a head is fitted without epochs
    seeds: tuple[int, ...]  # missing seeds, which the training would train
    done: int  # number of requested seeds that existing runs hold
    seconds: float


class TrainEstimate(NamedTuple):
    """The work that a config asks for."""

    trainings: int  # seeds of all runs that are still to be trained
    seconds: float  # of one worker
    runs: tuple[EstimatedRun, ...]

    def to_dict(self) -> dict[str, object]:
        """JSON values."""
        return self._asdict() | {"runs": [run._asdict() for run in self.runs]}

    def in_words(self) -> str:
        """The time and the number of trainings, then a line for each run."""
        lines = [
            f"roughly {duration(max(1, self.seconds))} for "
            f"{counted(self.trainings, 'training')} in "
            f"{counted(len(self.runs), 'run')}; nothing was written"
        ]
        for run in self.runs:
            line = f"  {run.title}"
            if run.candidates > 1:
                line += f" (tuning chooses among {run.candidates} candidates)"
            line += f": seeds {spell_numbers(run.seeds) or 'are all there'}"
            if run.seeds:
                line += f", {duration(run.seconds)}"
            lines.append(line)
        return "\n".join(lines)


@without_denormals()
def estimate(config: TrainConfig) -> TrainEstimate:
    """List the work of ``train`` and time some steps of every decoder.

    It raises as ``train`` does.

    >>> config = gaam_decoder.TrainConfig(attn=("laplace",), cache="cache", lr=1e-3)
    >>> print(gaam_decoder.estimate(config).in_words())  # doctest: +ELLIPSIS
    roughly...
    """
    check_runs_folder(config.runs)
    device = devices.resolve_device(config.device)
    cache = open_cache(config.cache)
    experiments = plan_experiments(config, cache, device)

    # tuning seeds train every candidate, reporting seeds one of each decoder
    requested: list[tuple[list[Experiment], Sequence[int]]] = []
    tuning_seeds = config.resolved_tune_seeds
    if tuning_seeds is None:
        requested += [([experiment], config.seeds) for experiment in experiments]
    else:
        candidates = candidates_of(experiments, config, cache)
        requested += [
            ([experiment], tuning_seeds) for experiment in candidates.values()
        ]
        requested += [(grid, config.seeds) for grid in candidate_grids(experiments)]

    timer = _Timer(config, cache, device)
    runs = [_estimate_run(grid, seeds, config, timer) for grid, seeds in requested]
    trainings = sum(len(run.seeds) for run in runs)
    seconds = sum(run.seconds for run in runs)
    return TrainEstimate(trainings, seconds, tuple(runs))


def _estimate_run(
    grid: Sequence[Experiment], seeds: Sequence[int], config: TrainConfig, timer: _Timer
) -> EstimatedRun:
    """Estimate the run of a decoder.

    Of several candidates, tuning will choose one. The estimate is that of the candidate
    with the fewest missing seeds: it may be the one that an earlier training chose.

    Args:
        grid: the candidates.
        seeds: that the config requests.
        config: of the training.
        timer: times steps.
    """
    missing_seeds_by_key: dict[str, list[int]] = {}
    for candidate in grid:
        runs = runs_of_key(config.runs, candidate.key)
        missing_seeds_by_key[candidate.key] = candidate.missing_seeds(seeds, runs)
    experiment = min(
        grid, key=lambda candidate: len(missing_seeds_by_key[candidate.key])
    )
    missing_seeds = missing_seeds_by_key[experiment.key]
    return EstimatedRun(
        title=_title_before_tuning(grid),
        recipe=experiment.recipe.to_dict(),
        candidates=len(grid),
        epochs=None if experiment.recipe.is_fitted_at_once else experiment.epochs,
        seeds=tuple(missing_seeds),
        done=len(experiment.seeds_to_train(seeds)) - len(missing_seeds),
        seconds=timer.seconds(experiment, missing_seeds) if missing_seeds else 0.0,
    )


def _title_before_tuning(grid: Sequence[Experiment]) -> str:
    """The title of a decoder, without the settings that tuning has yet to choose."""
    first = grid[0].recipe
    settings = first.to_dict()
    for name in TUNED_SETTINGS:
        if len({getattr(candidate.recipe, name) for candidate in grid}) > 1:
            del settings[name]
    return decoder_title(first.attention, first.head, settings, final=first.final)


class _TimedBatch(NamedTuple):
    """A seed batch that is timed once: others of its kind take as long."""

    spec: DecoderSpec
    num_seeds: int
    num_rows: int  # training rows that are timed


class _Timer:
    """Times a few steps of decoders, each decoder once."""

    def __init__(
        self, config: TrainConfig, cache: EmbeddingCache, device: torch.device
    ) -> None:
        self._config = config
        self._cache = cache
        self._device = device
        # no share of the memory: the few rows that are timed are read from disk
        self._loaded = LoadedFeatures(share=0.0)
        self._seconds_per_row: dict[_TimedBatch, float] = {}

    def seconds(self, experiment: Experiment, missing_seeds: Sequence[int]) -> float:
        """Seconds that the missing seeds of an experiment may take."""
        if experiment.recipe.is_fitted_at_once:
            rows = num_rows(experiment.recipe, self._cache)
            seconds, _num_bytes = fit_cost(experiment.spec, rows, self._device)
            return seconds
        data = prepare_data(self._cache, experiment.recipe, self._device, self._loaded)
        rows = len(data.train)
        engine = choose_engine(
            experiment.spec,
            experiment.recipe,
            self._device,
            num_seeds=len(missing_seeds),
            num_rows=rows,
            seed_batch=self._config.seed_batch,
            compile=self._config.compile,
        )
        seed_batches = divide_seeds(missing_seeds, engine.seed_batch)

        # each decoder is timed once for a number of seeds
        timed_rows = min(rows, experiment.recipe.batch_size * TIMED_STEPS)
        first_batch = seed_batches[0]
        timed_batch = _TimedBatch(experiment.spec, len(first_batch), timed_rows)
        if timed_batch not in self._seconds_per_row:
            self._seconds_per_row[timed_batch] = _time_row(
                experiment, data, timed_rows, first_batch, engine
            )
        seconds_per_row = self._seconds_per_row[timed_batch]
        seconds = seconds_per_row * rows * experiment.epochs * len(seed_batches)
        # the timed steps are not compiled
        if engine.compiled:
            seconds = COMPILER_SECONDS + seconds / COMPILED_SPEED
        return seconds


def _time_row(
    experiment: Experiment,
    data: TrainData,
    timed_rows: int,
    seeds: Sequence[int],
    engine: Engine,
) -> float:
    """Seconds that a seed batch takes for a training row, without a compiler: measured.

    Args:
        experiment: the decoder and its recipe.
        data: of the training.
        timed_rows: number of training rows to time.
        seeds: of the seed batch.
        engine: how the seeds are run.
    """
    train = data.train
    subset = replace(
        train, rows=train.rows[:timed_rows], label_N=train.label_N[:timed_rows]
    )
    training = SeedBatch(
        experiment.spec,
        replace(data, train=subset, selection=None),
        experiment.recipe,
        seeds,
        engine=replace(engine, compiled=False),
    )

    # the first epoch warms up
    training.train_epoch()
    warm_up = training.seconds
    training.train_epoch()
    return (training.seconds - warm_up) / timed_rows
