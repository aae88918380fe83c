"""Rows that folds keep together: by a kept column or a file; splits without labels."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gaam_decoder
from gaam_cache.cache import EmbeddingCache, Split, open_cache
from gaam_cache.errors import CacheError, ConfigError, NotFoundError
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


@pytest.mark.usefixtures("columns")
@pytest.mark.parametrize(
    ("given", "kind"),
    [("session", "column"), ("./session", "file"), (Path("session"), "file")],
)
def test_a_column_goes_before_a_file_unless_a_folder_is_named(
    given: str | Path, kind: str, config: TrainConfig
) -> None:
    count = len(names_of(config.cache))
    Path("session").write_text("\n".join(f"file {row % 3}" for row in range(count)))
    [first, *_] = gaam_decoder.train(replace(config, groups=given, select="last"))
    assert first.groups["kind"] == kind


def test_what_is_neither_is_refused_with_what_there_is(
    config: TrainConfig, columns: dict[str, list[str]]
) -> None:
    with pytest.raises(NotFoundError) as caught:
        gaam_decoder.train(replace(config, groups="sesion"))
    for part in ("(session, speaker)", "or a file", "did you mean 'session'?"):
        assert part in str(caught.value)
    columns.clear()
    with pytest.raises(NotFoundError, match="it has none") as caught:
        gaam_decoder.train(config)
    assert "gaam extract --keep-column NAME" in str(caught.value)


def test_rows_without_a_name_are_refused(
    config: TrainConfig, columns: dict[str, list[str]]
) -> None:
    columns["session"][3:5] = ["", "  "]
    with pytest.raises(CacheError, match=r"2 of .* rows without one"):
        gaam_decoder.train(config)


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


def test_nothing_is_learned_from_a_split_without_labels(
    config: TrainConfig, unlabelled: list[str]
) -> None:
    unlabelled.append("train")
    for one in (replace(config, groups=None), replace(config, folds=None, groups=None)):
        with pytest.raises(ConfigError, match="'train' has no labels: nothing can be learned"):
            gaam_decoder.train(one)
