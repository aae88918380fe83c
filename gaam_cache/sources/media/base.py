"""Rows whose inputs lie in files: sounds and pictures, decoded when they are needed."""

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
from typing import Any, ClassVar, NamedTuple

from gaam_cache.common import plugins
from gaam_cache.common.devices import cores, workers_here
from gaam_cache.common.errors import ConfigError, DataError
from gaam_cache.common.messages import LONGEST_WORD, excerpt, install_command
from gaam_cache.config import ExtractConfig
from gaam_cache.sources.base import MEDIA, TOLERATED_SHARE, Record, Rows
from gaam_cache.sources.rows.layout import HEAD_BYTES, refuse_pointer

FILES_AHEAD = 4  # for every thread, files that are decoded before they are needed
START_SHOWN = 12  # bytes of an unknown file that an error shows
SPOOL_PREFIX = "gaam-rows-"
"""Beginning of the name of the temporary file for the bytes of table cells."""
_SPOOL_LOCK = threading.Lock()


@cache
def _spool() -> Any:
    """The temporary file for the bytes of table cells.

    The first call creates it, and every later call returns the same file. The end of
    the process removes it.
    """
    return tempfile.NamedTemporaryFile(prefix=SPOOL_PREFIX)


def _write_to_spool(content: bytes) -> int:
    """Append bytes to the temporary file, and return where they start."""
    # several threads decode files, and would mix up their bytes
    with _SPOOL_LOCK:
        offset: int = _spool().tell()
        _spool().write(content)
        _spool().flush()
    return offset


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """An input in a file, such as a sound or a picture.

    The file is read when the input is needed. Its digest must then be the one that it
    had when the rows were listed.
    """

    name: str
    """How the data set calls it: the path of a file, or the location of a record whose
    cell holds the bytes of the file."""
    path: Path
    offset: int = 0  # index of the first byte in the file
    size: int  # number of bytes
    sha256: str  # of the bytes

    @property
    def where(self) -> str:
        """Where the input lies, for messages."""
        # The bytes of a cell of a table lie in a temporary file, which tells people
        # nothing. The name of such an input is the location of the cell's record.
        is_from_cell = self.path.name.startswith(SPOOL_PREFIX)
        if is_from_cell:
            return self.name
        return str(self.path)

    @property
    def identity(self) -> bytes:
        """Bytes that identify the input, for the fingerprint of the rows.

        They are the digest of the whole file. A subclass whose input is a part of it,
        such as seconds 30 to 60 of a sound, appends the bounds of the part.
        """
        return bytes.fromhex(self.sha256)

    def content(self) -> bytes:
        """Read all bytes of the input.

        Raises:
            DataError: the bytes are gone, or are no longer those of the digest.
        """
        # the content of a file that cannot be read counts as empty: another digest
        content = b""
        with suppress(OSError), self.path.open("rb") as file:
            file.seek(self.offset)
            content = file.read(self.size)
        # the fingerprint of the cache covers the bytes that were there at first
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise DataError(
                "a file of the data set was changed or removed while it was in use",
                expected=f"SHA-256 {self.sha256:.12}...",
                where=self.where,
            )
        return content


@dataclass(frozen=True, kw_only=True, slots=True)
class Media(Rows):
    """Rows whose inputs, an ``Item`` each, are decoded when they are needed.

    Every kind of files is a subclass, in a module with the name of the kind.
    """

    suffixes: ClassVar[frozenset[str]]
    """Suffixes of the files to look for in folders, in lower case and with the dot. The
    kind of a file follows from its content, not from its suffix."""

    @classmethod
    @abstractmethod
    def claims(cls, head: bytes) -> bool:
        """Whether a file is of this kind; ``head`` is its first 64 bytes, or all."""

    @classmethod
    @abstractmethod
    def items(cls, content: bytes, config: ExtractConfig, file: Item) -> Sequence[Item]:
        """Decode a file to check it, and describe its inputs.

        Inputs are decoded again when they are needed. The file is decoded here too, so
        that the errors of all files come before anything is encoded.

        Args:
            content: all bytes of the file.
            config: the extraction.
            file: where these bytes lie. Each input has the same fields, and more of its
                own, such as where a piece of a sound begins.

        Raises:
            DataError: it is empty, damaged, or of another kind.
        """

    def contents(self) -> Iterator[bytes]:
        """Yield for every input the bytes that identify it, for the fingerprint."""
        return (item.identity for item in self.inputs)

    def doubt_if_many(self, count: int, description: str) -> Iterator[str]:
        """Yield a warning if more than one input in a hundred carries no information.

        Args:
            count: number of such inputs.
            description: what is wrong with them, as a predicate: "show one colour".
        """
        if count > TOLERATED_SHARE * len(self):
            total = f"{len(self):,} {self.noun}s"
            yield f"{count:,} of {total} of {self.origin} {description}"

    def excerpt(self, row: int) -> str:
        """The end of the path of an input."""
        return excerpt(self.inputs[row].where[-LONGEST_WORD:])


