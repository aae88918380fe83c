"""What a file of arrays is to an import: a list of arrays, each read a stretch of rows at a time.

N rows of an array, as many outer entries before them as there may be.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from gaam_cache import plugins
from gaam_cache.errors import ConfigError, DataError, GaamError, NotFoundError
from gaam_cache.format.files import Identity, open_regular
from gaam_cache.format.refusals import raise_if_refused
from gaam_cache.messages import shortened

CONTAINERS = "gaam_cache.importing.containers"
STRINGS = "str"
BITS = {"bfloat16": "<u2"}
"""Types that NumPy does not have, and what their bits are read as."""
_PICKLES = {".pt", ".pth", ".bin", ".pkl", ".pickle", ".ckpt", ".joblib"}


class Array(ABC):
    """An array, of which nothing is in memory."""

    name: str
    """In its file; groups before it, with '/' between."""
    where: str
    """File and name, for messages."""
    shape: tuple[int, ...]
    dtype: str
    """As NumPy calls it, or 'bfloat16', or 'str' for strings of any kind."""
    fault: str | None = None
    """Why it cannot be read."""

    @abstractmethod
    def read(self, start: int, stop: int, outer: int | None = None) -> NDArray[Any]:
        """Entries ``start`` to ``stop`` of the first axis, or, at ``outer`` of it, of the second.

        bfloat16 comes as its bits in uint16, strings as objects.

        Raises:
            DataError: the file is damaged.
            StorageError: it may not be read.
        """

    def check(self) -> None:
        """What the file says of the array's bytes, beside their place, where it says something.

        Raises:
            DataError: they are others.
        """
        return

    def __str__(self) -> str:
        """Name, type and shape, for people."""
        told = f"{self.name}: {self.dtype} {self.shape}"
        return f"{told} ({self.fault})" if self.fault else told


class FlatArray(Array):
    """An array whose bytes lie one behind the other, in C order."""

    stored: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Of all of it."""
        return math.prod(self.shape) * self.stored.itemsize

    @abstractmethod
    def bytes_at(self, offset: int, count: int, lane: int) -> bytes:
        """So many of them from there on.

        Args:
            offset: in the array.
            count: fewer are an error.
            lane: those of one lane are asked for in ascending order.
        """

    def read(self, start: int, stop: int, outer: int | None = None) -> NDArray[Any]:
        """See ``Array.read``."""
        inner = self.shape[1:] if outer is None else self.shape[2:]
        row_bytes = math.prod(inner) * self.stored.itemsize
        base = 0 if outer is None else outer * self.shape[1] * row_bytes
        with refusing(self.where):
            raw = self.bytes_at(base + start * row_bytes, (stop - start) * row_bytes, outer or 0)
            if len(raw) != (stop - start) * row_bytes:
                raise ValueError("it ends before the array does")
            found = np.frombuffer(raw, self.stored) if raw else np.empty(0, self.stored)
            found = found.reshape(stop - start, *inner)
            if self.stored.kind == "S":
                found = np.char.decode(found, "utf-8")
            return found.astype(object) if self.dtype == STRINGS else found


class Container(ABC):
    """An open file of arrays; a context manager.

    Raises:
        DataError: on construction, where the file is not of this kind or damaged.
    """

    suffixes: ClassVar[tuple[str, ...]]
    """Of the files that are of this kind, in lower case."""
    arrays: Sequence[Array]
    class_names: Mapping[str, tuple[str, ...]]
    """Names of classes that the file says itself, and where it does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.class_names = {}
        with refusing(path.name):
            self.file = open_regular(path.resolve())  # links are the user's own
            self.identity = self._identity()

    def unchanged(self) -> bool:
        """Whether the file is the one that was opened, as it was then."""
        try:
            there = Identity.of(self.path.resolve().stat())
        except OSError:
            return False
        return there == self.identity

    def _identity(self) -> Identity:
        import os

        return Identity.of(os.fstat(self.file.fileno()))

    def close(self) -> None:
        """Read nothing more."""
        self.file.close()


@contextmanager
def refusing(where: str) -> Iterator[None]:
    """Whatever a parser says of a file becomes one message.

    Raises:
        DataError: it is damaged, or not of its kind.
        StorageError: it may not be read.
    """
    try:
        yield
    except GaamError:
        raise
    except (
        *(OSError, ValueError, TypeError, KeyError, IndexError, AttributeError, EOFError),
        *(RecursionError, OverflowError, NotImplementedError, RuntimeError, SyntaxError),
        *(zipfile.BadZipFile, zlib.error),
    ) as error:
        raise_if_refused(error, Path(where))
        said = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise DataError(
            f"'{Path(where).name}' cannot be read",
            expected="a whole file of its kind",
            found=" ".join(str(said).split()),
            where=where,
            hint="it is damaged, or of another kind than its suffix says",
        ) from error


def dtype_word(dtype: np.dtype[Any]) -> str:
    """What a type of NumPy is called here."""
    if dtype.hasobject:
        return "object"
    return STRINGS if dtype.kind in "US" else dtype.newbyteorder("=").name


def fault_of(dtype: np.dtype[Any], *, fortran_order: bool = False) -> str | None:
    """Why an array of NumPy's own formats cannot be read."""
    if dtype.hasobject:
        return "Python objects are pickles, which are never read"
    if fortran_order:
        return "columns first: save it with np.ascontiguousarray"
    return None


def open_container(path: Path) -> Container:
    """The file, by its suffix.

    Raises:
        ConfigError: no kind of file that is read has this suffix.
        NotFoundError: no such file.
        DataError: it is damaged.
    """
    answers = plugins.ask_all(CONTAINERS, lambda cls: tuple(cls.suffixes), kind="kind of file")
    by_suffix = {suffix: cls for cls, suffixes in answers for suffix in suffixes}
    if not path.exists():
        raise NotFoundError(f"no file at '{path}'", where=str(path.absolute()))
    suffix = path.suffix.lower()
    if path.is_dir() or suffix not in by_suffix:
        pickle = "a pickle runs code when it is read: save the arrays as safetensors"
        raise ConfigError(
            f"no arrays are read from '{shortened(path.name)}'",
            expected=f"a file that ends in one of: {', '.join(sorted(by_suffix))}",
            found="a folder" if path.is_dir() else suffix or "no suffix",
            where=str(path.absolute()),
            hint=pickle if suffix in _PICKLES else None,
        )
    container: Container = by_suffix[suffix](path)
    return container
