"""What every seed learns from, is chosen by and is tested on: where it lies, and in which order.

``full``: every seed has a permutation of all rows. ``window:ROWS``: an epoch is a row of blocks,
the same for all seeds, and every seed permutes within each: from a disk, the system keeps the files
of a block in memory while all seeds read it. A block is one shard or several whole ones; as many as
hold at most ROWS training rows together. The epoch alone decides their order.

Batches are cut without regard to where a block ends. One block that holds all rows is ``full``, bit
for bit.

S seeds, B batch, N rows, M rows of a block, L layers, D hidden size.
"""

import math
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from gaam_cache.common import devices
from gaam_cache.store.reader import EmbeddingCache, ShardedArray, Split
from gaam_decoder.decoder import stream_seed
from gaam_decoder.recipe import Recipe
from gaam_decoder.training.arithmetic.engine import free_on
from gaam_decoder.training.protocol import Rows, parts_of

PREFETCH = 3  # batches that are gathered ahead where the rows are not on the device
SLICE_BYTES = 2**26  # of the pieces in which rows go to a GPU
TYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
MEMORY_SHARE = 0.5  # of the free memory for rows; a group of seeds takes up to 0.4
Place = Literal["cuda", "memory", "disk"]


class Features:
    """States of rows as they are stored; of a split, or of ``held_N`` of its rows, ascending."""

    def __init__(
        self,
        array: ShardedArray,
        device: torch.device,
        place: Place = "memory",
        held_N: Rows | None = None,
    ) -> None:
        self.device, self.place, self.shape = device, place, array.shape
        self.dtype = TYPES[array.stored]
        self.row_bytes = math.prod(array.shape[1:]) * self.dtype.itemsize
        self.resident: Tensor | None = None
        self._array, self._held_N = array, held_N
        row_N = np.arange(len(array)) if held_N is None else held_N
        if place == "memory":
            self.resident = self._stored(row_N)
        elif place == "cuda":
            shape = len(row_N), *self.shape[1:]
            self.resident = torch.empty(shape, dtype=self.dtype, device=device)
            size = max(1, SLICE_BYTES // self.row_bytes)
            for part, at in zip(
                self.resident.split(size), range(0, len(row_N), size), strict=True
            ):
                part.copy_(self._stored(row_N[at : at + size]))

    def batches(self, rows: Rows, size: int) -> Iterator[Tensor]:
        """Of rows (N,) or (S, N) batches of ``size``, as stored: (B, L, D) or (S, B, L, D).

        A thread gathers them ahead where they are not on the device.
        """
        if self._held_N is not None:  # where they lie among those that are held
            rows = np.searchsorted(self._held_N, rows)
        starts = range(0, rows.shape[-1], size)
        if self.resident is not None and self.resident.device.type == self.device.type:
            place = torch.from_numpy(rows).to(self.device)
            yield from (
                taken(self.resident, place[..., at : at + size]) for at in starts
            )
            return
        begun: deque[Future[Tensor]] = deque()
        with ThreadPoolExecutor(1) as thread:
            for at in starts:
                begun.append(thread.submit(self._gather, rows[..., at : at + size]))
                if len(begun) > PREFETCH:
                    yield begun.popleft().result().to(self.device, non_blocking=True)
            while begun:
                yield begun.popleft().result().to(self.device, non_blocking=True)

    def _gather(self, row: Rows) -> Tensor:
        if self.resident is not None:
            block = taken(self.resident, torch.from_numpy(row))
        else:
            block = self._stored(row.reshape(-1)).view(*row.shape, *self.shape[1:])
        return block.pin_memory() if self.device.type == "cuda" else block

    def _stored(self, row_N: Rows) -> Tensor:
        # memory of NumPy: aligned as torch wants it, no freed block would do for the next
        raw = np.empty((len(row_N), self.row_bytes), np.uint8)
        self._array.read_into(row_N, raw)
        return torch.from_numpy(raw).view(self.dtype).view(len(row_N), *self.shape[1:])


def taken(source: Tensor, place: Tensor) -> Tensor:
    """Rows of a tensor, (..., L, D), at places of any shape."""
    rows = source.index_select(0, place.flatten())
    return rows.view(*place.shape, *source.shape[1:])


class Loaded:
    """Features of the rows of a sweep, held for its next item; in a share of the free memory."""

    def __init__(self, share: float = MEMORY_SHARE) -> None:
        self._share = share
        self._held: dict[Hashable, Features] = {}

    def get(
        self,
        wanted: Sequence[tuple[Split, Rows | None]],
        recipe: Recipe,
        device: torch.device,
    ) -> list[Features]:
        """Features of what is wanted: on the device where they fit, else in memory, or on disk.

        Of a split all rows, which the folds of a sweep share, or of a budget its own, ascending.
        """
        keys: list[Hashable] = [
            (
                split.name,
                recipe.pool,
                recipe.layers,
                None if held_N is None else held_N.tobytes(),
            )
            for split, held_N in wanted
        ]
        found: list[Features] = []
        for key, (split, held_N) in zip(keys, wanted, strict=True):
            features = self._held.get(key)
            if features is None:
                array = split.pooled(recipe.pool)
                if recipe.layers is not None:
                    array = array.keeping(
                        [n - split.first_layer for n in recipe.layers]
                    )
                count = len(array) if held_N is None else len(held_N)
                size = count * math.prod(array.shape[1:]) * TYPES[array.stored].itemsize
                place = self._place(size, device, keys)
                features = Features(
                    array, device, place, None if place == "disk" else held_N
                )
                self._held |= {} if place == "disk" else {key: features}
            found.append(features)
        return found

    def _place(self, size: int, device: torch.device, keep: list[Hashable]) -> Place:
        """Where so many bytes fit, if need be in the place of rows of other items."""
        places: dict[Place, torch.device] = (
            {"cuda": device} if device.type == "cuda" else {}
        )
        for place, where in (places | {"memory": torch.device("cpu")}).items():
            if size > self._room(where):
                self._held = {
                    key: held for key, held in self._held.items() if key in keep
                }
                devices.give_back(device)  # torch would keep for itself what was let go
            if size <= self._room(where):
                return place
        return "disk"

    def _room(self, where: torch.device) -> float:
        residents = (
            one.resident for one in self._held.values() if one.resident is not None
        )
        held = sum(one.nbytes for one in residents if one.device.type == where.type)
        return self._share * (free_on(where) + held) - held


@dataclass(frozen=True, kw_only=True, slots=True)
class Subset:
    """Rows of a split with their labels, on the device."""

    features: Features
    rows: Rows
    label_N: Tensor

    def __len__(self) -> int:
        return len(self.rows)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainData:
    """What every seed of every mechanism learns from, is chosen by and is tested on."""

    train: Subset
    selection: Subset | None  # rows that select the epoch; None keeps the last
    test: Subset | None  # None of a final model, which learns from all rows

    def choosing(self, recipe: Recipe) -> Subset | None:
        """Rows of train that select the epoch by true labels: a run keeps their logits."""
        held = recipe.select == "val" and not recipe.shuffle_labels
        return self.selection if held else None


def prepare_data(
    cache: EmbeddingCache,
    recipe: Recipe,
    device: torch.device,
    loaded: Loaded | None = None,
    seed: int = 0,
) -> TrainData:
    """Load the splits that a recipe names and say which rows learn, select and test."""
    train_split = cache[recipe.train_split]
    rows = parts_of(train_split.labels, recipe, seed)
    drawn_N = (
        np.sort(np.concatenate([rows.learn_N, rows.held_N])) if recipe.drawn else None
    )
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
    parts = {}
    for (name, (split, _, row_N)), features in zip(wanted.items(), found, strict=True):
        label_N = torch.from_numpy(split.labels[row_N]).to(device)
        parts[name] = Subset(features=features, rows=row_N, label_N=label_N)
    test = parts.get("test")
    selection = test if recipe.select == "test" else parts.get("held")
    return TrainData(train=parts["train"], selection=selection, test=test)


def told_labels(
    data: TrainData, seeds: Sequence[int], *, shuffle: bool
) -> tuple[Tensor, Tensor | None]:
    """Classes of the rows that learn, (S, N), and of those that choose, as each seed is told them.

    Shuffled, they are permuted among all of these rows, by every seed in a way of its own. What is
    tested is not touched, also where it chooses (``--select test``).
    """
    train, selection = data.train, data.selection
    told_SN = train.label_N.expand(len(seeds), -1)
    held_SN = None if selection is None else selection.label_N.expand(len(seeds), -1)
    if not shuffle:
        return told_SN, held_SN
    parts = (
        [train] if selection is None or selection is data.test else [train, selection]
    )
    true_N = torch.cat([part.label_N for part in parts])
    # in the order of the data set: what is held out has no say in which row is told what
    order_N = np.argsort(np.concatenate([part.rows for part in parts]))
    told_SN = torch.empty_like(true_N).repeat(len(seeds), 1)
    for told_N, seed in zip(told_SN, seeds, strict=True):
        drawn_N = np.random.default_rng(stream_seed(seed, "labels")).permutation(
            len(order_N)
        )
        told_N[order_N] = true_N[order_N[drawn_N]]
    return told_SN[:, : len(train)], told_SN[:, len(train) :] if len(
        parts
    ) > 1 else held_SN


def blocks_of_epoch(row_N: Rows, recipe: Recipe, epoch: int) -> list[Rows]:
    """Places of the training rows in blocks, ascending; together every one of them once."""
    if recipe.window is None:
        return [np.arange(len(row_N))]
    assert recipe.shard_rows is not None
    ends = np.flatnonzero(np.diff(row_N // recipe.shard_rows)) + 1
    shards = np.split(np.arange(len(row_N)), ends)
    generator = np.random.default_rng(
        stream_seed(0, "shards", epoch)
    )  # the same for all seeds
    blocks: list[list[Rows]] = [[]]
    for number in generator.permutation(len(shards)):
        shard = shards[number]
        if blocks[-1] and sum(map(len, blocks[-1])) + len(shard) > recipe.window:
            blocks.append([])
        blocks[-1].append(shard)
    # in the order of the data set: read in one direction, and as 'full' where all are in one
    return [np.sort(np.concatenate(block)) for block in blocks]


def epoch_batches(
    train: Subset, told_SN: Tensor, recipe: Recipe, seeds: Sequence[int], epoch: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """All batches of an epoch, (S, B, L, D) and labels (S, B); only the last may be short.

    Which rows are in which depends on nothing but rows, recipe, seed and epoch.
    """
    generators = [
        np.random.default_rng(stream_seed(seed, "order", epoch)) for seed in seeds
    ]
    place_SN = np.concatenate(
        [
            block_M[np.stack([g.permutation(len(block_M)) for g in generators])]
            for block_M in blocks_of_epoch(train.rows, recipe, epoch)
        ],
        axis=1,
    )
    label_SN = told_SN.gather(1, torch.from_numpy(place_SN).to(told_SN.device))
    x_SBLD = train.features.batches(train.rows[place_SN], recipe.batch_size)
    yield from zip(x_SBLD, label_SN.split(recipe.batch_size, dim=1), strict=True)
