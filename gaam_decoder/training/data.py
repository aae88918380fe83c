"""The training, validation and test rows of a training: their place and their order.

``full``: every seed draws a permutation of all rows. ``window:ROWS``: an epoch is a
sequence of blocks, the same for all seeds, and every seed permutes the rows within a
block. From a disk, the system then keeps the files of a block in memory while all seeds
read it. A block is one shard, or as many whole shards as hold at most ROWS training
rows together. The epoch alone decides their order.

Batches may cross the end of a block. One block of all rows is ``full``, bit for bit.

S seeds, B batch, N rows, M rows of a block, L layers, D hidden size.
"""

import math
from collections import deque
from collections.abc import Hashable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gaam_cache.common import devices
from gaam_cache.common.devices import float64
from gaam_cache.store.reader import EmbeddingCache, ShardedArray, Split
from gaam_decoder.decoder import stream_seed
from gaam_decoder.recipe import Recipe
from gaam_decoder.tasks import task_of
from gaam_decoder.training.arithmetic.engine import free_bytes
from gaam_decoder.training.partitions import Rows
from gaam_decoder.training.splits import divide

PREFETCH = 3  # batches to gather ahead of rows that are not on the device
MEASURED_ROWS = 256  # largest number of rows whose states are squared
MEASURED_BATCH = 32  # of these rows, at once
UNUSUAL = 100.0
"""A row whose mean square is so many times the median has no say in the size of a
layer. Texts of real encoders have up to 5 times the median."""
SLICE_BYTES = 2**26  # of the slices in which rows go to a GPU
TYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
MEMORY_SHARE = 0.5  # of the free memory for rows; a seed batch takes up to 0.4
Location = Literal["cuda", "memory", "disk"]


