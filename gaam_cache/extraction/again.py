"""The encoder of a cache, opened again for further rows: the same one, or none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gaam_cache import plugins, settings
from gaam_cache.config import DEFAULT_ENCODER, ExtractConfig
from gaam_cache.encoders._base import Encoder, open_encoder
from gaam_cache.encoders._located import locate
from gaam_cache.errors import ConfigError, GaamError, HubError, NotFoundError
from gaam_cache.extraction.recorded import settings_of
from gaam_cache.sources._base import MEDIA, Rows, find_source
from gaam_cache.store.digest import hash_file
from gaam_cache.store.encoding import Encoding
from gaam_cache.store.plan import difference_table, differences

FITTED_ON = "fitted_on"
"""In the identity of an encoder that learned from rows: the split that they are."""
INSTEAD = "predict from a cache (--cache CACHE --split SPLIT), or hand states over (predict_states)"
"""What can be done without an encoder."""


def open_again(
    encoding: Encoding, encoder: str | None, device: str, batch_tokens: int | None
) -> tuple[ExtractConfig, Encoder]:
    """Find the encoder, make sure that it is that one, and load its weights.

    Args:
        encoding: how the rows of a cache were encoded.
        encoder: folder or id of the encoder, where it is not where it was then.
        device: that computes.
        batch_tokens: of a batch at most; None: what suits the device.

    Returns:
        The extraction that would encode rows so, and the encoder.

    Raises:
        ConfigError: another encoder, or what decodes rows is another version; or there is none.
        NotFoundError: it is not there, or not the rows that it was fitted on.
        HubError: the hub cannot be reached.
        ShortOfMemoryError: the weights do not fit into the memory.
    """
    if encoding.imported:
        raise ConfigError(
            "states that others made have no encoder here",
            expected="a cache that gaam extract made",
            found=f"imported states of {encoding.label}",
            hint=INSTEAD,
        )
    config = _config_of(encoding, encoder, device=device, batch_tokens=batch_tokens)
    _check_decoders(encoding)
    rows = _fitted_on(encoding, config) if _called(config.encoder) else {}
    try:
        opened = open_encoder(encoding.kind, config, rows)
        found = opened.identity()
    except GaamError as error:
        if (folder := _folder_of(config, error)) is not None:
            _check_files(folder, config.encoder, encoding)  # of another one nothing else matters
        if encoder is None and isinstance(error, NotFoundError | HubError):
            error.details["to do"] = f"name its folder with --encoder; or {INSTEAD}"
        raise
    _check_same(found, encoding.identity, f"'{config.encoder}' is another encoder", encoding)
    opened.load()
    sizes = opened.num_layers, opened.hidden_size
    if sizes != (encoding.num_layers, encoding.hidden_size):
        raise ConfigError(
            f"'{config.encoder}' yields states of another shape than it did",
            expected=f"{encoding.num_layers} layers x {encoding.hidden_size}",
            found=f"{sizes[0]} layers x {sizes[1]}",
        )
    return config, opened


def _config_of(encoding: Encoding, given: str | None, **changes: Any) -> ExtractConfig:
    """The extraction that would encode rows so, with the encoder where it is now."""
    recorded, encoder = encoding.encoder, given or _encoder_of(encoding)
    # of a commit on the hub; what lies on this disk is what its hashes say
    same = encoder == recorded["name"] and not Path(encoder).is_dir()
    named = {"encoder": encoder, "revision": recorded["revision"] if same else None}
    return settings.resolve(ExtractConfig, "extract", settings_of(encoding) | named | changes)


def _encoder_of(encoding: Encoding) -> str:
    """Where the encoder is now, as ``--encoder`` would name it.

    What was on a disk is looked for there, and never on the hub under the same name. Of what came
    from the hub the revision is recorded.
    """
    name, path = encoding.encoder["name"], encoding.encoder["path"]
    if encoding.encoder["revision"] is not None or _called(name) or name == DEFAULT_ENCODER:
        return str(path if path is not None and Path(path).exists() else name)
    for place in (path, name):
        if place is not None and Path(place).expanduser().exists():
            return str(place)
    raise NotFoundError(
        f"the encoder '{encoding.label}' is not where it was",
        expected="its folder, as it was",
        found="nothing there",
        where=path or name,
        hint=f"name its folder with --encoder; or {INSTEAD}",
    )


def _called(name: str) -> bool:
    """Whether an encoder is called by a name of its own, and lies in no folder."""
    return name.partition(":")[0] in plugins.names("gaam_cache.encoders")


def _folder_of(config: ExtractConfig, error: GaamError) -> Path | None:
    """Where an encoder lies that cannot be used; None where nobody knows."""
    path = Path(config.encoder).expanduser()
    if path.exists() or _called(config.encoder):
        return path
    if isinstance(error, NotFoundError | HubError):
        return None
    return locate(config.encoder, config.revision, weights=False).path


def _check_files(folder: Path, encoder: str, encoding: Encoding) -> None:
    """Of an encoder that cannot be used: its files are those of the run."""
    then = encoding.identity.get("files", {})
    now = {name: hash_file(folder / name) for name in then if (folder / name).is_file()}
    _check_same({"files": now}, {"files": then}, f"'{encoder}' is another encoder", encoding)


def _fitted_on(encoding: Encoding, config: ExtractConfig) -> Mapping[str, Rows]:
    """The rows that an encoder learned from; empty where it learned from none."""
    if (split := encoding.identity.get(FITTED_ON)) is None:
        return {}
    path, name = encoding.rows["path"], encoding.rows["name"]
    place = path if path is not None and Path(path).exists() else name
    try:
        rows = find_source(place).read(replace(config, dataset=place), split)
    except GaamError as error:
        raise NotFoundError(
            f"{encoding.label} was fitted on rows that are not there any more",
            expected=f"the split '{split}' of '{name}' as it was",
            found=error.reason,
            where=path or name,
            hint=f"bring the data back to where they were; or {INSTEAD}; "
            "tfidf:hashed=true is fitted on nothing",
        ) from error
    return {split: rows}


def _check_decoders(encoding: Encoding) -> None:
    """What makes samples or pixels of files must be what it was."""
    found: dict[str, Any] = {}
    if encoding.decoders:
        found = plugins.load(MEDIA, encoding.kind, kind="kind of files").decoders()
    what = f"rows of {encoding.kind} are decoded by other versions"
    _check_same(found, encoding.decoders, what, encoding)


def _check_same(now: dict[str, Any], then: dict[str, Any], what: str, encoding: Encoding) -> None:
    rows = differences(now, then)
    if not rows:
        return
    raise ConfigError(
        f"{what}; nothing was encoded. What differs:\n{difference_table(rows, 'at training')}",
        expected=f"what encoded the rows that were trained on: {encoding.label}",
        found=", ".join(name for name, _, _ in rows[:5]) + ", ..." * (len(rows) > 5),
        hint=f"name that encoder with --encoder, or install those versions; or {INSTEAD}",
    )
