"""The order of an epoch's rows: who sees what when, over many sizes, shards and windows."""

from __future__ import annotations

from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gaam_cache.store.reader import open_cache
from gaam_decoder.decoder import STREAMS, stream_seed
from gaam_decoder.recipe import Recipe
from gaam_decoder.training.data import Features, Subset, blocks_of_epoch, epoch_batches
from gaam_decoder.training.partitions import Rows
from tests.cache.published import write_cache
from tests.decoder.training import test_seed_batch as seed_batches


def recipe(window: int | None, shard_rows: int, batch_size: int = 8) -> Recipe:
    shuffle = "full" if window is None else f"window:{window}"
    rows = None if window is None else shard_rows
    return seed_batches.recipe(
        "none", "linear", shuffle=shuffle, shard_rows=rows, batch_size=batch_size
    )


@st.composite
def cases(draw: st.DrawFn) -> tuple[Rows, int, int, int, int, list[int]]:
    """Training rows (some held out), rows of a shard, window, batch, epoch, seeds."""
    count = draw(st.integers(1, 120))
    held = draw(st.sets(st.integers(0, count - 1), max_size=count - 1))
    row_N = np.setdiff1d(np.arange(count), list(held))
    sizes = draw(st.tuples(st.integers(1, 50), st.integers(1, 150), st.integers(1, 40)))
    seeds = draw(st.lists(st.integers(0, 10**9), min_size=1, max_size=4, unique=True))
    return row_N, *sizes, draw(st.integers(1, 1000)), seeds


def order_SN(row_N: Rows, of: Recipe, epoch: int, seeds: list[int]) -> Rows:
    """Rows as batches have them: every state is the number of its row, and so is its label."""
    x_NLD = torch.arange(row_N.max() + 1).float()[:, None, None]
    label_N = torch.from_numpy(row_N)
    train = Subset(features=seed_batches.Rows(x_NLD), rows=row_N, label_N=label_N)
    batches = list(
        epoch_batches(train, label_N.expand(len(seeds), -1), of, seeds, epoch)
    )
    found = torch.cat([label_SB for _, label_SB in batches], dim=1)
    assert torch.equal(
        torch.cat([x_SBLD for x_SBLD, _ in batches], 1)[..., 0, 0], found.float()
    )
    return found.numpy()


@given(cases())
def test_an_epoch_is_every_row_once_for_every_seed(case: tuple) -> None:
    row_N, shard_rows, window, batch_size, epoch, seeds = case
    of = recipe(window, shard_rows, batch_size)
    blocks = blocks_of_epoch(row_N, of, epoch)
    for order_N in order_SN(row_N, of, epoch, seeds):
        np.testing.assert_array_equal(np.sort(order_N), row_N)
    largest = np.unique(row_N // shard_rows, return_counts=True)[1].max()
    for block, following in pairwise([*blocks, row_N[:0]]):
        shards = set((row_N[block] // shard_rows).tolist())
        # of whole shards: all rows of these, ascending, and more than the window only of one
        np.testing.assert_array_equal(
            block, np.flatnonzero(np.isin(row_N // shard_rows, list(shards)))
        )
        assert len(block) <= max(window, largest if len(shards) == 1 else 0)
        # and as many as the window has room for
        if len(following):
            first = np.unique(row_N[following] // shard_rows, return_counts=True)[
                1
            ].max()
            assert len(block) + first > window


@given(cases())
def test_a_seed_alone_is_the_seed_in_a_group_and_a_window_of_all_rows_is_full(
    case: tuple,
) -> None:
    row_N, shard_rows, window, _, epoch, seeds = case
    full = order_SN(row_N, recipe(None, shard_rows), epoch, seeds)
    everything = recipe(len(row_N) + window, shard_rows)
    np.testing.assert_array_equal(order_SN(row_N, everything, epoch, seeds), full)
    together = order_SN(row_N, recipe(window, shard_rows), epoch, seeds)
    for place, seed in enumerate(seeds):
        for of, found in (
            (recipe(window, shard_rows), together),
            (recipe(None, 1), full),
        ):
            np.testing.assert_array_equal(
                order_SN(row_N, of, epoch, [seed])[0], found[place]
            )


SIZES = [
    *((1, 1, 1, 1), (37, 5, 11, 8), (37, 5, 1, 8), (37, 5, 36, 37), (64, 8, 16, 16)),
    *(
        (64, 8, 16, 5),
        (65, 8, 16, 64),
        (33, 40, 10, 4),
        (90, 3, 7, 32),
        (90, 3, 200, 7),
    ),
]


@pytest.mark.parametrize("storage", ["float16", "bfloat16", "float32"])
def test_batches_from_disk_are_those_from_memory(storage: str, tmp_path: Path) -> None:
    """Full and window, whatever the number of rows, rows of a shard, window and batch."""
    for number, (count, shard_rows, window, size) in enumerate(SIZES):
        generator = np.random.default_rng(number)

        def states(shard, generator=generator):  # noqa: ANN001, ANN202 a callback
            shape = (shard.stop - shard.start, 2, 3)
            if storage == "bfloat16":
                return generator.integers(0, 2**14, shape).astype(np.uint16)
            return generator.standard_normal(shape).astype(storage)

        root = tmp_path / str(number)
        rows = {"train": count}
        write_cache(
            root, rows, 2, 3, states, shard_rows=shard_rows, storage_dtype=storage
        )
        array = open_cache(root)["train"].embeddings
        expected = torch.from_numpy(array[:]).float()
        kept_N = np.sort(generator.permutation(count)[: max(1, count * 9 // 10)])
        label_N, seeds = torch.from_numpy(kept_N), [5, 0, 9]
        for of in (recipe(None, shard_rows, size), recipe(window, shard_rows, size)):
            order = order_SN(kept_N, of, 3, seeds)
            for place in ("memory", "disk"):
                features = Features(array, torch.device("cpu"), place)  # type: ignore[arg-type]
                train = Subset(features=features, rows=kept_N, label_N=label_N)
                # kept beyond the next batch: a batch is a copy
                batches = list(
                    epoch_batches(train, label_N.expand(3, -1), of, seeds, epoch=3)
                )
                assert [label_SB.shape[1] for _, label_SB in batches[:-1]] == [size] * (
                    len(batches) - 1
                )
                labels = torch.cat([label_SB for _, label_SB in batches], 1).numpy()
                np.testing.assert_array_equal(labels, order)
                for x_SBLD, label_SB in batches:
                    assert x_SBLD.is_contiguous()
                    assert torch.equal(x_SBLD.float(), expected[label_SB])


def test_no_two_seeds_streams_or_epochs_draw_the_same_numbers() -> None:
    """And they stay what they are: they are part of what a seed means."""
    counters = [(), *((epoch,) for epoch in range(1, 6))]
    drawn = [
        stream_seed(*one, *at) for one in product(range(9), STREAMS) for at in counters
    ]
    assert len(set(drawn)) == len(drawn)
    assert stream_seed(7, "order", 3) == 1_729_168_002_221_264_068
