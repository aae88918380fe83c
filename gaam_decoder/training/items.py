"""What a config asks for, one by one: decoders, recipes, and the runs that are there already."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import product

import torch

from gaam_cache.cache import EmbeddingCache
from gaam_cache.errors import ConfigError, GaamWarning
from gaam_decoder.config import TrainConfig
from gaam_decoder.config_checks import loss_scaling
from gaam_decoder.contract import check_contract
from gaam_decoder.decoder import DecoderSpec, build_decoder, on_paper, spelled_out
from gaam_decoder.number_lists import budget_of, spell_layers
from gaam_decoder.recipe import Dtype, Fold, Groups, Recipe
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import family
from gaam_decoder.specs import head_class, parse_attention, parse_head, parse_loss, row_title
from gaam_decoder.training.arithmetic.engine import resolve_dtype
from gaam_decoder.training.fit import check_session, fitted
from gaam_decoder.training.pairs_of_layers import warn_of_pairs_of_layers
from gaam_decoder.training.probe import ATTENTION, HEAD, check_fitted, probe_fits, probe_wanted
from gaam_decoder.training.rows.data import check_rows
from gaam_decoder.training.rows.groups import read_groups


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """One decoder under one recipe: a row of the table to be."""

    spec: DecoderSpec
    recipe: Recipe
    key: str

    @property
    def epochs(self) -> int:
        """Of a seed, and lines of its log; of a fit the values that are compared."""
        return head_class(self.spec.head).tries if self.recipe.fitted else self.recipe.epochs

    def __str__(self) -> str:
        """As the recipe is called."""
        return str(self.recipe)


def plan_items(
    config: TrainConfig, cache: EmbeddingCache, device: torch.device, *, every_probe: bool = False
) -> list[Item]:
    """Everything that a config asks for, in order; with ``every_probe`` expensive probes too.

    Raises:
        ConfigError: an option does not fit the cache, or not all of a sweep can be built.

    Warns:
        GaamWarning: for everything that is left out, where that was asked for.
    """
    check_session()
    config = fitted(config, cache)
    items, impossible = list[Item](), list[Item]()
    reasons: dict[DecoderSpec, ConfigError | None] = {}
    dtype = resolve_dtype(config.dtype, device)
    groups = None
    if config.groups is not None:
        groups = read_groups(str(config.groups), cache, config.train_split)
    check_rows(asked := recipes(config, dtype, groups), cache)
    for recipe in asked:
        item = _item(recipe, cache)
        if item.spec not in reasons:
            reasons[item.spec] = _why_impossible(item.spec, recipe)
        (items if reasons[item.spec] is None else impossible).append(item)
    _check_each_once(items)
    if impossible:
        whats = {_what(item): reasons[item.spec] for item in impossible}
        _refuse_or_warn(whats, len(impossible), len(items), skip=config.skip_impossible)
    warn_of_pairs_of_layers(spec for spec, why in reasons.items() if why is None)
    probes = _probes(config, dtype, groups, cache, None if every_probe else device)
    return items + probes + _finals(items, config, cache)


def _item(recipe: Recipe, cache: EmbeddingCache) -> Item:
    if recipe.window is not None:
        recipe = replace(recipe, shard_rows=cache.plan.shard_rows)
    spec = decoder_spec(recipe, cache)
    same = recipe
    with suppress(ConfigError):  # what cannot be built is told of all of a sweep at once
        size = spec.num_layers, spec.hidden_size
        same = replace(recipe, attention=spelled_out(recipe.attention, *size, shortest=True))
        recipe = replace(recipe, attention=spelled_out(recipe.attention, *size))
    key = same.key(cache.fingerprint)
    return Item(spec=decoder_spec(recipe, cache), recipe=recipe, key=key)


def _check_each_once(items: Sequence[Item]) -> None:
    """That no decoder is asked for in two spellings."""
    found: dict[str, Item] = {}
    for item in items:
        if (other := found.setdefault(item.key, item)) is not item:
            raise ConfigError(
                f"--attn {other.spec.attention} and --attn {item.spec.attention} are one decoder "
                f"on {item.spec.num_layers} layers",
                expected="each once",
            )


def _finals(items: Sequence[Item], config: TrainConfig, cache: EmbeddingCache) -> list[Item]:
    """Final models of what is evaluated, if asked for: one of all its folds and repeats."""
    if not config.final:
        return []
    recipes = (replace(item.recipe, split_seed=config.split_seed) for item in items)
    found = dict.fromkeys(recipe.without_test() for recipe in recipes)
    return [_item(recipe, cache) for recipe in found]


def _probes(
    config: TrainConfig,
    dtype: Dtype,
    groups: Groups | None,
    cache: EmbeddingCache,
    device: torch.device | None,
) -> list[Item]:
    """The linear probe beside a sweep, of each pool, layers and fold; on a device, if cheap."""
    if not probe_wanted(config):
        return []
    only = replace(config, attn=(str(ATTENTION),), head=(str(HEAD),), class_weights="none")
    items = [_item(recipe, cache) for recipe in recipes(only, dtype, groups)]
    fits: dict[DecoderSpec, bool] = {}
    for item in items:
        if device is not None and item.spec not in fits:
            fits[item.spec] = probe_fits(item.spec, item.recipe, cache, device)
    return [item for item in items if fits.get(item.spec, True)]


def seeds_of(item: Item, asked: Sequence[int]) -> tuple[int, ...]:
    """Seeds that are wanted of an item; what is fitted at once has one, whatever was asked for.

    Ten identical seeds would look like ten experiments.
    """
    return (0,) if item.recipe.fitted else tuple(asked)


def recipes(config: TrainConfig, dtype: Dtype, groups: Groups | None = None) -> list[Recipe]:
    """One per mechanism, head, pool, rate, weight decay, layers, rows, repeat and fold, in order.

    Those that mean the same, such as several rates for a head that has none, are one.

    Args:
        config: whose poolings are named and whose layers fit the cache.
        dtype: of matrix products; the config's own, or what its ``auto`` is here.
        groups: that a cross-validation keeps together.
    """
    count = config.folds
    numbers = [config.fold] if config.fold else range(1, (count or 0) + 1)
    folds: list[Fold | None] = [Fold(number, count) for number in numbers if count]
    specs = [parse_attention(text) for text in config.attn], [parse_head(t) for t in config.head]
    found = [
        Recipe(
            attention=attention,
            head=head,
            loss=parse_loss(config.loss),
            epochs=config.epochs,
            batch_size=config.batch_size,
            lr=lr,
            weight_decay=weight_decay,
            schedule=config.schedule,
            clip_grad_norm=config.clip_grad_norm,
            select=config.select,
            val_fraction=config.val_fraction,
            split_seed=config.split_seed + repeat,
            pool=str(pool),
            layers=layers,
            train_split=config.train_split,
            test_split=config.test_split,
            allow_train_as_test=config.allow_train_as_test,
            dtype=dtype,
            shuffle_labels=config.shuffle_labels,
            fold=fold,
            groups=groups,
            loss_scale=loss_scaling(config.loss_scale, dtype),
            clip_order=config.clip_order,
            ties=config.ties,
            eval_dtype=config.eval_dtype if dtype != "float32" else "same",
            shuffle=config.shuffle,
            class_weights=config.class_weights,
            train_rows=budget[0],
            shots=budget[1],
        )
        for attention, head, pool, lr, weight_decay, layers, budget, repeat, fold in product(
            *specs,
            config.pool,
            config.lr,
            config.weight_decay,
            config.layers,
            map(budget_of, config.train_rows),
            range(config.repeats),
            folds or [None],
        )
    ]
    return list(dict.fromkeys(recipe.settled() for recipe in found))


def decoder_spec(recipe: Recipe, cache: EmbeddingCache) -> DecoderSpec:
    """The decoder that a recipe trains on a cache."""
    return DecoderSpec(
        attention=recipe.attention,
        head=recipe.head,
        num_layers=len(recipe.layers or range(cache.num_layers)),
        hidden_size=cache.hidden_size,
        num_classes=len(cache.class_names),
    )


def _why_impossible(spec: DecoderSpec, recipe: Recipe) -> ConfigError | None:
    """Why a decoder cannot be built, or one of other packages not used: before any training."""
    try:
        with on_paper():
            decoder = build_decoder(spec, seed=0)
        check_contract(spec, recipe.loss)
        check_fitted(decoder, spec, recipe.select)
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
        hint="skip-impossible trains those that can" if possible else error.details.get("to do"),
    )


def families_of(items: Sequence[Item]) -> list[list[Item]]:
    """Candidates of one row each; not what is alone."""
    found: dict[str, list[Item]] = {}
    for item in items:
        recipe = item.recipe
        name = family(recipe.to_dict(), str(recipe.attention), str(recipe.head), "")
        found.setdefault(name, []).append(item)
    return [candidates for candidates in found.values() if len(candidates) > 1]


def lacking_seeds(item: Item, asked: Sequence[int], runs: Sequence[RunResult]) -> list[int]:
    """Seeds of an item that no run has."""
    return sorted(set(seeds_of(item, asked)) - {seed for run in runs for seed in run.seeds})
