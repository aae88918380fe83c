"""A split of a cache as a table: numbers of rows, kept columns, labels where they are known."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from gaam_cache.cache import EmbeddingCache
from gaam_cache.errors import ConfigError
from gaam_cache.format.plan import PLAN_FILE
from gaam_cache.sources._table import Columns
from gaam_cache.tables.chunk import Chunk
from gaam_cache.tables.inputs import Inputs
from gaam_cache.tables.jsonl import ObjectsChunk
from gaam_cache.tables.table import Table

if TYPE_CHECKING:
    import pyarrow

ROW, LABEL = "row", "label"
"""Columns of the number of a row in its split, from 0, and of the name of its class."""


class CachedTable(Table):
    """The rows of a split; their inputs are not in the cache, and are empty here.

    Args:
        cache: the cache.
        split: of it.

    Raises:
        ConfigError: no such split, or a kept column that is called as another column is.
    """

    format = "cache"

    def __init__(self, cache: EmbeddingCache, split: str) -> None:
        super().__init__(Path(cache.root) / PLAN_FILE, Inputs(Columns((), None), Path(cache.root)))
        self.split = cache[split]
        own = [ROW, LABEL] if self.split.labelled else [ROW]
        if taken := [name for name in cache.columns if name in own]:
            raise ConfigError(
                f"the cache keeps a column '{taken[0]}', as the rows of a split have",
                expected=f"kept columns other than {' and '.join(own)}",
                where=str(cache.root),
            )
        self.names = [ROW, *cache.columns, *own[1:]]
        self._kept = {name: self.split.column(name) for name in cache.columns}
        self._cache = cache

    def schema(self) -> pyarrow.Schema:
        """A whole number, then strings."""
        import pyarrow

        texts = [(name, pyarrow.string()) for name in self.names[1:]]
        return pyarrow.schema([(ROW, pyarrow.int64()), *texts])

    def _read(self) -> Iterator[Chunk]:
        labels, names = self.split.labels, self.split.class_names
        identity = f"{self._cache.fingerprint} {self.split.name}".encode()
        for first in range(0, len(self.split), self.chunk_rows):
            rows = range(first, min(first + self.chunk_rows, len(self.split)))
            records = []
            for row in rows:
                record = {ROW: row} | {name: kept[row] for name, kept in self._kept.items()}
                if LABEL in self.names[1:]:
                    record[LABEL] = names[labels[row]]
                records.append(record)
            lines = [json.dumps(record, ensure_ascii=False) for record in records]
            places = [f"row {row}" for row in rows]
            yield ObjectsChunk(self.names, lines, records, places, [""] * len(rows), [identity])
