"""The extraction that made a cache, as its plan records it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from gaam_cache import settings
from gaam_cache.config import RECORDED, ExtractConfig, ImportConfig
from gaam_cache.errors import CacheError, ConfigError
from gaam_cache.store.plan import Plan


def settings_of(plan: Plan) -> dict[str, Any]:
    """Fields of the configuration under which rows are encoded so, as far as it is recorded."""
    encoder, rows, identity = plan.encoder, plan.dataset, plan.identity
    parts = {None: {}, "dataset": rows, "encoder": encoder}
    recorded = {
        field.name: parts[part][field.name]
        for field in dataclasses.fields(ExtractConfig)
        if field.name in parts[part := field.metadata.get(RECORDED)]
    }
    return {
        "encoder": encoder.get("path") or encoder["name"],
        "revision": encoder["revision"],
        "untrained_encoder": plan.untrained_seed is not None,
        "encoder_seed": plan.untrained_seed,
        "dataset": rows.get("path") or rows["name"],
        "dataset_revision": rows.get("revision"),
        "splits": list(plan.rows),
        "pool": list(plan.pooling),
        "storage_dtype": plan.storage_dtype,
        **{name: rows.get(name) for name in ("text_columns", "label_column", "limit")},
        **{name: identity.get(name) for name in ("max_length", "dtype", "prompt")},
        **recorded,
    }


def recorded_settings(config: ExtractConfig, part: str) -> dict[str, Any]:
    """What a plan records under ``part`` beside what it always does; nothing at its default.

    Fractions as text: there are none in a plan.
    """
    found: dict[str, Any] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.metadata.get(RECORDED) != part or value == field.default:
            continue
        if isinstance(value, Path):
            value = value.expanduser().absolute()
        found[field.name] = value if isinstance(value, bool | int | tuple) else str(value)
    return found


def settings_of_import(config: ImportConfig) -> dict[str, Any]:
    """What a plan records of an import; nothing at its default."""
    found: dict[str, Any] = {"files": [str(Path(f).expanduser().absolute()) for f in config.files]}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name not in ("files", "out") and value != field.default:
            found[field.name] = list(value) if isinstance(value, tuple) else value
    return found


def recorded_config(plan: Plan, out: Path, **changes: Any) -> ExtractConfig:
    """The extraction that made a cache, as far as its plan records it; else CacheError."""
    given = settings_of(plan) | {"out": out, "shard_rows": plan.shard_rows}
    try:
        return settings.resolve(ExtractConfig, "extract", given | changes)
    except ConfigError as error:
        raise CacheError(
            "the plan does not say how to read its rows and encoder again",
            found=" ".join(str(error).split()),
            where=str(out.absolute()),
        ) from error
