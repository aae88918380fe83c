"""Which settings of a training go together: what has no effect or misleads is refused."""

from __future__ import annotations

import math
import typing
from collections import Counter
from typing import TYPE_CHECKING, Any, Literal

from gaam_cache import plugins
from gaam_cache.config_checks import check_at_least, spelled
from gaam_cache.errors import ConfigError
from gaam_cache.messages import option_of
from gaam_decoder.number_lists import spell_layers, spell_numbers, spell_size
from gaam_decoder.specs import blamed, build, head_class, parse_attention, parse_head, parse_loss

if TYPE_CHECKING:
    from gaam_decoder.config import TrainConfig
    from gaam_decoder.recipe import Dtype

MOST_EPOCHS = 1_000_000
TRACKERS = "gaam_decoder.runs.trackers"
MOST_RECIPES = 10_000
"""Of one sweep: a slip of the finger must not fill the memory."""


def loss_scaling(asked: str, dtype: Dtype | Literal["auto"]) -> Literal["none", "dynamic"]:
    """Whether losses are scaled; ``auto``: where gradients could be too small for their type."""
    return "dynamic" if asked == "dynamic" or (asked == "auto" and dtype == "float16") else "none"


def check_ranges(config: TrainConfig) -> None:
    """Every number is one that it can be.

    Raises:
        ConfigError: one is not.
    """
    check_at_least(config, 1, "epochs", "batch_size", "seed_batch", "fold", "repeats")
    check_at_least(config, 0, "split_seed")
    if config.epochs > MOST_EPOCHS:
        raise range_error(config, "epochs", f"at most {MOST_EPOCHS:,}", config.epochs)
    check_at_least(config, 2, "folds")
    positive: list[tuple[str, float | None]] = [("lr", lr) for lr in config.lrs]
    for name, value in [*positive, ("clip_grad_norm", config.clip_grad_norm)]:
        if value is not None and not 0 < value < float("inf"):
            raise range_error(config, name, "a positive number", value)
    for decay in config.weight_decays:
        if not 0 <= decay < float("inf"):
            raise range_error(config, "weight_decay", ">= 0", decay)
    if not 0 < config.val_fraction <= 0.5:
        raise range_error(config, "val_fraction", "more than 0, at most 0.5", config.val_fraction)
    if not 0 <= config.memory_share <= 1:
        raise range_error(config, "memory_share", "0 to 1", config.memory_share)


def check_choices(config: TrainConfig) -> None:
    """Every option with a list of words has one of them.

    Raises:
        ConfigError: another word.
    """
    for name, hint in typing.get_type_hints(type(config)).items():
        words, given = typing.get_args(hint), getattr(config, name)
        if typing.get_origin(hint) is Literal and given not in words:
            raise range_error(config, name, f"one of: {', '.join(words)}", given)
    if config.track not in (known := ["none", *plugins.names(TRACKERS)]):
        raise plugins.unknown("tracker", config.track, known, where="track")


def check_precision(config: TrainConfig) -> None:
    """How numbers are rounded, and what is done about it.

    Raises:
        ConfigError: what would lose gradients silently, or has no effect.
    """
    if config.dtype == "float16" and config.loss_scale == "none":
        raise ConfigError(
            "without loss scaling, float16 loses small gradients and says nothing",
            expected="--set loss-scale=dynamic, or another --dtype",
            found="--dtype float16 --set loss-scale=none",
            hint="leave loss-scale out, or --dtype bfloat16, which needs none",
        )
    lacking = {
        "--set loss-scale=dynamic": loss_scaling(config.loss_scale, config.dtype) == "none",
        "clip-grad-norm": config.clip_grad_norm is None,
    }
    if config.clip_order == "clip-first" and any(lacking.values()):
        raise ConfigError(
            "--set clip-order=clip-first clips gradients of the scaled loss",
            expected=" and ".join(one for one, lacks in lacking.items() if lacks) + " with it",
            found=f"--set clip-order=clip-first, --set loss-scale={config.loss_scale}, "
            f"--dtype {config.dtype}, --set clip-grad-norm={config.clip_grad_norm}",
            hint="leave clip-order out (where a file sets it: --set clip-order=unscale-first)",
        )
    if config.ties == "first" and config.select == "last":
        raise ConfigError(
            "ties plays no part with --select last",
            expected="--select val or test, which choose an epoch",
            found="--set ties=first",
            hint="leave ties out (where a file sets it: --set ties=loss)",
        )


