"""What a file turns out to be when somebody looks: its content says its kind, not its name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gaam_cache import plugins
from gaam_cache.config import ExtractConfig
from gaam_cache.errors import DataError
from gaam_cache.format.digest import chunks, digest_of, digest_of_stream
from gaam_cache.sources._kinds import MEDIA
from gaam_cache.sources.media._base import Medium
from gaam_cache.sources.media._items import Place, blob_of
from gaam_cache.sources.media._paths import checked_path, within

HEAD_BYTES = 64
"""That say of which kind a file is."""


class Named(NamedTuple):
    """A file that a table names."""

    path: str
    """Relative to the folder."""
    listed: bool = False
    """Whether it was found there, and is not what somebody wrote."""


class Stored(NamedTuple):
    """Bytes that a table holds, in a spool."""

    offset: int
    size: int
    place: str


class Found(NamedTuple):
    """What was found."""

    medium: type[Medium]
    about: Mapping[str, Any]
    """Its bytes, as ``blob_of`` reads it."""
    facts: Sequence[Mapping[str, Any]]
    """Of every row that it gives."""


def media() -> dict[str, type[Medium]]:
    """All kinds of files that there are."""
    names = plugins.names(MEDIA)
    return {name: plugins.load(MEDIA, name, kind="kind of files") for name in names}


class Looker:
    """Looks at files and stored bytes; may be asked by several threads.

    Args:
        place: where they lie.
        config: of the extraction.
        anywhere: whether absolute paths are those of whoever made the table on this machine.
    """

    def __init__(self, place: Place, config: ExtractConfig, *, anywhere: bool = False) -> None:
        self._place = place
        self._config = config
        self._outside = anywhere or config.allow_outside
        self._media = media()

    def look(self, what: Named | Stored | DataError) -> Found | DataError:
        """Decode it, and say what it is; or why it cannot be used."""
        if isinstance(what, DataError):
            return what
        try:
            return self._look(what)
        except DataError as error:
            return error

    def _look(self, what: Named | Stored) -> Found:
        about: dict[str, Any]
        if isinstance(what, Named):
            folder = self._place.folder
            if what.listed:
                path = within(folder / what.path, folder, what.path, outside=self._outside)
            else:
                path = checked_path(what.path, folder, outside=self._outside)
            head, size, sha256 = _digest_of_file(path)
            about = {"path": what.path, "size": size, "sha256": sha256}
        else:
            store = self._place.store
            assert store is not None
            content = store.read(what.offset, what.size)
            head, sha256 = content[:HEAD_BYTES], digest_of(content)
            del content
            about = {"at": what.offset, "place": what.place, "size": what.size, "sha256": sha256}
        blob = blob_of(about, self._place)
        medium = next((m for m in self._media.values() if m.claims(head)), None)
        if medium is None:
            kinds = ", ".join(self._media)
            if not about["size"]:
                raise DataError("a file is empty", expected=f"one of: {kinds}", found="0 bytes")
            raise DataError(
                "a file is of no kind that can be read",
                expected=f"one of: {kinds}",
                found=f"{about['size']:,} bytes that begin with {head[:12].hex(' ')}",
            )
        return Found(medium, about, medium.look(blob, self._config))


def _digest_of_file(path: Path) -> tuple[bytes, int, str]:
    """Its first bytes, its size and its SHA-256; no more than a part of it is in memory."""
    head, size = b"", 0

    def parts() -> Iterator[bytes]:
        nonlocal head, size
        with path.open("rb") as file:
            for chunk in chunks(file):
                head = head or chunk[:HEAD_BYTES]
                size += len(chunk)
                yield chunk

    try:
        digest = digest_of_stream(parts())
    except OSError as error:
        raise DataError(
            "a file cannot be read", found=error.strerror or str(error), where=str(path)
        ) from error
    return head, size, digest
