"""What an exported decoder is.

S seeds, L layers, D hidden size.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from typing import Any, Self

from gaam_cache.store.encoding import Encoding
from gaam_decoder.decoder import DecoderSpec
from gaam_decoder.number_lists import MAX_NUMBERS
from gaam_decoder.specs import parse_attention, parse_head

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
