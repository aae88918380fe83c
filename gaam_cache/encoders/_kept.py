"""Keeps the results of probes in the user's cache folder, for the next start.

A kept result saves time. A wrong one would be found: for every shard and every call,
some rows are encoded again by transformers' own hidden states, and compared.
"""

import logging
from collections.abc import Mapping
from pathlib import Path

import platformdirs

from gaam_cache.encoders._probe import ProbeResult
from gaam_cache.store.files import (
    DAMAGE,
    fingerprint,
    read_json,
    sealed_text,
    unsealed,
    write_file,
)

FOLDER = "probes"
logger = logging.getLogger(__name__)


def read_probe_result(conditions: Mapping[str, object]) -> ProbeResult | None:
    """Read the kept result of a probe, which measured how rows may share a batch.

    Args:
        conditions: everything that decides the result of a probe, as JSON values.

    Returns:
        None if no result is kept for these conditions, or its file is damaged.
    """
    try:
        # ``unsealed`` checks the digest of the content, which the file holds
        content = unsealed(read_json(_path(conditions)))
        # The conditions decide the file's name, but a file may have been renamed.
        if fingerprint(content["conditions"]) != fingerprint(conditions):
            return None
        measured = ProbeResult.from_dict(content["measured"])
    except (*DAMAGE, OSError):
        return None
    logger.debug("a kept probe serves: %s", _path(conditions))
    return measured


def write_probe_result(conditions: Mapping[str, object], measured: ProbeResult) -> None:
    """Keep the result of a probe for later processes.

    If several processes write the result for the same conditions, the last one wins:
    all of them have measured the same.
    """
    content = {"conditions": conditions, "measured": measured.to_dict()}
    # Without a writable folder, the next start only takes longer.
    try:
        write_file(_path(conditions), sealed_text(content).encode())
    except OSError:
        return


def _path(conditions: Mapping[str, object]) -> Path:
    """The file for the result of a probe under these conditions."""
    cache_folder = platformdirs.user_cache_path("gaam", appauthor=False)
    return cache_folder / FOLDER / f"{fingerprint(conditions)}.json"
