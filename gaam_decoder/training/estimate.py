"""What a training would do: a list, with an estimate of the time. Nothing is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from gaam_cache import devices
from gaam_cache.cache import EmbeddingCache, open_cache
from gaam_cache.format.targets import check_folder
from gaam_cache.messages import duration
from gaam_decoder.config import TrainConfig
from gaam_decoder.number_lists import spell_budget, spell_layers, spell_numbers
from gaam_decoder.runs.run_folders import runs_of_key
from gaam_decoder.specs import row_title
from gaam_decoder.training.finals import apart
from gaam_decoder.training.items import (
    Item,
    families_of,
    lacking_seeds,
    plan_items,
)
from gaam_decoder.training.reading import Reading
from gaam_decoder.training.timing import Timed


@dataclass(frozen=True, kw_only=True, slots=True)
class EstimatedRun:
    """One row of the table to be."""

    attention: str
    head: str
    pool: str
    lr: float | None
    """None where it is chosen among those above, and where a head is fitted at once."""
    weight_decay: float | None
    layers: str
    """Layer numbers, or 'all'."""
    train_rows: int | None
    shots: int | None
    """Rows that are learned from, or rows of every class; None is all."""
    fold: str | None
    shuffled: bool
    """Whether labels are shuffled."""
    shuffle: str
    """Order of the training rows."""
    final: bool
    """Whether it is a final model, which is not evaluated."""
    seeds: str
    """Seeds still to be trained; empty where all are there."""
    num_seeds: int
    seconds: float
    """Estimate, from a few steps of one seed that were timed."""
    how: str


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainEstimate:
    """Everything that a config asks for."""

    runs: tuple[EstimatedRun, ...]
    reading: tuple[Reading, ...] = ()
    """What the rows cost to read, each of different ones once."""
    workers: int = 1
    """With a device each that share the work."""

    @property
    def seconds(self) -> float:
        """Estimate for all, of one worker."""
        return sum(run.seconds for run in self.runs)

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        reading = [one.to_dict() for one in self.reading]
        runs = [asdict(run) for run in self.runs]
        of_all = {"seconds": self.seconds, "workers": self.workers}
        return of_all | {"runs": runs, "reading": reading}

    def in_words(self) -> str:
        """Lines for people."""
        lines = []
        for run in self.runs:
            layers = run.layers if run.layers != "all" else None
            what = row_title(
                run.attention,
                run.head,
                pool=run.pool,
                lr=run.lr,
                weight_decay=run.weight_decay,
                layers=layers,
                budget=spell_budget(run.train_rows, run.shots),
                fold=run.fold,
                shuffled=run.shuffled,
                shuffle=run.shuffle,
                final=run.final,
            )
            if run.num_seeds:
                seeds = f"seeds {run.seeds}, " if run.lr is not None else ""
                what += f": {seeds}about {duration(run.seconds)}; {run.how}"
            else:
                what += ": all seeds are there" if run.lr is not None else ": it is there"
            lines.append(what)
        count = sum(run.num_seeds for run in self.runs)
        total = f"{_some(count, 'training')} in {_some(len(self.runs), 'run')}"
        total += f", about {duration(self.seconds)}"
        if self.workers > 1:
            share = duration(self.seconds / self.workers)
            total += f" of one worker, {share} of {self.workers} with a device each"
        return "\n".join([*lines, *(one.in_words() for one in self.reading), total])


def estimate(config: TrainConfig, cache: EmbeddingCache | None = None) -> TrainEstimate:
    """List what ``train`` would do and time a few steps of every decoder.

    Args:
        config: of the training.
        cache: that of the config where it is open, or what it is expected to be.

    Raises:
        ConfigError: an argument does not fit the cache, or no folder of runs can be there.
        NotFoundError: no cache.
        CacheError: an incomplete or damaged cache, or a damaged run.
    """
    check_folder(config.runs, option="--runs")
    device = devices.resolve_device(config.device)
    cache = open_cache(config.cache) if cache is None else cache
    items = plan_items(config, cache, device)
    steps = Timed(config, cache, device)
    asked = config.seeds if config.tune_seeds is None else config.tune_seeds
    runs = []
    evaluated, grids = items, list[list[Item]]()
    if config.tune_seeds is not None:
        evaluated, finals = apart(items, config)
        grids = [*families_of(evaluated), *families_of(finals)]
        of_grids = {item.key for grid in grids for item in grid}
        grids += [[item] for item in finals if item.key not in of_grids]
    for item in evaluated:
        seeds = lacking_seeds(item, asked, runs_of_key(config.runs, item.key))
        runs.append(_estimated([item], seeds, *steps.of(item, len(seeds))))
    for candidates in grids:
        lacking = [
            lacking_seeds(item, config.seeds, runs_of_key(config.runs, item.key))
            for item in candidates
        ]
        seeds = min(lacking, key=len)  # if it is that one
        runs.append(_estimated(candidates, seeds, *steps.of(candidates[0], len(seeds))))
    workers = _workers(config, device)
    return TrainEstimate(runs=tuple(runs), reading=tuple(steps.reading), workers=workers)


def _estimated(
    candidates: Sequence[Item], seeds: list[int], seconds: float, how: str
) -> EstimatedRun:
    """Of one item, or of the one that will be chosen."""
    recipe, alone = candidates[0].recipe, len(candidates) == 1
    return EstimatedRun(
        attention=str(recipe.attention),
        head=str(recipe.head),
        pool=recipe.pool,
        lr=recipe.lr if alone and not recipe.fitted else None,
        weight_decay=recipe.weight_decay if alone and not recipe.fitted else None,
        layers=spell_layers(recipe.layers),
        train_rows=recipe.train_rows,
        shots=recipe.shots,
        fold=str(recipe.fold) if recipe.fold else None,
        shuffled=recipe.shuffle_labels,
        shuffle=recipe.shuffle,
        final=recipe.final,
        seeds=spell_numbers(seeds),
        num_seeds=len(seeds),
        seconds=seconds,
        how=how if alone else f"the best of these {len(candidates)} on validation; {how}",
    )


def _workers(config: TrainConfig, device: torch.device) -> int:
    """Workers with a device of their own; those of a CPU share its cores."""
    if config.engine == "local" and device.type != "cuda":
        return 1
    if config.devices == "all":
        return torch.cuda.device_count() if config.engine == "local" else 1
    numbers = [number for number in config.devices.split(",") if number]
    return len(numbers) if "," in config.devices else int(numbers[0])


def _some(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"
