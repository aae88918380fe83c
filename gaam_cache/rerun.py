"""The command that makes a cache again, for those who have only learned from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from gaam_cache import settings
from gaam_cache.config import ExtractConfig
from gaam_cache.errors import CacheError, ConfigError
from gaam_cache.extraction.recorded import command_again, extract_command, settings_of
from gaam_cache.format.encoding import Encoding
from gaam_cache.format.plan import Plan


def extract_again(known: Plan | Encoding, out: Path, **given: Any) -> str:
    """The command line of ``gaam extract`` or ``gaam import`` that made a cache.

    Args:
        known: its plan, or what a run says of it.
        out: folder that the command is to make.
        given: further fields of an ``ExtractConfig``, such as the rows of a shard.

    Raises:
        CacheError: nobody recorded it, or no shell can be told.
    """
    if isinstance(known, Plan):
        command = command_again(known, out)
    elif known.imported:
        raise _unrecorded("states that others made")
    else:
        try:
            given = settings_of(known) | {"out": out} | given
            command = extract_command(settings.resolve(ExtractConfig, "extract", given))
        except (ConfigError, KeyError, TypeError) as error:
            raise _unrecorded(" ".join(str(error).split())) from error
    if not command.startswith("gaam "):
        raise _unrecorded("names with characters that no terminal shows")
    return command


def _unrecorded(found: str) -> CacheError:
    return CacheError(
        "no command makes this cache again",
        expected="a data set, an encoder and their settings, as an extraction records them",
        found=found,
    )
