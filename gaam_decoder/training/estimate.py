"""What there is to train, and roughly how long it takes. Nothing is written."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch

from gaam_cache import devices
from gaam_cache.cache import EmbeddingCache, open_cache
from gaam_cache.messages import duration
from gaam_cache.store.files import check_folder
from gaam_decoder.config import TrainConfig
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.runs.folders import runs_of_key
from gaam_decoder.specs import build
from gaam_decoder.training.arithmetic.engine import (
    COMPILER_SECONDS,
    Engine,
    choose_engine,
    groups_of,
)
from gaam_decoder.training.candidates import apart
from gaam_decoder.training.data import TrainData, prepare_data
from gaam_decoder.training.features import Loaded
from gaam_decoder.training.grid import Item, families_of, lacking_seeds, plan_items, seeds_of
from gaam_decoder.training.group import Group
from gaam_decoder.training.probe import fit_cost
from gaam_decoder.training.protocol import num_rows

TIMED_STEPS = 3
LONGEST_SECONDS = 60.0
"""Of all timing; what is left then has no time."""
SHOWN = 30
"""Runs that are listed for people."""
COMPILED_SPEED = 4.0
"""Of a compiled step, where the one that is timed has the speed 1. Measured on two cores: 1 for
mechanisms of matrix products, 7 for gates."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EstimatedRun:
    """One run to be."""

    title: str
    """Where one of several rates will be chosen, with one of them."""
    recipe: dict[str, Any]
    """The same."""
    candidates: int
    """How many rates those are; 1 where nothing is chosen."""
    epochs: int | None
    """None where the head is fitted at once."""
    seeds: tuple[int, ...]
    """Still to be trained."""
    done: int
    """Seeds that are there."""
    seconds: float | None
    """None where there was no time to time it."""
    how: str
    """Seeds together, compiled or not."""

    def in_words(self) -> str:
        """One line."""
        title = self.title
        if self.candidates > 1:
            title += f" or what else is best of {self.candidates}"
        if not self.seeds:
            return f"{title}: all seeds are there"
        line = f"{title}: seeds {spell_numbers(self.seeds)}"
        line += f", {self.epochs} epochs" if self.epochs else ""
        line += f", {self.done} are there" if self.done else ""
        return line + (f", {duration(self.seconds)}" if self.seconds is not None else "")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainEstimate:
    """Everything that a config asks for."""

    runs: tuple[EstimatedRun, ...]

    @property
    def trainings(self) -> int:
        """Seeds of all runs that are still to be trained."""
        return sum(len(run.seeds) for run in self.runs)

    @property
    def seconds(self) -> float:
        """Of one worker, for what was timed."""
        return sum(run.seconds or 0.0 for run in self.runs)

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        runs = [asdict(run) for run in self.runs]
        return {"trainings": self.trainings, "seconds": self.seconds, "runs": runs}

    def total(self) -> str:
        """All in one line."""
        if not self.trainings:
            return f"all {len(self.runs)} runs are there"
        untimed = sum(run.seconds is None for run in self.runs)
        line = f"roughly {duration(max(1, self.seconds))} for {self.trainings:,} trainings"
        line += f" in {sum(bool(run.seeds) for run in self.runs):,} of {len(self.runs):,} runs"
        return line + (f"; {untimed} of these were not timed" if untimed else "")

    def in_words(self) -> str:
        """Lines for people."""
        lines = [f"  {run.in_words()}" for run in self.runs[:SHOWN]]
        if len(self.runs) > SHOWN:
            lines.append(f"  and {len(self.runs) - SHOWN:,} more, which --json lists")
        return "\n".join([f"{self.total()}; nothing was written", *lines])


