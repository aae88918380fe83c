"""What says, unread, that files are still the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from gaam_cache.errors import DataError
from gaam_cache.format.digest import digest_of_stream
from gaam_cache.format.files import Identity, canonical_json
from gaam_cache.sources._table import Columns, Table


def state_of(path: Path) -> list[Any]:
    """What the file system says of a file; None where it says nothing."""
    try:
        # no device: the same file has another on another machine
        return list(Identity.of(path.stat())[1:])
    except (OSError, ValueError):
        return [None]


def state_of_all(named: Iterable[str], folder: Path) -> str:
    """One digest of what it says of many, in order; paths are relative to a folder."""
    return digest_of_stream(
        canonical_json([name, *state_of(folder / name)]) + b"\n" for name in named
    )


def state_of_named(table: Table, columns: Columns, folder: Path) -> str | None:
    """The same of all that a table names; None where it holds them itself."""
    column = columns.inputs[0]

    def named() -> Iterator[str]:
        for _, record in table.records(columns._replace(label=None, kept=())):
            cell = None if isinstance(record, DataError) else record[column]
            if isinstance(cell, Mapping):
                cell = cell["path"] if cell["bytes"] is None else cell["bytes"]
            if isinstance(cell, bytes):
                raise _StoredError
            if isinstance(cell, str):
                yield cell

    try:
        return state_of_all(named(), folder)
    except _StoredError:
        return None


class _StoredError(Exception):
    """There is no file to ask about."""