def media() -> dict[str, type[Media]]:
    """All kinds of files, by name."""
    return {
        name: plugins.load(MEDIA, name, kind="kind of files")
        for name in plugins.names(MEDIA)
    }


def file_in(cell: Any) -> Any:
    """Take a file from a cell of a table.

    Returns:
        The bytes of the file, or its name; None if the cell is empty or blank. Any
        other value is returned as it is, and fails when it is used as a name.

    Raises:
        DataError: the cell has other entries than bytes and path, such as the start of
            a clip.
    """
    # the library ``datasets`` stores a file as a dictionary of its bytes and its path
    if isinstance(cell, Mapping):
        unknown_keys = cell.keys() - {"bytes", "path"}
        if unknown_keys:
            raise DataError(
                "a cell has more than a file",
                expected="its bytes or its path alone",
                found=", ".join(sorted(map(excerpt, unknown_keys))),
                hint="write decoded samples, or a piece of a sound, as a file",
            )
        content = cell.get("bytes")
        if content is None:
            content = cell.get("path")
        cell = content
    is_empty_name = isinstance(cell, str) and not cell.strip()
    is_empty_file = isinstance(cell, bytes) and not cell
    return None if is_empty_name or is_empty_file else cell


def import_decoder(module_name: str, kind: str) -> Any:
    """Import a module that decodes files of a kind; ConfigError if it is missing.

    Args:
        module_name: name of the module, such as "PIL.Image".
        kind: kind of the files, "audio" or "vision". The extra of gaam that installs
            the module has the same name, and the message advises to install it.
    """
    try:
        return importlib.import_module(module_name)
    # A package may be there and still lack its shared library: that is an OSError.
    except (ImportError, OSError) as error:
        raise ConfigError(
            f"rows of {kind} need the package of {module_name}",
            found=str(error),
            hint=install_command(kind),
        ) from error


class _DecodedFile(NamedTuple):
    """What a cell of a table holds or names."""

    kind: type[Media] | None  # None if the cell is empty
    inputs: Sequence[Item]  # none if the cell is empty


_FileRecord = tuple[str, Mapping[str, Any], Callable[[], Sequence[Item]]]
"""The location of a record, its values, and the function that returns its inputs."""


