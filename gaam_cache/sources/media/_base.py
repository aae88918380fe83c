"""Rows whose inputs lie in files of their own: sounds, pictures."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any, ClassVar, Protocol

from gaam_cache import plugins
from gaam_cache.config import ExtractConfig
from gaam_cache.messages import LONGEST_WORD, excerpt
from gaam_cache.sources._base import Packed, Rows
from gaam_cache.sources.media._blob import Blob
from gaam_cache.sources.media._items import Items, Place


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
    """Rows whose inputs are decoded when they are needed."""

    inputs: Sequence[Any]
    """An ``Item`` each."""

    def contents(self) -> Iterator[bytes]:
        """Of every input a digest that covers all of its bytes, and which part of them it is."""
        return (item.identity for item in self.inputs)

    def essences(self) -> Iterator[bytes]:
        """The same: two files are one if they have the same bytes."""
        return self.contents()

    def excerpt(self, row: int) -> str:
        """Where an input lies; the beginning is cut off where that is long."""
        where = self.inputs[row].blob.where
        return excerpt(where if len(where) <= LONGEST_WORD else f"...{where[3 - LONGEST_WORD :]}")

    def units(self) -> Sequence[int]:
        """Pieces of one input are never parted."""
        return self.inputs.units if isinstance(self.inputs, Items) else range(len(self))

    def chosen_inputs(self, mask: Sequence[bool]) -> Sequence[Any]:
        """As ``Items`` too."""
        if isinstance(self.inputs, Items):
            return self.inputs.chosen(mask)
        return list(compress(self.inputs, mask))

    def packed_inputs(self) -> Packed | None:
        """Where they are, if all are in files of their own."""
        if not isinstance(self.inputs, Items) or self.inputs.place.store is not None:
            return None
        return Packed(self.inputs.facts, {"folder": str(self.inputs.place.folder)})

    def decoders(self) -> dict[str, str]:
        """Those of its kind of files."""
        medium = plugins.load(__package__, self.kind, kind="kind of files")
        found: dict[str, str] = medium.versions()
        return found

    @classmethod
    def unpacked_inputs(cls, packed: Packed) -> Sequence[Any]:
        """The same files."""
        medium = plugins.load(__package__, cls.kind, kind="kind of files")
        return Items(medium, packed.texts, Place(Path(packed.about["folder"])))


class Medium(ABC):
    """A kind of inputs that lie in files; the file that defines it is called as its kind."""

    rows: ClassVar[type[Media]]
    """What its rows are."""
    suffixes: ClassVar[frozenset[str]]
    """Of the files that are looked for in folders, in lower case, with the dot; what a file holds
    is told by its content."""
    reads: ClassVar[frozenset[str]] = frozenset()
    """Fields of a configuration that play a part for this kind alone."""

    @classmethod
    def versions(cls) -> dict[str, str]:
        """What decodes, and in which version: another one may make other numbers."""
        return {}

    @classmethod
    @abstractmethod
    def claims(cls, head: bytes) -> bool:
        """Whether a file that begins so is of this kind, whatever it is called.

        Args:
            head: the first 64 bytes.
        """

    @classmethod
    @abstractmethod
    def look(cls, blob: Blob, config: ExtractConfig) -> Sequence[Mapping[str, Any]]:
        """Decode it, so that nothing is found wrong later, and say of what rows it is made.

        Args:
            blob: the file.
            config: says what becomes of what is too long.

        Returns:
            For every row that it gives what ``item`` needs to know: JSON values. One or more.

        Raises:
            DataError: it is empty, damaged, too large to be what it says, or of another kind.
        """

    @classmethod
    @abstractmethod
    def item(cls, blob: Blob, facts: Mapping[str, Any]) -> Item:
        """The input that a row stands for; nothing is read yet."""
