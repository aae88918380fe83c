"""Whether a config fits the cache and the session, and what it leaves open filled in from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from gaam_cache.cache import EmbeddingCache
from gaam_cache.errors import ConfigError
from gaam_cache.messages import nearest, shortened
from gaam_decoder.config import TrainConfig
from gaam_decoder.config_checks import train_as_test
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.recipe import NO_TEST


def fitted(config: TrainConfig, cache: EmbeddingCache) -> TrainConfig:
    """The config with one spelling of what it asks of a cache.

    Raises:
        ConfigError: the cache does not have it.
    """
    config = _check_splits(config, cache)
    config = _check_pools(config, cache)
    return _all_rows(_check_layers(config, cache), cache)


def check_session() -> None:
    """Nothing that a program set in torch may change the numbers.

    Raises:
        ConfigError: something would.
    """
    kinds = ("cpu", "cuda", "mps")
    found = {
        "a default type of torch.float32": torch.get_default_dtype() == torch.float32,
        "no torch.autocast around it": not any(map(torch.is_autocast_enabled, kinds)),
        "no torch.device around it": torch.get_default_device().type == "cpu",
    }
    for expected, holds in found.items():
        if not holds:
            raise ConfigError("this session would change the numbers", expected=expected)


def _check_splits(config: TrainConfig, cache: EmbeddingCache) -> TrainConfig:
    """The config, in which training rows are allowed as test rows only where they are.

    Raises:
        ConfigError: the cache has no such split, or rows to test on are those to learn from.
    """
    final = config.test_split == NO_TEST
    if NO_TEST in cache and (final or config.final):
        raise _ambiguous(config, cache)
    tests_a_split = config.folds is None and not final
    named = {"train-split": config.train_split}
    if tests_a_split:
        named["test-split"] = config.test_split
    for option, split in named.items():
        if split not in cache:
            (only, *others) = cache
            alone = tests_a_split and not others
            raise _not_there(
                "split",
                option,
                split,
                cache,
                tuple(cache),
                f"--set train-split={only} --folds 5 tests on parts of it" if alone else None,
            )
        if split in cache.unlabelled:
            raise _unlabelled(option, split, cache)
    content = cache.plan.fingerprint_fields["content"]
    same = tests_a_split and content[config.train_split] == content[config.test_split]
    if same and not config.allow_train_as_test:
        raise train_as_test(
            f"the splits '{config.train_split}' and '{config.test_split}' hold the same rows"
        )
    return replace(config, allow_train_as_test=same)


def _ambiguous(config: TrainConfig, cache: EmbeddingCache) -> ConfigError:
    """The refusal to test nothing where a split has the name that says so."""
    asked = "--final" if config.final else f"--set test-split={NO_TEST}"
    return ConfigError(
        f"the cache has a split '{NO_TEST}', which means no split: a final model would be taken "
        "for one that was tested on it",
        expected=f"a cache without a split '{NO_TEST}'",
        found=asked,
        where=str(cache.root.absolute()),
        hint="gaam extract it under another name; or --folds 5, which tests on parts of train"
        if not config.final
        else "leave --final out, or gaam extract the split under another name",
    )


def _unlabelled(option: str, split: str, cache: EmbeddingCache) -> ConfigError:
    """The refusal to learn from, or report on, rows of which nobody knows the class."""
    others = [name for name in cache if name not in cache.unlabelled]
    is_test = option == "test-split"
    hint = f"{option} {others[-1]}" if others else None
    if is_test:
        hint = "--folds 5, which tests on parts of train-split, or a test-split with labels"
    return ConfigError(
        f"the split '{shortened(split)}' has no labels: nothing can be "
        + ("reported on it" if is_test else "learned from it"),
        expected=f"a split with labels: {', '.join(others) or 'the cache has none'}",
        found=f"{option} {shortened(split)}",
        where=str(cache.root.absolute()),
        hint=hint,
    )


def _check_pools(config: TrainConfig, cache: EmbeddingCache) -> TrainConfig:
    """The config, in which naming the first pooling is the same as naming none.

    Raises:
        ConfigError: the cache has no such pooling, or one is named twice.
    """
    there = cache.plan.pooling
    for pool in config.pool:
        if pool is not None and pool not in there:
            raise _not_there("pooling", "--pool", pool, cache, there)
    return replace(config, pool=tuple(pool or there[0] for pool in config.pool))


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


def _all_rows(config: TrainConfig, cache: EmbeddingCache) -> TrainConfig:
    """The config, in which the number of all rows is the same as all; folds have fewer."""
    count = len(cache[config.train_split])
    if config.folds is not None or count not in config.train_rows:
        return config
    return replace(
        config, train_rows=tuple(None if size == count else size for size in config.train_rows)
    )


def _check_layers(config: TrainConfig, cache: EmbeddingCache) -> TrainConfig:
    """The config, in which naming all layers is the same as naming none.

    Raises:
        ConfigError: the encoder has no such layer, or two sets turn out to be the same.
    """
    sets, num_layers, first = config.layers, cache.num_layers, cache.first_layer
    there = range(first, first + num_layers)
    beyond = sorted({layer for one in sets for layer in one or () if layer not in there})
    if beyond:
        raise ConfigError(
            "the encoder of the cache has no such layer",
            expected=f"--layers from {there[0]} to {there[-1]}",
            found=spell_numbers(beyond),
            where=str(config.cache.absolute()),
            hint="gaam extract --set layer-zero=true keeps layer 0, what the first one reads"
            if beyond == [0]
            else None,
        )
    return replace(
        config, layers=tuple(None if len(one or ()) == num_layers else one for one in sets)
    )
