"""What rows of a kind are."""

from __future__ import annotations

from gaam_cache import plugins
from gaam_cache.errors import DataError
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


class OneKind:
    """All rows of a data set are of the kind of the first."""

    def __init__(self) -> None:
        self._kind: str | None = None

    def check(self, kind: str) -> None:
        """Take note of the kind of a row.

        Raises:
            DataError: others are of another.
        """
        self._kind = self._kind or kind
        if kind != self._kind:
            raise DataError(
                "a row is of another kind than the first",
                expected=self._kind,
                found=kind,
                hint="make data sets of one kind each",
            )
