"""What is refused because its answer would mislead, and the messages of failures."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import gaam_cache
import gaam_decoder
from gaam_cache.common.errors import ConfigError, GaamWarning, NumericsError
from gaam_cache.config import ExtractConfig
from gaam_decoder import TrainConfig
from tests.conftest import Outcome, random_rows, write_csv
from tests.decoder.configs import change, train_config, train_single_run


@pytest.fixture
def config(tiny_cache: Path, tmp_path: Path) -> TrainConfig:
    return train_config(
        tiny_cache,
        tmp_path / "runs",
        lr=3e-4,
        attn=("none",),
        seeds=(0, 1),
        epochs=1,
        compile="off",
    )


def test_the_same_rows_under_another_name_are_the_same_rows(
    encoders: dict[str, Path], tmp_path: Path, config: TrainConfig
) -> None:
    dataset = tmp_path / "dataset"
    train_file = write_csv(dataset / "train.csv", random_rows(20, 1))
    (dataset / "test.csv").write_bytes(train_file.read_bytes())
    cache = tmp_path / "cache"
    extraction = ExtractConfig(
        encoder=str(encoders["bert"]), dataset=str(dataset), out=cache
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gaam_cache.extract(extraction)
    config = change(config, cache=cache)
    message = r"'train' and 'test'(.|\n)*--set allow-train"
    with pytest.raises(ConfigError, match=message):
        gaam_decoder.estimate(config)
    with pytest.raises(ConfigError, match=message):
        gaam_decoder.train(config)
    run = train_single_run(config, allow_train_as_test=True)
    assert run.recipe.allow_train_as_test is True
    assert len(gaam_decoder.train(change(config, folds=2))) == 2


HEADS_3: dict[str, Any] = {
    "attn": ("gaam:heads=3", "none"),
    "layers": ((1, 2, 3, 4), None),
}
HEADS_4_AND_5: dict[str, Any] = {"attn": ("gaam:heads=4", "gaam:heads=5", "none")}


@pytest.mark.parametrize(
    ("settings", "num_possible", "impossible"),
    [
        pytest.param(HEADS_3, 3, "gaam:heads=3", id="with some layers"),
        pytest.param(HEADS_4_AND_5, 1, "gaam:heads=4", id="with any layers"),
    ],
)
def test_what_cannot_be_built_is_named_and_left_out_only_if_asked(
    settings: dict[str, Any], num_possible: int, impossible: str, config: TrainConfig
) -> None:
    config = change(config, **settings)
    message = rf"{impossible}(.|\n)*skip-impossible"
    with pytest.raises(ConfigError, match=message):
        gaam_decoder.estimate(config)
    with pytest.raises(ConfigError, match=message):
        gaam_decoder.train(config)
    assert not config.runs.exists()
    with pytest.warns(GaamWarning, match=impossible):
        runs = gaam_decoder.train(change(config, skip_impossible=True))
    assert len(runs) == num_possible


def test_a_training_of_which_every_seed_fails_fails(
    gaam: Callable[..., Outcome], tiny_cache: Path, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    outcome = gaam(
        *("train", "--cache", tiny_cache, "--runs", runs, "--attn", "mha"),
        *("--lr", "0.01", "--lr", "1e30", "--set", "weight-decay=0"),
        *("--epochs", 2, "--seeds", 2, "--no-probe", "--json"),
    )
    assert outcome.code == 1, outcome
    refusal = outcome.err.partition("error: ")[2]
    assert "mha + linear, pool mean, lr 1e+30, weight decay 0" in refusal
    assert "lr 0.01" not in refusal
    # all was trained and is kept
    assert len(json.loads(outcome.out)) == 2
    assert len(list(runs.iterdir())) == 2
    assert gaam("report", runs).code == 0


def test_some_seeds_that_fail_are_a_warning(config: TrainConfig) -> None:
    run = train_single_run(config)
    partly_failed = replace(run, failed={1: "a reason"})
    with pytest.warns(GaamWarning, match=r"none.* 1 of 2 .*seed 1: a reason"):
        gaam_decoder.check_failures([partly_failed], (0, 1))
    # no seed that was asked for is left
    with pytest.raises(NumericsError, match=r"none.*a reason(.|\n)*--lr"):
        gaam_decoder.check_failures([partly_failed], (1,))
    # of two runs that have a seed the first counts
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gaam_decoder.check_failures([run, partly_failed], (0, 1))
        gaam_decoder.check_failures([run], (0, 1))
