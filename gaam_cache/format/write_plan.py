"""The plan that a folder gets, or the one that is there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gaam_cache.errors import ConfigError
from gaam_cache.format.digest import short_digest
from gaam_cache.format.files import write_file
from gaam_cache.format.fingerprint import difference_table, differences, fingerprint
from gaam_cache.format.plan import MAX_SHARDS, PLAN_FILE, Plan, read_plan
from gaam_cache.format.refusals import storage_errors
from gaam_cache.format.strict_json import MAX_BYTES

NO_SETTINGS = ("path", "origin", "shared_texts", "import")
"""Of how rows are read: where they lie, and what was found in them."""


def write_plan(root: Path, plan: Plan) -> Plan:
    """Write the plan, or adopt the one that is there if it has the same fingerprint.

    Raises:
        ConfigError: the folder holds a cache with another fingerprint; every field that differs
            is named.
        StorageError: the file system refused.
    """
    path = root / PLAN_FILE
    content = plan.to_json().encode()
    if len(content) > MAX_BYTES or sum(1 for _ in plan.shards()) > MAX_SHARDS:
        raise ConfigError(
            "a cache that no reader would take",
            expected=f"at most {MAX_SHARDS:,} shards and a plan of {MAX_BYTES:,} bytes",
            found=f"{len(plan.class_names):,} classes, {plan.shard_rows:,} rows a shard",
            hint="raise shard-rows, or look at --label-column",
        )
    with storage_errors(path):
        there_already = path.exists()
    if not there_already and write_file(path, content, exclusive=True):
        return plan
    return adopt_plan(root, plan.fingerprint_fields, plan.dataset)


def adopt_plan(root: Path, fields: dict[str, Any], dataset: Mapping[str, Any]) -> Plan:
    """The plan that is there, if its fingerprint covers these fields.

    Args:
        root: folder of the cache.
        fields: that its fingerprint has to cover.
        dataset: how the rows are read, which the fingerprint covers by hashes of what was read.

    Raises:
        NotFoundError: none is there.
        ConfigError: another cache; every field that differs is named.
    """
    path = root / PLAN_FILE
    there, ours = read_plan(root), fingerprint(fields)
    if there.fingerprint != ours:
        read, was_read = ({"dataset": _in_words(one)} for one in (dataset, there.dataset))
        rows = differences(read, was_read) + differences(fields, there.fingerprint_fields)
        table = difference_table(rows, "in the folder")
        raise ConfigError(
            f"'{root}' holds another cache; nothing was changed. What differs:\n{table}",
            expected=f"fingerprint {short_digest(ours)}",
            found=short_digest(there.fingerprint),
            where=str(path.absolute()),
            hint="choose another folder with --out, or delete this one",
        )
    return there


def _in_words(dataset: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in dataset.items() if name not in NO_SETTINGS}
