"""What is refused because its answer would mislead, and what is said of what failed."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import gaam_cache
import gaam_decoder
from gaam_cache.common.errors import ConfigError, GaamWarning, NumericsError
from gaam_cache.config import ExtractConfig
from gaam_decoder import TrainConfig
from tests.conftest import Outcome, random_rows, write_csv

Gaam = Callable[..., Outcome]


@pytest.fixture
def config(tiny_cache: Path, tmp_path: Path) -> TrainConfig:
    return TrainConfig(
        lr=3e-4,
        cache=tiny_cache,
        runs=tmp_path / "runs",
        attn=("none",),
        seeds=(0, 1),
        epochs=1,
        compile="off",
        probe=False,
    )


def test_the_same_rows_under_another_name_are_the_same_rows(
    encoders: dict[str, Path], tmp_path: Path, config: TrainConfig
) -> None:
    first = write_csv(tmp_path / "d" / "train.csv", random_rows(20, 1))
    (tmp_path / "d" / "test.csv").write_bytes(first.read_bytes())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gaam_cache.extract(
            ExtractConfig(
                encoder=str(encoders["bert"]),
                dataset=str(tmp_path / "d"),
                out=tmp_path / "c",
            )
        )
    config = replace(config, cache=tmp_path / "c")
    for work in (gaam_decoder.estimate, gaam_decoder.train):
        with pytest.raises(
            ConfigError, match=r"'train' and 'test'(.|\n)*--set allow-train"
        ):
            work(config)
    (run,) = gaam_decoder.train(replace(config, allow_train_as_test=True))
    assert run.recipe.allow_train_as_test is True
    assert len(gaam_decoder.train(replace(config, folds=2))) == 2


IMPOSSIBLE = [
    (
        {"attn": ("gaam:heads=3", "none"), "layers": ((1, 2, 3, 4), None)},
        1,
        4,
        "gaam:heads=3",
    ),
    ({"attn": ("gaam:heads=4", "gaam:heads=5", "none")}, 2, 3, "gaam:heads=4"),
]


@pytest.mark.parametrize(("axes", "impossible", "total", "name"), IMPOSSIBLE)
def test_what_cannot_be_built_is_named_and_left_out_only_if_asked(
    axes: dict, impossible: int, total: int, name: str, config: TrainConfig
) -> None:
    config = replace(config, **axes)
    for work in (gaam_decoder.estimate, gaam_decoder.train):
        with pytest.raises(ConfigError, match=rf"{name}(.|\n)*skip-impossible"):
            work(config)
    assert not config.runs.exists()
    with pytest.warns(GaamWarning, match=name):
        runs = gaam_decoder.train(replace(config, skip_impossible=True))
    assert len(runs) == total - impossible


def test_a_training_of_which_every_seed_fails_fails(
    gaam: Gaam, tiny_cache: Path, tmp_path: Path
) -> None:
    options = ["--cache", tiny_cache, "--runs", tmp_path / "r", "--epochs", 2]
    options += [
        "--attn",
        "mha",
        "--lr",
        "0.01",
        "--lr",
        "1e30",
        "--set",
        "weight-decay=0",
    ]
    outcome = gaam("train", *options, "--seeds", 2, "--no-probe", "--json")
    assert outcome.code == 1, outcome
    refusal = outcome.err.partition("error: ")[2]
    assert "mha + linear, pool mean, lr 1e+30, weight decay 0" in refusal
    assert "lr 0.01" not in refusal
    runs = json.loads(outcome.out)  # all was trained and is kept
    assert len(runs) == 2
    assert len(list((tmp_path / "r").iterdir())) == 2
    assert gaam("report", tmp_path / "r").code == 0


def test_some_seeds_that_fail_are_a_warning(config: TrainConfig) -> None:
    (run,) = gaam_decoder.train(config)
    partly = replace(run, failed={1: "a reason"})
    with pytest.warns(GaamWarning, match=r"none.* 1 of 2 .*seed 1: a reason"):
        gaam_decoder.check_failures([partly], (0, 1))
    with pytest.raises(NumericsError, match=r"none.*a reason(.|\n)*--lr"):
        gaam_decoder.check_failures([partly], (1,))  # all that were asked for
    # of two runs that hold a seed the first counts
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        gaam_decoder.check_failures([run, partly], (0, 1))
        gaam_decoder.check_failures([run], (0, 1))
