"""What there is to train, and roughly how long it takes. Nothing is written."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, NamedTuple

from gaam_cache import devices
from gaam_cache.cache import open_cache
from gaam_cache.messages import duration
from gaam_cache.store.files import check_folder
from gaam_decoder.config import TrainConfig
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.runs.folders import runs_of_key
from gaam_decoder.specs import build
from gaam_decoder.training.arithmetic.engine import (
    COMPILER_SECONDS,
    choose_engine,
    groups_of,
)
from gaam_decoder.training.candidates import apart
from gaam_decoder.training.data import prepare_data
from gaam_decoder.training.features import Loaded
from gaam_decoder.training.grid import Item, families_of, lacking_seeds, plan_items, seeds_of
from gaam_decoder.training.group import Group
from gaam_decoder.training.probe import fit_cost
from gaam_decoder.training.protocol import num_rows

TIMED_STEPS = 3
LONGEST_SECONDS = 60.0
"""Of all timing; what is left then has no time."""
COMPILED_SPEED = 4.0
"""Of a compiled step, where the one that is timed has the speed 1. Measured on two cores: 1 for
mechanisms of matrix products, 7 for gates."""


class EstimatedRun(NamedTuple):
    """One run to be; where one of several rates will be chosen, with one of them."""

    title: str
    recipe: dict[str, Any]
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
        line = self.title + f" or what else is best of {self.candidates}" * (self.candidates > 1)
        if not self.seeds:
            return f"{line}: all seeds are there"
        line += f": seeds {spell_numbers(self.seeds)}"
        line += f", {self.epochs} epochs" if self.epochs else ""
        line += f", {self.done} are there" if self.done else ""
        return line + (f", {duration(self.seconds)}" if self.seconds is not None else "")


class TrainEstimate(NamedTuple):
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
        runs = [run._asdict() for run in self.runs]
        return {"trainings": self.trainings, "seconds": self.seconds, "runs": runs}

    def in_words(self) -> str:
        """Lines for people."""
        untimed = sum(run.seconds is None for run in self.runs)
        line = f"roughly {duration(max(1, self.seconds))} for {self.trainings:,} trainings"
        line += f" in {sum(bool(run.seeds) for run in self.runs):,} of {len(self.runs):,} runs"
        line += f"; {untimed} of these were not timed" if untimed else ""
        line = line if self.trainings else f"all {len(self.runs)} runs are there"
        lines = [f"{line}; nothing was written", *(run.in_words() for run in self.runs)]
        return "\n  ".join(lines)


def estimate(config: TrainConfig) -> TrainEstimate:
    """List what ``train`` would do and time a few steps of every decoder.

    >>> config = gaam_decoder.TrainConfig(attn=("laplace",), cache="cache", seeds=(0, 1))
    >>> print(gaam_decoder.estimate(config).in_words())  # doctest: +ELLIPSIS
    roughly...

    Raises:
        ConfigError: an argument does not fit the cache, or no folder of runs can be there.
        NotFoundError: no cache.
        CacheError: an incomplete or damaged cache, or a damaged run.
    """
    check_folder(config.runs, option="--runs")
    device = devices.resolve_device(config.device)
    cache = open_cache(config.cache)
    items = plan_items(config, cache, device)
    asked = [([item], config.seeds) for item in items]
    if config.tune_seeds is not None:  # of several candidates one will be trained with --seeds
        evaluated, finals = apart(items, config)
        grids = [*families_of(evaluated), *families_of(finals)]
        of_grids = {item.key for grid in grids for item in grid}
        grids += [[item] for item in finals if item.key not in of_grids]
        asked = [([item], config.tune_seeds) for item in evaluated]
        asked += [(grid, config.seeds) for grid in grids]
    loaded, started = Loaded(0.0), time.perf_counter()  # a few rows are read from disk
    per_row: dict[tuple[Any, ...], float] = {}

    def timed(item: Item, num_seeds: int) -> tuple[float | None, str]:
        """Seconds of so many seeds, and how they will be run; each decoder is timed once."""
        if not num_seeds:
            return 0.0, ""
        if item.recipe.fitted:
            seconds, _ = fit_cost(item.spec, num_rows(item.recipe, cache), device)
            return seconds, f"fitted at once, {device}"
        data = prepare_data(cache, item.recipe, device, loaded)
        engine = choose_engine(
            item.spec,
            item.recipe,
            device,
            num_seeds=num_seeds,
            num_rows=len(data.train),
            seed_batch=config.seed_batch,
            compile=config.compile,
        )
        [group, *others] = groups_of(range(num_seeds), engine.seed_batch)
        few = min(len(data.train), item.recipe.batch_size * TIMED_STEPS)
        kind = item.spec, len(group), few
        if kind not in per_row:
            if time.perf_counter() - started > LONGEST_SECONDS:
                return None, engine.in_words()
            part = replace(data.train, rows=data.train.rows[:few], label_N=data.train.label_N[:few])
            training = Group(
                item.spec,
                replace(data, train=part, selection=None),
                item.recipe,
                group,
                loss_of=build(item.recipe.loss, "loss"),
                engine=replace(engine, compiled=False),
            )
            training.train_epoch()
            warm = training.seconds
            training.train_epoch()
            per_row[kind] = (training.seconds - warm) / few
        seconds = per_row[kind] * len(data.train) * item.epochs * (1 + len(others))
        if engine.compiled:
            seconds = COMPILER_SECONDS + seconds / COMPILED_SPEED
        return seconds, engine.in_words()

    runs = []
    for several, seeds in asked:
        lacking = {
            item.key: lacking_seeds(item, seeds, runs_of_key(config.runs, item.key))
            for item in several
        }
        item = min(several, key=lambda item: len(lacking[item.key]))  # if it is that one
        left, all_seeds = tuple(lacking[item.key]), seeds_of(item, seeds)
        epochs, done = None if item.recipe.fitted else item.epochs, len(all_seeds) - len(left)
        about = str(item), item.recipe.to_dict(), len(several), epochs, left, done
        runs.append(EstimatedRun(*about, *timed(item, len(left))))
    return TrainEstimate(tuple(runs))
