"""Runs keep what their epochs were chosen by."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gaam_decoder
from gaam_cache.cache import open_cache
from gaam_decoder import TrainConfig, stats
from gaam_decoder.runs.result import VALIDATION_FILE


def test_what_is_kept_has_the_accuracy_that_chose(tiny_cache: Path, tmp_path: Path) -> None:
    """Of folds, drawn rows, final models: the log says the same; without such rows, no file."""
    config = TrainConfig(
        attn=("none", "gaam"), cache=tiny_cache, seeds=(0, 1), epochs=2, lr=0.01, probe=False,
        runs=tmp_path,
    )  # fmt: skip
    train = open_cache(tiny_cache)["train"]
    for place, one in enumerate(
        (
            replace(config, head=("conv", "mlp"), seed_batch=1),
            replace(config, folds=2, probe=True),
            replace(config, test_split="none"),
            replace(config, train_rows="20"),
        )
    ):
        for run in gaam_decoder.train(replace(one, runs=tmp_path / str(place))):
            found = run.validation
            assert found is not None
            np.testing.assert_array_equal(train.labels[found.rows], found.labels)
            if run.test_rows is not None:
                assert not set(found.rows) & set(run.test_rows)
            for logits_VC, seed in zip(found.logits, run.seeds, strict=True):
                kept = [e for e in run.log if (e["seed"], e["epoch"]) == (seed, run.epochs[seed])]
                accuracy = stats.accuracy(logits_VC.argmax(-1), found.labels)
                assert accuracy == pytest.approx(kept[0]["accuracy"], abs=1e-12)
    for place, options in enumerate(({"select": "last"}, {"select": "test"})):
        for run in gaam_decoder.train(replace(config, runs=tmp_path / f"no{place}", **options)):  # type: ignore[arg-type]
            assert not (run.path / VALIDATION_FILE).exists()
            assert run.validation is None
