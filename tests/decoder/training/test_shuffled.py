"""Shuffled labels: what learns from them must end at chance, and is compared with nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import gaam_decoder
from gaam_cache import plugins
from gaam_cache.cache import open_cache
from gaam_cache.errors import ConfigError
from gaam_decoder import RunResult, TrainConfig
from gaam_decoder.reports.notes import shuffled
from gaam_decoder.runs.listing import verify
from gaam_decoder.training.items import plan_items
from gaam_decoder.training.rows.data import TrainData, prepare_data
from gaam_decoder.training.rows.labels import told_labels
from tests.conftest import Outcome

SELECTS = ("val", "last", "test")


@pytest.fixture
def config(tiny_cache: Path, tmp_path: Path) -> TrainConfig:
    return TrainConfig(
        attn=("none",), cache=tiny_cache, runs=tmp_path / "runs", seeds=(0, 1), epochs=2,
        shuffle_labels=True,
    )  # fmt: skip


def data_of(config: TrainConfig) -> TrainData:
    cache = open_cache(config.cache)
    item = plan_items(config, cache, torch.device("cpu"))[0]
    return prepare_data(cache, item.recipe, torch.device("cpu"))


@pytest.mark.parametrize("select", SELECTS)
@pytest.mark.parametrize("folds", [None, 3])
def test_labels_are_permuted_among_the_rows_that_learn_and_choose(
    select: str, folds: int | None, config: TrainConfig
) -> None:
    data = data_of(replace(config, select=select, folds=folds))
    before = data.test.label_N.clone()
    told, held = told_labels(data, [4, 9], shuffle=True)
    assert torch.equal(data.test.label_N, before)
    true = [data.train.label_N]
    if select == "val":
        true.append(data.selection.label_N)
    elif select == "test":
        assert torch.equal(held, data.test.label_N.expand(2, -1))  # tested rows keep theirs
    else:
        assert held is None
    every = torch.cat([told, held], 1) if select == "val" else told
    for label_N in every:
        assert torch.equal(label_N.sort().values, torch.cat(true).sort().values)
        assert not torch.equal(label_N, torch.cat(true))
    assert not torch.equal(told[0], told[1])


def test_a_seed_is_told_the_same_alone_and_whatever_is_held_out(config: TrainConfig) -> None:
    def by_row(data: TrainData, seeds: list[int], place: int) -> dict[int, int]:
        told, held = told_labels(data, seeds, shuffle=True)
        rows, labels = [data.train.rows], [told[place]]
        if held is not None:
            rows, labels = [*rows, data.selection.rows], [*labels, held[place]]
        return dict(zip(np.concatenate(rows).tolist(), torch.cat(labels).tolist(), strict=True))

    val, last = data_of(config), data_of(replace(config, select="last"))
    assert by_row(val, [7], 0) == by_row(val, [3, 7], 1) == by_row(last, [7], 0)
    assert by_row(val, [7], 0) == by_row(data_of(replace(config, split_seed=5)), [7], 0)


def test_without_it_labels_and_keys_are_what_they_were(config: TrainConfig) -> None:
    config = replace(config, shuffle_labels=False)
    data = data_of(config)
    told, held = told_labels(data, [1, 2], shuffle=False)
    assert torch.equal(told, data.train.label_N.expand(2, -1))
    assert torch.equal(held, data.selection.label_N.expand(2, -1))
    (run,) = gaam_decoder.train(config)
    assert "shuffle_labels" not in run.recipe


@pytest.mark.parametrize("head", plugins.names("gaam_decoder.heads"))
def test_every_head_ends_at_chance(head: str, config: TrainConfig) -> None:
    """The class is decided by the first word: with true labels it is learned, with these not."""
    config = replace(config, head=head, seeds=tuple(range(6)), epochs=6, lr=0.003)
    (run,) = gaam_decoder.train(config)
    assert run.recipe["shuffle_labels"] is True
    assert run.title.endswith(", labels shuffled")
    report = gaam_decoder.report(run)
    (row,) = report.tables[0].rows
    assert shuffled.verdict(row) == (None if run.fit else "at")
    assert ("no verdict" in report.text("markdown")) == bool(run.fit)
    low, high = shuffled.chance(row)
    share = np.bincount(run.labels) / len(run.labels)
    assert low == pytest.approx((share**2).sum())
    assert high == share.max()
    assert verify(config.runs).good
    assert "shuffle_labels = true" in (run.path / "config.toml").read_text()


def test_seeds_together_and_one_by_one_are_told_the_same(config: TrainConfig) -> None:
    (together,) = gaam_decoder.train(config)
    other = replace(config, seed_batch=1, runs=config.runs / "other")
    (alone,) = gaam_decoder.train(other)
    np.testing.assert_allclose(together.logits, alone.logits, atol=1e-4)


@pytest.fixture
def both(config: TrainConfig) -> list[RunResult]:
    config = replace(config, attn=("none", "gaam"))
    true = replace(config, shuffle_labels=False)
    return [*gaam_decoder.train(config), *gaam_decoder.train(true)]


@pytest.mark.parametrize("format", plugins.names("gaam_decoder.reports.formats"))
def test_such_rows_are_marked_and_compared_with_nothing(format: str, both: list[RunResult]) -> None:
    report = gaam_decoder.report(both)
    (table,) = report.tables
    for row, label, setting, comparison in zip(
        table.rows, table.labels(), table.settings(), table.comparisons, strict=True
    ):
        assert ("labels shuffled" in label) == ("labels shuffled" in setting) == row.shuffled
        assert (comparison is not None) == (row.attention == "gaam" and not row.shuffled)
    text = report.text(format)
    assert "shuffle" in text
    if format in ("terminal", "markdown", "html"):
        assert "must be at chance" in " ".join(text.replace("\\", "").split())


def test_alone_they_are_no_baseline_and_no_control(both: list[RunResult]) -> None:
    report = gaam_decoder.report(both[:2])
    (table,) = report.tables
    assert table.baseline is None
    assert "no control among these rows" in report.text("markdown")
    with pytest.raises(ConfigError, match="no run of the baseline"):
        gaam_decoder.report(both[:2], baseline="none")


def test_a_leak_is_said(both: list[RunResult], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shuffled, "chance", lambda row: (0.0, 0.01))
    report = gaam_decoder.report(both)
    assert "ABOVE it: something tells the decoder" in report.text("markdown")
    assert "so something leaks" in report.text("html")
    monkeypatch.setattr(shuffled, "chance", lambda row: (1.1, 1.2))
    assert "is below it" in gaam_decoder.report(both).text("markdown")


def test_folds_are_put_together_apart_from_those_with_true_labels(config: TrainConfig) -> None:
    config = replace(config, folds=2)
    gaam_decoder.train(config)
    gaam_decoder.train(replace(config, shuffle_labels=False))
    whole = gaam_decoder.report(config.runs).tables[0]
    assert sorted((row.shuffled, row.folds) for row in whole.rows) == [(False, 2), (True, 2)]


def test_the_commands_take_it(
    tiny_cache: Path, tmp_path: Path, gaam: Callable[..., Outcome]
) -> None:
    options = ["--cache", tiny_cache, "--runs", tmp_path / "runs", "--device", "cpu"]
    options += [
        "--attn",
        "gct",
        "--seeds",
        2,
        "--epochs",
        1,
        "--set",
        "shuffle-labels=true",
        "--probe",
    ]
    dry = gaam("train", "--dry-run", *options)
    assert dry.out.count("labels shuffled") == 2
    runs = json.loads(gaam("train", "--json", *options).out)
    assert [run["head"] for run in runs] == ["linear", "lbfgs"]
    assert all(run["recipe"]["shuffle_labels"] for run in runs)
    assert gaam("verify", tmp_path / "runs").code == 0
    assert "shuffle_labels=True" in gaam("inspect", tmp_path / "runs").out
    assert "labels shuffled" in gaam("report", tmp_path / "runs").out
    ablated = gaam("ablate", runs[0]["path"], "--num-layers", 2, "--device", "cpu")
    assert ablated.code == 0, ablated.err
