"""What rows of a kind are."""

from __future__ import annotations

from gaam_cache import plugins
from gaam_cache.sources._base import Rows
from gaam_cache.sources._texts import Texts

MEDIA = "gaam_cache.sources.media"


def rows_of_kind(kind: str) -> type[Rows]:
    """What holds rows of a kind: texts, or sounds or pictures."""
    if kind == Texts.kind:
        return Texts
    medium = plugins.load(MEDIA, kind, kind="kind of files")
    rows: type[Rows] = medium.rows
    return rows
