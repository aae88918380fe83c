"""What a format of tables is to the source of files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path

from gaam_cache.sources._table import Record


class Format(ABC):
    """Reads one file, whose suffix is the name of the format."""

    @abstractmethod
    def read(
        self, path: Path, columns: Sequence[str], label_column: str
    ) -> tuple[list[str], Iterator[Record]]:
        """Names of all columns, and records that have at least those that are needed.

        Args:
            path: the file.
            columns: those that make an input.
            label_column: that of the class.

        Raises:
            DataError: what is wrong and where, also while iterating.
        """
