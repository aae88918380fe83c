"""Where the bytes of a sound or picture lie, and what they must be."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from gaam_cache.errors import DataError
from gaam_cache.format.digest import digest_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Blob(ABC):
    """Bytes that are read when they are needed, and are then what they were at first."""

    where: str
    """For messages: a path, or a row of a table."""
    size: int
    """In bytes."""
    sha256: str

    def read(self) -> bytes:
        """All of it.

        Raises:
            DataError: it cannot be read, or is not what it was when its rows were read.
        """
        try:
            content = self._read()
        except OSError as error:
            raise DataError(
                "a file of the data set cannot be read",
                found=error.strerror or str(error),
                where=self.where,
            ) from error
        if len(content) != self.size or digest_of(content) != self.sha256:
            raise DataError(
                "a file of the data set was changed while it was in use",
                expected=f"{self.size:,} bytes, SHA-256 {self.sha256:.12}...",
                found=f"{len(content):,} bytes, SHA-256 {digest_of(content):.12}...",
                where=self.where,
                hint="run the same again when whoever writes it is done; shards that were made "
                "of what it was are those of another cache",
            )
        return content

    @abstractmethod
    def _read(self) -> bytes:
        """At most one byte more than ``size``: what grew is seen, and not held in memory."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FileBlob(Blob):
    """All of a file."""

    path: Path

    def _read(self) -> bytes:
        with self.path.open("rb") as file:
            return file.read(self.size + 1)
