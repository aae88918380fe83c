"""An exported decoder <-> a folder of three files: config.json, model.safetensors, README.md.

config.json carries its own digest, and size and SHA-256 of the weights; the card is for people, who
may change it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from gaam_cache.errors import CacheError, ConfigError, GaamError, NotFoundError
from gaam_cache.messages import visible
from gaam_cache.store.digest import digest_of, sealed_text, unsealed
from gaam_cache.store.encoding import Encoding
from gaam_cache.store.files import read_json, write_file
from gaam_decoder.decoder import DecoderSpec
from gaam_decoder.specs import parse_attention, parse_head
from gaam_decoder.use.ensemble import Ensemble

CONFIG_FILE, WEIGHTS_FILE, CARD_FILE = "config.json", "model.safetensors", "README.md"
OWN_FILES = (CONFIG_FILE, WEIGHTS_FILE, CARD_FILE)
"""All that lies in an exported decoder."""
FORMAT = {"format": "gaam-decoder", "format_version": 1}


@dataclass(frozen=True, kw_only=True)
class DecoderConfig:
    """Everything that an exported decoder is, but for its weights. JSON values."""

    attention: str
    """Mechanism, such as ``laplace:heads=4``."""
    head: str
    layers: tuple[int, ...]
    """Places of the layers that it reads, of those that a row has, from 0."""
    num_layers: int
    """Layers that a row has."""
    hidden_size: int
    pooling: str
    class_names: tuple[str, ...]
    seeds: tuple[int, ...]
    """Those whose decoders are here."""
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
    def from_dict(cls, value: dict[str, Any]) -> Self:
        """What ``asdict`` gives; TypeError or ValueError where it is something else."""
        tuples = {name: tuple(value[name]) for name in ("layers", "class_names", "seeds")}
        Encoding.from_dict(value["encoding"])
        return cls(**value | tuples)

    @property
    def spec(self) -> DecoderSpec:
        """What it takes to build one decoder."""
        return DecoderSpec(
            attention=parse_attention(self.attention),
            head=parse_head(self.head),
            num_layers=len(self.layers),
            hidden_size=self.hidden_size,
            num_classes=len(self.class_names),
        )


def read_config(folder: Path) -> tuple[DecoderConfig, Mapping[str, Any]]:
    """The configuration of an exported decoder, and size and SHA-256 of its weights."""
    path = folder / CONFIG_FILE
    try:
        content = read_json(path.resolve())  # where the hub's client keeps them, files are links
        if {key: content.get(key) for key in FORMAT} != FORMAT:
            raise ValueError(f"not what gaam exports: {FORMAT}")
        content = {key: value for key, value in unsealed(content).items() if key not in FORMAT}
        about: Mapping[str, Any] = content.pop("files")[WEIGHTS_FILE]
        return DecoderConfig.from_dict(content), about
    except FileNotFoundError as error:
        expected = f"a folder with {', '.join(OWN_FILES)}"
        raise NotFoundError(f"no exported decoder at '{folder}'", expected=expected) from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise _unusable(path, error) from error


def read_decoder(folder: Path, *, seed: int | None = None) -> tuple[DecoderConfig, Ensemble]:
    """An exported decoder: all seeds, or one. Every byte of the weights is hashed."""
    config, about = read_config(folder)
    if seed is not None and seed not in config.seeds:
        expected = f"one of: {', '.join(map(str, config.seeds))}"
        raise ConfigError(f"no seed {seed} in the exported decoder", expected=expected)
    path = folder / WEIGHTS_FILE
    try:
        content = path.read_bytes()
        if digest_of(content) != about["sha256"]:
            raise ValueError("the weights are not those that were exported")
        weights = load(content)
        if any(len(one) != len(config.seeds) for one in weights.values()):
            raise ValueError("weights of other seeds")
        if seed is not None:
            place = config.seeds.index(seed)
            weights = {name: one[place : place + 1] for name, one in weights.items()}
            config = replace(config, seeds=(seed,))
        return config, Ensemble(config.spec, weights, dtype=config.dtype)
    except GaamError:
        raise
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        raise _unusable(path, error) from error


def write_decoder(folder: Path, config: DecoderConfig, weights: Mapping[str, Tensor]) -> None:
    """Write configuration and weights, by the names that a decoder gives them, each (S, ...)."""
    whole = {name: one.cpu().contiguous() for name, one in weights.items()}
    content = save(whole, {"format": "pt"})
    about = {WEIGHTS_FILE: {"bytes": len(content), "sha256": digest_of(content)}}
    text = {**FORMAT, **asdict(config), "files": about}
    write_file(folder / WEIGHTS_FILE, content, option="DIR")
    write_file(folder / CONFIG_FILE, sealed_text(text).encode(), option="DIR")


def _unusable(path: Path, error: Exception) -> CacheError:
    return CacheError(
        visible(f"'{path.parent.name}' holds no decoder that can be used"),
        expected=f"the files that 'gaam export' wrote: {', '.join(OWN_FILES)}",
        found=visible(f"no key {error}" if isinstance(error, KeyError) else str(error)),
        where=visible(str(path.absolute())),
        hint="export it again, or download it again",
    )
