"""A prompt: text that stands around every text."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Self

from gaam_cache.config_checks import PLACE, check_place
from gaam_cache.errors import NotFoundError
from gaam_cache.store.files import read_bytes

LARGEST = 2**20
"""Bytes of a prompt; more is longer than what encoders read."""


class Prompt(NamedTuple):
    """What stands before a text, and what behind it."""

    before: str
    after: str

    @classmethod
    def parse(cls, text: str, where: str) -> Self:
        """Read ``Topic of this news item: {text}``; raises as ``check_place``."""
        check_place(text, where)
        return cls(*text.split(PLACE))

    @classmethod
    def of(cls, prompt: str | None, file: Path | None) -> Self | None:
        """The prompt of a configuration; None where there is none, or nothing around the text.

        A file is taken as it stands, but for one line end at its end.

        Raises:
            ConfigError: as ``check_place``.
            NotFoundError: no such file, or not UTF-8.
        """
        where = "--prompt"
        if file is not None:
            where = str(file)
            prompt = _read(file.expanduser())
        if prompt is None:
            return None
        found = cls.parse(prompt, where)
        return found if any(found) else None

    def around(self, text: str) -> str:
        """The prompt with a text in its place; a ``{text}`` within that is itself."""
        return f"{self.before}{text}{self.after}"

    def __str__(self) -> str:
        """As it was given."""
        return self.around(PLACE)


def _read(file: Path) -> str:
    try:
        # links are the user's own; a pipe would be waited for, a device never ends
        text = read_bytes(file.resolve(), max_bytes=LARGEST).decode("utf-8")
    except (OSError, ValueError) as error:
        raise NotFoundError(
            f"cannot read the prompt '{file}'",
            expected=f"--set prompt-file=FILE, UTF-8 text with '{PLACE}' where the text stands",
            found=getattr(error, "strerror", None) or str(error),
        ) from error
    return text.removesuffix("\n").removesuffix("\r")
