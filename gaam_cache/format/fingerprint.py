"""What makes two caches the same cache: everything that changes the numbers, and nothing else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from gaam_cache.format.digest import digest_of, short_digest
from gaam_cache.format.files import canonical_json

if TYPE_CHECKING:
    from gaam_cache.format.plan import Plan


def fingerprint(fields: dict[str, Any]) -> str:
    """SHA-256 of the fields as canonical JSON, in hex."""
    return digest_of(canonical_json(fields))


def differences(ours: dict[str, Any], theirs: dict[str, Any]) -> list[tuple[str, str, str]]:
    """Fields that differ, as (dotted name, ours, theirs); absent values are ``-``."""
    flat_ours, flat_theirs = _flatten(ours), _flatten(theirs)
    keys = sorted(flat_ours.keys() | flat_theirs.keys())
    pairs = [(key, flat_ours.get(key, "-"), flat_theirs.get(key, "-")) for key in keys]
    return [pair for pair in pairs if pair[1] != pair[2]]


def difference_table(rows: list[tuple[str, str, str]], then: str) -> str:
    """What ``differences`` found as lines for people; ``then`` says when or where theirs was."""
    width = max((len(name) for name, _, _ in rows), default=0)
    return "\n".join(
        f"    {name:<{width}}  now {_short(ours)}, {then} {_short(theirs)}"
        for name, ours, theirs in rows
    )


def _short(value: str) -> str:
    return value if len(value) <= 40 else short_digest(value) + "..."


def _flatten(value: Any, name: str = "") -> dict[str, str]:
    if isinstance(value, dict):
        flat: dict[str, str] = {}
        for key, inner in value.items():
            flat |= _flatten(inner, f"{name}.{key}" if name else key)
        return flat
    return {name: value if isinstance(value, str) else json.dumps(value)}


def check_covered(plan: Plan) -> None:
    """Refuse a plan that says a thing twice and not as its fingerprint covers it.

    Raises:
        ValueError: naming it.
        KeyError: what it lacks.
    """
    fields = plan.fingerprint_fields
    if fingerprint(fields) != plan.fingerprint:
        raise ValueError("the fingerprint does not match its fields")
    encoder = fields["encoder"]
    if type(encoder["max_length"]) is not int or not isinstance(encoder["dtype"], str):
        raise ValueError("the encoder's max_length must be a whole number, its dtype a string")
    content = fields["content"]
    if set(content) != set(plan.rows) or not all(type(h) is str for h in content.values()):
        raise ValueError("'content' must name a hash for every split")
    columns = fields.get("columns", {})
    if any(set(hashes) != set(plan.rows) for hashes in columns.values()):
        raise ValueError("'columns' must name a hash for every split")
    untrained = encoder.get("untrained")
    if untrained is not None and type(untrained["seed"]) is not int:
        raise ValueError("the seed of an untrained encoder must be a whole number")
    pairs = {
        "pooling": (list(plan.pooling), encoder["pooling"]),
        "rows": (plan.rows, fields["rows"]),
        "storage_dtype": (plan.storage_dtype, fields["storage_dtype"]),
        "class_names": (list(plan.class_names), fields["class_names"]),
        "columns": (set(plan.columns), set(columns)),
        "unlabelled": (list(plan.unlabelled), fields.get("unlabelled", [])),
    }
    for name, (said, covered) in pairs.items():
        if said != covered:
            raise ValueError(f"'{name}' is not what the fingerprint covers")
