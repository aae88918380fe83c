"""What a config asks for, one by one: decoders, recipes, and the runs that are there already."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal

import torch

from gaam_cache.cache import EmbeddingCache
from gaam_cache.errors import ConfigError, GaamWarning
from gaam_cache.messages.checks import shortened
from gaam_cache.messages.spelling import nearest
from gaam_decoder.config import TrainConfig, train_as_test
from gaam_decoder.contract import check_contract
from gaam_decoder.decoder import DecoderSpec, build_decoder, on_paper
from gaam_decoder.number_lists import spell_layers, spell_numbers
from gaam_decoder.recipe import Fold, Recipe
from gaam_decoder.runs.result import RunResult
from gaam_decoder.specs import Spec, parse_attention, parse_head, parse_loss, row_title
from gaam_decoder.training.arithmetic.engine import resolve_dtype
from gaam_decoder.training.rows.data import read_groups


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """One decoder under one recipe: a row of the table to be."""

    spec: DecoderSpec
    recipe: Recipe
    key: str

    def __str__(self) -> str:
        """As the recipe is called."""
        return str(self.recipe)


def plan_items(config: TrainConfig, cache: EmbeddingCache, device: torch.device) -> list[Item]:
    """Everything that a config asks for, in order.

    Raises:
        ConfigError: an option does not fit the cache, or not all of a sweep can be built.

    Warns:
        GaamWarning: for everything that is left out, where that was asked for.
    """
    _check_session()
    config = _check_splits(config, cache)
    config = _check_pools(config, cache)
    config = _check_layers(config, cache.num_layers)
    items: list[Item] = []
    impossible: list[Item] = []
    reasons: dict[DecoderSpec, ConfigError | None] = {}
    for recipe in recipes(config, resolve_dtype(config.dtype, device)):
        spec = decoder_spec(recipe, cache)
        item = Item(spec=spec, recipe=recipe, key=recipe.key(cache.fingerprint))
        if spec not in reasons:
            reasons[spec] = _why_impossible(spec, recipe.loss)
        (items if reasons[spec] is None else impossible).append(item)
    if impossible:
        whats = {_what(item): reasons[item.spec] for item in impossible}
        _refuse_or_warn(whats, len(impossible), len(items), skip=config.skip_impossible)
    return items


def recipes(config: TrainConfig, dtype: Literal["float32", "bfloat16"]) -> list[Recipe]:
    """One per mechanism, head, pooling, rate, set of layers and fold, in this order.

    Args:
        config: whose poolings are named and whose layers fit the cache.
        dtype: of matrix products.
    """
    count = config.folds
    numbers = [config.fold] if config.fold else range(1, (count or 0) + 1)
    folds: list[Fold | None] = [Fold(number, count) for number in numbers if count]
    specs = [parse_attention(text) for text in config.attn], [parse_head(t) for t in config.heads]
    groups = read_groups(config.groups) if config.groups is not None else None
    return [
        Recipe(
            attention=attention,
            head=head,
            loss=parse_loss(config.loss),
            epochs=config.epochs,
            batch_size=config.batch_size,
            lr=lr,
            weight_decay=config.weight_decay,
            schedule=config.schedule,
            clip_grad_norm=config.clip_grad_norm,
            select=config.select,
            val_fraction=config.val_fraction,
            split_seed=config.split_seed,
            pool=str(pool),
            layers=layers,
            train_split=config.train_split,
            test_split=config.test_split,
            allow_train_as_test=config.allow_train_as_test,
            dtype=dtype,
            fold=fold,
            groups=groups,
        )
        for attention, head, pool, lr, layers, fold in product(
            *specs, config.pools, config.lrs, config.layer_sets, folds or [None]
        )
    ]


def decoder_spec(recipe: Recipe, cache: EmbeddingCache) -> DecoderSpec:
    """The decoder that a recipe trains on a cache."""
    return DecoderSpec(
        attention=recipe.attention,
        head=recipe.head,
        num_layers=len(recipe.layers or range(cache.num_layers)),
        hidden_size=cache.hidden_size,
        num_classes=len(cache.class_names),
    )


def _check_session() -> None:
    """Nothing that a program set in torch may change the numbers.

    Raises:
        ConfigError: something would.
    """
    kinds = ("cpu", "cuda")
    found = {
        "a default type of torch.float32": torch.get_default_dtype() == torch.float32,
        "no torch.autocast around it": not any(map(torch.is_autocast_enabled, kinds)),
        "no torch.device around it": torch.get_default_device().type == "cpu",
    }
    for expected, holds in found.items():
        if not holds:
            raise ConfigError("this session would change the numbers", expected=expected)


def _why_impossible(spec: DecoderSpec, loss: Spec) -> ConfigError | None:
    """Why a decoder cannot be built, or one of other packages not used: before any training."""
    try:
        check_contract(spec, loss)
        with on_paper():
            build_decoder(spec, seed=0)
    except ConfigError as error:
        return error
    return None


def _what(item: Item) -> str:
    """A decoder and its layers: what of an item decides whether it can be built."""
    return row_title(item.spec.attention, item.spec.head, layers=spell_layers(item.recipe.layers))


def _refuse_or_warn(
    whats: dict[str, ConfigError | None], impossible: int, possible: int, *, skip: bool
) -> None:
    first, error = next(iter(whats.items()))
    assert error is not None
    if skip and possible:
        for what, why in whats.items():
            warnings.warn(f"left out: {what}: {why and why.message}", GaamWarning, stacklevel=4)
        return
    found = error.details.get("found", "")
    found = error.message if found in error.message else f"{error.message}: {found}"
    others = f"; nor can {', '.join(list(whats)[1:4])}" if len(whats) > 1 else ""
    others += f" and {len(whats) - 4} more" if len(whats) > 4 else ""
    raise ConfigError(
        f"{first} cannot be built{others}",
        expected=error.details.get("expected"),
        found=found,
        where=f"{impossible} of {impossible + possible} combinations; the other {possible} can"
        if possible
        else None,
        hint="--skip-impossible trains those that can" if possible else error.details.get("to do"),
    )


def lacking_seeds(config: TrainConfig, runs: list[RunResult]) -> list[int]:
    """Seeds of a config that no run has."""
    return sorted(set(config.seeds) - {seed for run in runs for seed in run.seeds})


def _check_splits(config: TrainConfig, cache: EmbeddingCache) -> TrainConfig:
    """The config, in which training rows are allowed as test rows only where they are.

    Raises:
        ConfigError: the cache has no such split, or rows to test on are those to learn from.
    """
    named = {"--train-split": config.train_split}
    if config.folds is None:
        named["--test-split"] = config.test_split
    for option, split in named.items():
        if split not in cache:
            (only, *others) = cache
            alone = config.folds is None and not others
            raise _not_there(
                "split",
                option,
                split,
                cache,
                tuple(cache),
                f"--train-split {only} --folds 5 tests on parts of it" if alone else None,
            )
    content = cache.plan.fingerprint_fields["content"]
    same = config.folds is None and content[config.train_split] == content[config.test_split]
    if same and not config.allow_train_as_test:
        raise train_as_test(
            f"the splits '{config.train_split}' and '{config.test_split}' hold the same rows"
        )
    return replace(config, allow_train_as_test=same)


def _check_pools(config: TrainConfig, cache: EmbeddingCache) -> TrainConfig:
    """The config, in which naming the first pooling is the same as naming none.

    Raises:
        ConfigError: the cache has no such pooling, or one is named twice.
    """
    there = cache.plan.pooling
    for pool in config.pools:
        if pool is not None and pool not in there:
            raise _not_there("pooling", "--pool", pool, cache, there)
    return replace(config, pool=tuple(pool or there[0] for pool in config.pools))


def _not_there(
    kind: str,
    option: str,
    name: str,
    cache: EmbeddingCache,
    there: Sequence[str],
    hint: str | None = None,
) -> ConfigError:
    meant = nearest(name, there)
    option_of_extract = {"split": "--split", "pooling": "--pool"}[kind]
    return ConfigError(
        f"the cache has no {kind} '{shortened(name)}'",
        expected=f"one of: {', '.join(there)}",
        found=f"{option} {shortened(name)}",
        where=str(cache.root.absolute()),
        hint=f"did you mean '{meant}'?"
        if meant
        else hint or f"extract it with {option_of_extract}",
    )


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