class Files:
    """Reads the files that records name or contain; all must be of one kind."""

    def __init__(self, folder: Path, config: ExtractConfig) -> None:
        """Remember the folder of the data set; names in records are relative to it."""
        # the kind of the first file, to which all others must belong
        self._kind: type[Media] | None = None
        self._folder = folder.absolute()
        self._config = config
        self._kinds = media().values()

    def read(self, records: Iterable[Record], column: str) -> Iterator[_FileRecord]:
        """Yield every record, in order, with a function that returns its inputs.

        Several threads decode files ahead. The function waits for the file, and raises
        DataError if it cannot be used.

        Args:
            records: location and values of every record.
            column: the column whose cells name or contain files.
        """
        threads = max(1, len(cores()) // workers_here())
        pending = deque[_FileRecord]()
        with ThreadPoolExecutor(threads, "decode") as pool:
            # A record waits in the queue until enough later ones are in it too. So the
            # threads are ahead of the caller, but never too far for the memory.
            for location, record in records:
                decoding = pool.submit(self._decode, location, record[column])
                get_inputs = partial(self._wait_for_inputs, decoding)
                pending.append((location, record, get_inputs))
                if len(pending) >= FILES_AHEAD * threads:
                    yield pending.popleft()
            yield from pending

    def row_class(self) -> type[Media]:
        """The class for rows of these files, which is that of the first file's kind.

        At least one file must have been read before.
        """
        if self._kind is None:
            raise RuntimeError("no file was decoded")
        return self._kind

    def _wait_for_inputs(self, decoding: Future[_DecodedFile]) -> Sequence[Item]:
        """Wait for a file to be decoded, and return its inputs.

        The first file decides the kind. A file of another kind is refused. Without a
        file there are no inputs.
        """
        kind, inputs = decoding.result()
        if kind is None:
            return inputs
        if self._kind is None:
            self._kind = kind
        if kind != self._kind:
            raise DataError(
                "a file is of another kind than the first",
                expected=f"a {self._kind.noun}",
                found=f"a {kind.noun}",
            )
        return inputs

    def _decode(self, location: str, cell: Any) -> _DecodedFile:
        """Decode the file in a cell; this runs in a thread.

        Args:
            location: where the record of the cell is, for messages.
            cell: the bytes of a file, its name, or nothing.

        Raises:
            DataError: the file cannot be used. The caller adds the location of the
                record.
        """
        content_or_name = file_in(cell)
        if content_or_name is None:
            return _DecodedFile(kind=None, inputs=())
        shown_name = location
        if isinstance(content_or_name, str):
            shown_name = content_or_name
        try:
            content, item = self._read_file(location, content_or_name)
            head = content[:HEAD_BYTES]
            refuse_pointer(head, location)
            kind = self._kind_of(content, head)
            return _DecodedFile(kind, kind.items(content, self._config, item))
        except DataError as error:
            # an error that does not say what was found there names the file instead
            error.details.setdefault("found", excerpt(shown_name))
            raise
        except (OSError, ValueError, TypeError) as error:
            raise DataError(
                "a file cannot be read",
                expected=f"a path relative to {self._folder}",
                found=str(error),
            ) from error

    def _read_file(self, location: str, content_or_name: Any) -> tuple[bytes, Item]:
        """Read a file that a cell contains or names.

        Args:
            location: where the record of the cell is, for messages.
            content_or_name: the bytes of the file, or its name.

        Returns:
            The bytes of the file; and where they are, to read them again later. Bytes
            from a cell are in the temporary file.

        Raises:
            DataError: the file is outside of the folder, which the user has not
                allowed.
        """
        if isinstance(content_or_name, bytes):
            content = content_or_name
            name = location
            offset = _write_to_spool(content)
            path = Path(_spool().name)
        else:
            name = content_or_name
            offset = 0
            path = self._folder / name
            if not (self._is_inside(path, name) or self._config.allow_outside):
                raise DataError(
                    "a file lies outside of the folder of the data set",
                    expected=f"a path relative to {self._folder}, which stays in it",
                    hint="if the data set is to be trusted: --set allow-outside=true",
                )
            content = path.read_bytes()
        item = Item(
            name=name,
            path=path,
            offset=offset,
            size=len(content),
            sha256=hashlib.sha256(content).hexdigest(),
        )
        return content, item

    def _is_inside(self, path: Path, name: str) -> bool:
        """Whether a file lies in the folder; links in the folder may lead anywhere.

        Args:
            path: the file.
            name: its name in the data set.
        """
        # A plain relative name cannot leave the folder, except by a link, which counts
        # as inside. Only for other names it matters where the resolved path is.
        written_path = Path(name)
        if not written_path.is_absolute() and ".." not in written_path.parts:
            return True
        return path.resolve(strict=True).is_relative_to(self._folder.resolve())

    def _kind_of(self, content: bytes, head: bytes) -> type[Media]:
        """The kind that claims a file; DataError if none does.

        ``head`` is the beginning of ``content``.
        """
        for kind in self._kinds:
            if kind.claims(head):
                return kind
        raise DataError(
            "a file is no sound or picture that can be read",
            found=f"{len(content):,} bytes that begin {content[:START_SHOWN]!r}",
        )
