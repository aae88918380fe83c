"""Rows whose inputs lie in files of their own: sounds, pictures."""

from __future__ import annotations

import hashlib
import os
import tempfile
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from gaam_cache import plugins
from gaam_cache.config import ExtractConfig
from gaam_cache.devices import cores, workers_here
from gaam_cache.errors import DataError
from gaam_cache.messages import LONGEST_WORD, excerpt
from gaam_cache.sources._base import MEDIA, Rows
from gaam_cache.sources._table import Record

HEAD_BYTES = 64
"""That say of which kind a file is."""
AHEAD = 4
"""Files for every thread that are decoded and not yet asked for."""
_STORES: list[Any] = []
"""Temporary files of what tables hold themselves; they go with the process."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Blob:
    """Bytes that are read when they are needed, and are then what they were at first."""

    name: str
    """As the data set has it: a path, or a row of a table."""
    path: Path
    offset: int = 0
    size: int
    sha256: str

    @property
    def where(self) -> str:
        """For messages."""
        return (
            self.name if self.offset or self.path.name.startswith("gaam-rows-") else str(self.path)
        )

    def read(self) -> bytes:
        """All of it.

        Raises:
            DataError: it cannot be read, or is not what it was when its rows were read.
        """
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                content = file.read(self.size)
        except OSError as error:
            raise DataError(
                "a file of the data set cannot be read", found=str(error), where=self.where
            ) from error
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise DataError(
                "a file of the data set was changed while it was in use",
                expected=f"SHA-256 {self.sha256:.12}...",
                where=self.where,
                hint="run the same again when whoever writes it is done",
            )
        return content


class Item(Protocol):
    """One input."""

    @property
    def blob(self) -> Blob:
        """Its bytes."""

    @property
    def identity(self) -> bytes:
        """What it is made of: the digest of its bytes, and which part of them it is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Media(Rows):
    """Rows whose inputs, an ``Item`` each, are decoded when they are needed."""

    def contents(self) -> Iterator[bytes]:
        """Of every input a digest that covers all of its bytes, and which part of them it is."""
        return (item.identity for item in self.inputs)

    def excerpt(self, row: int) -> str:
        """Where an input lies; the beginning is cut off where that is long."""
        where = self.inputs[row].blob.where
        return excerpt(where if len(where) <= LONGEST_WORD else f"...{where[3 - LONGEST_WORD :]}")

    def decoders(self) -> dict[str, str]:
        """Those of its kind of files."""
        found: dict[str, str] = plugins.load(MEDIA, self.kind, kind="kind of files").versions()
        return found


class Medium(ABC):
    """A kind of inputs that lie in files; the file that defines it is called as its kind."""

    rows: ClassVar[type[Media]]
    """What its rows are."""
    suffixes: ClassVar[frozenset[str]]
    """Of the files that are looked for in folders, in lower case, with the dot; what a file holds
    is told by its content."""

    @classmethod
    def versions(cls) -> dict[str, str]:
        """What decodes, and in which version: another one may make other numbers."""
        return {}

    @classmethod
    @abstractmethod
    def claims(cls, head: bytes) -> bool:
        """Whether a file that begins with these 64 bytes is of this kind, whatever its name."""

    @classmethod
    @abstractmethod
    def items(cls, blob: Blob, content: bytes, config: ExtractConfig) -> Sequence[Item]:
        """Decode a file, so that nothing is found wrong later, and say of what rows it is made.

        Raises:
            DataError: it is empty, damaged, or of another kind.
        """


def media() -> dict[str, type[Medium]]:
    """All kinds of files that there are."""
    return {name: plugins.load(MEDIA, name, kind="kind of files") for name in plugins.names(MEDIA)}


