"""An exported decoder <-> a folder of three files: config.json, model.safetensors, README.md.

S seeds, L layers, D hidden size.

config.json carries its own digest, and size and SHA-256 of the weights; the card is for people, who
may change it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from gaam_cache.errors import CacheError, ConfigError, GaamError, NotFoundError
from gaam_cache.format.digest import chunks, digest_of_stream
from gaam_cache.format.encoding import Encoding
from gaam_cache.format.files import open_regular, write_file
from gaam_cache.format.sealed import sealed_text, unsealed
from gaam_cache.format.strict_json import read_json
from gaam_cache.messages.foreign_text import visible
from gaam_decoder.decoder import DecoderSpec, on_paper
from gaam_decoder.number_lists import MAX_NUMBERS
from gaam_decoder.runs.tensor_files import DTYPES, TensorFile, tensor_parts
from gaam_decoder.specs import parse_attention, parse_head
from gaam_decoder.use.ensemble import Ensemble

CONFIG_FILE, WEIGHTS_FILE, CARD_FILE = "config.json", "model.safetensors", "README.md"
OWN_FILES = (CONFIG_FILE, WEIGHTS_FILE, CARD_FILE)
"""All that lies in an exported decoder."""
FORMAT, FORMAT_VERSION = "gaam-decoder", 1
MOST_SEEDS = 10**5
"""Of a folder that is read; a run of so many is none."""


@dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    """Everything that an exported decoder is, but for its weights. JSON values."""

    attention: str
    """Mechanism, such as ``laplace:heads=4``."""
    head: str
    layers: tuple[int, ...]
    """Places of the layers that it reads, of those that a row has, from 0."""
    num_layers: int
    """L, layers that a row has."""
    hidden_size: int
    """D."""
    pooling: str
    class_names: tuple[str, ...]
    seeds: tuple[int, ...]
    """S, those whose decoders are here."""
    dtype: str
    """Arithmetic of the matrix products, as the run was evaluated."""
    plugins: dict[str, str]
    """Parts of other packages, and their code."""
    fingerprint: str
    """Of the cache that it learned from."""
    key: str
    """Of the run: mechanism, recipe and cache."""
    encoding: dict[str, Any]
    """How rows are encoded; names no path."""
    signature: dict[str, Any]
    """What repeats it: version of gaam, recipe, seeds."""

    @classmethod
    def from_dict(cls, value: Any) -> Self:
        """What ``asdict`` gives.

        Raises:
            ValueError: keys that are not known or are missing, or values that do not fit.
        """
        names = {one.name for one in fields(cls)}
        if type(value) is not dict or set(value) != names:
            other = sorted(names ^ set(value)) if type(value) is dict else []
            raise ValueError(f"keys that are unknown or missing: {', '.join(other[:6])}")
        value = dict(value)
        for name in ("layers", "class_names", "seeds"):
            if not isinstance(value[name], (list, tuple)):
                raise ValueError(f"'{name}' is no array")
            value[name] = tuple(value[name])
        found = cls(**value)
        _check(found)
        return found

    @property
    def spec(self) -> DecoderSpec:
        """What it takes to build one decoder.

        Raises:
            ConfigError: a mechanism or head that is not installed.
        """
        return DecoderSpec(
            attention=parse_attention(self.attention),
            head=parse_head(self.head),
            num_layers=len(self.layers),
            hidden_size=self.hidden_size,
            num_classes=len(self.class_names),
        )


def _check(config: DecoderConfig) -> None:
    texts = (config.attention, config.head, config.pooling, config.dtype, config.key)
    if not all(type(text) is str for text in (*texts, config.fingerprint, *config.class_names)):
        raise ValueError("a name is no string")
    if not all(re.fullmatch("[0-9a-f]{64}", text) for text in (config.key, config.fingerprint)):
        raise ValueError("a key that is no SHA-256")
    if config.dtype not in ("float32", "bfloat16", "float16"):
        raise ValueError(f"unknown dtype {config.dtype!r}")
    numbers = (*config.layers, *config.seeds, config.num_layers, config.hidden_size)
    if not all(type(number) is int and 0 <= number < 2**40 for number in numbers):
        raise ValueError("layers, seeds and sizes must be whole numbers")
    if not 1 <= config.num_layers <= MAX_NUMBERS or not config.layers or not config.class_names:
        raise ValueError("no layers, or no classes")
    if max(config.layers) >= config.num_layers or list(config.layers) != sorted(set(config.layers)):
        raise ValueError("layers that a row does not have")
    if not 1 <= len(config.seeds) <= MOST_SEEDS or len(set(config.seeds)) != len(config.seeds):
        raise ValueError("no seeds, or one twice")
    if not all(type(part) is dict for part in (config.plugins, config.signature)):
        raise ValueError("a part that is no object")
    encoding = Encoding.from_dict(config.encoding)
    if (encoding.num_layers, encoding.hidden_size) != (config.num_layers, config.hidden_size):
        raise ValueError("the encoding has other sizes")
    if config.pooling not in encoding.pooling:
        raise ValueError(f"rows are not pooled by {config.pooling!r}")


def is_export(folder: Path) -> bool:
    """Whether a folder is an exported decoder, and holds nothing else."""
    if {path.name for path in folder.iterdir()} != set(OWN_FILES):
        return False
    try:
        read_config(folder)
    except GaamError:
        return False
    return True


def has_config(folder: Path) -> bool:
    """Whether a folder may be an exported decoder, whole or damaged."""
    return (folder / CONFIG_FILE).is_file()


def read_config(folder: Path) -> tuple[DecoderConfig, Mapping[str, Any]]:
    """The configuration of an exported decoder, and size and SHA-256 of its weights.

    Raises:
        NotFoundError: no such file.
        CacheError: damaged, of another version, or nothing that gaam exported.
    """
    path = folder / CONFIG_FILE
    try:
        # where the hub's client keeps them, files are links
        content = read_json(path.resolve())
        if content.get("format") != FORMAT:
            raise ValueError(f"no '{FORMAT}': gaam did not export it")
        content = unsealed(content)
        version = content.pop("format_version")
        if version is True or version != FORMAT_VERSION:
            raise ValueError(f"format version {version!r}, this gaam reads {FORMAT_VERSION}")
        files = content.pop("files")
        about = files[WEIGHTS_FILE]
        if set(files) != {WEIGHTS_FILE} or set(about) != {"bytes", "sha256"}:
            raise ValueError("'files' does not name the weights")
        del content["format"]
        return DecoderConfig.from_dict(content), about
    except FileNotFoundError as error:
        raise NotFoundError(
            f"no exported decoder at '{folder}'",
            expected=f"a folder with {', '.join(OWN_FILES)}",
            found=f"no {CONFIG_FILE}",
            where=str(folder.absolute()),
        ) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _unusable(path, error) from error


def read_decoder(
    folder: Path, *, seed: int | None = None, weights: Path | None = None
) -> tuple[DecoderConfig, Ensemble]:
    """An exported decoder: all seeds, or one.

    Every byte of the weights is hashed, and nothing is allocated that the file does not have.

    Args:
        folder: with its configuration.
        seed: one of its seeds alone.
        weights: where its weights are; default: in the folder.

    Raises:
        NotFoundError: none there.
        CacheError: damaged or foreign.
        ConfigError: no such seed, or a mechanism or head that is not installed.
    """
    config, about = read_config(folder)
    if seed is not None and seed not in config.seeds:
        raise ConfigError(
            f"no seed {seed} in the exported decoder",
            expected=f"one of: {', '.join(map(str, config.seeds))}",
            where=str(folder.absolute()),
        )
    path = weights or folder / WEIGHTS_FILE
    with on_paper():
        paper = Ensemble(config.spec, len(config.seeds)).decoder.state_dict()
    try:
        found = _read_weights(path.resolve(), about, paper)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise _unusable(path, error) from error
    if seed is not None:
        place = config.seeds.index(seed)
        found = {name: value[place : place + 1] for name, value in found.items()}
    return config, Ensemble.of(config.spec, found, dtype=config.dtype)


def _read_weights(
    path: Path, about: Mapping[str, Any], paper: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    with open_regular(path) as file:
        if digest_of_stream(chunks(file)) != about["sha256"] or file.tell() != about["bytes"]:
            raise ValueError("the weights are not those that were exported")
        file.seek(0)
        tensors = TensorFile(file)
        shapes = {name: tensors.shape(name) for name in tensors}
        if shapes != {name: tuple(value.shape) for name, value in paper.items()}:
            raise ValueError("the weights are those of another decoder")
        return {name: torch.from_numpy(tensors.read(name)) for name in tensors}


def write_decoder(folder: Path, config: DecoderConfig, weights: Mapping[str, Tensor]) -> None:
    """Write configuration and weights; the card is another matter.

    Args:
        folder: which is there.
        config: of the decoder.
        weights: by the names that a decoder gives them, each (S, ...).
    """
    parts = tensor_parts({name: one.cpu().numpy() for name, one in weights.items()}, {"format": "pt"})
    about = {"bytes": sum(map(len, parts)), "sha256": digest_of_stream(parts)}
    content = {"format": FORMAT, "format_version": FORMAT_VERSION, **asdict(config)}
    write_file(folder / WEIGHTS_FILE, parts, option="DIR")
    text = sealed_text(content | {"files": {WEIGHTS_FILE: about}})
    write_file(folder / CONFIG_FILE, text.encode(), option="DIR")


def _unusable(path: Path, error: Exception) -> CacheError:
    found = f"no key {error}" if isinstance(error, KeyError) else str(error)
    return CacheError(
        visible(f"'{path.parent.name}' holds no decoder that can be used"),
        expected=f"the files that 'gaam export' wrote: {', '.join(OWN_FILES)}",
        found=visible(found),
        where=visible(str(path.absolute())),
        hint="export it again, or download it again",
    )
