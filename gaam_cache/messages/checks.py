"""Checks that both configurations make of themselves, each an error that names its option."""

from __future__ import annotations

import re
from pathlib import Path

from gaam_cache.errors import ConfigError

LARGEST_NUMBER = 2**31 - 1
"""Of any setting that counts something; more is a slip of the finger."""

LONGEST_NAME = 255
"""Bytes of one part of a path, as file systems have it."""
LONGEST_WORD = 60
"""Of what a person wrote, in a message; more of it says no more."""


def check_at_least(config: object, minimum: int, *fields: str) -> None:
    """Refuse values below ``minimum`` or senselessly large; None means not set and passes.

    Raises:
        ConfigError: naming the option, the bounds and the value.
    """
    for field in fields:
        value = getattr(config, field)
        if value is not None and not minimum <= value <= LARGEST_NUMBER:
            high = f" and at most {LARGEST_NUMBER:,}" if value > LARGEST_NUMBER else ""
            raise ConfigError(
                f"{option_of(field)} is out of range",
                expected=f">= {minimum}{high}",
                found=shortened(str(value)),
            )


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


def check_device(name: str) -> None:
    """Refuse what names no device, whether or not there is one.

    Raises:
        ConfigError: naming those there can be.
    """
    if not re.fullmatch(r"auto|cpu|cuda(:\d{1,4})?", name, re.ASCII):
        gpu = name.casefold().startswith(("gpu", "cuda"))
        raise ConfigError(
            "unknown --device",
            expected="auto, cpu, cuda or cuda:N",
            found=shortened(name),
            hint="did you mean 'cuda'?" if gpu else None,
        )


def option_of(field: str) -> str:
    """How a field of a configuration is written on the command line."""
    return "--" + field.replace("_", "-")


def shortened(word: str) -> str:
    """What a person wrote, cut off where it is long."""
    return word if len(word) <= LONGEST_WORD else f"{word[: LONGEST_WORD - 3]}..."
