"""What is slow or harmful in the order of training rows: those on disk, and what a window mixes.

C classes, M rows of a block.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np

from gaam_cache.errors import GaamWarning
from gaam_decoder.recipe import Recipe
from gaam_decoder.training.rows.data import Subset, TrainData
from gaam_decoder.training.rows.free_memory import free_on
from gaam_decoder.training.rows.loaded import BLOCKS, BLOCKS_SHARE
from gaam_decoder.training.rows.order import blocks_of_epoch, largest_block

FEWEST_BLOCKS = 8
"""Of an epoch, in a window that is suggested: the first is read while nothing is computed."""
SEEN_EPOCHS = 3
"""Whose blocks are looked at; shards meet others in every epoch."""
SURELY_THERE = 10
"""Rows of a class in a block, in the mean, of which a random block hardly ever has none."""
MOST_APART = 0.1
"""Of ``unmixed``. Measured on 4,999 texts of AG News through MiniLM, sorted by class, with a linear
head and ten seeds: with --select last, blocks that were off by 11% or more cost up to 5 points,
those of 8% none; with --select val, which passes over epochs that end badly, none cost any."""


def window_for(train: Subset) -> str:
    """A window whose blocks take a quarter of the free memory, or are an eighth of the rows."""
    free = free_on(train.features.device)
    most = BLOCKS_SHARE * free / 2 / BLOCKS / train.features.row_bytes
    rows = max(1, int(min(len(train) / FEWEST_BLOCKS, most)))
    round_to = 10 ** max(0, len(str(rows)) - 2)
    return f"window:{rows // round_to * round_to}"


def warn_of_order(data: TrainData, recipe: Recipe, title: str, told: set[str]) -> None:
    """Say what is slow or harmful in the order of the rows, once.

    Args:
        data: rows.
        recipe: their order.
        title: of what is trained.
        told: what was said before.

    Warns:
        GaamWarning: every seed reads rows of its own from disk, or blocks hold other classes than
            the split.
    """
    for about, line in _faults(data, recipe):
        if about not in told:
            told.add(about)
            warnings.warn(f"{title}: {line}", GaamWarning, stacklevel=3)


def _faults(data: TrainData, recipe: Recipe) -> Iterator[tuple[str, str]]:
    train = data.train
    if train.features.place == "disk" and recipe.window is None:
        size = _size(len(train) * train.features.row_bytes)
        yield (
            f"disk, {size}",
            f"{size} of training rows stay on disk, where every seed reads them row by row in "
            f"every epoch; --set shuffle={window_for(train)} reads them once for a group of seeds, "
            "memory-share lets them take more memory",
        )
    found = unmixed(data, recipe)
    if found is not None:
        yield f"{recipe.shuffle}, {recipe.fold}, {recipe.split_seed}, classes", found


def unmixed(data: TrainData, recipe: Recipe) -> str | None:
    """In what the blocks of a window differ from the split in their classes, if that matters.

    Of every block the share of rows that would have to be of other classes (the total variation
    distance), less what a block of as many random rows has on average. Rows in random order have 0.
    """
    if recipe.window is None:
        return None
    label_N = data.train.label_N.cpu().numpy()
    share_C = np.bincount(label_N) / len(label_N)
    apart, lacking, count = [], 0, 0
    for epoch in range(1, min(SEEN_EPOCHS, recipe.epochs) + 1):
        for block_M in blocks_of_epoch(data.train.rows, recipe, epoch):
            found_C = np.bincount(label_N[block_M], minlength=len(share_C)) / len(block_M)
            by_chance = np.sqrt(share_C * (1 - share_C) / (2 * np.pi * len(block_M))).sum()
            apart.append(np.abs(found_C - share_C).sum() / 2 - by_chance)
            lacking += bool((found_C[share_C * len(block_M) > SURELY_THERE] == 0).any())
            count += 1
    mean = float(np.mean(apart))
    if mean <= MOST_APART:
        return None
    rows = largest_block(data.train.rows, recipe)
    return (
        f"--set shuffle={recipe.shuffle} does not mix the classes, as of sorted rows: those of "
        f"a block are off by {100 * mean:.0f}% of its rows on average"
        + (f", and {lacking} of {count} blocks lack a class" if lacking else "")
        + f" (blocks of up to {rows:,} rows, shards of {recipe.shard_rows:,}); decoders forget "
        "what the last blocks lack, most with --select last: a larger window, rows shuffled before "
        "gaam extract, or smaller shards (shard-rows)"
    )


def _size(count: float) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count / 1e3:.1f} kB"
