"""A folder with an encoder in it: which files count, and what they hold."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from gaam_cache.errors import CacheError, ConfigError, GaamError
from gaam_cache.hub.fetch import IS_WEIGHTS, WANTED
from gaam_cache.messages import visible
from gaam_cache.store.digest import hash_file
from gaam_cache.store.files import Identity, read_json

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
PROCESSORS = ("preprocessor_config.json", "processor_config.json")
"""One of which says how a sound or a picture is made ready; the second has that in a part of it."""


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


def hashes_as_they_are(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """SHA-256 of files of a folder that need not hold an encoder that can be used.

    Args:
        folder: which need not be there.
        names: of files that are looked for, beside those that decide an encoder's numbers.

    Returns:
        By name, of those that are there; why, where one cannot be read.
    """
    there = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    usual = {name for name in there if WANTED.fullmatch(name) and not IS_WEIGHTS.match(name)}
    found = {}
    for name in sorted((usual | set(names)) & there):
        try:
            found[name] = hash_file(within(folder, name))
        except (GaamError, OSError) as error:
            found[name] = f"unreadable: {error}"
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
