"""Asking before something is done that cannot be undone."""

from __future__ import annotations

import sys

from gaam_cache.errors import ConfigError
from gaam_cache.messages.foreign_text import tell


def consent(what: str, *, yes: bool) -> bool:
    """Show what is to be done, and whether somebody at the terminal says yes to it.

    Args:
        what: lines for people; the first counts what goes.
        yes: that it was said already, by ``--yes``; nothing is shown or asked.

    Raises:
        ConfigError: nobody can be asked.
    """
    if yes:
        return True
    first = what.partition("\n")[0]
    streams = (sys.stdin, sys.stderr)
    if not all(stream is not None and stream.isatty() for stream in streams):
        raise ConfigError(
            "this is done only when somebody says yes to it",
            expected="--yes, or a terminal on which to ask",
            found=f"neither; {first}",
            hint="look at what is meant without --yes on a terminal, or with 'gaam runs'",
        )
    tell(what, to=sys.stderr)
    tell("type yes to go on:", to=sys.stderr)
    return sys.stdin.readline().strip().casefold() in ("y", "yes")
