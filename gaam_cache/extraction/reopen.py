"""Finds again the configuration and the encoder that made a cache.

A plan records the settings. The encoder that they name must still be the same.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from gaam_cache.common import plugins, settings
from gaam_cache.common.errors import (
    CacheError,
    ConfigError,
    HubError,
    NotFoundError,
)
from gaam_cache.config import DEFAULT_ENCODER, RECORDED, ExtractConfig, ImportConfig
from gaam_cache.encoders.base import Encoder, open_encoder
from gaam_cache.extraction.behaviour import check_behaviour
from gaam_cache.sources.base import MEDIA, Rows, find_source
from gaam_cache.store.plan import Plan, comparable_fields, explain_differences
from gaam_cache.targets.classes import is_number, is_odd

ENCODER_FREE_WAYS = (
    "predict from a cache (--cache CACHE --split SPLIT), "
    "or pass states (predict_states)"
)
"""What a user can do without an encoder."""


def settings_of(plan: Plan) -> dict[str, object]:
    """The settings of the extraction that made a plan, as far as the plan records them.

    They are arguments of ``ExtractConfig``.
    """
    encoder = plan.encoder
    dataset = plan.dataset
    # settings that decide which rows are read
    reading = dataset.settings
    # the encoder's fields of the fingerprint: whatever decides its states
    identity = plan.identity
    values: dict[str, object] = {
        "encoder": encoder.path or encoder.name,
        "revision": encoder.revision,
        "untrained_encoder": plan.untrained_seed is not None,
        "encoder_seed": plan.untrained_seed,
        "dataset": dataset.path or dataset.name,
        "dataset_revision": dataset.revision,
        "splits": list(plan.rows),
        "pool": list(plan.pooling),
        "storage_dtype": plan.storage_dtype,
        "text_columns": reading.get("text_columns"),
        "label_column": reading.get("label_column"),
        "limit": reading.get("limit"),
        # before gaam 0.3 a limit took the first rows, and plans did not record the rule
        "limit_rule": reading.get("limit_rule", "first"),
        # names such as 'nan' or '7', which an extraction refuses as classes unless the
        # user has confirmed them
        "odd_classes": [
            name for name in plan.target_names if is_odd(name) or is_number(name)
        ],
        "max_length": identity.get("max_length"),
        "dtype": identity.get("dtype"),
        "prompt": identity.get("prompt"),
    }

    # A plan has other settings only if they are not at their defaults. The metadata of
    # a field (RECORDED) names the part of the plan that has it: "dataset" or "encoder".
    recorded = {"dataset": dataset.settings, "encoder": encoder.settings}
    for field in dataclasses.fields(ExtractConfig):
        record = recorded.get(field.metadata.get(RECORDED, ""), {})
        if field.name in record:
            values[field.name] = record[field.name]
    return values


def recorded_settings(config: ExtractConfig, part: str) -> dict[str, object]:
    """Settings that are not at their defaults, as one part of a plan records them.

    Args:
        config: the extraction.
        part: the part of the plan, "dataset" or "encoder". A setting belongs to it if
            the metadata of its field says so.

    Returns:
        Name of a setting -> its value as JSON has it. A fraction becomes a text: other
        programs may write the number differently, and the plan's digest covers it.
    """
    recorded: dict[str, object] = {}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.metadata.get(RECORDED) != part or value == field.default:
            continue
        # whoever reads the plan later may work in another folder
        if isinstance(value, Path):
            value = value.expanduser().absolute()
        # JSON has truth values, whole numbers and lists; the rest becomes a text
        if not isinstance(value, bool | int | tuple):
            value = str(value)
        recorded[field.name] = value
    return recorded


def settings_of_import(config: ImportConfig) -> dict[str, object]:
    """The settings of an import, as a plan records them.

    These are its files, and the settings that are not at their defaults.
    """
    files = [str(Path(file).expanduser().absolute()) for file in config.files]
    recorded: dict[str, object] = {"files": files}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name in ("files", "out") or value == field.default:
            continue
        recorded[field.name] = list(value) if isinstance(value, tuple) else value
    return recorded


def recorded_config(plan: Plan, out: Path, **changes: object) -> ExtractConfig:
    """The configuration of the extraction that made a cache, with some changes.

    Args:
        plan: of the cache.
        out: folder of the cache.
        changes: settings that replace those of the plan.

    Raises:
        CacheError: the settings that the plan records make no valid configuration.
    """
    values = settings_of(plan) | {"out": out, "shard_rows": plan.shard_rows}
    try:
        return settings.resolve(ExtractConfig, "extract", values | changes)
    except ConfigError as error:
        raise CacheError(
            "the plan does not say how to read its rows and encoder again",
            found=" ".join(str(error).split()),
            where=str(out.absolute()),
        ) from error


def reopen(
    plan: Plan, encoder: str | None, device: str, batch_tokens: int | None
) -> tuple[ExtractConfig, Encoder]:
    """Find the encoder of a cache, check that it is the same, and load it.

    Args:
        plan: of the cache.
        encoder: folder or id of the encoder, if it has moved; None if it has not.
        device: of the encoder.
        batch_tokens: most tokens of one batch, padding included; None for the default.

    Returns:
        The configuration of the extraction that made the cache, with the present place
        of the encoder; and the encoder.

    Raises:
        ConfigError: the states were imported; or the encoder, or the library that reads
            sounds or pictures, is another one than that of the cache.
        NotFoundError: the encoder, or the rows that it has learned from, are gone.
    """
    if plan.imported:
        raise ConfigError(
            "the states were imported: their encoder is unknown", hint=ENCODER_FREE_WAYS
        )
    # the settings of the plan, but with the present place of the encoder
    name = encoder
    if not name:
        name = _find_encoder(plan)
    changes = {
        "encoder": name,
        "revision": _revision(plan, name),
        "device": device,
        "batch_tokens": batch_tokens,
    }
    config = settings.resolve(ExtractConfig, "extract", settings_of(plan) | changes)
    _check_decoders(plan)
    try:
        fitting_rows = _read_fitting_rows(plan, config, name)
        opened = open_encoder(plan.kind, config, fitting_rows)
        identity = opened.identity()
    except (NotFoundError, HubError) as error:
        # a user who has not named the encoder can do so
        if encoder is None:
            error.details["to do"] = (
                f"name its folder with --encoder; or {ENCODER_FREE_WAYS}"
            )
        raise
    _check_identity(plan, name, identity)

    # 'alone' measures nothing: a caller with many rows measures later which of them may
    # share a batch
    opened.load_for(encodes_alone=True)
    check_behaviour(opened, plan)
    _check_shape(plan, config, opened)
    return config, opened


def _revision(plan: Plan, name: str) -> str | None:
    """The commit of the encoder to load from the hub, or None.

    None stands for an encoder on a disk, which the hashes of its files identify; and
    for another name than that of the plan, for which the plan records no commit.

    Args:
        plan: of the cache.
        name: present path or name of the encoder.
    """
    if name != plan.encoder.name:
        return None
    if Path(name).expanduser().is_dir():
        return None
    return plan.encoder.revision


def _read_fitting_rows(
    plan: Plan, config: ExtractConfig, name: str
) -> Mapping[str, Rows]:
    """Read the rows that an encoder was fitted on: tfidf learns its words from rows.

    Args:
        plan: of the cache.
        config: the extraction that made the cache.
        name: present path or name of the encoder.

    Returns:
        Split -> its rows. Empty for encoders that learn nothing from rows.
    """
    split = plan.identity.get("fitted_on")
    # a path or an id on the hub is that of a model, which learns nothing from rows
    if not _is_registered(name) or split is None:
        return {}
    # a data set that has left its path may be on the hub under its name
    dataset = plan.dataset.name
    path = plan.dataset.path
    if path is not None and Path(path).exists():
        dataset = path
    return {split: find_source(dataset).read(replace(config, dataset=dataset), split)}


def _find_encoder(plan: Plan) -> str:
    """The path where the encoder of a cache is now, or its name on the hub.

    An encoder that was on a disk is not searched on the hub, which may have another
    encoder of that name.

    Raises:
        NotFoundError: it was on a disk, and is not there.
    """
    name = plan.encoder.name
    path = plan.encoder.path
    # the name is a path, too, as the user gave it: it may lead from this folder to a
    # copy of the encoder
    for candidate in (path, name):
        if candidate is not None and Path(candidate).expanduser().exists():
            return str(candidate)
    # only encoders of the hub have a revision
    is_on_hub = plan.encoder.revision is not None
    # a registered encoder such as tfidf needs no path
    if is_on_hub or _is_registered(name) or name == DEFAULT_ENCODER:
        return str(name)
    raise NotFoundError(
        f"the encoder '{plan.encoder_label}' is not where it was",
        where=path or name,
        hint=f"name its folder with --encoder; or {ENCODER_FREE_WAYS}",
    )


def _is_registered(name: str) -> bool:
    """Whether ``--encoder`` names a registered encoder, such as tfidf, and no path.

    Such a name may be followed by ':' and options, which do not matter here.
    """
    return name.partition(":")[0] in plugins.names("gaam_cache.encoders")


def _check_decoders(plan: Plan) -> None:
    """Refuse other versions of the libraries that decode sounds or pictures."""
    # texts are not decoded: their plans name no such libraries
    if not plan.decoders:
        return
    media: type[Rows] = plugins.load(MEDIA, plan.kind, kind="kind of files")
    problem = f"rows of {plan.kind} are decoded by other versions"
    _check_same(media.decoders(), plan.decoders, problem, plan)


def _check_identity(plan: Plan, name: str, identity: Mapping[str, object]) -> None:
    """Refuse an encoder with other files or settings than the plan records.

    Args:
        plan: of the cache.
        name: present path or name of the encoder, for the message.
        identity: the properties that decide the states of the encoder that is there
            now: hashes of its files, and settings.
    """
    # a property that was measured for only one of the two encoders does not count
    now, then = comparable_fields({"encoder": identity}, {"encoder": plan.identity})
    _check_same(now["encoder"], then["encoder"], f"'{name}' is another encoder", plan)


def _check_shape(plan: Plan, config: ExtractConfig, encoder: Encoder) -> None:
    """Refuse an encoder whose states have another number of layers or features."""
    now = {"num_layers": encoder.num_layers, "hidden_size": encoder.hidden_size}
    then = {"num_layers": plan.num_layers, "hidden_size": plan.hidden_size}
    problem = f"'{config.encoder}' yields states of another shape"
    _check_same(now, then, problem, plan)


def _check_same(
    now: Mapping[str, object], then: Mapping[str, object], problem: str, plan: Plan
) -> None:
    """Refuse an encoder whose properties differ from those that a plan records.

    Args:
        now: properties of the encoder here.
        then: the same properties in the plan.
        problem: says in the error what is wrong.
        plan: of the cache.
    """
    lines = explain_differences(now, then, plan)
    if not lines:
        return
    raise ConfigError(
        f"{problem}; nothing was encoded",
        expected=f"the encoder of the training rows: {plan.encoder_label}",
        found="\n".join(lines),
        hint=(
            "name that encoder with --encoder, or install those versions; "
            f"or {ENCODER_FREE_WAYS}"
        ),
    )
