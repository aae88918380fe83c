"""Why a file cannot be used, as the code that decodes says it; where it lies is added outside."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gaam_cache.errors import DataError

REMOVE = "mend it or write it anew from where it came, or remove its row"
"""What to do about a damaged file."""
UNUSABLE_KIND = "convert it, or remove its row"
"""What to do about a file of another kind."""


class Flaw(Exception):  # noqa: N818 it is told as a DataError
    """A file that cannot be used.

    Args:
        message: what is wrong, in one sentence.
        expected: what must hold.
        found: what was there instead.
        hint: what to do about it.
    """

    def __init__(
        self, message: str, expected: str = "", found: str = "", hint: str = REMOVE
    ) -> None:
        super().__init__(message, expected, found, hint)
        self._message = message
        self._details = {"expected": expected, "found": found, "hint": hint}

    def at(self, where: str) -> DataError:
        """The same with its place."""
        return DataError(self._message, where=where, **self._details)


def truncated(what: str, expected: int, found: int, unit: str = "bytes") -> Flaw:
    """The flaw of a file that ends too early."""
    return Flaw(
        f"{what} is truncated",
        expected=f"{expected:,} {unit}, as it says itself",
        found=f"{found:,} {unit}",
        hint="fetch or write it again: its end is missing",
    )


@contextmanager
def flaws_of(where: str) -> Iterator[None]:
    """What is wrong inside is wrong with the file that lies there.

    Raises:
        DataError: a ``Flaw`` was raised inside.
    """
    try:
        yield
    except Flaw as flaw:
        raise flaw.at(where) from flaw
