"""Rows that folds keep together: by a kept column or a file; splits without labels."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gaam_decoder
from gaam_cache.cache import EmbeddingCache, Split, open_cache
from gaam_cache.errors import ConfigError
from gaam_decoder import TrainConfig
from gaam_decoder.inspect import inspect
from gaam_decoder.runs.listing import verify


def names_of(cache: Path) -> list[str]:
    return [f"session {row % 4}" for row in range(len(open_cache(cache)["train"]))]


@pytest.fixture
def columns(tiny_cache: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Kept columns of every cache, by name; the rows of train are in four sessions."""
    there = {"session": names_of(tiny_cache), "speaker": ["a", "b"] * 200}

    def column(split: Split, name: str) -> list[str]:
        return there[name][: len(split)]

    monkeypatch.setattr(EmbeddingCache, "columns", property(lambda self: tuple(there)))
    monkeypatch.setattr(Split, "column", column)
    return there


@pytest.fixture
def config(tiny_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TrainConfig:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return TrainConfig(
        attn=("none",), cache=tiny_cache, runs=tmp_path / "runs", seeds=(0,), epochs=1, folds=2,
        groups="session",
    )  # fmt: skip


@pytest.mark.usefixtures("columns")
def test_a_kept_column_keeps_its_rows_together_and_is_recorded(config: TrainConfig) -> None:
    names = np.array(names_of(config.cache))
    runs = gaam_decoder.train(config)
    tested = [set(names[run.test_rows]) for run in runs]
    assert all(tested)
    assert not tested[0] & tested[1]
    for run in runs:
        assert run.groups == {"kind": "column", "source": "session"}
        about = json.loads((run.path / "run.json").read_text())
        assert about["groups"] == run.groups
    assert "by the kept column session" in inspect(runs[0].path).in_words()
    assert 'groups = "session"' in (runs[0].path / "config.toml").read_text()
    assert verify(config.runs).good


@pytest.fixture
def unlabelled(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Splits without labels of every cache."""
    names: list[str] = []
    monkeypatch.setattr(EmbeddingCache, "unlabelled", property(lambda self: tuple(names)))
    return names


def test_a_split_without_labels_is_never_reported_on(
    config: TrainConfig, unlabelled: list[str]
) -> None:
    plain = replace(config, folds=None, groups=None)
    unlabelled.append("test")
    with pytest.raises(
        ConfigError, match="'test' has no labels: nothing can be reported"
    ) as caught:
        gaam_decoder.train(plain)
    for part in ("--folds 5", "a split with labels: train"):
        assert part in str(caught.value)
    with pytest.raises(ConfigError, match="has no labels"):
        gaam_decoder.estimate(plain)
    assert not config.runs.exists()
    assert gaam_decoder.train(replace(plain, folds=2))  # in which it plays no part
