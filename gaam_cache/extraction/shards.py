"""Shards beside their states: arrays of rows, and receipts that make no shard exist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.errors import CacheError
from gaam_cache.sources._base import Rows
from gaam_cache.store.dtypes import packed
from gaam_cache.store.plan import Plan, ShardSpec
from gaam_cache.store.shard import (
    ROW_DATASETS,
    UNLABELLED,
    column_key,
    missing_shards,
    planned_receipt,
    receipt_path,
)


class RowArrays:
    """Labels, row numbers, numbers of tokens and kept columns of every shard of a plan."""

    def __init__(self, plan: Plan, rows: Mapping[str, Rows]) -> None:
        self._plan, self._rows = plan, rows
        number = {name: index for index, name in enumerate(plan.class_names)}
        self._labels = {
            name: np.array([number[label] for label in part.labels])
            if part.labelled
            else np.full(len(part), UNLABELLED)
            for name, part in rows.items()
        }

    def of(
        self, shard: ShardSpec, lengths: Sequence[int] | NDArray[np.int64]
    ) -> dict[str, tuple[str, NDArray[Any]]]:
        """Name -> (dtype, one entry per row), as ``write_shard`` takes them."""
        values = {
            "label": self._labels[shard.split][shard.start : shard.stop],
            "row": np.arange(shard.start, shard.stop),
            "num_tokens": np.asarray(lengths),
        }
        arrays = {key: (dtype, values[key]) for key, dtype in ROW_DATASETS.items()}
        kept = self._rows[shard.split].kept
        for name, width in self._plan.columns.items():
            of_shard = kept[name][shard.start : shard.stop]
            arrays[column_key(name)] = "utf8", packed(of_shard, width)
        return arrays


def discard_broken(root: Path, plan: Plan) -> dict[str, str]:
    """Take away the receipts that make no shard exist, so that it is made again.

    That is a receipt that cannot be read or that does not fit the plan, and one whose file is
    gone, of another size or no regular file; no byte of the file is read. Returns what was wrong
    with every shard by name.
    """
    broken, missing = {}, set(missing_shards(root, plan))
    for shard in plan.shards():
        if shard.name not in missing:
            try:
                planned_receipt(root, plan, shard)
            except CacheError as error:
                path = receipt_path(root, shard.name)
                with suppress(FileNotFoundError):  # another was quicker
                    path.unlink()
                    broken[shard.name] = error.reason
    return broken
