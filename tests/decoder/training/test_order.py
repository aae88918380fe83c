"""The order of an epoch's rows, over many sizes, shards and windows.

S seeds, N rows.
"""

from __future__ import annotations

from itertools import pairwise, product
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gaam_cache.store.plan import ShardSpec
from gaam_cache.store.reader import open_cache
from gaam_decoder.decoder import STREAMS, stream_seed
from gaam_decoder.recipe import Recipe
from gaam_decoder.training.data import Features, Subset, blocks_of_epoch, epoch_batches
from gaam_decoder.training.partitions import Rows
from tests.cache.published import write_cache
from tests.decoder.training.seed_batches import FeaturesOfArray, decoder_recipe


def full_recipe(batch_size: int = 8) -> Recipe:
    """All rows in any order."""
    return decoder_recipe("none", "linear", shuffle="full", batch_size=batch_size)


def window_recipe(window: int, shard_rows: int, batch_size: int = 8) -> Recipe:
    """In blocks of whole shards of as many rows as the window has room for."""
    return decoder_recipe(
        "none",
        "linear",
        shuffle=f"window:{window}",
        shard_rows=shard_rows,
        batch_size=batch_size,
    )


class Epoch(NamedTuple):
    """An epoch of some seeds."""

    row_N: Rows
    shard_rows: int
    window: int
    batch_size: int
    number: int
    seeds: list[int]


@st.composite
def epochs(draw: st.DrawFn) -> Epoch:
    """Epochs in which some rows do not learn."""
    count = draw(st.integers(1, 120))
    others = draw(st.sets(st.integers(0, count - 1), max_size=count - 1))
    return Epoch(
        row_N=np.setdiff1d(np.arange(count), list(others)),
        shard_rows=draw(st.integers(1, 50)),
        window=draw(st.integers(1, 150)),
        batch_size=draw(st.integers(1, 40)),
        number=draw(st.integers(1, 1000)),
        seeds=draw(
            st.lists(st.integers(0, 10**9), min_size=1, max_size=4, unique=True)
        ),
    )


def order_SN(row_N: Rows, recipe: Recipe, epoch: int, seeds: list[int]) -> Rows:
    """Rows as batches have them: state and label of a row are its number."""
    x_NLD = torch.arange(row_N.max() + 1).float()[:, None, None]
    label_N = torch.from_numpy(row_N)
    train = Subset(features=FeaturesOfArray(x_NLD), rows=row_N, label_N=label_N)
    label_SN = label_N.expand(len(seeds), -1)
    batches = list(epoch_batches(train, label_SN, recipe, seeds, epoch))
    drawn_SN = torch.cat([label_SB for _, label_SB in batches], dim=1)
    state_SN = torch.cat([x_SBLD[..., 0, 0] for x_SBLD, _ in batches], dim=1)
    assert torch.equal(state_SN, drawn_SN.float())
    return drawn_SN.numpy()


