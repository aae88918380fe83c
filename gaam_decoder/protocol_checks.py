"""What is tested on what: which settings of a protocol go together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from gaam_cache.config_checks import spelled
from gaam_cache.errors import ConfigError
from gaam_cache.messages import shortened
from gaam_decoder.config_checks import range_error
from gaam_decoder.number_lists import PER_CLASS, spell_size
from gaam_decoder.recipe import NO_TEST

if TYPE_CHECKING:
    from gaam_decoder.config import TrainConfig

TEST_SPLIT = "test"


def check_protocol(config: TrainConfig, defaults: Mapping[str, Any]) -> None:
    """What is tested on what.

    Raises:
        ConfigError: an option that plays no part, or an answer that would mislead.
    """
    if config.fold is not None and config.folds is None:
        raise ConfigError(
            "fold says which of the folds of a cross-validation is tested",
            expected="--folds with it",
            found=f"--set fold={config.fold} alone",
            hint=f"--folds 5 --set fold={min(config.fold, 5)}, or leave fold out",
        )
    if config.repeats > 1 and config.folds is None:
        raise ConfigError(
            "repeats says how often a cross-validation is repeated with other folds",
            expected="--folds with it",
            found=f"--set repeats={config.repeats} alone",
            hint=f"--folds 5 --set repeats={config.repeats}; for more seeds: --seeds",
        )
    if config.fold is not None and config.folds is not None and config.fold > config.folds:
        raise range_error(
            config, "fold", f"1 to {config.folds}, the number of --folds", config.fold
        )
    if config.folds is not None and config.test_split != TEST_SPLIT:
        raise ConfigError(
            "--folds test on parts of train-split: test-split plays no part",
            expected="one of the two",
            found=f"--folds {config.folds} and --set test-split={shortened(config.test_split)}",
            hint="--folds with --final, which adds a model that learns from all rows"
            if config.test_split == NO_TEST
            else f"leave test-split out (where a file sets it: --set test-split={TEST_SPLIT})",
        )
    check_final(config)
    check_budgets(config)
    decides = config.folds is not None or config.draws
    for option, chooses in (("val_fraction", False), ("split_seed", decides)):
        given = getattr(config, option)
        if config.select != "val" and not chooses and given != defaults[option]:
            raise ConfigError(
                f"{spelled(config, option)} plays no part with --select {config.select}",
                expected="--select val, which holds out a part of train"
                + (" (or --folds, --train-rows)" if option == "split_seed" else ""),
                found=f"{spelled(config, option)} {given}",
                hint=f"leave {spelled(config, option)} out",
            )
    if config.groups is not None and config.folds is None and config.select != "val":
        raise ConfigError(
            "--groups says what folds, and the rows that choose, keep together",
            expected="--folds with it, or --select val",
            found=f"--groups {shortened(str(config.groups))} --select {config.select}",
        )
    if config.tests_on_train and not config.allow_train_as_test:
        raise train_as_test(f"train-split and test-split are both '{config.test_split}'")


def check_budgets(config: TrainConfig) -> None:
    """What is to be learned from some of the training rows can be.

    Raises:
        ConfigError: it cannot, or would say less than it seems to.
    """
    if not config.draws:
        return
    found = f"--train-rows {','.join(map(spell_size, config.sizes))}"
    if config.groups is not None:
        raise ConfigError(
            "rows are drawn one by one, so of almost every group some, which teach more than as "
            "many rows of few groups",
            expected="--groups or --train-rows",
            found=f"{found} and --groups {shortened(str(config.groups))}",
        )
    if f"1{PER_CLASS}" in config.sizes and config.select == "val":
        raise ConfigError(
            "of one row of every class none can be held out to choose the epoch",
            expected="2/class or more, or --select last, which chooses nothing",
            found=f"{found} --select val",
            hint="--select last for all of them, so that they can be compared",
        )


def check_final(config: TrainConfig) -> None:
    """What a final model asks for goes without test rows.

    Raises:
        ConfigError: it does not.
    """
    alone = config.test_split == NO_TEST
    if not (alone or config.final):
        return
    found = f"--set test-split={NO_TEST}" if alone else "--final"
    if alone and config.final:
        raise ConfigError(
            "--final adds a final model to what is evaluated, and nothing is",
            expected="one of the two",
            found=f"--set test-split={NO_TEST} --final",
            hint=f"--set test-split={NO_TEST} alone, or --final with --folds or a tested split",
        )
    if config.select == "test":
        raise ConfigError(
            "a final model has no test rows that could choose its epoch",
            expected="--select val, which holds out a part of train, or --select last",
            found=f"{found} --select test",
        )
    if alone and config.allow_train_as_test:
        raise ConfigError(
            "allow-train-as-test is about the rows that are tested, and none are",
            expected="one of the two",
            found=f"{found} --set allow-train-as-test=true",
        )
    if config.shuffle_labels:
        raise ConfigError(
            "shuffle-labels is a check on test rows, and a final model has none",
            expected="one of the two",
            found=f"{found} --set shuffle-labels=true",
        )


def train_as_test(found: str) -> ConfigError:
    """The refusal to call the accuracy on the rows that were learned a test accuracy."""
    return ConfigError(
        "the rows to test on are the rows to learn from",
        expected="a split of its own, or --folds, which test on rows that were held out",
        found=found,
        hint="--folds 5, or --set allow-train-as-test=true, which every report marks",
    )
