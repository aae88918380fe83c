"""What a config asks for, row by row: decoders, recipes, and of candidates those that report."""

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from itertools import product
from typing import Any

import torch

from gaam_cache.common.errors import ConfigError, GaamWarning
from gaam_cache.common.messages import did_you_mean, shortened
from gaam_cache.store.reader import EmbeddingCache
from gaam_decoder.config import TrainConfig
from gaam_decoder.decoder import (
    DecoderSpec,
    check_rows_stay_apart,
    shortest,
    spelled_out,
)
from gaam_decoder.number_lists import EACH, PER_CLASS, Layers
from gaam_decoder.recipe import NO_TEST, Dtype, Fold, Groups, Recipe
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import Choice, family, mean_validation
from gaam_decoder.specs import head_class
from gaam_decoder.training.arithmetic.engine import resolve_dtype
from gaam_decoder.training.probe import ATTENTION, HEAD, check_decoder, probe_fits
from gaam_decoder.training.protocol import check_rows, read_groups


@dataclass(frozen=True, kw_only=True, slots=True)
class Item:
    """One decoder under one recipe: a row of the table to be."""

    spec: DecoderSpec
    recipe: Recipe
    key: str

    @property
    def epochs(self) -> int:
        """Of a seed, and lines of its log; of a fit the values that are compared."""
        return (
            head_class(self.spec.head).tries
            if self.recipe.fitted
            else self.recipe.epochs
        )

    def __str__(self) -> str:
        return str(self.recipe)

    @property
    def name(self) -> str:
        """One for all calls that share the key: other seeds may be asked for after a stop."""
        return f"{self.recipe.attention.name}-{self.key[:8]}"

    def seeds(self, asked: Sequence[int]) -> tuple[int, ...]:
        """Seeds that are wanted: of a fit one, since ten would look like ten experiments."""
        return (0,) if self.recipe.fitted else tuple(asked)

    def lacking(self, asked: Sequence[int], runs: Sequence[RunResult]) -> list[int]:
        return sorted(
            set(self.seeds(asked)) - {seed for run in runs for seed in run.seeds}
        )


def plan_items(
    config: TrainConfig, cache: EmbeddingCache, device: torch.device
) -> list[Item]:
    """Everything that a config asks for, in order; ConfigError where it does not fit the cache."""
    usual = torch.get_default_dtype(), torch.get_default_device().type
    if usual != (torch.float32, "cpu") or any(
        map(torch.is_autocast_enabled, ("cpu", "cuda"))
    ):
        expected = (
            "default type torch.float32, no torch.autocast or torch.device around it"
        )
        raise ConfigError("this session would change the numbers", expected=expected)
    config = _fitted(config, cache)
    dtype, groups = resolve_dtype(config.dtype, device), None
    if config.groups is not None:
        groups = read_groups(str(config.groups), cache, config.train_split)
    check_rows(asked := recipes(config, dtype, groups), cache)
    items = list(
        {item.key: item for item in (_item(one, cache) for one in asked)}.values()
    )
    specs, impossible = (
        {item.spec: item for item in reversed(items)},
        set[DecoderSpec](),
    )
    for spec, item in reversed(specs.items()):
        try:
            check_decoder(spec, config.select)
            check_rows_stay_apart(spec)
        except ConfigError as error:
            error.details.setdefault("where", str(item))
            impossible.add(spec)
            if not config.skip_impossible and len(specs) > 1:
                error.details["to do"] = "--set skip-impossible=true trains the others"
            if not config.skip_impossible or len(impossible) == len(specs):
                raise
            text = f"left out: {error.details['where']}: {error.message}"
            warnings.warn(text, GaamWarning, stacklevel=2)
    items = [item for item in items if item.spec not in impossible]
    probes: list[Item] = []
    asked_for = any(spec.name == HEAD.name for spec in config.head)
    # beside what is not evaluated it says nothing
    evaluated = config.select != "last" and config.test_split != NO_TEST
    if config.probe and evaluated and not asked_for:
        only = replace(config, attn=(ATTENTION,), head=(HEAD,), class_weights="none")
        probes = [_item(recipe, cache) for recipe in recipes(only, dtype, groups)]
        first = {item.spec: item.recipe for item in reversed(probes)}
        fits = {
            spec
            for spec, recipe in first.items()
            if probe_fits(spec, recipe, cache, device)
        }
        probes = [item for item in probes if item.spec in fits]
    if not config.final:
        return [*items, *probes]
    # of all folds and repeats of a decoder there is one final model
    finals = dict.fromkeys(
        replace(item.recipe, split_seed=config.split_seed).without_test()
        for item in [*items, *probes]
    )
    return [*items, *probes, *(_item(recipe, cache) for recipe in finals)]


