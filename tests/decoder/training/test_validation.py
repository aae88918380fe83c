"""Runs keep what their epochs were chosen by."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import gaam_decoder
from gaam_cache import plugins
from gaam_cache.cache import open_cache
from gaam_decoder import TrainConfig, stats
from gaam_decoder.runs.result import VALIDATION_FILE
from gaam_decoder.training.group import kept_logits


@pytest.fixture
def config(tiny_cache: Path, tmp_path: Path) -> TrainConfig:
    return TrainConfig(
        attn=("gaam",), cache=tiny_cache, runs=tmp_path / "runs", seeds=(0, 1), epochs=2, lr=0.01
    )  # fmt: skip


def test_what_is_kept_has_the_accuracy_that_chose(config: TrainConfig) -> None:
    """Of every mechanism and head, folds, drawn rows, final models: the log says the same."""
    everything = tuple(plugins.names("gaam_decoder.attention"))
    some = replace(config, attn=("none", "gaam"))
    for place, one in enumerate(
        (
            replace(config, attn=everything, compile="off"),
            replace(some, head=("conv", "mlp"), seed_batch=1),
            replace(some, folds=2),
            replace(some, test_split="none"),
            replace(some, train_rows="20"),
        )
    ):
        for run in gaam_decoder.train(replace(one, runs=config.runs / str(place))):
            found = run.validation
            assert found is not None
            train = open_cache(config.cache)["train"]
            np.testing.assert_array_equal(train.labels[found.rows], found.labels)
            if run.test_rows is not None:
                assert not set(found.rows) & set(run.test_rows)
            assert run.validation_logits is not None
            for logits_VC, seed in zip(found.logits, run.seeds, strict=True):
                kept = [e for e in run.log if (e["seed"], e["epoch"]) == (seed, run.epochs[seed])]
                accuracy = stats.accuracy(logits_VC.argmax(-1), found.labels)
                assert accuracy == pytest.approx(kept[0]["accuracy"], abs=1e-12)


def test_where_no_rows_of_train_chose_there_is_no_file(config: TrainConfig) -> None:
    plain = replace(config, probe=False)
    for place, one in enumerate(
        (
            replace(plain, select="last"),
            replace(plain, select="test"),
            replace(plain, shuffle_labels=True),
        )
    ):
        for run in gaam_decoder.train(replace(one, runs=config.runs / str(place))):
            assert not (run.path / VALIDATION_FILE).exists()
            assert run.validation is run.validation_logits is run.validation_labels is None


@pytest.mark.parametrize("failed", [None, "lost"])
@pytest.mark.parametrize("value", [0.0, float("inf"), float("nan")])
def test_what_is_not_finite_or_failed_is_kept_as_nan(failed: str | None, value: float) -> None:
    logits_VC = torch.zeros(4, 3)
    logits_VC[2, 1] = value
    found = kept_logits(logits_VC, failed)
    assert bool(found.isnan().all()) == (failed is not None or value != 0)