def largest_shard(row_N: Rows, shard_rows: int) -> int:
    """Rows of the shard that has most of these."""
    return int(np.unique(row_N // shard_rows, return_counts=True)[1].max())


@given(epochs())
def test_an_epoch_is_every_row_once_for_every_seed(epoch: Epoch) -> None:
    recipe = window_recipe(epoch.window, epoch.shard_rows, epoch.batch_size)
    for order_N in order_SN(epoch.row_N, recipe, epoch.number, epoch.seeds):
        np.testing.assert_array_equal(np.sort(order_N), epoch.row_N)


@given(epochs())
def test_a_block_is_as_many_whole_shards_as_the_window_has_room_for(
    epoch: Epoch,
) -> None:
    row_N = epoch.row_N
    shard_N = row_N // epoch.shard_rows
    recipe = window_recipe(epoch.window, epoch.shard_rows, epoch.batch_size)
    blocks = blocks_of_epoch(row_N, recipe, epoch.number)
    nothing = row_N[:0]
    for block, following in pairwise([*blocks, nothing]):
        shards = np.unique(shard_N[block])
        all_rows = np.flatnonzero(np.isin(shard_N, shards))
        np.testing.assert_array_equal(block, all_rows, "all rows, in ascending order")
        # a shard that is larger than the window is a block of its own
        if len(shards) == 1:
            most = max(epoch.window, largest_shard(row_N, epoch.shard_rows))
        else:
            most = epoch.window
        assert len(block) <= most
        if len(following):
            next_rows = largest_shard(row_N[following], epoch.shard_rows)
            assert len(block) + next_rows > epoch.window, "one more had no room"


@given(epochs())
def test_a_window_of_all_rows_is_full(epoch: Epoch) -> None:
    whole = window_recipe(len(epoch.row_N) + epoch.window, epoch.shard_rows)
    np.testing.assert_array_equal(
        order_SN(epoch.row_N, whole, epoch.number, epoch.seeds),
        order_SN(epoch.row_N, full_recipe(), epoch.number, epoch.seeds),
    )


@given(epochs(), st.booleans())
def test_a_seed_alone_has_the_order_of_the_seed_in_a_batch(
    epoch: Epoch, is_full: bool
) -> None:
    window = window_recipe(epoch.window, epoch.shard_rows)
    recipe = full_recipe() if is_full else window
    together_SN = order_SN(epoch.row_N, recipe, epoch.number, epoch.seeds)
    for seed, together_N in zip(epoch.seeds, together_SN, strict=True):
        [alone_N] = order_SN(epoch.row_N, recipe, epoch.number, [seed])
        np.testing.assert_array_equal(alone_N, together_N)


# rows, rows of a shard, window, rows of a batch
# fmt: off
SIZES = [
    (1, 1, 1, 1),
    (37, 5, 11, 8), (37, 5, 1, 8), (37, 5, 36, 37),
    (64, 8, 16, 16), (64, 8, 16, 5),
    (65, 8, 16, 64),
    (33, 40, 10, 4),
    (90, 3, 7, 32), (90, 3, 200, 7),
]
# fmt: on


@pytest.mark.parametrize("storage", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize(
    ("count", "shard_rows", "window", "batch_size"),
    SIZES,
    ids=["-".join(map(str, sizes)) for sizes in SIZES],
)
def test_batches_from_disk_are_those_from_memory(
    count: int,
    shard_rows: int,
    window: int,
    batch_size: int,
    storage: str,
    tmp_path: Path,
) -> None:
    """Full and window, whatever the rows of a split, shard, window and batch."""
    generator = np.random.default_rng([count, shard_rows, window, batch_size])

    def draw_states(shard: ShardSpec) -> Any:
        shape = (shard.num_rows, 2, 3)
        if storage == "bfloat16":
            return generator.integers(0, 2**14, shape).astype(np.uint16)
        return generator.standard_normal(shape).astype(storage)

    write_cache(
        tmp_path,
        {"train": count},
        2,
        3,
        draw_states,
        shard_rows=shard_rows,
        storage_dtype=storage,
    )
    array = open_cache(tmp_path)["train"].embeddings
    expected = torch.from_numpy(array[:]).float()
    row_N = np.sort(generator.permutation(count)[: max(1, count * 9 // 10)])
    label_N = torch.from_numpy(row_N)
    seeds = [5, 0, 9]
    recipes = (full_recipe(batch_size), window_recipe(window, shard_rows, batch_size))
    places: tuple[Literal["memory", "disk"], ...] = ("memory", "disk")
    for recipe, place in product(recipes, places):
        features = Features(array, torch.device("cpu"), place)
        train = Subset(features=features, rows=row_N, label_N=label_N)
        # all batches are kept beyond the next one: a batch is a copy
        batches = list(
            epoch_batches(train, label_N.expand(3, -1), recipe, seeds, epoch=3)
        )
        sizes = [label_SB.shape[1] for _, label_SB in batches]
        assert set(sizes[:-1]) <= {batch_size}, "only the last one is smaller"
        labels = torch.cat([label_SB for _, label_SB in batches], 1).numpy()
        np.testing.assert_array_equal(labels, order_SN(row_N, recipe, 3, seeds))
        for x_SBLD, label_SB in batches:
            assert x_SBLD.is_contiguous()
            assert torch.equal(x_SBLD.float(), expected[label_SB])


def test_no_two_seeds_streams_or_epochs_draw_the_same_numbers() -> None:
    """And they stay what they are: they are part of what a seed means."""
    of_the_start: list[tuple[int, ...]] = [()]
    of_epochs: list[tuple[int, ...]] = [(epoch,) for epoch in range(1, 6)]
    drawn = [
        stream_seed(seed, stream, *counters)
        for seed, stream, counters in product(
            range(9), STREAMS, of_the_start + of_epochs
        )
    ]
    assert len(set(drawn)) == len(drawn)
    assert stream_seed(7, "order", 3) == 1_729_168_002_221_264_068
