"""Rows that folds keep together, by a kept column."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gaam_cache
import gaam_decoder
from gaam_decoder import TrainConfig
from gaam_decoder.inspect import inspect
from gaam_decoder.runs.listing import verify

NAMES = np.array([f"session {row % 4}" for row in range(40)])


@pytest.fixture
def config(tmp_path: Path) -> TrainConfig:
    x_NLD = np.random.default_rng(0).normal(size=(40, 2, 3)).astype(np.float32)
    label_N = np.arange(40) // 4 % 2
    splits = {"train": (x_NLD, label_N), "test": (x_NLD + 1, label_N)}
    columns = {"session": {"train": NAMES.tolist(), "test": ["others"] * 40}}
    gaam_cache.write(tmp_path / "cache", splits, columns=columns)
    return TrainConfig(lr=3e-4,
        attn=("none",), cache=tmp_path / "cache", runs=tmp_path / "runs", seeds=(0,), epochs=1
    )  # fmt: skip


def test_a_kept_column_keeps_its_rows_together_and_is_recorded(config: TrainConfig) -> None:
    runs = gaam_decoder.train(replace(config, folds=2, groups="session"))
    tested = [set(NAMES[run.test_rows]) for run in runs if run.head == "linear"]
    assert all(tested)
    assert not tested[0] & tested[1]
    for run in runs:
        assert run.groups == {"kind": "column", "source": "session"}
        about = json.loads((run.path / "run.json").read_text())
        assert about["groups"] == run.groups
    assert "by the kept column session" in inspect(runs[0].path).in_words()
    assert 'groups = "session"' in (runs[0].path / "config.toml").read_text()
    assert verify(config.runs).good
