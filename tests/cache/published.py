"""Caches of states that a test chose, made by the real writer without an encoder."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.store.dtypes import ITEM_BYTES, pack_strings, utf8_width
from gaam_cache.store.files import fingerprint, hash_parts
from gaam_cache.store.plan import (
    Plan,
    ShardSpec,
    rows_per_shard,
    write_plan,
)
from gaam_cache.store.records import DatasetRecord, EncoderRecord
from gaam_cache.store.shard import TypedArray, column_key, write_shard
from gaam_cache.targets.classes import Classes


def write_cache(
    root: Path,
    rows: dict[str, int],
    num_layers: int,
    hidden_size: int,
    states: Callable[[ShardSpec], NDArray[Any]],
    *,
    shard_rows: int = 2048,
    storage_dtype: str = "float16",
    first: int | None = None,
    columns: dict[str, list[str]] | None = None,
    unlabelled: tuple[str, ...] = (),
) -> None:
    """Publish a cache of two classes in turn, or its first shards; bfloat16 comes as its bits.

    Columns hold the same values in every split, as many of them as it has rows.
    """
    kept = columns or {}
    fields: dict[str, Any] = {
        "content": {split: f"chosen for {split}" for split in rows},
        "rows": rows,
        "class_names": ["a", "b"],
        "storage_dtype": storage_dtype,
        "encoder": {"pooling": ["mean"], "max_length": 9, "dtype": "float32"},
    }
    if kept:
        fields["columns"] = {
            name: {
                split: hash_parts(map(str.encode, values[:count]))
                for split, count in rows.items()
            }
            for name, values in kept.items()
        }
    if unlabelled:
        fields["unlabelled"] = list(unlabelled)
    plan = Plan(
        columns={name: utf8_width(values) for name, values in kept.items()},
        unlabelled=unlabelled,
        fingerprint=fingerprint(fields),
        fingerprint_fields=fields,
        encoder=EncoderRecord(
            kind="text", name="chosen", revision=None, batching="padded"
        ),
        dataset=DatasetRecord(name="chosen", shared_texts={}),
        num_layers=num_layers,
        hidden_size=hidden_size,
        pooling=("mean",),
        storage_dtype=storage_dtype,
        target=Classes(("a", "b")),
        rows=rows,
        shard_rows=rows_per_shard(
            num_layers * hidden_size * ITEM_BYTES[storage_dtype], shard_rows
        ),
        created_with={},
    )
    write_plan(root, plan)
    for shard in islice(plan.shards(), first):
        arrays = map_arrays(shard, states(shard), storage_dtype)
        if shard.split in unlabelled:
            arrays["label"] = TypedArray("int64", np.full(shard.num_rows, -1))
        for name, values in kept.items():
            of_shard = pack_strings(
                values[shard.start : shard.stop], plan.columns[name]
            )
            arrays[column_key(name)] = TypedArray("utf8", of_shard)
        write_shard(root, plan, shard, arrays)


def map_arrays(
    shard: ShardSpec, states: NDArray[Any], storage_dtype: str = "float16"
) -> dict[str, TypedArray]:
    """All arrays of a shard, as ``write_shard`` takes them."""
    numbers = np.arange(shard.start, shard.stop)
    return {
        "embeddings": TypedArray(storage_dtype, states),
        "label": TypedArray("int64", numbers % 2),
        "row": TypedArray("int64", numbers),
        "num_tokens": TypedArray("int32", 1 + numbers % 9),
    }


def write_random_cache(
    root: Path, rows: int, num_layers: int, hidden_size: int
) -> None:
    """A cache of random float16 states, one split."""
    generator = np.random.default_rng(0)

    def states(shard: ShardSpec) -> NDArray[Any]:
        shape = (shard.num_rows, num_layers, hidden_size)
        return generator.standard_normal(shape, dtype=np.float32).astype(np.float16)

    write_cache(root, {"train": rows}, num_layers, hidden_size, states)


COLUMN = [
    "Ä",
    "",
    "one",
    "😀 two",
    "three",
    "0",
    "seven words are in this value here",
    "x",
]


def write_kept_cache(root: Path) -> None:
    """One with two columns, and a split without labels."""
    columns = {"session": COLUMN, "B_2": COLUMN[::-1]}
    rows = {"train": len(COLUMN), "test": 3}
    kept = {"columns": columns, "unlabelled": ("test",)}
    write_cache(root, rows, 2, 2, number_everywhere, shard_rows=3, **kept)  # type: ignore[arg-type]


def number_everywhere(shard: ShardSpec) -> Any:
    """(rows, 2, 2): the row's number in the first layer, its negative in the second."""
    states = np.empty((shard.num_rows, 2, 2), np.float16)
    states[:, 0] = (np.arange(shard.start, shard.stop) % 1000)[:, None]
    states[:, 1] = -states[:, 0]
    return states
