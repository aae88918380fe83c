"""What of a cache is held, and where: all that is held shares one part of the memory."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from gaam_cache.cache import ShardedArray, Split
from gaam_cache.errors import ConfigError
from gaam_cache.store.digest import digest_of
from gaam_decoder.number_lists import Layers
from gaam_decoder.recipe import Recipe
from gaam_decoder.training.rows.features import TYPES, Features, Place
from gaam_decoder.training.rows.free_memory import free_on
from gaam_decoder.training.rows.order import largest_block
from gaam_decoder.training.rows.protocol import Rows

MEMORY_SHARE = 0.5
"""Of the free memory for rows, unless asked for otherwise; a group of seeds takes up to 0.4."""
BLOCKS = 2
"""Of a window at once: one that is computed with and one that is read."""
BLOCKS_SHARE = 0.5
"""Of the free memory that these may take, however little of it is for rows that stay."""
HOST = torch.device("cpu")


class Wanted(NamedTuple):
    """Rows of a split that a training needs."""

    split: Split
    row_N: Rows  # noqa: N815 a shape suffix
    together_N: Rows | None = None  # noqa: N815
    """Those that are held with them, themselves among these, ascending; None: the whole split."""


class Key(NamedTuple):
    """What is held: a split, or some of its rows."""

    split: str
    pool: str
    layers: Layers
    rows: str = ""
    """Digest of their numbers; empty for all."""


class Loaded:
    """Features of the rows of a sweep, held for its next item.

    Args:
        share: of the free memory, of a GPU and of the machine, that they may take together.
    """

    def __init__(self, share: float = MEMORY_SHARE) -> None:
        self.share = share
        self.told: set[str] = set()
        """What was said of the order of rows, to be said once."""
        self._held: dict[Key, Features] = {}

    def get(self, wanted: Sequence[Wanted], recipe: Recipe, device: torch.device) -> list[Features]:
        """Features of all that is wanted: on the device where they fit, else in memory, or on disk.

        A split is held as a whole, which the folds of a sweep share; of a budget its rows are, and
        no others are read. Where that does not fit, rows that are evaluated may be held alone:
        those that choose lie scattered among the others, and are read after every epoch.

        Args:
            wanted: the training rows, then others; what is read more often comes first.
            recipe: pooling, layers, window.
            device: what computes.

        Raises:
            ConfigError: the blocks of a window are too large for the memory.
            CacheError: a shard is damaged.
        """
        arrays = [_array(one.split, recipe) for one in wanted]
        whole = [Key(one.split.name, recipe.pool, recipe.layers) for one in wanted]
        alone = [_of(key, one.row_N) for key, one in zip(whole, wanted, strict=True)]
        home = [
            key if one.together_N is None else _of(key, one.together_N)
            for key, one in zip(whole, wanted, strict=True)
        ]
        sizes = {
            key: _bytes(array, one.together_N)
            for key, all_of, one, array in zip(home, whole, wanted, arrays, strict=True)
            if not {key, all_of} & self._held.keys()
        }
        if sum(sizes.values()) > self._room(device):
            self._keep_only({*whole, *home, *alone}, device)
        found: list[Features] = []
        reserved = 0
        for place, (one, array) in enumerate(zip(wanted, arrays, strict=True)):
            keys = whole[place], home[place], alone[place]
            features = next((self._held[key] for key in keys if key in self._held), None)
            if features is None and home[place] not in home[:place]:
                features = self._load(home[place], array, device, reserved, one.together_N)
            if features is None and place > 0:
                features = self._load(alone[place], array, device, reserved, one.row_N)
            if features is None:
                features = Features(array, device, "disk")
            if place == 0 and recipe.window is not None and not features.on_device:
                reserved = _blocks_bytes(features, one.row_N, recipe)
            found.append(features)
        return found

    def _load(
        self,
        key: Key,
        array: ShardedArray,
        device: torch.device,
        reserved: int,
        held_N: Rows | None = None,
    ) -> Features | None:
        """Hold rows where they fit; None where they do not."""
        size = _bytes(array, held_N)
        kinds: list[tuple[torch.device, Place]] = [(HOST, "memory")]
        if device.type == "cuda":
            kinds.insert(0, (device, "cuda"))
        for where, place in kinds:
            if size <= self._room(where) - (reserved if where == device else 0):
                self._held[key] = Features(array, device, place, held_N)
                return self._held[key]
        return None

    def _room(self, where: torch.device) -> float:
        """Bytes that may still be taken."""
        held = sum(
            one.resident.nbytes
            for one in self._held.values()
            if one.resident is not None and one.resident.device.type == where.type
        )
        return self.share * (free_on(where) + held) - held

    def _keep_only(self, keys: set[Key], device: torch.device) -> None:
        self._held = {key: one for key, one in self._held.items() if key in keys}
        if device.type == "cuda":
            torch.cuda.empty_cache()  # torch would keep for itself what was let go


def _array(split: Split, recipe: Recipe) -> ShardedArray:
    array = split.pooled(recipe.pool)
    if recipe.layers is not None:
        array = array.keeping([layer - split.first_layer for layer in recipe.layers])
    return array


def _of(key: Key, row_N: Rows) -> Key:
    return key._replace(rows=digest_of(row_N.tobytes()))


def _bytes(array: ShardedArray, row_N: Rows | None) -> int:
    """Of some rows; None: of all."""
    count = len(array) if row_N is None else len(row_N)
    return count * math.prod(array.shape[1:]) * TYPES[array.stored].itemsize


def _blocks_bytes(features: Features, row_N: Rows, recipe: Recipe) -> int:
    """Of the blocks that are in memory at once.

    Raises:
        ConfigError: they take too much of it.
    """
    rows = largest_block(row_N, recipe)
    size, free = BLOCKS * rows * features.row_bytes, free_on(features.device)
    if size > BLOCKS_SHARE * free:
        most = int(BLOCKS_SHARE * free / (BLOCKS * features.row_bytes))
        raise ConfigError(
            f"the blocks of --set shuffle={recipe.shuffle} are too large for the memory",
            expected=f"{BLOCKS} blocks of {most:,} rows or fewer, half of what is free",
            found=f"{BLOCKS} of {rows:,} rows, {size / 1e9:,.2f} GB",
            hint=f"--set shuffle=window:{most}"
            if recipe.window is not None and rows <= recipe.window and most
            else "a block is one shard or more: extract with a smaller shard-rows",
        )
    return size
