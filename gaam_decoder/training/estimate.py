"""What a training would do: a list, with an estimate of the time. Nothing is written."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from gaam_cache import devices
from gaam_cache.cache import EmbeddingCache, open_cache
from gaam_decoder.config import TrainConfig
from gaam_decoder.decoder import DecoderSpec
from gaam_decoder.number_lists import spell_layers, spell_numbers
from gaam_decoder.runs.run_folders import runs_of_key
from gaam_decoder.specs import build, row_title
from gaam_decoder.training.arithmetic.engine import (
    COMPILER_SECONDS,
    LOWER,
    Engine,
    choose_engine,
)
from gaam_decoder.training.group import Group
from gaam_decoder.training.items import (
    Item,
    families_of,
    lacking_seeds,
    plan_items,
)
from gaam_decoder.training.probe import fit_cost
from gaam_decoder.training.rows.data import TrainData, prepare_data
from gaam_decoder.training.rows.loaded import Loaded

TIMED_STEPS = 3
FUSED_SPEED = 20.0
"""Measured: how much faster all but matrix products is for seeds together and compiled."""


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
    fold: str | None
    shuffled: bool
    """Whether labels are shuffled."""
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

    @property
    def seconds(self) -> float:
        """Estimate for all."""
        return sum(run.seconds for run in self.runs)

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {"seconds": self.seconds, "runs": [asdict(run) for run in self.runs]}

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
                fold=run.fold,
                shuffled=run.shuffled,
            )
            if run.num_seeds:
                seeds = f"seeds {run.seeds}, " if run.lr is not None else ""
                what += f": {seeds}about {_duration(run.seconds)}; {run.how}"
            else:
                what += ": all seeds are there" if run.lr is not None else ": it is there"
            lines.append(what)
        count = sum(run.num_seeds for run in self.runs)
        total = f"{_some(count, 'training')} in {_some(len(self.runs), 'run')}"
        total += f", about {_duration(self.seconds)}"
        return "\n".join([*lines, total])


def estimate(config: TrainConfig) -> TrainEstimate:
    """List what ``train`` would do and time a few steps of every decoder.

    Raises:
        ConfigError: an argument does not fit the cache.
        NotFoundError: no cache.
        CacheError: an incomplete or damaged cache, or a damaged run.
    """
    device = devices.resolve_device(config.device)
    cache = open_cache(config.cache)
    items = plan_items(config, cache, device)
    steps = _Timed(config, cache, device)
    asked = config.seeds if config.tune_seeds is None else config.tune_seeds
    runs = []
    for item in items:
        seeds = lacking_seeds(item, asked, runs_of_key(config.runs, item.key))
        runs.append(_estimated([item], seeds, *steps.of(item, len(seeds))))
    for candidates in families_of(items) if config.tune_seeds is not None else ():
        lacking = [
            lacking_seeds(item, config.seeds, runs_of_key(config.runs, item.key))
            for item in candidates
        ]
        seeds = min(lacking, key=len)  # if it is that one
        runs.append(_estimated(candidates, seeds, *steps.of(candidates[0], len(seeds))))
    return TrainEstimate(runs=tuple(runs))


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
        fold=str(recipe.fold) if recipe.fold else None,
        shuffled=recipe.shuffle_labels,
        seeds=spell_numbers(seeds),
        num_seeds=len(seeds),
        seconds=seconds,
        how=how if alone else f"the best of these {len(candidates)} on validation; {how}",
    )


class _Timed:
    """Seconds of items, each decoder timed once."""

    def __init__(self, config: TrainConfig, cache: EmbeddingCache, device: torch.device) -> None:
        self._config = config
        self._cache = cache
        self._device = device
        self._loaded = Loaded(config.memory_share)
        self._per_row: dict[DecoderSpec, float] = {}

    def of(self, item: Item, num_seeds: int) -> tuple[float, str]:
        """Estimated time, and how it will be run; nothing for no seeds."""
        if not num_seeds:
            return 0.0, ""
        if item.recipe.fitted:
            rows = len(self._cache[item.recipe.train_split])
            return fit_cost(item.spec, rows, self._device)[0], f"fitted at once, {self._device}"
        data = prepare_data(self._cache, item.recipe, self._device, self._loaded)
        rows = len(data.train)
        engine = choose_engine(
            item.spec,
            item.recipe,
            self._device,
            num_seeds=num_seeds,
            num_rows=rows,
            seed_batch=self._config.seed_batch,
            compile=self._config.compile,
        )
        if item.spec not in self._per_row:
            self._per_row[item.spec] = _seconds_per_row(item, data, engine)
        seconds = self._per_row[item.spec] * rows * self._config.epochs * num_seeds
        return seconds + (COMPILER_SECONDS if engine.compiled else 0.0), engine.in_words()


def _seconds_per_row(item: Item, data: TrainData, engine: Engine) -> float:
    """Of one seed over a few batches; where it will be compiled, what is known to remain of it."""
    size = item.recipe.batch_size
    few = data.train.rows[: size * TIMED_STEPS]
    train = replace(data.train, rows=few, label_N=data.train.label_N[: len(few)])
    group = Group(
        item.spec,
        replace(data, train=train, selection=None),
        item.recipe,
        [0],
        loss_of=build(item.recipe.loss, "loss"),
        engine=replace(engine, compiled=False),
    )
    best = float("inf")
    for _ in range(2):  # the first warms up
        start = time.perf_counter()
        group.train_epoch()
        if data.train.label_N.is_cuda:
            torch.cuda.synchronize(data.train.label_N.device)
        best = min(best, time.perf_counter() - start)
    if engine.compiled:
        with FlopCounterMode(display=False) as counter:
            group.train_epoch()
        products = min(best, counter.get_total_flops() / _product_speed(group, engine))
        best = products + (best - products) / FUSED_SPEED
    return best / len(few)


def _product_speed(group: Group, engine: Engine) -> float:
    """Floating-point operations a second of a matrix product of the size that decoders have."""
    dtype = LOWER.get(engine.dtype, torch.float32)
    a = torch.ones(512, 512, device=group.state.loss_S.device, dtype=dtype)
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        float((a @ a)[0, 0])  # waits for the device
        best = min(best, time.perf_counter() - start)
    return 2 * 512**3 / best


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def _some(count: int, what: str) -> str:
    return f"{count} {what}{'s' * (count != 1)}"
