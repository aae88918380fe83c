"""Which settings of a training go together: what has no effect or misleads is refused."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal

from gaam_cache import plugins
from gaam_cache.errors import ConfigError
from gaam_cache.settings import Rule, check_at_least, check_rules
from gaam_decoder.number_lists import PER_CLASS, spell_numbers
from gaam_decoder.recipe import NO_TEST
from gaam_decoder.specs import blamed, build, head_class, parse_attention, parse_head, parse_loss

if TYPE_CHECKING:
    from gaam_decoder.config import TrainConfig
    from gaam_decoder.recipe import Dtype

TEST_SPLIT = "test"
TRACKERS = "gaam_decoder.runs.trackers"


def loss_scaling(asked: str, dtype: Dtype | Literal["auto"]) -> Literal["none", "dynamic"]:
    """Whether losses are scaled; ``auto``: where gradients could be too small for their type."""
    return "dynamic" if asked == "dynamic" or (asked == "auto" and dtype == "float16") else "none"


def check_together(config: TrainConfig) -> None:
    """Refuse numbers out of their range, and settings that play no part or mislead.

    Raises:
        ConfigError: naming the settings, what must hold and what to do.
    """
    check_at_least(config, 1, "epochs", "batch_size", "seed_batch", "fold", "repeats", "val_folds")
    check_at_least(config, 0, "split_seed")
    check_at_least(config, 2, "folds")
    if config.track not in (known := ["none", *plugins.names(TRACKERS)]):
        raise plugins.unknown("tracker", config.track, known, where="track")
    check_rules(config, _ranges(config))
    check_rules(config, _together(config))
    same = config.folds is None and config.train_split == config.test_split
    if same and not config.allow_train_as_test:
        raise train_as_test(f"train-split and test-split are both '{config.test_split}'")
    check_rules(config, _loss(config))
    check_rules(config, _sweep(config))


def _ranges(config: TrainConfig) -> Iterator[Rule]:
    clip, folds, out = config.clip_grad_norm, config.folds, "is out of range"
    # fmt: off
    yield "lr", all(0 < lr < math.inf for lr in config.rates), out, "a positive number"
    yield "clip_grad_norm", clip is None or 0 < clip < math.inf, out, "a positive number"
    yield "weight_decay", all(0 <= one < math.inf for one in config.weight_decay), out, ">= 0"
    yield "val_fraction", 0 < config.val_fraction <= 0.5, out, "more than 0, at most 0.5"
    yield "memory_share", 0 <= config.memory_share <= 1, out, "0 to 1"
    yield "fold", not folds or (config.fold or 1) <= folds, out, f"1 to {folds}, as --folds says"
    # fmt: on


def _together(config: TrainConfig) -> Iterator[Rule]:
    untested, one_of = config.test_split == NO_TEST, "one of the two"
    chooses, folds, draws = config.select == "val", config.folds, config.train_rows != (None,)
    scaled = loss_scaling(config.loss_scale, config.dtype) == "dynamic"
    holds_out = "--select val, which holds out a part of train"
    usual = {one.name for one in fields(config) if one.default == getattr(config, one.name)}
    needs: dict[str, tuple[object, str]] = {
        "clip_order": (
            scaled and config.clip_grad_norm is not None,
            "--set loss-scale=dynamic and --set clip-grad-norm=NUMBER",
        ),
        "ties": (config.select != "last", "--select val or test, which choose an epoch"),
        "fold": (folds, "--folds"),
        "repeats": (folds, "--folds; for more seeds: --seeds"),
        "val_fraction": (chooses, holds_out),
        "val_folds": (chooses, holds_out),
        "split_seed": (chooses or folds or draws, f"{holds_out} (or --folds, --train-rows)"),
        "groups": (chooses or folds, "--folds, or --select val"),
    }
    for name, (used, needed) in needs.items():
        yield f"{name} select", name in usual or used, "plays no part without others", needed
    # fmt: off
    yield ("loss_scale dtype", config.dtype != "float16" or config.loss_scale != "none",
           "would lose small gradients of float16, and say nothing",
           "no loss-scale, or --dtype bfloat16, which needs none")
    yield ("test_split folds", "test_split" in usual or not folds,
           "plays no part with --folds, which test on parts of train-split",
           "one of the two; --folds with --final adds a model that learns from all rows")
    yield ("final test_split", not (untested and config.final),
           "adds a final model to what is evaluated, and nothing is",
           f"--set test-split={NO_TEST} alone, or --final with --folds or a tested split")
    if untested or config.final:
        yield ("select final test_split", config.select != "test",
               "needs test rows that choose the epoch, and a final model has none",
               f"{holds_out}, or --select last")
        yield ("allow_train_as_test test_split", not (untested and config.allow_train_as_test),
               "is about the rows that are tested, and none are", one_of)
        yield ("shuffle_labels final test_split", not config.shuffle_labels,
               "is a check on test rows, and a final model has none", one_of)
    yield ("train_rows groups", not draws or config.groups is None,
           "are drawn one by one, of every group some, which teach more than whole groups", one_of)
    yield ("train_rows select", f"1{PER_CLASS}" not in config.train_rows or not chooses,
           f"1{PER_CLASS} leaves no row that could be held out to choose the epoch",
           "2/class or more, or --select last, which chooses nothing")
    if config.tune_seeds is not None:
        both = sorted(set(config.seeds) & set(config.tune_seeds))
        yield ("tune_seeds lr weight_decay", len(config.rates) * len(config.weight_decay) > 1,
               "have nothing to choose from", "several --lr or weight decays: --lr 1e-4,3e-4,1e-3")
        yield "tune_seeds select", chooses, "choose by validation accuracy", holds_out
        parts = {seed % len(config.tune_seeds) for seed in config.tune_seeds}
        yield ("tune_seeds val_folds", config.val_folds or len(parts) == len(config.tune_seeds),
               "would hold out a part of train twice, and another never",
               "consecutive seeds, such as 1000-1002")
        yield ("tune_seeds", not both,
               f"choose, and are not to report as well: {spell_numbers(both)}",
               "--seeds without them; without --tune-seeds all seeds choose and report")
    # fmt: on


def _loss(config: TrainConfig) -> Iterator[Rule]:
    """There is such a loss, and classes can be weighted in it if they are to be."""
    loss = parse_loss(config.loss)
    loss_of = build(loss, "loss")
    if config.class_weights != "none":
        from gaam_decoder.losses._weighted import is_mean_over_rows

        with blamed(loss, "loss"):
            weighable = is_mean_over_rows(loss_of)
        steps = [head_class(parse_head(text)).trained_by != "fit" for text in config.head]
        problem = "plays no part where heads are fitted at once: their loss is their own"
        yield "class_weights head", any(steps), problem, "a --head that is trained in steps"
        problem = "weighs losses of single rows, and this loss is no mean over them"
        yield "class_weights loss", weighable, problem, "another --loss"


def _sweep(config: TrainConfig) -> Iterator[Rule]:
    """Something is to be trained, and nothing twice."""
    names = ("attn", "head", "pool", "weight_decay", "layers", "train_rows")
    axes: dict[str, list[Any]] = {name: list(getattr(config, name)) for name in names}
    axes["lr"] = list(config.rates)
    axes["attn"] = [str(parse_attention(text)) for text in config.attn]
    axes["head"] = [str(parse_head(text)) for text in config.head]
    for name, values in axes.items():
        yield name, values, "is empty: nothing to train", "at least one"
        twice, count = Counter(values).most_common(1)[0]
        yield name, count == 1, f"{'all' if twice is None else twice} is given twice", "each once"


def train_as_test(found: str) -> ConfigError:
    """The refusal to call the accuracy on the rows that were learned a test accuracy."""
    return ConfigError(
        "the rows to test on are the rows to learn from",
        expected="a split of its own, or --folds, which test on rows that were held out",
        found=found,
        hint="--folds 5, or --set allow-train-as-test=true, which every report marks",
    )
