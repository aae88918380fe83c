"""The plan of a cache of imported states, and what its fingerprint covers."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import gaam_cache
from gaam_cache.format.digest import digest_of, hash_values
from gaam_cache.format.fingerprint import fingerprint
from gaam_cache.format.plan import (
    FORMAT_VERSION,
    PLAN_FILE,
    Plan,
    read_plan,
    rows_per_shard,
)
from gaam_cache.format.planted import KEY, Planted
from gaam_cache.format.refusals import storage_errors
from gaam_cache.format.write_plan import adopt_plan
from gaam_cache.import_config import IMPORTED
from gaam_cache.importing.job import ImportJob

LAYERS = "as in the files"
"""What a plan says of its layers: nobody knows more of them than their order."""
UNKNOWN = "unknown"


def fields_of(
    job: ImportJob, files: Mapping[str, str], pool: str, planted: Planted | None = None
) -> dict[str, Any]:
    """All that decides the numbers of the cache, but for the numbers themselves."""
    tokens = {
        split: digest_of(material.num_tokens.data)
        for split, material in job.materials.items()
        if material.num_tokens is not None
    }
    fields: dict[str, Any] = {
        "format_version": FORMAT_VERSION,
        "encoder": {
            "imported": {"files": dict(files), "taken": job.taken, "num_tokens": tokens},
            "pooling": [pool],
            "layers": LAYERS,
            "dtype": UNKNOWN,
            "max_length": job.max_length,
        },
        "storage_dtype": job.storage_dtype,
        "class_names": list(job.class_names),
        "rows": {split: len(material) for split, material in job.materials.items()},
        "content": {},
    }
    columns = {
        column: {split: hash_values(one.kept[column]) for split, one in job.materials.items()}
        for column in job.columns
    }
    if planted is not None:
        fields["encoder"]["imported"][KEY] = dict(planted.parameters)
    if columns:
        fields["columns"] = columns
    if job.unlabelled:
        fields["unlabelled"] = list(job.unlabelled)
    return fields


def check_folder(out: Path, fields: dict[str, Any]) -> None:
    """Refuse a folder with another cache before the states are read.

    Raises:
        ConfigError: naming what differs.
    """
    with storage_errors(out / PLAN_FILE):
        there = (out / PLAN_FILE).exists()
    if there:
        found = read_plan(out)
        content = found.fingerprint_fields["content"]
        adopt_plan(out, {**fields, "content": content}, found.dataset)


def plan_of(
    job: ImportJob,
    fields: dict[str, Any],
    names: Mapping[str, str],
    again: Mapping[str, Any] | None,
    pool: str,
    shard_rows: int,
    planted: Planted | None = None,
) -> Plan:
    """The plan, but for what rows the splits share."""
    return Plan(
        fingerprint=fingerprint(fields),
        fingerprint_fields=fields,
        encoder={
            "kind": IMPORTED,
            "name": names["encoder"],
            "path": None,
            "revision": None,
            "batching": "alone",
        },
        dataset={
            "name": names["dataset"],
            "path": None,
            "revision": None,
            "origin": dict(job.origins),
            "shared_texts": {},
            **({} if again is None else {"import": dict(again)}),
            **({} if planted is None else {KEY: dict(planted.figures)}),
        },
        num_layers=job.num_layers,
        hidden_size=job.hidden_size,
        pooling=(pool,),
        storage_dtype=job.storage_dtype,
        class_names=job.class_names,
        rows=fields["rows"],
        columns=job.columns,
        unlabelled=job.unlabelled,
        shard_rows=rows_per_shard(job.bytes_per_row, shard_rows),
        created_with={
            "gaam": gaam_cache.__version__,
            **{name: version(name) for name in ("h5py", "numpy")},
        },
    )
