"""Words and values from a person: what is wrong with one, and how it is shown in a message."""

from __future__ import annotations

import re
from pathlib import Path

LONGEST_NAME = 255
"""Bytes of one part of a path, as file systems have it."""
LONGEST_WORD = 60
"""Of what a person wrote, in a message; more of it says no more."""


def problem_with(text: str) -> str | None:
    """What must hold and does not of a word that a person wrote, wherever; None if all is well."""
    if not text.strip():
        return "something: the value is empty"
    if "\0" in text:
        return "text without a NUL character"
    if text.startswith("~"):
        try:
            Path(text).expanduser()
        except RuntimeError as error:
            return f"a home folder that there is: {error}"
    longest = max(len(part.encode(errors="surrogatepass")) for part in re.split("[/,]", text))
    if longest > LONGEST_NAME:
        return f"names of at most {LONGEST_NAME} bytes, not {longest:,}"
    return None


def option_of(field: str) -> str:
    """How a field of a configuration is written on the command line."""
    return "--" + field.replace("_", "-")


def shortened(word: str) -> str:
    """What a person wrote, cut off where it is long."""
    return word if len(word) <= LONGEST_WORD else f"{word[: LONGEST_WORD - 3]}..."


def excerpt(value: object) -> str:
    """A value in quotes and on one line; its end is cut off where it is long."""
    if isinstance(value, str) and len(value) > LONGEST_WORD:
        return f"{value[: LONGEST_WORD - 3]!r}..."
    shown = repr(value)
    return shown if isinstance(value, str) or len(shown) <= 100 else f"{shown[:97]}..."
