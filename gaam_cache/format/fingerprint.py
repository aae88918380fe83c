"""What makes two caches the same cache: everything that changes the numbers, and nothing else."""

from __future__ import annotations

import json
from typing import Any

from gaam_cache.format.digest import digest_of
from gaam_cache.format.files import canonical_json


def fingerprint(fields: dict[str, Any]) -> str:
    """SHA-256 of the fields as canonical JSON, in hex."""
    return digest_of(canonical_json(fields))


def differences(ours: dict[str, Any], theirs: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Fields that differ, as (dotted name, ours, theirs); absent values are ``-``."""
    flat_ours, flat_theirs = _flatten(ours), _flatten(theirs)
    keys = sorted(flat_ours.keys() | flat_theirs.keys())
    pairs = [(key, flat_ours.get(key, "-"), flat_theirs.get(key, "-")) for key in keys]
    return [pair for pair in pairs if pair[1] != pair[2]]


def _flatten(value: Any, name: str = "") -> dict[str, str]:
    if isinstance(value, dict):
        flat: dict[str, str] = {}
        for key, inner in value.items():
            flat |= _flatten(inner, f"{name}.{key}" if name else key)
        return flat
    return {name: value if isinstance(value, str) else json.dumps(value)}