def _item(recipe: Recipe, cache: EmbeddingCache) -> Item:
    if recipe.window is not None:
        recipe = replace(recipe, shard_rows=cache.plan.shard_rows)
    layers, size, same = (
        len(recipe.layers or range(cache.num_layers)),
        cache.hidden_size,
        recipe,
    )
    with suppress(
        ConfigError
    ):  # what cannot be built is told of all of a sweep at once
        same = replace(recipe, attention=shortest(recipe.attention, layers, size))
        recipe = replace(recipe, attention=spelled_out(recipe.attention, layers, size))
    shape = {
        "num_layers": layers,
        "hidden_size": size,
        "num_classes": len(cache.class_names),
    }
    spec = DecoderSpec(attention=recipe.attention, head=recipe.head, **shape)
    return Item(spec=spec, recipe=recipe, key=same.key(cache.plan.states))


def recipes(
    config: TrainConfig, dtype: Dtype, groups: Groups | None = None
) -> list[Recipe]:
    """One per value of every axis, in order; those that mean the same are one."""
    count = config.folds
    numbers = [config.fold] if config.fold else range(1, (count or 0) + 1)
    names = {one.name for one in fields(Recipe)} & {one.name for one in fields(config)}
    asked = config.loss_scale
    scaled = asked == "dynamic" or (asked == "auto" and dtype == "float16")
    usual = {name: getattr(config, name) for name in names} | {
        "dtype": dtype,
        "groups": groups,
        "loss_scale": "dynamic" if scaled else "none",
        "eval_dtype": config.eval_dtype if dtype != "float32" else "same",
        "val_folds": config.val_folds if config.val_folds != 1 else None,
    }
    axes: dict[str, Iterable[Any]] = {
        "attention": config.attn,
        "head": config.head,
        "pool": config.pool,
        "lr": config.rates,
        "weight_decay": config.weight_decay,
        "layers": config.layers,
        "train_rows": config.train_rows,
        "split_seed": range(config.split_seed, config.split_seed + config.repeats),
        "fold": [Fold(number, count) for number in numbers if count] or [None],
    }
    found: dict[Recipe, None] = {}
    for values in product(*axes.values()):
        one = usual | dict(zip(axes, values, strict=True))
        if isinstance(size := one["train_rows"], str):
            one |= {"train_rows": None, "shots": int(size.removesuffix(PER_CLASS))}
        found[Recipe(**one).settled()] = None
    return list(found)


def grids_of(items: Sequence[Item]) -> list[list[Item]]:
    """Items that differ in what is tuned alone, together: candidates of a row, maybe one."""
    found: dict[str, list[Item]] = {}
    for item in items:
        recipe = item.recipe
        name = family(recipe.to_dict(), str(recipe.attention), str(recipe.head), "")
        found.setdefault(name, []).append(item)
    return list(found.values())


def candidates_of(
    items: Sequence[Item], config: TrainConfig, cache: EmbeddingCache
) -> dict[str, Item]:
    """What is trained to choose, by the key of every evaluated item that has others beside it."""
    # every seed that chooses holds out another part of train
    parts, found = config.val_folds or len(config.choosing_seeds or ()), {}
    for grid in grids_of(items):
        for item in (
            grid
            if len(grid) > 1 and not (config.final and grid[0].recipe.final)
            else ()
        ):
            recipe = replace(item.recipe, val_folds=parts)
            found[item.key] = _item(recipe, cache) if parts > 1 else item
    return found


