"""A few steps of a decoder, timed: how long a training may take, and what it reads."""

from __future__ import annotations

import time
from dataclasses import replace

import torch
from torch.utils.flop_counter import FlopCounterMode
from torch.utils.module_tracker import ModuleTracker

from gaam_cache.cache import EmbeddingCache
from gaam_decoder.config import TrainConfig
from gaam_decoder.decoder import DecoderSpec
from gaam_decoder.specs import build
from gaam_decoder.training.arithmetic.engine import (
    COMPILER_SECONDS,
    LOWER,
    Engine,
    choose_engine,
    groups_of,
)
from gaam_decoder.training.group import Group
from gaam_decoder.training.items import Item
from gaam_decoder.training.probe import fit_cost
from gaam_decoder.training.reading import Reading, reading_of
from gaam_decoder.training.rows.budget import num_rows
from gaam_decoder.training.rows.data import TrainData, prepare_data
from gaam_decoder.training.rows.loaded import Loaded

TIMED_STEPS = 3
FUSED_SPEED = 20.0
"""Measured: how much faster all but matrix products is for seeds together and compiled."""


class Timed:
    """Seconds of items, each decoder timed once."""

    def __init__(self, config: TrainConfig, cache: EmbeddingCache, device: torch.device) -> None:
        self._config = config
        self._cache = cache
        self._device = device
        self._loaded = Loaded(config.memory_share)
        self._per_row: dict[tuple[DecoderSpec, int], float] = {}
        """By decoder and rows that were timed: of few the batches are smaller."""
        self.reading: list[Reading] = []

    def of(self, item: Item, num_seeds: int) -> tuple[float, str]:
        """Estimated time, and how it will be run; nothing for no seeds."""
        if not num_seeds:
            return 0.0, ""
        if item.recipe.fitted:
            rows = num_rows(item.recipe, self._cache)
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
        num_groups = len(groups_of(range(num_seeds), engine.seed_batch))
        reading = reading_of(data, item.recipe, num_seeds, num_groups)
        if reading not in self.reading:
            self.reading.append(reading)
        timed = item.spec, min(rows, item.recipe.batch_size * TIMED_STEPS)
        if timed not in self._per_row:
            self._per_row[timed] = _seconds_per_row(item, data, engine)
        seconds = self._per_row[timed] * rows * self._config.epochs * num_seeds
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
        counter = FlopCounterMode(display=False)
        counter.mod_tracker = _NoModules()
        with counter:
            group.train_epoch()
        products = min(best, counter.get_total_flops() / _product_speed(group, engine))
        best = products + (best - products) / FUSED_SPEED
    return best / len(few)


class _NoModules(ModuleTracker):
    """Operations are counted as one sum, without the hooks that say which module they are of.

    A module called on a leaf would leave a hook there that ``torch.autograd.grad`` does not take.
    """

    def __enter__(self) -> _NoModules:
        return self

    def __exit__(self, *args: object) -> None:
        pass


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
