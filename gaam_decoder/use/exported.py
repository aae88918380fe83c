"""An exported decoder <-> a folder of three files: config.json, model.safetensors, README.md.

S seeds, L layers, D hidden size.

config.json carries its own digest, and size and SHA-256 of the weights; the card is for people, who
may change it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save
from torch import Tensor

from gaam_cache.errors import CacheError, ConfigError, GaamError, NotFoundError
from gaam_cache.format.digest import digest_of, hash_file
from gaam_cache.format.files import write_file
from gaam_cache.format.sealed import sealed_text, unsealed
from gaam_cache.format.strict_json import read_json
from gaam_cache.messages import visible
from gaam_decoder.decoder import on_paper
from gaam_decoder.use.decoder_config import DecoderConfig
from gaam_decoder.use.ensemble import Ensemble, check_alone

CONFIG_FILE, WEIGHTS_FILE, CARD_FILE = "config.json", "model.safetensors", "README.md"
OWN_FILES = (CONFIG_FILE, WEIGHTS_FILE, CARD_FILE)
"""All that lies in an exported decoder."""
FORMAT, FORMAT_VERSION = "gaam-decoder", 1


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
    except (OSError, ValueError, SafetensorError) as error:
        raise _unusable(path, error) from error
    if seed is not None:
        place = config.seeds.index(seed)
        found = {name: value[place : place + 1] for name, value in found.items()}
    ensemble = Ensemble.of(config.spec, found, dtype=config.dtype)
    check_alone(ensemble, config.attention, folder)
    return config, ensemble


def _read_weights(
    path: Path, about: Mapping[str, Any], paper: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    if hash_file(path) != about["sha256"]:
        raise ValueError("the weights are not those that were exported")
    found: dict[str, Tensor] = load_file(path)
    if {k: v.shape for k, v in found.items()} != {k: v.shape for k, v in paper.items()}:
        raise ValueError("the weights are those of another decoder")
    return found


def write_decoder(folder: Path, config: DecoderConfig, weights: Mapping[str, Tensor]) -> None:
    """Write configuration and weights; the card is another matter.

    Args:
        folder: which is there.
        config: of the decoder.
        weights: by the names that a decoder gives them, each (S, ...).
    """
    saved = save({name: one.contiguous().cpu() for name, one in weights.items()}, {"format": "pt"})
    about = {"bytes": len(saved), "sha256": digest_of(saved)}
    content = {"format": FORMAT, "format_version": FORMAT_VERSION, **asdict(config)}
    write_file(folder / WEIGHTS_FILE, saved, option="DIR")
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
