"""What a config asks for, one by one: decoders, recipes, and the runs that are there already."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from gaam_cache.cache import EmbeddingCache
from gaam_cache.errors import ConfigError
from gaam_decoder.config import TrainConfig
from gaam_decoder.data import read_groups
from gaam_decoder.decoder import DecoderSpec, build_decoder
from gaam_decoder.engine import resolve_dtype
from gaam_decoder.number_lists import spell_layers, spell_numbers
from gaam_decoder.run_folders import runs_of_key
from gaam_decoder.runs import RunResult
from gaam_decoder.specs import parse_attention, parse_head, parse_loss, row_title

NOT_RECIPE = (
    *("attn", "head", "cache", "runs", "seeds", "device", "seed_batch", "compile"),
    "track",
    *("fold", "folds", "groups"),
)
"""Settings that are recorded elsewhere or do not change the numbers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """One decoder under one recipe: a row of the table to be."""

    spec: DecoderSpec
    config: TrainConfig
    key: str

    def __str__(self) -> str:
        """Decoder and what of the recipe a sweep varies."""
        (layers,) = self.config.layer_sets
        return row_title(
            self.spec.attention,
            self.spec.head,
            lr=self.config.lrs[0],
            layers=spell_layers(layers) if layers else None,
            fold=f"{self.config.fold}/{self.config.folds}" if self.config.fold else None,
        )


def plan_items(config: TrainConfig, cache: EmbeddingCache, device: torch.device) -> list[Item]:
    """Everything that a config asks for, in order.

    Raises:
        ConfigError: an option does not fit the cache.
    """
    config = _check_layers(config, cache.num_layers)
    config = replace(config, dtype=resolve_dtype(config.dtype, device))
    items = []
    for single in config.recipes():
        spec = decoder_spec(single.attn[0], single, cache)
        with torch.device("meta"):
            build_decoder(spec, seed=0)  # an option that does not fit fails before any training
        items.append(Item(spec=spec, config=single, key=key_of(spec, single, cache)))
    return items


def lacking_seeds(config: TrainConfig, runs: list[RunResult]) -> list[int]:
    """Seeds of a config that no run has."""
    return sorted(set(config.seeds) - {seed for run in runs for seed in run.seeds})


def existing_runs(runs: Path, key: str) -> list[RunResult]:
    """Finished runs of one mechanism, recipe and cache, by their key."""
    return runs_of_key(runs, key)


def _check_layers(config: TrainConfig, num_layers: int) -> TrainConfig:
    """The config, in which naming all layers is the same as naming none.

    Raises:
        ConfigError: the encoder has no such layer, or two sets turn out to be the same.
    """
    sets = config.layer_sets
    beyond = sorted({layer for one in sets for layer in one or () if layer > num_layers})
    if beyond:
        raise ConfigError(
            "the encoder of the cache has no such layer",
            expected=f"--layers from 1 to {num_layers}",
            found=spell_numbers(beyond),
            where=str(config.cache.absolute()),
        )
    return replace(
        config, layers=tuple(None if len(one or ()) == num_layers else one for one in sets)
    )


def decoder_spec(text: str, config: TrainConfig, cache: EmbeddingCache) -> DecoderSpec:
    """The decoder of a mechanism under the first head of a config."""
    return DecoderSpec(
        attention=parse_attention(text),
        head=parse_head(config.heads[0]),
        num_layers=len(config.layer_sets[0] or range(cache.num_layers)),
        hidden_size=cache.hidden_size,
        num_classes=len(cache.class_names),
    )


def recipe_of(config: TrainConfig) -> dict[str, Any]:
    """The settings that change the numbers, as JSON values."""
    recipe = {key: value for key, value in asdict(config).items() if key not in NOT_RECIPE}
    recipe["lr"] = config.lrs[0]
    recipe["loss"] = str(parse_loss(config.loss))
    layers = config.layer_sets[0]
    recipe["layers"] = spell_numbers(layers) if layers else None
    recipe["fold"] = f"{config.fold}/{config.folds}" if config.fold else None
    if config.groups is not None:
        names = "\n".join(read_groups(config.groups))
        recipe["groups"] = hashlib.sha256(names.encode()).hexdigest()[:16]
    return recipe


def key_of(spec: DecoderSpec, config: TrainConfig, cache: EmbeddingCache) -> str:
    """The hash of decoder, recipe and cache: what makes two runs the same but for their seeds."""
    fields = [str(spec.attention), str(spec.head), recipe_of(config), cache.fingerprint]
    return hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
