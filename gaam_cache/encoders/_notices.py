"""Writes notices for the user about the folder of an encoder, one a line.

They name weights and adapters that gaam does not read, and tell what
sentence-transformers does differently with the same model.
"""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open

from gaam_cache.common.download import ADAPTER_WEIGHTS
from gaam_cache.common.messages import join_first, shortened, visible
from gaam_cache.config import TEXT_PLACEHOLDER
from gaam_cache.encoders._located import (
    ADAPTER,
    INDEX,
    WEIGHTS,
    LocatedEncoder,
)
from gaam_cache.store.files import MAX_POINTER_BYTES

POOLINGS = {
    "cls": "first",
    "cls_token": "first",
    "lasttoken": "last",
    "mean_tokens": "mean",
    "max_tokens": "max",
    "mean": "mean",
    "max": "max",
}
"""Poolings of sentence-transformers -> their names for ``--pool``."""
POOLED_TOKENS = {
    "first": "the first token",
    "last": "the last token",
    "max": "the maximum over tokens",
    "mean": "the mean over tokens",
}
"""Poolings of ``--pool`` -> what they pool, for messages."""
POOLING_SWITCH = "pooling_mode_"
"""Prefix of the switches for poolings in earlier sentence-transformers."""
ADAPTER_FILE = re.compile(r"(^|[._-])(adapter|lora)([._-].*)?\.(safetensors|bin|pt)$")
"""Names of adapters' files, those of diffusers, AdapterHub and MMS included."""
SHARD = re.compile(r"-\d{5}-of-\d{5}\.safetensors$")
"""Names of weight files that an index lists: model-00001-of-00003.safetensors."""
KNOWN_MODULES = ("Transformer", "Pooling", "Normalize")
"""Modules of sentence-transformers that need no notice of their own.

Other notices cover the first two, and the third only scales the pooled states.
"""


def other_weights(located: LocatedEncoder) -> Iterator[str]:
    """Yield notices about weights and adapters in a folder that gaam does not read.

    An encoder without weights, or in a GGUF file, gets none.
    """
    if not located.needs_weights or located.is_gguf:
        return
    adapters = _find_unused_adapters(located)
    if adapters:
        yield (
            "an adapter beside the weights is not applied: "
            f"{visible(join_first(adapters, 1))}"
        )

    files = located.weight_files()
    # How the notices name what gaam reads.
    weights_read = files[0].name
    if len(files) != 1:
        weights_read = f"the files of {INDEX}"
    ignores_index = files[0].name == WEIGHTS and (located.path / INDEX).exists()
    if ignores_index:
        yield f"gaam reads {WEIGHTS}, not {INDEX} beside it and the files that it names"

    # A person may have meant another file with weights. Adapters need no second notice:
    # those that are not applied were named above.
    read_or_noticed = {*(file.name for file in files), *adapters, ADAPTER_WEIGHTS}
    for file in sorted(located.path.glob("*.safetensors")):
        # the notice of an index is one of its numbered files, too
        is_of_noticed_index = ignores_index and SHARD.search(file.name) is not None
        if file.name not in read_or_noticed and not is_of_noticed_index:
            yield f"gaam reads {weights_read}, not {visible(file.name)} beside it"

    yield from _compare_pickles(located.path, files, weights_read)


def _find_unused_adapters(located: LocatedEncoder) -> list[str]:
    """Names of the adapters in an encoder's folder that gaam does not apply."""
    applied: tuple[str, ...] = ()
    if located.adapter is not None:
        applied = (ADAPTER, ADAPTER_WEIGHTS)
    unused = []
    for entry in located.path.iterdir():
        is_adapter = ADAPTER_FILE.search(entry.name) or (entry / ADAPTER).is_file()
        if is_adapter and entry.name not in applied:
            unused.append(entry.name)
    return sorted(unused)


def _compare_pickles(
    folder: Path, weight_files: Sequence[Path], weights_read: str
) -> Iterator[str]:
    """Yield notices about pickled weights that differ from the weights in use.

    Args:
        folder: folder of the encoder.
        weight_files: the safetensors files with the weights in use.
        weights_read: how a notice names these files.
    """
    pickles = sorted(folder.glob("pytorch_model*.bin"))
    checksums: set[_Checksum] = set()
    for file in pickles:
        if zipfile.is_zipfile(file):
            checksums |= _read_checksums(file)
        # torch before 1.6 wrote no archives: their content cannot be compared. A small
        # file is a pointer of Git LFS, without weights, and needs no notice.
        elif file.stat().st_size > MAX_POINTER_BYTES:
            yield (
                f"gaam reads {weights_read}, not {file.name} beside it, "
                "whose weights cannot be compared"
            )

    # Without an archive there is nothing to compare. A weight file that is damaged gets
    # no notice, because loading refuses it.
    try:
        differ = bool(checksums) and not _have_all_tensors(checksums, weight_files)
    except SafetensorError:
        return
    if differ:
        yield (
            f"gaam reads {weights_read}, not {pickles[0].name} beside it, "
            "which holds other weights"
        )


class _Checksum(NamedTuple):
    """Size and checksum of the bytes of a file, or of a tensor."""

    num_bytes: int
    crc32: int


def _read_checksums(file: Path) -> set[_Checksum]:
    """Size and checksum of every file in an archive; none if it is damaged."""
    checksums: set[_Checksum] = set()
    with suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(file) as archive:
        checksums = {
            _Checksum(entry.file_size, entry.CRC) for entry in archive.infolist()
        }
    return checksums