class Features:
    """The states of a split, or of some of its rows: on a GPU, in memory or on disk.

    Args:
        array: the states of the split, in the shards of a cache.
        device: that trains.
        location: where the states are kept during the training. On disk nothing is
            loaded: ``batches`` reads all rows from the shards.
        loaded_N: numbers in the split of the only rows to load, ascending; None: all.

    Attributes:
        resident: the loaded states in the type of the cache, (N, L, D); None where
            they stay on disk.
        shape: (rows of the split, L, D).
    """

    def __init__(
        self,
        array: ShardedArray,
        device: torch.device,
        location: Location = "memory",
        loaded_N: Rows | None = None,
    ) -> None:
        self.device = device
        self.location = location
        self.shape = array.shape
        self.dtype = TYPES[array.stored_dtype]
        self.row_bytes = math.prod(array.shape[1:]) * self.dtype.itemsize
        self.resident: Tensor | None = None
        self._array = array
        self._loaded_N = loaded_N
        row_N = np.arange(len(array)) if loaded_N is None else loaded_N
        if location == "memory":
            self.resident = self._read(row_N)
        elif location == "cuda":
            self.resident = self._copy_to_device(row_N)

    def batches(self, rows: Rows, size: int) -> Iterator[Tensor]:
        """Batches of ``size`` rows: (B, L, D) or, of rows (S, N), (S, B, L, D).

        If the states are not on the device, a thread gathers the next batches while
        the device computes.
        """
        # from numbers in the split to positions among the loaded rows
        if self._loaded_N is not None:
            rows = np.searchsorted(self._loaded_N, rows)
        starts = range(0, rows.shape[-1], size)
        if self.resident is None or self.resident.device.type != self.device.type:
            yield from self._prefetched(rows, size, starts)
            return
        index = torch.from_numpy(rows).to(self.device)
        for start in starts:
            yield rows_at(self.resident, index[..., start : start + size])

    def _prefetched(self, rows: Rows, size: int, starts: range) -> Iterator[Tensor]:
        """Batches that a thread gathers while the device computes.

        Args:
            rows: numbers of the rows, (N,) or (S, N).
            size: rows of a batch.
            starts: the first row of each batch.
        """
        pending: deque[Future[Tensor]] = deque()
        with ThreadPoolExecutor(1) as thread:
            for start in starts:
                batch_rows = rows[..., start : start + size]
                pending.append(thread.submit(self._gather, batch_rows))
                if len(pending) > PREFETCH:
                    yield pending.popleft().result().to(self.device, non_blocking=True)
            while pending:
                yield pending.popleft().result().to(self.device, non_blocking=True)

    def _gather(self, rows: Rows) -> Tensor:
        """The states of rows, (..., L, D), in memory that a GPU can copy from fast.

        ``rows`` are positions in ``resident``, which may hold a part of the split;
        without it they are rows of the split, and are read from the disk.
        """
        if self.resident is not None:
            block = rows_at(self.resident, torch.from_numpy(rows))
        else:
            block = self._read(rows.reshape(-1)).view(*rows.shape, *self.shape[1:])
        return block.pin_memory() if self.device.type == "cuda" else block

    def _copy_to_device(self, row_N: Rows) -> Tensor:
        """Read rows in slices, so that the host never holds them all."""
        resident = torch.empty(
            (len(row_N), *self.shape[1:]), dtype=self.dtype, device=self.device
        )
        size = max(1, SLICE_BYTES // self.row_bytes)
        starts = range(0, len(row_N), size)
        for start in starts:
            rows = self._read(row_N[start : start + size])
            resident[start : start + size].copy_(rows)
        return resident

    def _read(self, row_N: Rows) -> Tensor:
        """Read the states of rows from the shards, (N, L, D)."""
        # in NumPy's memory: it is aligned, which torch's views need, and NumPy uses the
        # memory of freed batches again
        raw = np.empty((len(row_N), self.row_bytes), np.uint8)
        self._array.read_into(row_N, raw)
        return torch.from_numpy(raw).view(self.dtype).view(len(row_N), *self.shape[1:])


class LayerSizes(NamedTuple):
    """Sizes of the states of each layer, in float64."""

    mean_square_L: Tensor
    """Mean over rows and features; rows that are far larger than most do not count."""
    variance_L: Tensor
    """Variance over all rows, as a mean over features: 0 if all rows are equal."""


def measure_layers(features: Features, row_N: Rows) -> LayerSizes:
    """Measure the states of a sample of the rows, at equal distances.

    In some data sets a few rows are broken, thousands of times as large as the others.
    They must not decide by how much all rows are divided.
    """
    step = math.ceil(len(row_N) / MEASURED_ROWS)
    sample_N = row_N[::step]
    sums: list[Tensor] = []
    sums_of_squares: list[Tensor] = []
    squares_of_rows: list[Tensor] = []
    for batch_BLD in features.batches(sample_N, MEASURED_BATCH):
        x_BLD = float64(batch_BLD)
        square_BLD = x_BLD.square()
        sums.append(x_BLD.sum(0))
        sums_of_squares.append(square_BLD.sum(0))
        squares_of_rows.append(square_BLD.mean(2))

    mean_LD = torch.stack(sums).sum(0) / len(sample_N)
    mean_square_LD = torch.stack(sums_of_squares).sum(0) / len(sample_N)
    # rounding may make a variance negative
    variance_LD = (mean_square_LD - mean_LD.square()).clamp_min(0)
    return LayerSizes(
        mean_square_L=_mean_of_usual_rows(torch.cat(squares_of_rows)),
        variance_L=variance_LD.mean(1),
    )


def _mean_of_usual_rows(square_NL: Tensor) -> Tensor:
    """The mean over the rows of each layer that are not far larger than most, (L,).

    Rows of zeros say nothing of the size of the others.
    """
    no_zeros_NL = square_NL.masked_fill(square_NL == 0, torch.nan)
    median_L = no_zeros_NL.nanmedian(0).values
    # the median of a layer of zeros is nan: all of its rows count
    is_usual_NL = ~(square_NL > UNUSUAL * median_L)
    return (square_NL * is_usual_NL).sum(0) / is_usual_NL.sum(0)


def rows_at(source: Tensor, index: Tensor) -> Tensor:
    """Rows of a tensor (N, L, D) at indices of shape (...), as (..., L, D)."""
    rows = source.index_select(0, index.flatten())
    return rows.view(*index.shape, *source.shape[1:])


class LoadedFeatures:
    """Keeps the features of an experiment for the next one, in a share of the memory.

    Experiments of a sweep often read the same rows, layers and pooling.

    Args:
        share: of the free memory that the kept features may take.
    """

    def __init__(self, share: float = MEMORY_SHARE) -> None:
        self._share = share
        self._features_by_key: dict[Hashable, Features] = {}

    def get(
        self,
        requested: Sequence[tuple[Split, Rows | None]],
        recipe: Recipe,
        device: torch.device,
    ) -> list[Features]:
        """Load features on the device if they fit, else into memory, else not at all.

        Args:
            requested: splits, each with the only rows to load, ascending, or None for
                all rows. Folds share the features of their split.
            recipe: with the pooling and the layers.
            device: that trains.

        Returns:
            The features of each split, in order.
        """
        keys = [_features_key(split, loaded_N, recipe) for split, loaded_N in requested]
        loaded: list[Features] = []
        # the first ones get the fastest memory that has room for them
        for key, (split, loaded_N) in zip(keys, requested, strict=True):
            features = self._features_by_key.get(key)
            if features is None:
                features = self._load(split, loaded_N, recipe, device, keys)
                if features.location != "disk":
                    self._features_by_key[key] = features
            loaded.append(features)
        return loaded

    def _load(
        self,
        split: Split,
        loaded_N: Rows | None,
        recipe: Recipe,
        device: torch.device,
        keys: Sequence[Hashable],
    ) -> Features:
        """Load the features of rows into the fastest memory that has room for them.

        The experiment needs the kept features of these ``keys``; all others may be
        dropped to make room.
        """
        array = split.pooled(recipe.pool)
        if recipe.layers is not None:
            positions = [layer - split.first_layer for layer in recipe.layers]
            array = array.keeping(positions)
        count = len(array) if loaded_N is None else len(loaded_N)
        numbers_per_row = math.prod(array.shape[1:])
        num_bytes = count * numbers_per_row * TYPES[array.stored_dtype].itemsize
        location = self._choose_location(num_bytes, device, keys)
        # nothing is loaded from the disk yet, so that no rows are selected
        if location == "disk":
            loaded_N = None
        return Features(array, device, location, loaded_N)

    def _choose_location(
        self, num_bytes: int, device: torch.device, keys: Sequence[Hashable]
    ) -> Location:
        """The fastest memory with room for new features; without room, the disk.

        If there is too little room, kept features without one of the ``keys`` are
        dropped.

        Args:
            num_bytes: of the new features.
            device: that trains.
            keys: of features that the experiment needs.
        """
        candidates: list[tuple[Location, torch.device]] = []
        if device.type == "cuda":
            candidates.append(("cuda", device))
        candidates.append(("memory", torch.device("cpu")))
        for location, memory_device in candidates:
            if num_bytes > self._free_bytes(memory_device):
                self._features_by_key = {
                    key: features
                    for key, features in self._features_by_key.items()
                    if key in keys
                }
                # torch would keep the dropped memory for itself
                devices.free_cached_memory(device)
            if num_bytes <= self._free_bytes(memory_device):
                return location
        return "disk"

    def _free_bytes(self, device: torch.device) -> float:
        """Bytes for more features on a device: its share minus the kept features."""
        in_use = 0
        for features in self._features_by_key.values():
            resident = features.resident
            if resident is not None and resident.device.type == device.type:
                in_use += resident.nbytes
        return self._share * (free_bytes(device) + in_use) - in_use


def _features_key(split: Split, loaded_N: Rows | None, recipe: Recipe) -> Hashable:
    """A key that is equal for features with the same rows, pooling and layers."""
    row_bytes = None if loaded_N is None else loaded_N.tobytes()
    return split.name, recipe.pool, recipe.layers, row_bytes


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
    """The rows that train, validate and test every seed of every mechanism."""

    train: Subset
    selection: Subset | None
    """The rows that select the epoch: validation rows, or test rows with ``--select
    test``. None: the last epoch is kept."""
    test: Subset | None  # None of a final model, which learns from all rows

    def validation(self, recipe: Recipe) -> Subset | None:
        """The validation rows whose logits a run keeps, if there are any.

        None also where the labels are shuffled, as a control: they are not true.
        """
        is_validated = recipe.select == "val" and not recipe.shuffle_labels
        return self.selection if is_validated else None


class _SubsetRows(NamedTuple):
    """The rows of a subset, before their states are loaded."""

    split: Split
    loaded_N: Rows | None  # the only rows of the split to load; None: all
    row_N: Rows  # the rows of the subset, by their numbers in the split


def prepare_data(
    cache: EmbeddingCache,
    recipe: Recipe,
    device: torch.device,
    loaded: LoadedFeatures | None = None,
    seed: int = 0,
) -> TrainData:
    """Load the rows of a recipe, divided into training, validation and test rows.

    Args:
        cache: with the states.
        recipe: that decides the rows, layers and pooling.
        device: that trains.
        loaded: features of earlier experiments.
        seed: of the training; with ``val_folds`` it decides the validation rows.
    """
    rows_by_name = _rows_of_subsets(cache, recipe, seed)
    loaded = loaded or LoadedFeatures()
    requested = [(rows.split, rows.loaded_N) for rows in rows_by_name.values()]
    features_of_subsets = loaded.get(requested, recipe, device)
    subsets: dict[str, Subset] = {}
    for name, features in zip(rows_by_name, features_of_subsets, strict=True):
        rows = rows_by_name[name]
        label_N = torch.from_numpy(rows.split.labels[rows.row_N]).to(device)
        subsets[name] = Subset(features=features, rows=rows.row_N, label_N=label_N)
    test = subsets.get("test")
    selection = test if recipe.select == "test" else subsets.get("validation")
    return TrainData(train=subsets["train"], selection=selection, test=test)


def _rows_of_subsets(
    cache: EmbeddingCache, recipe: Recipe, seed: int
) -> dict[str, _SubsetRows]:
    """The rows of the subsets ``train``, ``validation`` and ``test``, if it has rows.

    Training rows are read most often and come first: their states then get the fastest
    memory.
    """
    train_split = cache[recipe.train_split]
    strata = task_of(cache.task).stratify_by(train_split.labels)
    parts = divide(strata, recipe, seed)
    # a budget draws a part of the train split: only those rows are loaded
    drawn_N: Rows | None = None
    if recipe.has_budget:
        drawn_N = np.sort(np.concatenate([parts.training_N, parts.validation_N]))
    rows_by_name = {
        "train": _SubsetRows(train_split, loaded_N=drawn_N, row_N=parts.training_N)
    }
    if recipe.val_split is not None:
        rows_by_name["validation"] = _all_rows(cache[recipe.val_split])
    elif len(parts.validation_N):
        rows_by_name["validation"] = _SubsetRows(
            train_split, loaded_N=drawn_N, row_N=parts.validation_N
        )

    # a fold tests rows of the train split; a final model has no test rows
    if parts.test_N is not None:
        rows_by_name["test"] = _SubsetRows(
            train_split, loaded_N=None, row_N=parts.test_N
        )
    elif not recipe.final:
        rows_by_name["test"] = _all_rows(cache[recipe.test_split])
    return rows_by_name


def _all_rows(split: Split) -> _SubsetRows:
    """All rows of a split as a subset."""
    return _SubsetRows(split, loaded_N=None, row_N=np.arange(len(split)))


def labels_by_seed(
    data: TrainData, seeds: Sequence[int], *, shuffle: bool
) -> tuple[Tensor, Tensor | None]:
    """Labels of the training rows, (S, N, ...), and of the rows that select the epoch.

    Shuffling permutes the labels among all these rows, for every seed in a way of its
    own. Test rows keep their labels, also where they select (``--select test``).
    """
    train = data.train
    selection = data.selection
    label_SN = train.label_N.expand(len(seeds), *train.label_N.shape)
    selection_label_SN: Tensor | None = None
    if selection is not None:
        selection_label_SN = selection.label_N.expand(
            len(seeds), *selection.label_N.shape
        )
    if not shuffle:
        return label_SN, selection_label_SN
    shuffled_subsets = [train]
    if selection is not None and selection is not data.test:
        shuffled_subsets.append(selection)

    # Shuffle in the order of the data set: the label that a row gets then does not
    # depend on which rows validate.
    true_N = torch.cat([subset.label_N for subset in shuffled_subsets])
    # (rows of a validation split have numbers of their own; a stable order is enough)
    row_N = np.concatenate([subset.rows for subset in shuffled_subsets])
    order_N = np.argsort(row_N, kind="stable")
    shuffled_SN = true_N.new_empty((len(seeds), *true_N.shape))
    for shuffled_N, seed in zip(shuffled_SN, seeds, strict=True):
        generator = np.random.default_rng(stream_seed(seed, "labels"))
        permutation_N = generator.permutation(len(order_N))
        shuffled_N[order_N] = true_N[order_N[permutation_N]]
    if len(shuffled_subsets) > 1:
        selection_label_SN = shuffled_SN[:, len(train) :]
    return shuffled_SN[:, : len(train)], selection_label_SN


def blocks_of_epoch(row_N: Rows, recipe: Recipe, epoch: int) -> list[Rows]:
    """Divide the training rows into the blocks of an epoch, in the order of reading.

    Later, ``epoch_batches`` shuffles the rows of each block among themselves.

    Args:
        row_N: numbers of the training rows in their split, ascending.
        recipe: its window is the largest number of rows of a block, unless a single
            shard has more; without a window, all rows are one block.
        epoch: decides the order of the blocks.

    Returns:
        For each block the indices into ``row_N``, ascending.
    """
    if recipe.window_rows is None:
        return [np.arange(len(row_N))]
    # a new shard begins where the number of the shard changes
    assert recipe.shard_rows is not None
    ends = np.flatnonzero(np.diff(row_N // recipe.shard_rows)) + 1
    shards = np.split(np.arange(len(row_N)), ends)

    # all seeds share the blocks, so that the order of the shards has seed 0 for all
    generator = np.random.default_rng(stream_seed(0, "shards", epoch))
    shards_by_block: list[list[Rows]] = [[]]
    for shard_number in generator.permutation(len(shards)):
        shard = shards[shard_number]
        # begin a new block where the shard would make the last one too large
        last_block = shards_by_block[-1]
        num_block_rows = sum(map(len, last_block))
        if last_block and num_block_rows + len(shard) > recipe.window_rows:
            shards_by_block.append([])
        shards_by_block[-1].append(shard)
    # in ascending order the disk is read in one direction, and a single block of all
    # rows is the block that there is without a window
    return [np.sort(np.concatenate(block_shards)) for block_shards in shards_by_block]


def epoch_batches(
    train: Subset, label_SN: Tensor, recipe: Recipe, seeds: Sequence[int], epoch: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """All batches of an epoch, in an order of its own for every seed.

    Args:
        train: the training rows.
        label_SN: their labels or numbers for every seed, (S, N, ...).
        recipe: with the batch size and the kind of order.
        seeds: of the seed batch.
        epoch: from 1.

    Yields:
        The states of a batch, (S seeds, B rows, L layers, D features), and its labels,
        (S, B, ...). The last batch may have fewer rows.
    """
    generators = [
        np.random.default_rng(stream_seed(seed, "order", epoch)) for seed in seeds
    ]
    ordered_blocks: list[Rows] = []
    for block_M in blocks_of_epoch(train.rows, recipe, epoch):
        order_SM = np.stack(
            [generator.permutation(len(block_M)) for generator in generators]
        )
        ordered_blocks.append(block_M[order_SM])
    index_SN = np.concatenate(ordered_blocks, axis=1)
    index_on_device = torch.from_numpy(index_SN).to(label_SN.device)
    if label_SN.ndim > 2:
        # all numbers or labels of a row stay together
        index_on_device = index_on_device[..., None].expand(-1, -1, label_SN.shape[2])
    ordered_SN = label_SN.gather(1, index_on_device)
    x_SBLD = train.features.batches(train.rows[index_SN], recipe.batch_size)
    label_SB = torch.split(ordered_SN, recipe.batch_size, dim=1)
    yield from zip(x_SBLD, label_SB, strict=True)
