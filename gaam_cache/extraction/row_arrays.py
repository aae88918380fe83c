"""What a shard says of its rows beside their states."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.extraction.batching import Lengths
from gaam_cache.sources._base import Rows
from gaam_cache.store.dtypes import packed
from gaam_cache.store.plan import Plan, ShardSpec
from gaam_cache.store.shard import ROW_DATASETS, UNLABELLED, column_key


class RowArrays:
    """Labels, row numbers, numbers of tokens and kept columns of every shard of a plan."""

    def __init__(self, plan: Plan, rows: Mapping[str, Rows]) -> None:
        self._plan = plan
        self._kept = {name: part.kept for name, part in rows.items()}
        self._labels = label_numbers(plan, rows)

    def of(self, shard: ShardSpec, lengths: Lengths) -> dict[str, tuple[str, NDArray[Any]]]:
        """Name -> (dtype, one entry per row), as ``build_image`` takes them."""
        values = {
            "label": self._labels[shard.split][shard.start : shard.stop],
            "row": np.arange(shard.start, shard.stop),
            "num_tokens": np.asarray(lengths),
        }
        arrays = {key: (dtype, values[key]) for key, dtype in ROW_DATASETS.items()}
        kept = self._kept[shard.split]
        for name, width in self._plan.columns.items():
            of_shard = kept[name][shard.start : shard.stop]
            arrays[column_key(name)] = "utf8", packed(of_shard, width)
        return arrays


def label_numbers(plan: Plan, rows: Mapping[str, Rows]) -> dict[str, NDArray[np.int64]]:
    """Class number of every row of every split, (rows,)."""
    number = {name: index for index, name in enumerate(plan.class_names)}
    return {
        name: np.array([number[label] for label in part.labels])
        if part.labelled
        else np.full(len(part), UNLABELLED)
        for name, part in rows.items()
    }
