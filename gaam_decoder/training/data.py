"""What every seed learns from, is chosen by and is tested on, and in which order it sees it.

``full``: every seed has a permutation of all rows. ``window:ROWS``: an epoch is a row of blocks,
the same for all seeds, and every seed permutes within each. A block is one shard or several whole
ones; as many as hold at most ROWS training rows together. The shards come in an order that the
epoch decides, and nothing else.

The rows of a seed are those of its blocks, one behind the other, cut into batches without regard to
where a block ends: what a block leaves over begins the batch that the next one completes. So only
the last batch of an epoch is short, and one block that holds all rows is ``full``, bit for bit.

S seeds, B batch, N rows, M rows of a block, L layers, D hidden size.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from gaam_cache.cache import EmbeddingCache
from gaam_cache.errors import ConfigError, GaamWarning
from gaam_decoder.decoder import stream_seed
from gaam_decoder.recipe import Recipe
from gaam_decoder.training.features import BLOCKS, Features, Loaded, taken
from gaam_decoder.training.memory import free_on
from gaam_decoder.training.protocol import Rows, parts_of

EVERY_SEED = 0
"""In the place of a seed, where all are to draw the same."""
BLOCKS_SHARE = 0.5
"""Of the free memory that the blocks of a window may take, however little is for rows that stay."""
MOST_APART = 0.1
"""Of ``_apart``. Measured on 4,999 texts of AG News through MiniLM, sorted by class, with a linear
head and ten seeds: with --select last, blocks that were off by 11% or more cost up to 5 points,
those of 8% none; with --select val, which passes over epochs that end badly, none cost any."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Subset:
    """Rows of a split with their labels, on the device."""

    features: Features
    rows: Rows
    label_N: Tensor  # noqa: N815 a shape suffix

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.rows)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainData:
    """What every seed of every mechanism learns from, is chosen by and is tested on."""

    train: Subset
    selection: Subset | None
    """Rows that select the epoch; None keeps the last."""
    test: Subset | None
    """None of a final model, which learns from all rows."""


def choosing(data: TrainData, recipe: Recipe) -> Subset | None:
    """The rows of train that select the epoch, of which a run keeps the logits.

    None where none do. None of shuffled labels too, which every seed is told others of.
    """
    held = recipe.select == "val" and not recipe.shuffle_labels
    return data.selection if held else None


def prepare_data(
    cache: EmbeddingCache,
    recipe: Recipe,
    device: torch.device,
    loaded: Loaded | None = None,
    seed: int = 0,
) -> TrainData:
    """Load the splits that a recipe names and say which rows learn, select and test.

    The seed has a say where each holds out another part (``val_folds``).

    Raises:
        ConfigError: too few rows or groups, or blocks that are too large for the memory.
    """
    train_split = cache[recipe.train_split]
    rows = parts_of(train_split.labels, recipe, seed)
    drawn_N = np.sort(np.concatenate([rows.learn_N, rows.held_N])) if recipe.drawn else None
    wanted = {"train": (train_split, drawn_N, rows.learn_N)}
    if len(rows.held_N):
        wanted["held"] = train_split, drawn_N, rows.held_N
    if rows.test_N is not None:
        wanted["test"] = train_split, None, rows.test_N
    elif not recipe.final:
        test_split = cache[recipe.test_split]
        wanted["test"] = test_split, None, np.arange(len(test_split))
    asked = [(split, held_N) for split, held_N, _ in wanted.values()]
    found = (loaded or Loaded()).get(asked, recipe, device)
    if recipe.window is not None and not (train := found[0]).on_device:
        # no block of any epoch is larger
        largest = max(recipe.window, *map(len, _by_shard(rows.learn_N, recipe)))
        largest = min(len(rows.learn_N), largest)
        most = int(BLOCKS_SHARE * free_on(device) / (BLOCKS * train.row_bytes))
        if largest > most:
            raise ConfigError(
                f"the blocks of --set shuffle={recipe.shuffle} are too large for the memory",
                expected=f"{BLOCKS} blocks of {most:,} rows or fewer, half of what is free",
                found=f"{BLOCKS} of {largest:,} rows",
                hint="a smaller window; a block is at least a shard: smaller shard-rows",
            )
    parts = {
        name: Subset(
            features=features,
            rows=row_N,
            label_N=torch.from_numpy(split.labels[row_N]).to(device),
        )
        for (name, (split, _, row_N)), features in zip(wanted.items(), found, strict=True)
    }
    test = parts.get("test")
    selection = test if recipe.select == "test" else parts.get("held")
    return TrainData(train=parts["train"], selection=selection, test=test)


def told_labels(
    data: TrainData, seeds: Sequence[int], *, shuffle: bool
) -> tuple[Tensor, Tensor | None]:
    """Classes of the rows that learn and of those that choose, as each seed is told them.

    Shuffled, they are permuted among all of these rows, so that both parts agree in saying nothing
    about them. Every seed has a permutation of its own: a permutation that happens to say something
    is the luck of one seed, which the interval over seeds then covers. What is tested is not
    touched, also where it chooses (``--select test``).

    Shape:
        (S, N) and (S, N of those that choose); None where nothing chooses.
    """
    train, selection = data.train, data.selection
    told_SN = train.label_N.expand(len(seeds), -1)
    held_SN = None if selection is None else selection.label_N.expand(len(seeds), -1)
    if not shuffle:
        return told_SN, held_SN
    parts = [train] if selection is None or selection is data.test else [train, selection]
    true_N = torch.cat([part.label_N for part in parts])
    # in the order of the data set: what is held out has no say in which row is told what
    order_N = np.argsort(np.concatenate([part.rows for part in parts]))
    told_SN = torch.empty_like(true_N).repeat(len(seeds), 1)
    for told_N, seed in zip(told_SN, seeds, strict=True):
        drawn_N = np.random.default_rng(stream_seed(seed, "labels")).permutation(len(order_N))
        told_N[order_N] = true_N[order_N[drawn_N]]
    return told_SN[:, : len(train)], told_SN[:, len(train) :] if len(parts) > 1 else held_SN


