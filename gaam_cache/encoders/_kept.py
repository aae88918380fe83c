"""What a probe measured, kept in the user's cache folder for the next start.

A kept result saves time and decides nothing alone: some rows of every shard, and of every call,
are encoded again beside it, by transformers' own hidden states.
"""

from pathlib import Path
from typing import Any

import platformdirs

from gaam_cache.encoders._probe import Measured
from gaam_cache.store.files import (
    DAMAGE,
    fingerprint,
    read_json,
    sealed_text,
    unsealed,
    write_file,
)

FOLDER = "probes"


def read(conditions: dict[str, Any]) -> Measured | None:
    """What was measured under these conditions; None where nothing, or nothing sound, is kept."""
    try:
        content = unsealed(read_json(_path(conditions)))
        if fingerprint(content["conditions"]) != fingerprint(conditions):
            return None
        return Measured.from_dict(content["measured"])
    except (*DAMAGE, OSError):
        return None


def write(conditions: dict[str, Any], measured: Measured) -> None:
    """Keep what was measured; of several who do so at once, the last is kept whole."""
    content = {"conditions": conditions, "measured": measured.to_dict()}
    try:
        write_file(_path(conditions), sealed_text(content).encode())
    except OSError:  # a folder that cannot be written to costs the next start some time
        return


def _path(conditions: dict[str, Any]) -> Path:
    folder = platformdirs.user_cache_path("gaam", appauthor=False)
    return folder / FOLDER / f"{fingerprint(conditions)}.json"
