"""What of a row is encoded: its text, or the file that it names."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gaam_cache.errors import DataError
from gaam_cache.format.files import canonical_json
from gaam_cache.messages import excerpt
from gaam_cache.sources._table import Columns
from gaam_cache.sources._texts import empty_text, is_blank, text_of
from gaam_cache.sources.media._paths import checked_path
from gaam_cache.sources.media._state import state_of
from gaam_cache.tables.chunk import Input


class Inputs(NamedTuple):
    """How rows are read."""

    columns: Columns
    folder: Path
    """Absolute; paths are relative to it."""
    outside: bool = False
    """Take files that lie outside of it."""
    skip_empty: bool = False
    """Let rows be of which nothing is to be encoded."""

    def of(self, record: Mapping[str, Any] | DataError) -> Input:
        """The input of a row."""
        if isinstance(record, DataError):
            return record
        names = self.columns.inputs
        try:
            if self.columns.of_files:
                found = self._file(record[names[0]])
            else:
                found = text_of(record, names)
        except DataError as error:
            return error
        if found is not None or self.skip_empty:
            return found
        return _no_file(names[0]) if self.columns.of_files else empty_text(record, names)

    def _file(self, cell: Any) -> str | None:
        if cell is None or (isinstance(cell, str) and is_blank(cell)):
            return None
        if not isinstance(cell, str):
            raise DataError(
                "a cell names no file",
                expected="a path",
                found=f"{excerpt(cell)} ({type(cell).__name__})",
                hint="name another column with --file-column; files that a table holds itself "
                "are written to a folder first",
            )
        return str(checked_path(cell, self.folder, outside=self.outside))

    def states(self, inputs: Iterable[Input]) -> Sequence[bytes]:
        """What the file system says of the files of rows; nothing of texts."""
        if not self.columns.of_files:
            return ()
        return [
            canonical_json([one, *state_of(Path(one))]) if isinstance(one, str) else b""
            for one in inputs
        ]


def _no_file(column: str) -> DataError:
    return DataError(
        "no file is named",
        expected=f"a path in column '{column}'",
        hint="remove such rows, let them be with --set skip-empty=true or name another column with "
        "--file-column",
    )