def _have_all_tensors(checksums: set[_Checksum], weight_files: Sequence[Path]) -> bool:
    """Whether pickled weights hold every tensor of safetensors files.

    torch writes the bytes of every tensor into a file of its own inside of the archive.
    A tensor counts as held if one of these files has its size and checksum, so that
    nothing has to be unpickled.

    Args:
        checksums: those of every file in the archives of pickled weights.
        weight_files: the safetensors files.
    """
    for file in weight_files:
        with safe_open(file, framework="pt") as weights:
            for name in weights.keys():  # noqa: SIM118 no mapping
                tensor = weights.get_tensor(name)
                content = tensor.reshape(-1).view(torch.uint8).numpy().tobytes()
                checksum = _Checksum(len(content), zlib.crc32(content))
                if checksum not in checksums:
                    return False
    return True


def compare_sentence_transformers(
    folder: Path, *, max_length: int, pool: Sequence[str], prompt: str | None
) -> str | None:
    """Write a notice of what sentence-transformers does differently with a model.

    Args:
        folder: folder of the model. It may hold files of sentence-transformers.
        max_length: tokens at which gaam cuts a text.
        pool: names of gaam's poolings.
        prompt: the text that gaam puts around every text; None without one.

    Returns:
        One line; None if the folder has no such files, or they show no difference.
    """
    modules = _read_json(folder / "modules.json")
    if not isinstance(modules, list):
        return None
    if not all(isinstance(module, dict) for module in modules):
        return None

    differences = [
        *_compare_lengths(folder, max_length),
        *_compare_poolings(folder, modules, pool),
        *_compare_prompts(folder, prompt),
        *_name_other_modules(modules),
    ]
    if not differences:
        return None
    return (
        f"sentence-transformers {', '.join(differences)}; "
        "gaam stores the layers' own states"
    )


def _compare_lengths(folder: Path, max_length: int) -> Iterator[str]:
    """Yield where sentence-transformers cuts texts, or whether it lowers their case.

    Each yielded text is a predicate of the subject "sentence-transformers". Nothing is
    yielded where gaam does the same.
    """
    for file in sorted(folder.glob("sentence_*_config.json")):
        settings = _read_json(file)
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


def _compare_poolings(
    folder: Path, modules: Sequence[Mapping[str, object]], pool: Sequence[str]
) -> Iterator[str]:
    """Yield the poolings of sentence-transformers that ``--pool`` does not name.

    Args:
        folder: folder of the model.
        modules: the modules of the model, as modules.json describes them.
        pool: names of gaam's poolings.
    """
    for module in modules:
        if _kind_of(module) != "Pooling":
            continue
        # only the last part of the path counts, so that it cannot lead elsewhere
        module_folder = folder / Path(str(module.get("path"))).name
        for mode in _read_pooling_modes(module_folder / "config.json"):
            pooling = POOLINGS.get(mode)
            if pooling is None:
                yield f"pools by {visible(shortened(mode))}"
            elif pooling not in pool:
                yield f"pools {POOLED_TOKENS[pooling]} (--pool {pooling})"


def _kind_of(module: Mapping[str, object]) -> str:
    """The name of a module's class, without that of its package."""
    return str(module.get("type", "")).split(".")[-1]


def _read_pooling_modes(file: Path) -> list[str]:
    """Read the poolings that the configuration of a pooling module turns on.

    Returns:
        Their names, which are those of sentence-transformers; an empty list if the file
        cannot be read.
    """
    settings = _read_json(file)
    if not isinstance(settings, dict):
        return []
    # Later versions name the poolings; earlier ones have a switch for each.
    modes = settings.get("pooling_mode")
    if isinstance(modes, list):
        return [str(mode) for mode in modes]
    if modes is not None:
        return [str(modes)]
    return [
        key.removeprefix(POOLING_SWITCH)
        for key, is_on in settings.items()
        if key.startswith(POOLING_SWITCH) and is_on
    ]


def _compare_prompts(folder: Path, prompt: str | None) -> Iterator[str]:
    """Yield the prompts of sentence-transformers that gaam does not write.

    ``prompt`` is the one that gaam writes, with the place of the text in it; None
    without one.
    """
    settings = _read_json(folder / "config_sentence_transformers.json")
    if not isinstance(settings, dict):
        return
    prompts = settings.get("prompts")
    if not isinstance(prompts, dict):
        return
    prompt_by_name = {
        str(name): text
        for name, text in prompts.items()
        if text and isinstance(text, str)
    }

    # A default prompt applies to every text, and named prompts only on demand.
    default = prompt_by_name.get(str(settings.get("default_prompt_name")))
    if default is not None:
        if prompt != default + TEXT_PLACEHOLDER:
            shown = visible(repr(shortened(default)))
            yield f"puts {shown} before every text (--prompt)"
        return
    usual_prompts = {text + TEXT_PLACEHOLDER for text in prompt_by_name.values()}
    if prompt_by_name and prompt not in usual_prompts:
        names = visible(shortened(", ".join(prompt_by_name)))
        yield f"has a prompt for each of: {names} (--prompt)"


def _name_other_modules(modules: list[dict[str, Any]]) -> list[str]:
    """Name the modules that sentence-transformers applies after the pooling.

    gaam does not apply them. ``Normalize``, which only scales the states, is left out.

    Returns:
        A list with one text, which names every kind of module once; an empty list if
        there are no such modules.
    """
    kinds = [_kind_of(module) for module in modules]
    unknown = [visible(shortened(kind)) for kind in kinds if kind not in KNOWN_MODULES]
    if not unknown:
        return []
    # A dictionary keeps the order, and drops repeated names.
    return [f"applies {', '.join(dict.fromkeys(unknown))}"]


def _read_json(file: Path) -> Any:
    """Read a JSON file of another program; None if it is missing or damaged."""
    try:
        return json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None
