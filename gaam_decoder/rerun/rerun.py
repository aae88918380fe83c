"""What ``gaam rerun`` prints."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gaam_cache.errors import ConfigError
from gaam_cache.messages import shortened
from gaam_decoder.rerun.commands import Rerun
from gaam_decoder.rerun.of_runs import commands_of
from gaam_decoder.rerun.of_signature import commands_of_signature
from gaam_decoder.runs.loading import load_runs


def rerun(what: str | Path | Sequence[str | Path]) -> Rerun:
    """The commands that give runs, or the table of a report, again.

    Args:
        what: a signature, a file of ``gaam report --json``, a run, a folder of runs, or several
            of them.

    Raises:
        ConfigError: no signature, or a mixture.
        NotFoundError: no run there.
        CacheError: no command gives it again.
    """
    several = [what] if isinstance(what, (str, Path)) else list(what)
    lines = [line for one in several for line in _signatures(one)]
    if lines and len(several) > 1:
        raise ConfigError("one signature or report at a time", found=f"{len(several)} arguments")
    if lines:
        found = [commands_of_signature(line) for line in lines]
        return Rerun(
            commands=tuple(dict.fromkeys(line for one in found for line in one.commands)),
            notes=tuple(dict.fromkeys(note for one in found for note in one.notes)),
        )
    return commands_of(load_runs([Path(one) for one in several]))


def _signatures(one: str | Path) -> list[str]:
    """The signatures that something is or holds; none where it is a folder."""
    if "|" in str(one):
        return [str(one)]
    if problem := "a name" * (not str(one).strip()):
        raise ConfigError(
            "neither a run nor a signature", expected=problem, found=repr(shortened(str(one)))
        )
    path = Path(one).expanduser()
    if path.suffix != ".json" or not path.is_file():
        return []
    try:
        first = json.loads(path.read_text("utf-8"))
        tables: list[dict[str, Any]] = [first, *first.get("other_caches", ())]
        found = [t["sections"]["signature"]["verbatim"] for t in tables if "sections" in t]
        if not found:
            raise KeyError("signature")
        return found
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(
            "this is no report in JSON with a signature",
            expected="what 'gaam report --json' of gaam 0.2 or later wrote",
            found=shortened(f"{type(error).__name__}: {error}"),
            where=str(path.absolute()),
        ) from None