def blocks_of_epoch(row_N: Rows, recipe: Recipe, epoch: int) -> list[Rows]:
    """Places of the training rows in blocks, ascending; together every one of them once."""
    if recipe.window is None:
        return [np.arange(len(row_N))]
    shards = _by_shard(row_N, recipe)
    generator = np.random.default_rng(stream_seed(EVERY_SEED, "shards", epoch))
    blocks: list[list[Rows]] = []
    held = 0
    for number in generator.permutation(len(shards)):
        shard = shards[number]
        if not blocks or held + len(shard) > recipe.window:
            blocks.append([])
            held = 0
        blocks[-1].append(shard)
        held += len(shard)
    # in the order of the data set: read in one direction, and as 'full' where all are in one
    return [np.sort(np.concatenate(block)) for block in blocks]


def _by_shard(row_N: Rows, recipe: Recipe) -> list[Rows]:
    """Places of the rows of every shard that has any."""
    assert recipe.shard_rows is not None
    shard_N = row_N // recipe.shard_rows
    return np.split(np.arange(len(row_N)), np.flatnonzero(np.diff(shard_N)) + 1)


class Drawn(NamedTuple):
    """Some rows of every seed."""

    x_SBLD: Tensor  # noqa: N815 a shape suffix
    label_SB: Tensor  # noqa: N815


def epoch_batches(
    train: Subset, told_SN: Tensor, recipe: Recipe, seeds: Sequence[int], epoch: int
) -> Iterator[Drawn]:
    """All batches of an epoch; only the last may be short.

    Which rows are in which depends on nothing but rows, recipe, seed and epoch: whether they are on
    the device, in memory or on disk, and in which group a seed is, changes no bit.
    """
    features, size = train.features, recipe.batch_size
    blocks = blocks_of_epoch(train.rows, recipe, epoch)
    generators = [np.random.default_rng(stream_seed(seed, "order", epoch)) for seed in seeds]
    orders = (np.stack([g.permutation(len(block_M)) for g in generators]) for block_M in blocks)

    def told(place_SM: Rows) -> Tensor:
        return told_SN.gather(1, torch.from_numpy(place_SM).to(told_SN.device))

    if recipe.window is None or features.on_device:
        found = [block_M[order_SM] for block_M, order_SM in zip(blocks, orders, strict=True)]
        place_SN = found[0] if len(found) == 1 else np.concatenate(found, axis=1)
        x_parts = features.batches(train.rows[place_SN], size)
        yield from map(Drawn, x_parts, told(place_SN).split(size, dim=1))
        return
    begun: list[Drawn] = []
    """Of a batch that the next block completes."""
    read = features.blocks([train.rows[block_M] for block_M in blocks])
    for number, (block_MLD, order_SM) in enumerate(zip(read, orders, strict=True), 1):
        block_M = blocks[number - 1]
        place_SM = torch.from_numpy(order_SM).to(features.device)
        label_SM = told(block_M[order_SM])
        start, stop = 0, size - sum(part.label_SB.shape[1] for part in begun)
        while start < len(block_M):
            x_SBLD = taken(block_MLD, place_SM[:, start:stop])
            begun.append(Drawn(x_SBLD, label_SM[:, start:stop]))
            if stop <= len(block_M) or number == len(blocks):
                parts = zip(*begun, strict=True)
                yield begun[0] if len(begun) == 1 else Drawn(*(torch.cat(p, dim=1) for p in parts))
                begun = []
            start, stop = stop, stop + size


def warn_of_order(data: TrainData, recipe: Recipe, told: set[str]) -> None:
    """Say what is slow or harmful in the order of the rows, once."""
    train, line = data.train, None
    if recipe.window is not None and (apart := _apart(train, recipe)) > MOST_APART:
        line = (
            f"--set shuffle={recipe.shuffle} does not mix the classes: those of a block are off by "
            f"{100 * apart:.0f}% of its rows on average, and decoders forget what the last blocks "
            "lack: a larger window, rows shuffled before gaam extract, or smaller shard-rows"
        )
    elif recipe.window is None and train.features.place == "disk":
        line = (
            f"{len(train) * train.features.row_bytes / 1e9:,.1f} GB of training rows stay on disk, "
            "where every seed reads them row by row in every epoch; "
            f"--set shuffle=window:{max(1, len(train) // 8)} reads them once for a group of seeds, "
            "memory-share lets them take more memory"
        )
    if line is not None and recipe.shuffle not in told:
        told.add(recipe.shuffle)
        warnings.warn(f"{recipe}: {line}", GaamWarning, stacklevel=2)


def _apart(train: Subset, recipe: Recipe) -> float:
    """In what the blocks of the first epoch differ from the split in their classes.

    Of every block the share of rows that would have to be of other classes (the total variation
    distance), less what a block of as many random rows has on average. Rows in random order have 0.
    """
    label_N = train.label_N.cpu().numpy()
    share_C = np.bincount(label_N) / len(label_N)
    apart = []
    for block_M in blocks_of_epoch(train.rows, recipe, 1):
        found_C = np.bincount(label_N[block_M], minlength=len(share_C)) / len(block_M)
        by_chance = np.sqrt(share_C * (1 - share_C) / (2 * np.pi * len(block_M))).sum()
        apart.append(np.abs(found_C - share_C).sum() / 2 - by_chance)
    return float(np.mean(apart))
