"""Every error that gaam raises on purpose, each with its exit code; and its kind of warning."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gaam_cache.common.messages import brief

LONGEST = 4000  # characters of a message that people are shown, and of each detail


class GaamError(Exception):
    """A problem that a person can act on.

    >>> gaam_cache.open_cache("nowhere")
    Traceback (most recent call last):
    gaam_cache.common.errors.NotFoundError: no cache at 'nowhere'...

    Args:
        message: what went wrong, in one sentence.
        expected: what must hold.
        found: what was there instead.
        where: the file, row, option or address.
        hint: what to do about it.
    """

    exit_code = 1

    def __init__(
        self,
        message: str,
        *,
        expected: str | None = None,
        found: str | None = None,
        where: str | None = None,
        hint: str | None = None,
    ) -> None:
        self.message = message
        parts = {"expected": expected, "found": found, "where": where, "to do": hint}
        self.details = {label: text for label, text in parts.items() if text}
        super().__init__(message)

    @property
    def reason(self) -> str:
        """What went wrong and what was found, for a line of somebody else's."""
        return f"{self.message}: {self.details.get('found', '')}"

    def __str__(self) -> str:
        """The message and an indented line for each detail; text from elsewhere is deeper."""

        def indented(text: str, indent: int) -> str:
            lines = brief(text, LONGEST, keep="\n").split("\n")
            return f"\n{' ' * indent}".join(line.strip(" ") for line in lines)

        lines = [
            f"  {name + ':':<10}{indented(text, 12)}"
            for name, text in self.details.items()
        ]
        return "\n".join([indented(self.message, 4), *lines])


class ConfigError(GaamError, ValueError):
    """An argument, option or configuration file is wrong."""

    exit_code = 2
    setting: str | None = None  # the field of a configuration whose value it is


class NotFoundError(ConfigError, FileNotFoundError):
    """A path, encoder or data set that was named does not exist."""


class DataError(GaamError, ValueError):
    """Rows that cannot be used: ragged, empty, or with an unknown label."""

    exit_code = 3


class CacheError(GaamError, RuntimeError):
    """A cache or run on disk is incomplete, corrupt or of another kind."""

    exit_code = 3


class OutOfReachError(CacheError):
    """A cache or run cannot be read here, and nothing is known to be wrong with it.

    A link leads to what was not fetched, its folder was moved, another version wrote it: it is
    not damaged, and nothing of it is to be removed.
    """


class NumericsError(GaamError, ArithmeticError):
    """A number that cannot be stored truthfully (overflow, inf, NaN)."""


class ShortOfMemoryError(GaamError, MemoryError):
    """A device has too little memory for what was asked of it, and nothing smaller was left."""


class HubError(GaamError, ConnectionError):
    """A model hub or data-set hub could not be reached or said no."""


class StorageError(GaamError, OSError):
    """The file system refused: full, read-only, or without the feature that is needed."""


def check_option(holds: bool, name: str, value: object, expected: str) -> None:
    """Refuse the option of a mechanism, head or loss where what must hold of it does not."""
    if not holds:
        raise ConfigError(
            f"{name} is out of range", expected=expected, found=str(value)
        )


class GaamWarning(UserWarning):
    """Something that can be gone on with and that a person should know: a leak, cut texts."""


@contextmanager
def reading_file(where: str) -> Iterator[None]:
    """Turn whatever a library says of a bad file or value into one DataError."""
    try:
        yield
    except Exception as error:  # whatever a library raises: the file is bad
        if isinstance(error, PermissionError):
            raise
        raise DataError(
            f"'{Path(where).name}' cannot be read",
            expected="a whole file of the kind that its suffix says, or an array or list",
            found=" ".join(str(error).split()) or type(error).__name__,
            where=where,
        ) from error
