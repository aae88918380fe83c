"""What a person should know of an encoder's folder, a line each, where something differs."""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from gaam_cache.common.download import ADAPTER_WEIGHTS
from gaam_cache.common.messages import shortened, visible
from gaam_cache.config import PLACE
from gaam_cache.encoders._located import ADAPTER, INDEX, WEIGHTS, Located

POOLINGS = {
    "cls": "first",
    "cls_token": "first",
    "lasttoken": "last",
    "mean_tokens": "mean",
}
POOLINGS |= {"max_tokens": "max", "mean": "mean", "max": "max"}
"""Poolings of sentence-transformers -> what ``--pool`` calls them."""
POOLS = {
    "first": "the first token",
    "last": "the last token",
    "max": "the maximum over tokens",
}
POOLS |= {"mean": "the mean over tokens"}
ADAPTER_FILE = re.compile(r"(^|[._-])(adapter|lora)([._-].*)?\.(safetensors|bin|pt)$")
"""Names of files of adapters, by which diffusers, AdapterHub and MMS call them too."""
SHARD = re.compile(r"-\d{5}-of-\d{5}\.safetensors$")  # an index names it
LONGEST_POINTER = 1024  # bytes of a file that says where Git LFS keeps the weights
OWN = ("Transformer", "Pooling", "Normalize")
"""Modules that are said otherwise; and one that only scales the pooled states."""


def other_weights(located: Located) -> Iterator[str]:
    """Weights beside those that are read, where they are others; adapters that are not applied."""
    if not located.weights or located.is_gguf:
        return
    adapters = _adapters_beside(located)
    if adapters:
        more = f", and {len(adapters) - 1} more" if len(adapters) > 1 else ""
        yield f"an adapter beside the weights is not applied: {visible(adapters[0])}{more}"
    files = located.weight_files()
    read = files[0].name if len(files) == 1 else f"the files of {INDEX}"
    if files[0].name == WEIGHTS and (located.path / INDEX).exists():
        yield f"{WEIGHTS} is read; {INDEX} beside it, and the files that it names, are not"
    names = {file.name for file in files}
    for file in sorted(located.path.glob("*.safetensors")):
        other = file.name not in (*names, WEIGHTS, ADAPTER_WEIGHTS, *adapters)
        if other and not SHARD.search(file.name):
            yield f"{read} is read; {visible(file.name)} beside it is not"
    pickles = sorted(located.path.glob("pytorch_model*.bin"))
    checksums = set[tuple[int, int]]()
    for file in pickles:
        if not zipfile.is_zipfile(file):
            # torch wrote these before 1.6, and what they hold is not known; a pointer holds nothing
            if file.stat().st_size > LONGEST_POINTER:
                yield f"{read} is read; {file.name} beside it, which cannot be compared, is not"
            continue
        with suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(file) as archive:
            checksums |= {(entry.file_size, entry.CRC) for entry in archive.infolist()}
    try:
        others = checksums and not _have_all(checksums, files)
    except SafetensorError:  # said by whoever loads them
        return
    if others:
        yield f"{read} is read; {pickles[0].name} beside it holds other weights, and is not"


def _adapters_beside(located: Located) -> list[str]:
    """Names of files and folders in an encoder's folder that hold adapters which nobody applies."""
    applied = (ADAPTER, ADAPTER_WEIGHTS) if located.adapter is not None else ()
    return sorted(
        entry.name
        for entry in located.path.iterdir()
        if entry.name not in applied
        and (ADAPTER_FILE.search(entry.name) or (entry / ADAPTER).is_file())
    )


def _have_all(checksums: set[tuple[int, int]], files: Sequence[Path]) -> bool:
    """Whether pickled weights hold every tensor of files: nothing is unpickled for that.

    Args:
        checksums: size and CRC-32 of whatever lies in the archive of pickled weights.
        files: of safetensors.
    """
    for file in files:
        with safe_open(file, framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118 no mapping
                tensor = weights.get_tensor(name)
                data = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
                if (len(data), zlib.crc32(data)) not in checksums:
                    return False
    return True


def as_sentences(
    folder: Path, *, max_length: int, pool: Sequence[str], prompt: str | None
) -> str | None:
    """What sentence-transformers would do besides with the model of a folder; None if nothing.

    Args:
        folder: of the model, with the files of sentence-transformers if it has any.
        max_length: tokens at which a text is cut here.
        pool: names of the poolings here.
        prompt: the text around every text here.
    """
    modules = _read(folder / "modules.json")
    if not isinstance(modules, list) or not all(
        isinstance(module, dict) for module in modules
    ):
        return None
    parts = [
        *_cuts(folder, max_length),
        *_pools(folder, modules, pool),
        *_prompts(folder, prompt),
    ]
    kinds = [str(module.get("type", "")).split(".")[-1] for module in modules]
    more = [visible(shortened(kind)) for kind in kinds if kind not in OWN]
    if more:
        parts.append(f"applies {', '.join(dict.fromkeys(more))}")
    if not parts:
        return None
    return (
        f"sentence-transformers {', '.join(parts)}; gaam stores the layers' own states"
    )


def _cuts(folder: Path, max_length: int) -> Iterator[str]:
    for file in sorted(folder.glob("sentence_*_config.json")):
        settings = _read(file)
        if not isinstance(settings, dict):
            continue
        longest = settings.get("max_seq_length")
        if type(longest) is int and longest != max_length:
            yield (
                f"cuts at {longest:,} tokens where gaam cuts at {max_length:,} "
                f"(--max-length {longest})"
            )
        if settings.get("do_lower_case") is True:
            yield "makes texts lower case"


def _pools(
    folder: Path, modules: list[dict[str, Any]], pool: Sequence[str]
) -> Iterator[str]:
    for module in modules:
        if str(module.get("type", "")).split(".")[-1] != "Pooling":
            continue
        for name in _modes(
            _read(folder / Path(str(module.get("path"))).name / "config.json")
        ):
            ours = POOLINGS.get(name)
            if ours is None:
                yield f"pools by {visible(shortened(name))}"
            elif ours not in pool:
                yield f"pools {POOLS[ours]} (--pool {ours})"


def _modes(settings: Any) -> list[str]:
    """Poolings that a configuration turns on; earlier versions have a switch for each."""
    if not isinstance(settings, dict):
        return []
    named = settings.get("pooling_mode")
    if named is not None:
        return [str(name) for name in (named if isinstance(named, list) else [named])]
    start = "pooling_mode_"
    return [
        key.removeprefix(start)
        for key in settings
        if key.startswith(start) and settings[key]
    ]


def _prompts(folder: Path, prompt: str | None) -> Iterator[str]:
    settings = _read(folder / "config_sentence_transformers.json")
    prompts = settings.get("prompts") if isinstance(settings, dict) else None
    if not isinstance(prompts, dict):
        return
    texts = {
        str(name): text
        for name, text in prompts.items()
        if text and isinstance(text, str)
    }
    default = texts.get(str(settings.get("default_prompt_name")))
    if default is not None:
        ours = default + PLACE
        if prompt != ours:
            yield f"puts {visible(repr(shortened(default)))} before every text (--prompt)"
    elif texts and prompt not in {text + PLACE for text in texts.values()}:
        names = visible(shortened(", ".join(texts)))
        yield f"has a prompt for each of: {names} (--prompt)"


def _read(file: Path) -> Any:
    """A JSON file, which another program reads: what cannot be read is not there."""
    try:
        return json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
