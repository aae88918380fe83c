"""The shards that a cache lacks: which to make next, and what they hold beside states."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.engines._claims import Claim, Claims, Holder
from gaam_cache.errors import CacheError
from gaam_cache.sources._base import Rows
from gaam_cache.store.dtypes import packed
from gaam_cache.store.files import storage_errors
from gaam_cache.store.plan import Plan, ShardSpec
from gaam_cache.store.shard import (
    ROW_DATASETS,
    UNLABELLED,
    column_key,
    missing_shards,
    planned_receipt,
    receipt_path,
)

CLAIM_FOLDER = "claims"


class Undone:
    """The shards that lack a receipt, as far as we know, where several work on one cache.

    Args:
        shards: in the order in which to try them.
        claims: who is at work on what.
        exists: whether a shard has its receipt by now.
    """

    def __init__(
        self, shards: Sequence[ShardSpec], claims: Claims, exists: Callable[[ShardSpec], bool]
    ) -> None:
        self.rows = sum(shard.stop - shard.start for shard in shards)
        """Of the shards that are neither encoded by us nor made by others."""
        self._left = deque(shards)
        self._claims = claims
        self._exists = exists
        self._holder = Holder()
        self._lock = threading.Lock()

    def take(self) -> tuple[ShardSpec, Claim] | None:
        """The next shard that nobody makes; None where others make all that is left."""
        for _ in range(len(self._left)):
            shard = self._left.popleft()
            if self._exists(shard):
                self.finish(shard)
                continue
            claim = self._claims.take(shard.name)
            if isinstance(claim, Holder):
                self._holder = claim
                self._left.append(shard)
            elif self._exists(shard):  # finished a moment before
                claim.done()
                self.finish(shard)
            else:
                return shard, claim
        return None

    def finish(self, shard: ShardSpec) -> None:
        """Count a shard as done."""
        with self._lock:  # the next is taken in a thread of its own
            self.rows -= shard.stop - shard.start

    def others_live(self) -> bool:
        """Whether all that is left is held, now, by those who were seen to be alive."""
        return {shard.name for shard in self._left} <= self._claims.alive()

    def left(self) -> str | None:
        """Who makes what is left; None where others have finished all: the last to leave sees."""
        self._left = deque(shard for shard in self._left if not self._exists(shard))
        return self.in_words() if self._left else None

    def in_words(self) -> str:
        """Who makes what is left, for people."""
        count = len(self._left)
        what = f"{count:,} shards that others make" if count > 1 else "a shard that another makes"
        return f"{what} ({self._holder.in_words()})"


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
    gone, of another size or no regular file. The file of a shard is never touched; no byte of it is
    read. Where another extractor mends the same shard it may be made twice, with the same bytes.

    Returns:
        Name of the shard -> what was wrong with it.

    Raises:
        StorageError: the file system refused.
    """
    broken, missing = {}, set(missing_shards(root, plan))
    for shard in plan.shards():
        if shard.name not in missing:
            try:
                planned_receipt(root, plan, shard)
            except CacheError as error:
                path = receipt_path(root, shard.name)
                with storage_errors(path), suppress(FileNotFoundError):  # another was quicker
                    path.unlink()
                    broken[shard.name] = error.reason
    return broken
