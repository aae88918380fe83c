"""Rows whose inputs lie in files of their own: sounds, pictures."""

import hashlib
import importlib
import tempfile
import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, ClassVar

from gaam_cache.common import plugins
from gaam_cache.common.devices import cores, workers_here
from gaam_cache.common.errors import ConfigError, DataError
from gaam_cache.common.messages import LONGEST_WORD, excerpt, install
from gaam_cache.config import ExtractConfig
from gaam_cache.sources.base import MEDIA, TOLERATED_TRUNCATED_SHARE, Record, Rows
from gaam_cache.sources.rows.layout import HEAD_BYTES, refuse_pointer

AHEAD = 4  # files for every thread that are decoded and not yet asked for
STORED = "gaam-rows-"
_STORING = threading.Lock()


@cache
def _store() -> Any:
    """A temporary file of what tables hold themselves; it goes with the process."""
    return tempfile.NamedTemporaryFile(prefix=STORED)


def _stored(content: bytes) -> dict[str, Any]:
    with _STORING:
        offset = _store().tell()
        _store().write(content)
        _store().flush()
    return {"path": Path(_store().name), "offset": offset}


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """One input: bytes that are read when they are needed, and are then what they were at first."""

    name: str  # as the data set has it: a path, or a row of a table
    path: Path
    offset: int = 0
    size: int
    sha256: str

    @property
    def where(self) -> str:
        return self.name if self.path.name.startswith(STORED) else str(self.path)

    @property
    def identity(self) -> bytes:
        """What it is made of: the digest of its bytes, and which part of them it is."""
        return bytes.fromhex(self.sha256)

    def content(self) -> bytes:
        """All of its bytes; DataError where they are gone, or not what they were at first."""
        content = b""
        with suppress(OSError), self.path.open("rb") as file:
            file.seek(self.offset)
            content = file.read(self.size)
        if hashlib.sha256(content).hexdigest() != self.sha256:
            what = "a file of the data set was changed or removed while it was in use"
            raise DataError(
                what, expected=f"SHA-256 {self.sha256:.12}...", where=self.where
            )
        return content


@dataclass(frozen=True, kw_only=True, slots=True)
class Media(Rows):
    """Rows whose inputs, an ``Item`` each, are decoded when they are needed.

    A kind of files is a class of these, in a file that is called as the kind.
    """

    suffixes: ClassVar[frozenset[str]]
    """Of the files that are looked for in folders, in lower case, with the dot; what a file holds
    is told by its content."""

    @classmethod
    @abstractmethod
    def claims(cls, head: bytes) -> bool:
        """Whether a file that begins with these 64 bytes is of this kind, whatever its name."""

    @classmethod
    @abstractmethod
    def items(
        cls, content: bytes, config: ExtractConfig, **file: Any
    ) -> Sequence[Item]:
        """Decode a file, so that nothing is found wrong later, and say of what rows it is made.

        Raises:
            DataError: it is empty, damaged, or of another kind.
        """

    def contents(self) -> Iterator[bytes]:
        """Of every input a digest that covers all of its bytes, and which part of them it is."""
        return (item.identity for item in self.inputs)

    def few_alike(self, count: int, what: str) -> Iterator[str]:
        """A line where more than one input in a hundred is of a kind that says nothing."""
        if count > TOLERATED_TRUNCATED_SHARE * len(self):
            yield f"{count:,} of {len(self):,} {self.noun}s of {self.origin} {what}"

    def excerpt(self, row: int) -> str:
        """The end of where an input lies."""
        return excerpt(self.inputs[row].where[-LONGEST_WORD:])


def media() -> dict[str, type[Media]]:
    """All kinds of files that there are."""
    return {
        name: plugins.load(MEDIA, name, kind="kind of files")
        for name in plugins.names(MEDIA)
    }


def file_in(cell: Any) -> Any:
    """What a cell says of a file, its bytes or its name; None where it names none."""
    if isinstance(
        cell, Mapping
    ):  # as the library ``datasets`` stores sounds and pictures
        cell = cell.get("path") if cell.get("bytes") is None else cell.get("bytes")
    blank = isinstance(cell, str) and not cell.strip()
    return None if blank or not cell else cell


def library(name: str, kind: str) -> Any:
    """A module that decodes files of a kind, which is the extra that it comes with too."""
    try:
        return importlib.import_module(name)
    except (ImportError, OSError) as error:
        what = f"rows of {kind} need the package of {name}"
        raise ConfigError(what, found=str(error), hint=install(kind)) from error


class Files:
    """Reads the files that records name, in ``folder``, or hold themselves."""

    kind: Any = None  # the class that holds what was found: all files are of one kind

    def __init__(self, folder: Path, config: ExtractConfig) -> None:
        self._folder, self._config = folder.absolute(), config
        self._media = media().values()

    def read(
        self, records: Iterable[Record], column: str
    ) -> Iterator[tuple[str, Any, Callable[[], Sequence[Item]]]]:
        """Every record, in order, with what returns its inputs; several threads decode them."""
        threads = max(1, len(cores()) // workers_here())
        waiting = deque[Any]()
        with ThreadPoolExecutor(threads, "decode") as pool:
            for place, record in records:
                decoded = pool.submit(self._decoded, place, record[column])
                waiting.append((place, record, partial(self._of_one_kind, decoded)))
                if len(waiting) >= AHEAD * threads:
                    yield waiting.popleft()
            yield from waiting

    def _is_inside(self, path: Path, cell: str) -> bool:
        """Whether a file that a table names lies in the folder; links in it lead anywhere."""
        written = Path(cell)
        if not written.is_absolute() and ".." not in written.parts:
            return True
        return path.resolve(strict=True).is_relative_to(self._folder.resolve())

    def _of_one_kind(
        self, decoded: Future[tuple[Any, Sequence[Item]]]
    ) -> Sequence[Item]:
        kind, items = decoded.result()
        self.kind = self.kind or kind
        if kind not in (None, self.kind):
            what = "a file is of another kind than the first"
            raise DataError(
                what, expected=f"a {self.kind.noun}", found=f"a {kind.noun}"
            )
        return items

    def _decoded(self, place: str, cell: Any) -> tuple[Any, Sequence[Item]]:
        """The kind of a file, and what is in it; nothing where none is named."""
        cell = file_in(cell)
        if cell is None:
            return None, ()
        try:
            if isinstance(cell, bytes):
                content, file = cell, {"name": place, **_stored(cell)}
            else:
                path = self._folder / cell
                if not (self._is_inside(path, cell) or self._config.allow_outside):
                    raise DataError(
                        "a file lies outside of the folder of the data set",
                        expected=f"a path relative to {self._folder}, which stays in it",
                        hint="if the data set is to be trusted: --set allow-outside=true",
                    )
                content, file = path.read_bytes(), {"name": cell, "path": path}
            head = content[:HEAD_BYTES]
            refuse_pointer(head, place)
            kind = next((one for one in self._media if one.claims(head)), None)
            if kind is None:
                found = f"{len(content):,} bytes that begin {content[:12]!r}"
                raise DataError(
                    "a file is no sound or picture that can be read", found=found
                )
            file |= {
                "size": len(content),
                "sha256": hashlib.sha256(content).hexdigest(),
            }
            return kind, kind.items(content, self._config, **file)
        except DataError as error:
            error.details.setdefault(
                "found", excerpt(cell if isinstance(cell, str) else place)
            )
            raise
        except (OSError, ValueError, TypeError) as error:
            expected = f"a path relative to {self._folder}"
            raise DataError(
                "a file cannot be read", expected=expected, found=str(error)
            ) from error