def estimate(config: TrainConfig) -> TrainEstimate:
    """List what ``train`` would do and time a few steps of every decoder.

    Raises:
        ConfigError: an argument does not fit the cache, or no folder of runs can be there.
        NotFoundError: no cache.
        CacheError: an incomplete or damaged cache, or a damaged run.
    """
    check_folder(config.runs, option="--runs")
    device = devices.resolve_device(config.device)
    cache = open_cache(config.cache)
    items = plan_items(config, cache, device)
    # what is trained with which seeds; of several candidates one will be
    asked: list[tuple[list[Item], Sequence[int]]]
    if config.tune_seeds is None:
        asked = [([item], config.seeds) for item in items]
    else:
        evaluated, finals = apart(items, config)
        grids = [*families_of(evaluated), *families_of(finals)]
        of_grids = {item.key for grid in grids for item in grid}
        grids += [[item] for item in finals if item.key not in of_grids]
        asked = [([item], config.tune_seeds) for item in evaluated]
        asked += [(grid, config.seeds) for grid in grids]
    clock = _Clock(config, cache, device)
    runs = []
    for candidates, seeds in asked:
        there = [runs_of_key(config.runs, item.key) for item in candidates]
        lacking = [
            lacking_seeds(item, seeds, runs) for item, runs in zip(candidates, there, strict=True)
        ]
        fewest = min(lacking, key=len)  # if it is that one
        item = candidates[lacking.index(fewest)]
        seconds, how = clock.time(item, len(fewest))
        runs.append(
            EstimatedRun(
                title=str(item),
                recipe=item.recipe.to_dict(),
                candidates=len(candidates),
                epochs=None if item.recipe.fitted else item.epochs,
                seeds=tuple(fewest),
                done=len(seeds_of(item, seeds)) - len(fewest),
                seconds=seconds,
                how=how,
            )
        )
    return TrainEstimate(runs=tuple(runs))


class _Clock:
    """Seconds of items, each decoder timed once."""

    def __init__(self, config: TrainConfig, cache: EmbeddingCache, device: torch.device) -> None:
        self._config, self._cache, self._device = config, cache, device
        self._loaded = Loaded(0.0)  # a few rows are read from disk
        self._started = time.perf_counter()
        self._per_row: dict[tuple[Any, ...], float] = {}

    def time(self, item: Item, num_seeds: int) -> tuple[float | None, str]:
        """Seconds of so many seeds, and how they will be run."""
        if not num_seeds:
            return 0.0, ""
        if item.recipe.fitted:
            seconds, _ = fit_cost(item.spec, num_rows(item.recipe, self._cache), self._device)
            return seconds, f"fitted at once, {self._device}"
        data = prepare_data(self._cache, item.recipe, self._device, self._loaded)
        engine = choose_engine(
            item.spec,
            item.recipe,
            self._device,
            num_seeds=num_seeds,
            num_rows=len(data.train),
            seed_batch=self._config.seed_batch,
            compile=self._config.compile,
        )
        groups = groups_of(range(num_seeds), engine.seed_batch)
        few = min(len(data.train), item.recipe.batch_size * TIMED_STEPS)
        kind = item.spec, len(groups[0]), few
        if kind not in self._per_row:
            if time.perf_counter() - self._started > LONGEST_SECONDS:
                return None, engine.in_words()
            self._per_row[kind] = _seconds_per_row(item, data, engine, groups[0], few)
        seconds = self._per_row[kind] * len(data.train) * item.epochs * len(groups)
        if engine.compiled:
            seconds = COMPILER_SECONDS + seconds / COMPILED_SPEED
        return seconds, engine.in_words()


def _seconds_per_row(
    item: Item, data: TrainData, engine: Engine, seeds: list[int], few: int
) -> float:
    """Of seeds together, by training on a few rows twice; the first warms up."""
    train = replace(data.train, rows=data.train.rows[:few], label_N=data.train.label_N[:few])
    group = Group(
        item.spec,
        replace(data, train=train, selection=None),
        item.recipe,
        seeds,
        loss_of=build(item.recipe.loss, "loss"),
        engine=replace(engine, compiled=False),
    )
    group.train_epoch()
    warm = group.seconds
    group.train_epoch()
    return (group.seconds - warm) / few
