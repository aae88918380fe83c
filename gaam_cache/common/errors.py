"""The errors that gaam raises on purpose, their exit codes, and its warning."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gaam_cache.common.messages import brief

LONGEST = 4000  # characters of a message, and of each of its details
LABELS = ("expected", "found", "where", "to do")
"""They stand before the details of a message, in this order."""


class GaamError(Exception):
    """A problem that a person can solve.

    >>> gaam_cache.open_cache("nowhere")
    Traceback (most recent call last):
    gaam_cache.common.errors.NotFoundError: no cache at 'nowhere'...

    Args:
        message: the problem, in one sentence.
        expected: what gaam needs.
        found: what it got instead.
        where: the file, row, option or address.
        hint: what to do.
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
        parts = zip(LABELS, (expected, found, where, hint), strict=True)
        self.details = {label: text for label, text in parts if text}
        super().__init__(message)

    @property
    def reason(self) -> str:
        """The problem and what was found, on one line of another message."""
        return f"{self.message}: {self.details.get('found', '')}"

    def __str__(self) -> str:
        """The message, and one indented line for each detail."""
        lines = [_indented(self.message, 4)]
        # a caller may have added the place later
        for label in LABELS:
            if label in self.details:
                text = _indented(self.details[label], 12)
                lines.append(f"  {label + ':':<10}{text}")
        return "\n".join(lines)


def _indented(text: str, indent: int) -> str:
    """A text, cut at ``LONGEST``, in which all lines but the first are indented.

    So a text from elsewhere stays below its label and cannot look like another label.
    """
    lines = brief(text, LONGEST, keep="\n").split("\n")
    return f"\n{' ' * indent}".join(line.strip(" ") for line in lines)


class ConfigError(GaamError, ValueError):
    """An argument, option or configuration file is wrong."""

    exit_code = 2
    setting: str | None = None  # field of the configuration that has the bad value


class NotFoundError(ConfigError, FileNotFoundError):
    """A path, encoder or data set does not exist."""


class DataError(GaamError, ValueError):
    """Rows are unusable: ragged, empty, or with an unknown label."""

    exit_code = 3


class CacheError(GaamError, RuntimeError):
    """A cache or run on disk is incomplete, corrupt or of another format."""

    exit_code = 3


class OutOfReachError(CacheError):
    """A cache or run cannot be read here, although it may be intact.

    Its files were not fetched, its folder was moved, or another version wrote it.
    Nothing may be removed from it.
    """


class NumericsError(GaamError, ArithmeticError):
    """A number cannot be stored faithfully (overflow, inf, NaN)."""


class ShortOfMemoryError(GaamError, MemoryError):
    """A device has too little memory even for the smallest batch."""


class HubError(GaamError, ConnectionError):
    """A hub of models or data sets could not be reached, or refused."""


class StorageError(GaamError, OSError):
    """The file system refused: full, read-only, or without a needed feature."""


def check_option(holds: bool, name: str, value: object, expected: str) -> None:
    """Refuse an option of a mechanism, head or loss that is out of its range.

    Args:
        holds: whether the value is in the range.
        name: the option.
        value: its value, for the message.
        expected: the range, for the message.
    """
    if not holds:
        raise ConfigError(
            f"{name} is out of range", expected=expected, found=str(value)
        )


class GaamWarning(UserWarning):
    """Something that a person should know while the work goes on: a leak, cut texts."""


class GaamNote(GaamWarning):
    """What gaam chose where a person left the choice to it: nothing is wrong."""


@contextmanager
def reading_file(where: str) -> Iterator[None]:
    """Turn every error that a library raises inside the block into one DataError.

    The block reads one file or value; ``where`` is its path or place, for the message.
    """
    try:
        yield
    except PermissionError:
        # this says nothing about the content of the file
        raise
    except Exception as error:
        # libraries raise errors of many types, and each means a bad file
        raise DataError(
            f"'{Path(where).name}' cannot be read",
            expected="a complete file of the type of its suffix, or an array or list",
            found=" ".join(str(error).split()) or type(error).__name__,
            where=where,
        ) from error
