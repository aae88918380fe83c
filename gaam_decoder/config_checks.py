"""Which settings of a training go together: what has no effect or misleads is refused."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal

from gaam_cache import plugins
from gaam_cache.config_checks import check_at_least, spelled, words
from gaam_cache.errors import ConfigError
from gaam_cache.messages import option_of, shortened
from gaam_decoder.number_lists import PER_CLASS, spell_layers, spell_numbers, spell_size
from gaam_decoder.recipe import NO_TEST
from gaam_decoder.specs import blamed, build, head_class, parse_attention, parse_head, parse_loss

if TYPE_CHECKING:
    from gaam_decoder.config import TrainConfig
    from gaam_decoder.recipe import Dtype

TEST_SPLIT = "test"
TRACKERS = "gaam_decoder.runs.trackers"
MOST_EPOCHS = 1_000_000
MOST_RECIPES = 10_000
"""Of one sweep: a slip of the finger must not fill the memory."""


def loss_scaling(asked: str, dtype: Dtype | Literal["auto"]) -> Literal["none", "dynamic"]:
    """Whether losses are scaled; ``auto``: where gradients could be too small for their type."""
    return "dynamic" if asked == "dynamic" or (asked == "auto" and dtype == "float16") else "none"


def check_together(config: TrainConfig) -> None:
    """Refuse numbers out of their range, and settings that play no part or mislead.

    Raises:
        ConfigError: naming the settings, what must hold and what to do.
    """
    check_at_least(config, 1, "epochs", "batch_size", "seed_batch", "fold", "repeats")
    check_at_least(config, 0, "split_seed")
    check_at_least(config, 2, "folds")
    for name, fits, expected in _ranges(config):
        if not fits:
            raise range_error(config, name, expected, getattr(config, name))
    if config.track not in (known := ["none", *plugins.names(TRACKERS)]):
        raise plugins.unknown("tracker", config.track, known, where="track")
    for wrong, names, problem, expected in _table(config):
        if wrong:
            found = " ".join(_written(config, name) for name in names.split())
            raise ConfigError(problem, expected=expected, found=found)
    if config.tests_on_train and not config.allow_train_as_test:
        raise train_as_test(f"train-split and test-split are both '{config.test_split}'")
    _check_loss(config)
    _check_sweep(config)


def _ranges(config: TrainConfig) -> Iterator[tuple[str, bool, str]]:
    clip, folds = config.clip_grad_norm, config.folds
    yield "epochs", config.epochs <= MOST_EPOCHS, f"at most {MOST_EPOCHS:,}"
    yield "lr", all(0 < lr < math.inf for lr in config.lr), "a positive number"
    yield "clip_grad_norm", clip is None or 0 < clip < math.inf, "a positive number"
    yield "weight_decay", all(0 <= one < math.inf for one in config.weight_decay), ">= 0"
    yield "val_fraction", 0 < config.val_fraction <= 0.5, "more than 0, at most 0.5"
    yield "memory_share", 0 <= config.memory_share <= 1, "0 to 1"
    yield "fold", not folds or (config.fold or 1) <= folds, f"1 to {folds}, the number of --folds"


def _table(config: TrainConfig) -> Iterator[tuple[object, str, str, str]]:
    """Whether something is wrong, with which settings, why, and what must be instead."""
    defaults = {one.name: one.default for one in fields(config)}
    given = {name for name, default in defaults.items() if getattr(config, name) != default}
    untested, one_of = config.test_split == NO_TEST, "one of the two"
    final = "test_split" if untested else "final"
    chooses, folds, draws = config.select == "val", config.folds, config.draws
    scaled = loss_scaling(config.loss_scale, config.dtype) == "dynamic"
    holds_out = "--select val, which holds out a part of train"
    # fmt: off
    yield (config.dtype == "float16" and config.loss_scale == "none", "dtype loss_scale",
           "without loss scaling, float16 loses small gradients and says nothing",
           "no loss-scale, or --dtype bfloat16, which needs none")
    yield (config.clip_order == "clip-first" and not (scaled and config.clip_grad_norm is not None),
           "clip_order loss_scale dtype clip_grad_norm",
           "clip-order=clip-first clips gradients of the scaled loss",
           "--set loss-scale=dynamic and --set clip-grad-norm=NUMBER with it")
    yield (config.ties == "first" and config.select == "last", "ties select",
           "ties plays no part with --select last",
           "--select val or test, which choose an epoch, or ties=loss")
    yield ("fold" in given and not folds, "fold",
           "fold says which of the folds of a cross-validation is tested", "--folds with it")
    yield (config.repeats > 1 and not folds, "repeats",
           "repeats says how often a cross-validation is repeated with other folds",
           "--folds with it; for more seeds: --seeds")
    yield (folds and "test_split" in given, "folds test_split",
           "--folds test on parts of train-split: test-split plays no part",
           "one of the two; --folds with --final adds a model that learns from all rows")
    yield (untested and config.final, "test_split final",
           "--final adds a final model to what is evaluated, and nothing is",
           f"--set test-split={NO_TEST} alone, or --final with --folds or a tested split")
    if untested or config.final:
        yield (config.select == "test", f"{final} select",
               "a final model has no test rows that could choose its epoch",
               f"{holds_out}, or --select last")
        yield (untested and config.allow_train_as_test, "test_split allow_train_as_test",
               "allow-train-as-test is about the rows that are tested, and none are", one_of)
        yield (config.shuffle_labels, f"{final} shuffle_labels",
               "shuffle-labels is a check on test rows, and a final model has none", one_of)
    yield (draws and config.groups is not None, "train_rows groups",
           "rows are drawn one by one, so of every group some, which teach more than whole groups",
           "--groups or --train-rows")
    yield (f"1{PER_CLASS}" in config.train_rows and chooses, "train_rows select",
           "of one row of every class none can be held out to choose the epoch",
           "2/class or more, or --select last, which chooses nothing")
    yield ("val_fraction" in given and not chooses, "val_fraction select",
           f"val-fraction plays no part with --select {config.select}", holds_out)
    yield ("split_seed" in given and not (chooses or folds or draws), "split_seed select",
           f"split-seed plays no part with --select {config.select}",
           f"{holds_out} (or --folds, --train-rows)")
    yield (config.groups is not None and not folds and not chooses, "groups select",
           "--groups says what folds, and the rows that choose, keep together",
           "--folds with it, or --select val")
    if config.tune_seeds is not None:
        both = sorted(set(config.seeds) & set(config.tune_seeds))
        yield (len(config.lr) * len(config.weight_decay) == 1, "tune_seeds lr weight_decay",
               "--tune-seeds have nothing to choose from",
               "several --lr or weight decays: --lr 1e-4,3e-4,1e-3")
        yield (not chooses, "tune_seeds select",
               "--tune-seeds choose by validation accuracy", holds_out)
        yield (both, "tune_seeds seeds", "seeds that choose are not to report as well",
               "--seeds and --tune-seeds without a common seed; without --tune-seeds all seeds "
               "train the whole grid, choose and report")
    # fmt: on


def _written(config: TrainConfig, name: str) -> str:
    """A setting as a person gives it."""
    field = next(one for one in fields(config) if one.name == name)
    value = getattr(config, name)
    if name in ("seeds", "tune_seeds"):
        value = spell_numbers(value)
    elif name == "train_rows":
        value = ",".join(map(spell_size, value))
    return shortened(" ".join(words(field, value)))


def _check_loss(config: TrainConfig) -> None:
    """There is such a loss, and classes can be weighted in it if they are to be."""
    loss = parse_loss(config.loss)
    loss_of = build(loss, "loss")
    if config.class_weights == "none":
        return
    found = _written(config, "class_weights")
    if all(head_class(parse_head(text)).trained_by == "fit" for text in config.head):
        raise ConfigError(
            "class-weights plays no part where heads are fitted at once: their loss is their own",
            expected="a --head that is trained in steps, such as linear",
            found=f"{found} --head {', '.join(config.head)}",
        )
    from gaam_decoder.losses._weighted import is_mean_over_rows

    with blamed(loss, "loss"):
        weighable = is_mean_over_rows(loss_of)
    if not weighable:
        raise ConfigError(
            f"the loss '{loss}' takes no weights: it is no mean over the losses of single rows",
            expected="--set class-weights=none, or another --loss",
            found=f"{found} --loss {loss}",
        )


def _check_sweep(config: TrainConfig) -> None:
    """Something is to be trained, nothing twice, and not too much."""
    axes: dict[str, list[Any]] = {
        "attn": [str(parse_attention(text)) for text in config.attn],
        "head": [str(parse_head(text)) for text in config.head],
        "pool": list(config.pool),
        "lr": list(config.lr),
        "weight_decay": list(config.weight_decay),
        "layers": [spell_layers(layers) for layers in config.layers],
        "train_rows": [spell_size(size) for size in config.train_rows],
    }
    for name, values in axes.items():
        if not values:
            raise ConfigError("nothing to train", expected=f"at least one {option_of(name)}")
        twice, count = Counter(values).most_common(1)[0]
        if count > 1:
            raise ConfigError(f"{option_of(name)} {twice} is given twice")
    count = math.prod(len(values) for values in axes.values())
    count *= config.repeats * (1 if config.fold else config.folds or 1) + config.final
    if count > MOST_RECIPES:
        expected = f"at most {MOST_RECIPES:,} combinations of all lists, folds and repeats"
        raise ConfigError("the sweep is too large", expected=expected, found=f"{count:,}")


def range_error(config: TrainConfig, name: str, expected: str, found: Any) -> ConfigError:
    """A setting has a value that it cannot have."""
    return ConfigError(
        f"{spelled(config, name)} is out of range", expected=expected, found=shortened(str(found))
    )


def train_as_test(found: str) -> ConfigError:
    """The refusal to call the accuracy on the rows that were learned a test accuracy."""
    return ConfigError(
        "the rows to test on are the rows to learn from",
        expected="a split of its own, or --folds, which test on rows that were held out",
        found=found,
        hint="--folds 5, or --set allow-train-as-test=true, which every report marks",
    )
