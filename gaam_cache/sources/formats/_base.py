"""What a format of tables is to the source of files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar

from gaam_cache.config import ExtractConfig
from gaam_cache.sources._table import Table


class Format(ABC):
    """Reads one file, whose suffix is the name of the format."""

    reads: ClassVar[frozenset[str]] = frozenset()
    """Fields of a configuration that play a part in this format alone, or in few."""

    @abstractmethod
    def open(self, path: Path, config: ExtractConfig) -> Table:
        """The table in a file, of which no more than the names of its columns is read yet.

        Args:
            path: the file.
            config: says how to read it.

        Raises:
            DataError: what is wrong and where, also while iterating.
            StorageError: the file cannot be read, also while iterating.
        """