def check_loss(config: TrainConfig) -> None:
    """There is such a loss, and classes can be weighted in it if they are to be.

    Raises:
        ConfigError: it is unknown or takes no weights, or nothing is trained by it.
    """
    loss = parse_loss(config.loss)
    loss_of = build(loss, "loss")
    if config.class_weights == "none":
        return
    found = f"--set class-weights={config.class_weights}"
    if all(head_class(parse_head(text)).trained_by == "fit" for text in config.heads):
        raise ConfigError(
            "class-weights plays no part where heads are fitted at once: their loss is their own",
            expected="a --head that is trained in steps, such as linear",
            found=f"{found}, --head {', '.join(config.heads)}",
            hint="leave class-weights out (where a file sets it: --set class-weights=none)",
        )
    from gaam_decoder.losses._weighted import is_mean_over_rows

    with blamed(loss, "loss"):
        weighable = is_mean_over_rows(loss_of)
    if not weighable:
        raise ConfigError(
            f"the loss '{loss}' takes no weights: it is no mean over the losses of single rows",
            expected="--set class-weights=none, or another --loss",
            found=f"{found}, --loss {loss}",
        )


def _axes(config: TrainConfig) -> dict[str, list[Any]]:
    """What a sweep varies, each in one spelling, by option."""
    try:
        sets, pools = config.layer_sets, config.pools
    except (TypeError, ValueError) as error:
        raise range_error(config, "layers", str(error), config.layers) from None
    return {
        "attn": [str(parse_attention(text)) for text in config.attn],
        "head": [str(parse_head(text)) for text in config.heads],
        "pool": list(pools),
        "lr": list(config.lrs),
        "weight_decay": list(config.weight_decays),
        "layers": [spell_layers(layers) for layers in sets],
        "train_rows": [spell_size(size) for size in config.sizes],
    }


def check_sweep(config: TrainConfig) -> None:
    """Something is to be trained, nothing twice, and not too much.

    Raises:
        ConfigError: one of the three is not so.
    """
    if not config.seeds:
        raise ConfigError("nothing to train", expected="at least one seed: --seeds")
    axes = _axes(config)
    for name, values in axes.items():
        if not values:
            raise ConfigError("nothing to train", expected=f"at least one {option_of(name)}")
        twice, count = Counter(values).most_common(1)[0]
        if count > 1:
            raise ConfigError(f"{option_of(name)} {twice} is given twice")
    count = math.prod(len(values) for values in axes.values())
    count *= config.repeats * (1 if config.fold else config.folds or 1) + config.final
    if count > MOST_RECIPES:
        raise ConfigError(
            "the sweep is too large",
            expected=f"at most {MOST_RECIPES:,} combinations of --attn, --head, --pool, --lr, "
            "--set weight-decay, --layers, --train-rows, --folds and repeats, with --final "
            "one more of each",
            found=f"{count:,}",
        )


def check_tuning(config: TrainConfig) -> None:
    """Seeds that choose have something to choose from, something to go by, and do not report.

    Raises:
        ConfigError: one of the three is not so.
    """
    if config.tune_seeds is None:
        return
    found = f"--tune-seeds {spell_numbers(config.tune_seeds)}"
    if len(config.lrs) * len(config.weight_decays) == 1:
        raise ConfigError(
            "--tune-seeds have nothing to choose from",
            expected="several --lr or weight decays: --lr 1e-4,3e-4,1e-3",
            found=f"{found} and one of each",
        )
    if config.select != "val":
        raise ConfigError(
            "--tune-seeds choose by validation accuracy",
            expected="--select val, which holds out a part of train",
            found=f"{found} and --select {config.select}",
        )
    if both := sorted(set(config.seeds) & set(config.tune_seeds)):
        raise ConfigError(
            "seeds that choose are not to report as well",
            expected="--seeds and --tune-seeds without a common seed",
            found=f"{found}, --seeds {spell_numbers(config.seeds)}",
            hint=f"--seeds {both[-1] + 1}-{both[-1] + len(config.seeds)}; or without "
            "--tune-seeds, where all seeds train the whole grid, choose and report",
        )


def range_error(config: TrainConfig, name: str, expected: str, found: Any) -> ConfigError:
    """A setting has a value that it cannot have."""
    return ConfigError(
        f"{spelled(config, name)} is out of range", expected=expected, found=str(found)
    )
