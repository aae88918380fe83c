"""A question before something is done that cannot be taken back."""

from __future__ import annotations

import sys

from gaam_cache.errors import ConfigError
from gaam_cache.messages.foreign_text import visible


def can_ask(option: str, *, yes: bool) -> None:
    """Refuse to go on where nobody could be asked.

    Args:
        option: of the command line, which asks.
        yes: whether the answer was given before.

    Raises:
        ConfigError: no terminal.
    """
    if not yes and not (sys.stdin is not None and sys.stdin.isatty()):
        raise ConfigError(
            f"{option} asks first, and there is nobody to ask",
            expected="a terminal, or --yes",
            found="stdin is no terminal",
        )


def confirmed(question: str, *, yes: bool) -> bool:
    """The answer of a person; anything but y or yes is a no."""
    if yes:
        return True
    print(f"{visible(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().casefold() in ("y", "yes")