class Looker:
    """Looks at the files that records name or hold; their content says their kind.

    Args:
        folder: paths are relative to it.
        config: of the extraction.
        anywhere: whether they may lie outside of it.
    """

    def __init__(self, folder: Path, config: ExtractConfig, *, anywhere: bool = False) -> None:
        self._folder = folder.absolute()
        self._anywhere = anywhere or config.allow_outside
        self._config = config
        self._media = media()
        self._medium: type[Medium] | None = None
        self._store: Any = None

    @property
    def rows(self) -> type[Media]:
        """What holds what was found."""
        return Media if self._medium is None else self._medium.rows

    def look(
        self, records: Iterable[Record], columns: Sequence[str]
    ) -> Iterator[tuple[str, Any, Sequence[Item] | DataError]]:
        """Every record with the inputs that it names, in order; several threads decode them."""
        threads = max(1, len(cores()) // workers_here())
        waiting: deque[tuple[str, Any, Future[Any]]] = deque()
        with ThreadPoolExecutor(threads, "look") as pool:
            try:
                for place, record in records:
                    named: Any = record
                    if not isinstance(record, DataError):
                        named = self._named(record[columns[0]], place)
                        if isinstance(named, Blob):  # which need no second place
                            record = {**record, columns[0]: None}
                    waiting.append((place, record, pool.submit(self._look, named)))
                    if len(waiting) >= AHEAD * threads:
                        yield self._next(*waiting.popleft())
                while waiting:
                    yield self._next(*waiting.popleft())
            finally:
                pool.shutdown(cancel_futures=True)

    def _next(
        self, place: str, record: Any, future: Future[Any]
    ) -> tuple[str, Any, Sequence[Item] | DataError]:
        medium, items = future.result()
        self._medium = self._medium or medium
        if medium not in (None, self._medium):
            items = DataError(
                "a file is of another kind than the first",
                expected=f"a {self.rows.noun}",
                found=f"a {medium.rows.noun}",
            )
        return place, record, items

    def _named(self, cell: Any, place: str) -> Blob | str | DataError | None:
        """What a cell holds: bytes that are kept, or a path; None where that is nothing."""
        if isinstance(cell, Mapping):  # as the library ``datasets`` stores sounds and pictures
            cell = cell.get("path") if cell.get("bytes") is None else cell.get("bytes")
        if isinstance(cell, bytes):
            return self._stored(cell, place) if cell else None
        if cell is None or (isinstance(cell, str) and not cell.strip()):
            return None
        if isinstance(cell, str):
            return cell
        found = f"{excerpt(cell)} ({type(cell).__name__})"
        return DataError("a cell names no file", expected="a path", found=found)

    def _stored(self, content: bytes, place: str) -> Blob:
        if self._store is None:
            self._store = tempfile.NamedTemporaryFile(prefix="gaam-rows-")  # noqa: SIM115
            _STORES.append(self._store)
        offset = self._store.tell()
        self._store.write(content)
        self._store.flush()
        digest = hashlib.sha256(content).hexdigest()
        path = Path(self._store.name)
        return Blob(name=place, path=path, offset=offset, size=len(content), sha256=digest)

    def _look(
        self, named: Blob | str | DataError | None
    ) -> tuple[type[Medium] | None, Sequence[Item] | DataError]:
        if named is None or isinstance(named, DataError):
            return None, named or ()
        try:
            if isinstance(named, Blob):
                blob, content = named, named.read()
            else:
                path = self._path(named)
                content = path.read_bytes()
                digest = hashlib.sha256(content).hexdigest()
                blob = Blob(name=named, path=path, size=len(content), sha256=digest)
            head = content[:HEAD_BYTES]
            medium = next((one for one in self._media.values() if one.claims(head)), None)
            if medium is None:
                raise DataError(
                    "a file is of no kind that can be read",
                    expected=f"one of: {', '.join(self._media)}",
                    found=f"{blob.size:,} bytes that begin with {head[:12].hex(' ') or 'nothing'}",
                )
            return medium, medium.items(blob, content, self._config)
        except DataError as error:
            error.details.setdefault("found", excerpt(str(getattr(named, "name", named))))
            return None, error
        except (OSError, ValueError) as error:
            expected = f"a path relative to {self._folder}"
            return None, DataError("a file cannot be read", expected=expected, found=str(error))

    def _path(self, named: str) -> Path:
        path = self._folder / named
        real = Path(os.path.realpath(path, strict=True))
        if not self._anywhere and not real.is_relative_to(os.path.realpath(self._folder)):
            raise DataError(
                "a file lies outside of the folder of the data set",
                expected=f"a path relative to {self._folder}, which stays in it",
                found=excerpt(named),
                hint="if the data set is to be trusted: --set allow-outside=true",
            )
        return path
