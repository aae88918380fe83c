"""The extraction that made a cache, as its plan records it; its encoder, opened again."""

import dataclasses
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gaam_cache.common import plugins, settings
from gaam_cache.common.errors import (
    CacheError,
    ConfigError,
    GaamError,
    HubError,
    NotFoundError,
)
from gaam_cache.config import DEFAULT_ENCODER, RECORDED, ExtractConfig, ImportConfig
from gaam_cache.encoders.base import Encoder, open_encoder
from gaam_cache.extraction.behaviour import check_behaviour
from gaam_cache.sources.base import MEDIA, Rows, find_source
from gaam_cache.sources.rows.cells import is_number, is_odd
from gaam_cache.store.plan import Plan, comparable, explain_differences

INSTEAD = "predict from a cache (--cache CACHE --split SPLIT), or hand states over (predict_states)"
"""What can be done without an encoder."""


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
        # before gaam 0.3 a limit took the first rows, and plans did not say so
        "limit_rule": rows.get("limit_rule", "first"),
        "odd_classes": [
            name for name in plan.class_names if is_odd(name) or is_number(name)
        ],
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
        found[field.name] = (
            value if isinstance(value, bool | int | tuple) else str(value)
        )
    return found


def settings_of_import(config: ImportConfig) -> dict[str, Any]:
    """What a plan records of an import; nothing at its default."""
    found: dict[str, Any] = {
        "files": [str(Path(f).expanduser().absolute()) for f in config.files]
    }
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


def reopen(
    plan: Plan, encoder: str | None, device: str, batch_tokens: int | None
) -> tuple[ExtractConfig, Encoder]:
    """The extraction that would encode rows so, and its encoder: the same one, loaded.

    ``encoder`` is its folder or id, where it is not where it was then.
    """
    if plan.imported:
        raise ConfigError("states that others made have no encoder here", hint=INSTEAD)
    name = encoder or _place_of(plan)
    # of a commit on the hub; what lies on this disk is what its hashes say
    same = name == plan.encoder["name"] and not Path(name).expanduser().is_dir()
    revision = plan.encoder["revision"] if same else None
    named = {
        "encoder": name,
        "revision": revision,
        "device": device,
        "batch_tokens": batch_tokens,
    }
    config = settings.resolve(ExtractConfig, "extract", settings_of(plan) | named)
    if plan.decoders:
        versions = plugins.load(MEDIA, plan.kind, kind="kind of files").decoders()
        what = f"rows of {plan.kind} are decoded by other versions"
        _check_same(versions, plan.decoders, what, plan)
    rows: Mapping[str, Rows] = {}
    try:
        if _called(name) and (split := plan.identity.get("fitted_on")) is not None:
            path, there = (
                plan.dataset["path"],
                plan.dataset["name"],
            )  # rows that it learned from
            place = path if path is not None and Path(path).exists() else there
            rows = {
                split: find_source(place).read(replace(config, dataset=place), split)
            }
        opened = open_encoder(plan.kind, config, rows)
        found = opened.identity()
    except GaamError as error:
        if encoder is None and isinstance(error, NotFoundError | HubError):
            error.details["to do"] = f"name its folder with --encoder; or {INSTEAD}"
        raise
    now, then = comparable({"encoder": found}, {"encoder": plan.identity})
    _check_same(now["encoder"], then["encoder"], f"'{name}' is another encoder", plan)
    opened.load_for(batching="alone")  # whoever encodes many rows has it measured
    check_behaviour(opened, plan)
    shape = {name: getattr(opened, name) for name in ("num_layers", "hidden_size")}
    then = {name: getattr(plan, name) for name in shape}
    _check_same(shape, then, f"'{config.encoder}' yields states of another shape", plan)
    return config, opened


def _place_of(plan: Plan) -> str:
    """Where it is now; what was on a disk is never looked for on the hub under the same name."""
    name, path = plan.encoder["name"], plan.encoder["path"]
    for place in (path, name):
        if place is not None and Path(place).expanduser().exists():
            return str(place)
    if plan.encoder["revision"] is not None or _called(name) or name == DEFAULT_ENCODER:
        return str(name)
    raise NotFoundError(
        f"the encoder '{plan.encoder_label}' is not where it was",
        where=path or name,
        hint=f"name its folder with --encoder; or {INSTEAD}",
    )


def _called(name: str) -> bool:
    """Whether an encoder is called by a name of its own, and lies in no folder."""
    return name.partition(":")[0] in plugins.names("gaam_cache.encoders")


def _check_same(
    now: dict[str, Any], then: dict[str, Any], what: str, plan: Plan
) -> None:
    if lines := explain_differences(now, then, plan):
        raise ConfigError(
            f"{what}; nothing was encoded",
            expected=f"what encoded the rows that were trained on: {plan.encoder_label}",
            found="\n".join(lines),
            hint=f"name that encoder with --encoder, or install those versions; or {INSTEAD}",
        )
