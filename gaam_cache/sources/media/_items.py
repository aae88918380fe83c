"""Inputs that are made, when they are asked for, of what a spool says of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, overload

from gaam_cache.sources._spool import ByteSpool, PackedTexts, TextSpool, spooled
from gaam_cache.sources.media._blob import Blob, FileBlob

if TYPE_CHECKING:
    from gaam_cache.sources.media._base import Item, Medium


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredBlob(Blob):
    """Part of a temporary file, where the source of rows has put it."""

    store: ByteSpool
    offset: int

    def _read(self) -> bytes:
        return self.store.read(self.offset, self.size)


class Place(NamedTuple):
    """Where the bytes of inputs lie."""

    folder: Path
    """Paths are relative to it; absolute."""
    store: ByteSpool | None = None
    """Of those that are in no file; None where there is no such."""
    origin: str = ""
    """File or hub id, for messages."""


class Items(Sequence[Any]):
    """An ``Item`` per row; in memory eight bytes a row.

    Args:
        medium: what they are.
        facts: what is known of each: JSON.
        place: where their bytes lie.
        units: for every row which input of the data it is of; default: each of its own.
    """

    def __init__(
        self,
        medium: type[Medium],
        facts: PackedTexts,
        place: Place,
        units: Sequence[int] | None = None,
    ) -> None:
        self.facts = facts
        self.place = place
        self.units = range(len(facts)) if units is None else units
        self._medium = medium

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.facts)

    @overload
    def __getitem__(self, index: int) -> Item: ...

    @overload
    def __getitem__(self, index: slice) -> list[Item]: ...

    def __getitem__(self, index: int | slice) -> Item | list[Item]:
        """One item, or a list of them; nothing of them is read."""
        if isinstance(index, slice):
            return [self._item(text) for text in self.facts[index]]
        return self._item(self.facts[index])

    def _item(self, text: str) -> Item:
        fact = json.loads(text)
        return self._medium.item(blob_of(fact["blob"], self.place), fact["facts"])

    def chosen(self, mask: Sequence[bool]) -> Items:
        """Some of them, in order; ``mask`` says of every one whether it is."""
        return Items(self._medium, spooled(compress(self.facts, mask)), self.place)


def blob_of(about: Mapping[str, Any], place: Place) -> Blob:
    """The bytes that ``facts_of`` has noted."""
    size, sha256 = about["size"], about["sha256"]
    if "path" in about:
        path = place.folder / about["path"]
        return FileBlob(where=str(path), size=size, sha256=sha256, path=path)
    assert place.store is not None
    return StoredBlob(
        where=f"{place.origin}, {about['place']}",
        size=size,
        sha256=sha256,
        store=place.store,
        offset=about["at"],
    )


def note(spool: TextSpool, about: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
    """Write down what an item is made of.

    Args:
        spool: to which it is added.
        about: its bytes, as ``blob_of`` reads it.
        facts: as its medium found them.
    """
    # in ASCII: a path may hold bytes that are no UTF-8
    spool.append(json.dumps({"blob": about, "facts": facts}, separators=(",", ":")))
