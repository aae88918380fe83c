"""Runs keep what their epochs were chosen by."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

import gaam_decoder
from gaam_cache import plugins
from gaam_cache.cache import open_cache
from gaam_cache.errors import CacheError
from gaam_decoder import RunResult, TrainConfig, stats
from gaam_decoder.runs.run_checks import VALIDATION_FILE
from gaam_decoder.runs.run_reader import read_run
from gaam_decoder.runs.tensor_files import tensor_parts
from gaam_decoder.runs.verify import check_run, verify
from gaam_decoder.training.train_group import kept_logits
from gaam_decoder.use.load import temperatures_of
from tests.decoder.runs.test_runs import of, poke, rewrite


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
            check_run(run)


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
            check_run(run)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (of("labels", poke(99, 1)), "labels from 0 to 99"),
        (of("labels", poke(-1, 1)), "labels from -1"),
        (of("labels", lambda a: a[:-1]), "no lists of the same length"),
        (of("labels", lambda a: a.astype(np.float32)), "no lists"),
        (of("rows", lambda a: a[::-1].copy()), "no ascending rows"),
        (of("rows", poke(10**6, -1)), "no ascending rows"),
        (of("rows", poke(-1, 0)), "no ascending rows"),
        (of("logits", poke(np.nan, 1, 1, 0)), "not finite"),
        (of("logits", poke(np.inf, 1, 1, 0)), "not finite"),
        (of("logits", lambda a: a[:1]), "logits are float32"),
        (of("logits", lambda a: a[:, :-1]), "logits are float32"),
        (of("logits", lambda a: a[..., :1]), "logits are float32"),
        (of("logits", lambda a: a.astype(np.float64)), "logits are float64"),
        (lambda arrays: arrays.pop("logits"), "no tensor 'logits'"),
        (lambda arrays: arrays.pop("labels"), "no tensor 'labels'"),
        (lambda arrays: arrays.pop("rows"), "no tensor 'rows'"),
    ],
)
def test_a_file_that_is_whole_and_wrong_is_refused(
    change: Callable[[dict[str, Any]], Any], message: str, trained: RunResult, tmp_path: Path
) -> None:
    copy = shutil.copytree(trained.path, tmp_path / trained.path.name)
    arrays = load_file(copy / VALIDATION_FILE)
    change(arrays)
    content = b"".join(tensor_parts(arrays, {"seeds": "[0, 1]"}))
    wrong = rewrite(read_run(copy), VALIDATION_FILE, content)
    for read in (check_run, lambda run: run.validation, lambda run: run.validation_logits):
        with pytest.raises(CacheError) as error:
            read(wrong)
        assert message in str(error.value)


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


def whole(run: RunResult) -> dict[str, Any]:
    return load_file(run.path / VALIDATION_FILE)


def with_header(of: Callable[[int], int]) -> Callable[[RunResult], bytes]:
    """The file with another length of its header."""

    def change(run: RunResult) -> bytes:
        content = (run.path / VALIDATION_FILE).read_bytes()
        length = int.from_bytes(content[:8], "little")
        return of(length).to_bytes(8, "little") + content[8:]

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda run: b"".join(tensor_parts(whole(run), {"seeds": "[1, 0]"})), "in another order"),
        (lambda run: b"".join(tensor_parts(whole(run), {"seeds": "[2, 3]"})), "of other seeds"),
        (lambda run: b"".join(tensor_parts(whole(run), {"seeds": "{"})), ""),
        (lambda run: b"".join(tensor_parts(whole(run), {})), "of other seeds"),
        (lambda run: (run.path / "weights.safetensors").read_bytes(), "no tensor 'logits'"),
        (lambda run: (run.path / "test.safetensors").read_bytes(), "no tensor 'rows'"),
        (with_header(lambda length: 2**63), "a header of"),
        (with_header(lambda length: length + 2**20), "a header of"),
        (with_header(lambda length: length - 1), ""),
        (lambda run: b"\0" * 7, "a header of"),
        (lambda run: (10**6).to_bytes(8, "little") + b"[" * 10**6, "no header"),
        (lambda run: (2).to_bytes(8, "little") + b"[]", "no header"),
    ],
)
def test_a_file_that_somebody_who_knows_how_put_there_is_refused(
    change: Callable[[RunResult], bytes], message: str, trained: RunResult, tmp_path: Path
) -> None:
    """Its receipt fits; a tensor beside those that are read changes nothing."""
    copy = read_run(Path(shutil.copytree(trained.path, tmp_path / trained.path.name)))
    wrong = rewrite(copy, VALIDATION_FILE, change(copy))
    for read in (check_run, lambda run: run.validation, lambda run: temperatures_of(run, (0, 1))):
        with pytest.raises(CacheError, match="is damaged") as error:
            read(wrong)
        assert message in str(error.value)
    more = whole(trained) | {"more": np.zeros((3, 3))}
    kept = rewrite(copy, VALIDATION_FILE, b"".join(tensor_parts(more, {"seeds": "[0, 1]"})))
    check_run(kept)
    np.testing.assert_array_equal(kept.validation_logits, trained.validation_logits)


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
