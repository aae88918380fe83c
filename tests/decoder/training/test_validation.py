"""Runs keep what their epochs were chosen by."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import gaam_decoder
from gaam_cache import plugins
from gaam_cache.cache import open_cache
from gaam_cache.errors import CacheError
from gaam_decoder import RunResult, TrainConfig, stats
from gaam_decoder.runs.listing import verify
from gaam_decoder.runs.result import VALIDATION_FILE, read_run
from gaam_decoder.training.train_group import kept_logits


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


@pytest.fixture(scope="module")
def trained(
    tiny_cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> RunResult:  # fmt: skip
    (run,) = gaam_decoder.train(
        TrainConfig(
            attn=("gaam",),
            cache=tiny_cache,
            runs=tmp_path_factory.mktemp("validation"),
            seeds=(0, 1),
            epochs=1,
            probe=False,
        )
    )
    return run


def test_tampering_is_damage(trained: RunResult, tmp_path: Path) -> None:
    content = (trained.path / VALIDATION_FILE).read_bytes()
    rng = np.random.default_rng(0)
    for place in [0, len(content) - 1, *rng.integers(0, len(content), 8)]:
        copy = shutil.copytree(trained.path, tmp_path / str(place), dirs_exist_ok=True)
        flipped = bytearray(content)
        flipped[place] ^= 1
        (copy / VALIDATION_FILE).write_bytes(flipped)
        with pytest.raises(CacheError, match="damaged"):
            _ = read_run(copy).validation
        assert not verify(copy).good
    for shorter in (b"", content[:-1]):
        (copy / VALIDATION_FILE).write_bytes(shorter)
        with pytest.raises(CacheError, match="bytes"):
            read_run(copy)
    (copy / VALIDATION_FILE).unlink()
    with pytest.raises(CacheError, match="damaged"):
        read_run(copy)


def test_finished_seeds_of_unfinished_work_keep_them(config: TrainConfig, tmp_path: Path) -> None:
    """A training that ends before it publishes, then goes on: the same bytes."""
    from unittest.mock import patch

    one = replace(config, seed_batch=1, probe=False)
    (whole,) = gaam_decoder.train(replace(one, runs=tmp_path / "whole"))
    with (
        patch("gaam_decoder.training.train_item.publish", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        gaam_decoder.train(one)
    with patch("gaam_decoder.training.seed_groups.train_group", side_effect=AssertionError):
        (resumed,) = gaam_decoder.train(one)  # from what is kept of the seeds alone
    content = (whole.path / VALIDATION_FILE).read_bytes()
    assert (resumed.path / VALIDATION_FILE).read_bytes() == content


@pytest.mark.parametrize("failed", [None, "lost"])
@pytest.mark.parametrize("value", [0.0, float("inf"), float("nan")])
def test_what_is_not_finite_or_failed_is_kept_as_nan(failed: str | None, value: float) -> None:
    logits_VC = torch.zeros(4, 3)
    logits_VC[2, 1] = value
    found = kept_logits(logits_VC, failed)
    assert bool(found.isnan().all()) == (failed is not None or value != 0)
