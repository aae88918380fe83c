"""What ``gaam export`` asks of the hub and of a person, in this order, around the export itself."""

from __future__ import annotations

import sys
from pathlib import Path

from gaam_cache.errors import ConfigError, HubError
from gaam_cache.hub.names import check_pushed_name
from gaam_cache.hub.push import Destination, look
from gaam_cache.messages import tell
from gaam_cache.store.files import check_elsewhere


def check_options(
    path: Path,
    out: Path,
    *,
    of_cache: bool,
    seed: int | None,
    cache: Path | None,
    push: str | None,
    private: bool,
    yes: bool,
) -> None:
    """Refuse what cannot be exported so, before anything is read and anybody is asked.

    Raises:
        ConfigError: options that play no part, no name of a repository, or a folder that must not
            be made.
    """
    if of_cache and (seed is not None or cache is not None):
        raise ConfigError("--seed and --cache are for a run", expected="a run", found="a cache")
    if push is not None:
        check_pushed_name(push)
    elif private or yes:
        option = "--private" if private else "--yes"
        raise ConfigError(f"{option} is for --push", expected="--push USER/NAME beside it")
    check_elsewhere(path, out)


def destination(
    *, push: str | None, of_cache: bool, private: bool, overwrite: bool, yes: bool
) -> Destination | None:
    """Where it would be sent; None where it would not. Asked before anything is made.

    Raises:
        ConfigError: nobody can be asked, or a repository that must not be written to.
        HubError: no token, or what the hub says.
    """
    if push is None:
        return None
    if not yes and not (sys.stdin is not None and sys.stdin.isatty()):
        raise ConfigError(
            "--push asks first, and there is nobody to ask",
            expected="a terminal, or --yes",
            found="stdin is no terminal",
        )
    kind = "dataset" if of_cache else "model"
    return look(push, kind=kind, private=private, overwrite=overwrite)


def send(where: Destination, folder: Path, *, yes: bool) -> str:
    """Say what would be sent, ask, and send it; returns its page.

    Raises:
        HubError: the answer was no, or the hub refused.
    """
    folder = folder.expanduser()
    tell(where.in_words(folder), to=sys.stderr)
    if not yes:
        print("send it? [y/N] ", end="", file=sys.stderr, flush=True)
        yes = sys.stdin.readline().strip().casefold() in ("y", "yes")
    if not yes:
        raise HubError("nothing was sent", found="no", hint=f"what would be sent is in '{folder}'")
    return where.send(folder)
