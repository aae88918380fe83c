"""In which order the seeds of a group see the training rows: pure functions of recipe and rows.

``full``: every seed has a permutation of all rows. ``window:ROWS``: an epoch is a row of blocks,
the same for all seeds, and every seed permutes within each. A block is one shard or several whole
ones; as many as hold at most ROWS training rows together. The shards come in an order that the
epoch decides, and nothing else.

The rows of a seed are those of its blocks, one behind the other, cut into batches without regard to
where a block ends: what a block leaves over begins the batch that the next one completes. So only
the last batch of an epoch is short, and one block that holds all rows is ``full``, bit for bit.

S seeds, N training rows, M of a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from gaam_decoder.decoder import stream_seed
from gaam_decoder.recipe import Recipe
from gaam_decoder.training.rows.protocol import Rows

EVERY_SEED = 0
"""In the place of a seed, where all are to draw the same."""


class Section(NamedTuple):
    """A block in the order of every seed."""

    block_M: Rows  # noqa: N815 a shape suffix
    """Places among the training rows, ascending."""
    order_SM: Rows  # noqa: N815
    """Places in the block."""


def blocks_of_epoch(row_N: Rows, recipe: Recipe, epoch: int) -> list[Rows]:
    """Places of the training rows in blocks; together every one of them once.

    Args:
        row_N: numbers of the training rows in the split, ascending.
        recipe: its window, and the rows of a shard.
        epoch: from 1.
    """
    whole = np.arange(len(row_N))
    if recipe.window is None:
        return [whole]
    shards = _by_shard(row_N, recipe)
    seed = stream_seed(EVERY_SEED, "shards", epoch)
    blocks: list[list[Rows]] = []
    held = 0
    for number in np.random.default_rng(seed).permutation(len(shards)):
        shard = shards[number]
        if not blocks or held + len(shard) > recipe.window:
            blocks.append([])
            held = 0
        blocks[-1].append(shard)
        held += len(shard)
    # in the order of the data set: read in one direction, and as 'full' where all are in one
    return [np.sort(np.concatenate(block)) for block in blocks]


def largest_block(row_N: Rows, recipe: Recipe) -> int:
    """Rows that no block of any epoch exceeds."""
    if recipe.window is None:
        return len(row_N)
    largest = max(map(len, _by_shard(row_N, recipe)), default=0)
    return min(len(row_N), max(recipe.window, largest))


def in_order(blocks: Sequence[Rows], seeds: Sequence[int], epoch: int) -> Iterator[Section]:
    """The blocks of an epoch, each permuted by every seed with a generator of its own.

    Shape:
        permutations (S, M).
    """
    generators = [np.random.default_rng(stream_seed(seed, "order", epoch)) for seed in seeds]
    for block_M in blocks:
        drawn = [generator.permutation(len(block_M)) for generator in generators]
        yield Section(block_M, np.stack(drawn))


def _by_shard(row_N: Rows, recipe: Recipe) -> list[Rows]:
    """Places of the rows of every shard that has any."""
    assert recipe.shard_rows is not None
    shard_N = row_N // recipe.shard_rows
    return np.split(np.arange(len(row_N)), np.flatnonzero(np.diff(shard_N)) + 1)