def reporting_items(
    items: Sequence[Item],
    config: TrainConfig,
    tried: Mapping[str, Item],
    tuned: Sequence[RunResult],
    chosen: Choice,
) -> list[Item]:
    """What is trained when the candidates are there: those that were chosen, and what had none.

    ``tried`` has, by the key of every candidate, what was trained to choose. Of final models that
    differ in what is tuned alone, the one of the highest mean validation accuracy over the seeds
    that choose and over folds; of equals that of the lower validation loss, of these the smallest.
    """
    seeds = config.choosing_seeds or ()
    evaluated = [item for item in items if not (config.final and item.recipe.final)]

    def score(final: Item) -> tuple[float, ...]:
        # the final model of the first repeat of a cross-validation is that of all
        split_seed = final.recipe.split_seed
        found = [
            mean_validation(
                [run for run in tuned if run.key == tried[item.key].key], seeds
            )
            for item in evaluated
            if replace(item.recipe, split_seed=split_seed).without_test()
            == final.recipe
        ]
        accuracies = [accuracy for accuracy, _ in found if accuracy is not None]
        if len(accuracies) < len(found):
            return ()
        mean, loss = (
            math.fsum(accuracies) / len(found),
            math.fsum(loss for _, loss in found),
        )
        return mean, -loss, -final.recipe.lr, -final.recipe.weight_decay

    kept = {grid[0].key for grid in grids_of(items) if len(grid) == 1}
    kept |= {key for key, item in tried.items() if item.key in chosen.tunings}
    for grid in grids_of(
        [item for item in items if config.final and item.recipe.final]
    ):
        scores = {item.key: score(item) for item in grid if len(grid) > 1}
        best = max(scores, key=lambda key: scores[key], default="")
        if any(scores.values()):
            kept.add(best)
        elif scores:
            text = f"left out: {grid[0]}: no rate was finished by all of --tune-seeds"
            warnings.warn(text, GaamWarning, stacklevel=2)
    return [item for item in items if item.key in kept]


def _fitted(config: TrainConfig, cache: EmbeddingCache) -> TrainConfig:
    """The config with one spelling of what it asks of a cache, which has it all."""
    train, test, pools = config.train_split, config.test_split, cache.plan.pooling
    tests_a_split = config.folds is None and test != NO_TEST
    labelled = tuple(name for name in cache if name not in cache.unlabelled)
    asked = [("split with labels", train, labelled)]
    asked += [("split with labels", test, labelled)] * tests_a_split
    asked += [("pooling", pool, pools) for pool in config.pool]
    for kind, name, there in asked:
        if name not in there:
            raise ConfigError(
                f"the cache has no {kind} '{shortened(name)}'",
                expected=f"one of: {', '.join(there)}",
                where=str(cache.root),
                hint=did_you_mean(name, there)
                or (
                    "--folds 5 tests on parts of train-split" if name == test else None
                ),
            )
    content = cache.plan.fingerprint_fields["content"]
    same = tests_a_split and content[train] == content[test]
    if same and not config.allow_train_as_test:
        raise ConfigError(
            "the rows to test on are the rows to learn from",
            found=f"the splits '{train}' and '{test}' hold the same rows",
            hint="--folds 5, or --set allow-train-as-test=true, which every report marks",
        )
    layers = range(cache.first_layer, cache.first_layer + cache.num_layers)
    layer_sets = _layer_sets(config, layers)
    if beyond := {layer for one in layer_sets for layer in one or ()} - {*layers}:
        expected = f"--layers from {layers[0]} to {layers[-1]}"
        raise ConfigError(f"the cache has no layer {min(beyond)}", expected=expected)
    if (config.folds or 0) > len(cache[train]):
        expected = f"--folds of at most {len(cache[train])}, the rows that there are"
        raise ConfigError(
            "too many parts of train", expected=expected, found=str(config.folds)
        )
    # folds have fewer rows than all
    rows = len(cache[train]) if config.folds is None else None
    return replace(
        config,
        allow_train_as_test=same,
        pool=config.pool or pools[:1],
        layers=tuple(
            None if len(one or ()) == len(layers) else one for one in layer_sets
        ),
        train_rows=tuple(None if size == rows else size for size in config.train_rows),
    )


def _layer_sets(config: TrainConfig, layers: Sequence[int]) -> list[Layers]:
    """The sets of layers that a config asks for, ``each`` as one set for every layer."""
    layer_sets: list[Layers] = []
    for asked in config.layers:
        if isinstance(asked, str):
            assert asked == EACH
            layer_sets += [(layer,) for layer in layers]
        else:
            layer_sets.append(asked)
    return layer_sets
