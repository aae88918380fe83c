"""Tuning seeds train a grid; reporting seeds train what validation chose of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pytest

import gaam_cache
import gaam_decoder
from gaam_cache.common.errors import ConfigError
from gaam_decoder import RunResult, TrainConfig
from tests.conftest import Outcome
from tests.decoder.configs import change, train_config, train_single_run

ATTENTIONS = ("gaam:heads=2", "none")
RATES = (1e-4, 1e-2, 3e-2)
TUNING = (7, 8)
REPORTING = (0, 1, 2)


@pytest.fixture
def config(tiny_cache: Path, tmp_path: Path) -> TrainConfig:
    return train_config(
        tiny_cache,
        tmp_path / "runs",
        attn=ATTENTIONS,
        seeds=REPORTING,
        tune_seeds=TUNING,
        epochs=2,
        lr=RATES,
        val_fraction=0.3,
    )


@pytest.mark.parametrize("select", ["last", "test"])
def test_rows_that_choose_nothing_are_not_held_out(
    select: Literal["last", "test"], tiny_cache: Path
) -> None:
    with pytest.raises(ConfigError, match="choose nothing"):
        TrainConfig(cache=tiny_cache, select=select, val_folds=2, lr=(0.01,))


def test_a_rate_that_is_written_twice_is_one(tiny_cache: Path) -> None:
    rates: Any = "1e-2,0.01"
    config = TrainConfig(cache=tiny_cache, lr=rates)
    assert config.lr == (0.01,)
    with pytest.raises(ConfigError, match="nothing to choose from"):
        TrainConfig(cache=tiny_cache, lr=rates, tune_seeds=(7, 8))


class Training(NamedTuple):
    """What a run has trained."""

    attention: str
    rate: float
    seeds: tuple[int, ...]


def trainings_of(runs: list[RunResult]) -> list[Training]:
    return [Training(run.attention, run.recipe.lr, run.seeds) for run in runs]


class Score(NamedTuple):
    """Mean validation accuracy of a rate; of equal ones the smaller loss is better."""

    accuracy: float
    negative_loss: float


def score(run: RunResult) -> Score:
    """Over all seeds, in the epoch that each of them kept."""
    kept_epochs = [
        entry for entry in run.log if entry["epoch"] == run.epochs[entry["seed"]]
    ]
    assert len(kept_epochs) == len(run.seeds)
    return Score(
        float(np.mean([entry["accuracy"] for entry in kept_epochs])),
        -float(np.mean([entry["selection_loss"] for entry in kept_epochs])),
    )


def best_rate(tuning_runs: list[RunResult], attention: str) -> float:
    candidates = [run for run in tuning_runs if run.attention == attention]
    return float(max(candidates, key=score).recipe.lr)


def fail_to_train(run: RunResult) -> None:
    pytest.fail(f"trained again: {run.path}")


def test_tuning_seeds_train_the_grid_and_reporting_seeds_the_winner(
    config: TrainConfig,
) -> None:
    finished: list[RunResult] = []
    runs = gaam_decoder.train(config, on_run=finished.append)
    reporting_runs = runs[:2]
    tuning_runs = runs[2:]
    assert trainings_of(tuning_runs) == [
        Training(attention, rate, TUNING) for attention in ATTENTIONS for rate in RATES
    ]
    winners = [
        Training(attention, best_rate(tuning_runs, attention), REPORTING)
        for attention in ATTENTIONS
    ]
    assert trainings_of(reporting_runs) == winners
    in_order = [*tuning_runs, *reporting_runs]
    assert [run.path for run in finished] == [run.path for run in in_order]
    assert all(run.tuning_seeds == TUNING for run in runs)
    [table] = gaam_decoder.report(config.runs).tables
    entries = [
        Training(entry.attention, entry.recipe["lr"], entry.seeds)
        for entry in table.entries
    ]
    assert entries == winners
    again = gaam_decoder.train(config, on_run=fail_to_train)
    assert [run.path for run in again] == [run.path for run in runs]


NUM_ROWS = 50
LABELS = np.arange(NUM_ROWS) % 2
SPEAKERS = np.array([f"speaker {row // 5}" for row in range(NUM_ROWS)])


def write_cache_of_speakers(folder: Path) -> None:
    """States that tell the classes apart, of ten speakers with five rows each."""
    generator = np.random.default_rng(0)
    x_NLD = generator.normal(size=(NUM_ROWS, 4, 6)) + LABELS[:, None, None]
    x_NLD = x_NLD.astype(np.float32)
    splits = {"train": (x_NLD, LABELS), "test": (x_NLD[:20] + 0.1, LABELS[:20])}
    columns = {"speaker": {"train": SPEAKERS.tolist(), "test": ["tested"] * 20}}
    gaam_cache.write(folder, splits, columns=columns)


@pytest.mark.parametrize("groups", [None, "speaker"])
def test_without_a_rate_three_more_seeds_choose_by_all_rows_of_train(
    groups: str | None, tmp_path: Path
) -> None:
    write_cache_of_speakers(tmp_path / "cache")
    config = train_config(
        tmp_path / "cache",
        tmp_path / "runs",
        attn=("none",),
        seeds=(0, 1),
        epochs=2,
        groups=groups,
    )
    chosen, *candidates = gaam_decoder.train(config)
    assert [run.recipe.lr for run in candidates] == list(config.rates)
    for run in candidates:
        assert run.seeds == (1000, 1001, 1002)
        check_validation_of_all_rows(run, by_speaker=groups is not None)
    assert chosen.recipe.lr == max(candidates, key=score).recipe.lr
    assert chosen.seeds == (0, 1)
    [table] = gaam_decoder.report(config.runs).tables
    assert [entry.seeds for entry in table.entries] == [(0, 1)]
    same = train_single_run(config, lr=chosen.recipe.lr)
    assert same.path == chosen.path


def check_validation_of_all_rows(run: RunResult, *, by_speaker: bool) -> None:
    """Every row is a validation row of one seed, and no speaker is on two sides."""
    validation = run.validation
    assert validation is not None
    rows_by_seed = [row_V[row_V >= 0] for row_V in validation.rows]
    all_rows = np.sort(np.concatenate(rows_by_seed))
    np.testing.assert_array_equal(all_rows, np.arange(NUM_ROWS))
    for place, rows in enumerate(rows_by_seed):
        logits_VC, label_V = validation.logits_and_labels_of_seed(place)
        np.testing.assert_array_equal(label_V, LABELS[rows])
        epoch = run.epochs[run.seeds[place]]
        # of every seed the log has an entry for each of the two epochs
        entry = run.log[2 * place + epoch - 1]
        assert entry["accuracy"] == (logits_VC.argmax(-1) == label_V).mean()
        if by_speaker:
            learned = np.delete(SPEAKERS, rows)
            assert not set(SPEAKERS[rows]) & set(learned)


class Protocol(NamedTuple):
    """Options of the command, and how many runs report."""

    options: tuple[str, ...]
    num_reporting: int


PROTOCOLS = {
    "seeds that tune and report nothing": Protocol(("--tune-seeds", "7-8"), 2),
    "all seeds tune and report": Protocol((), 2),
    "folds": Protocol(("--tune-seeds", "7-8", "--folds", "2"), 4),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_command_prints_the_validation_of_candidates_and_nothing_of_test_rows(
    protocol: str, config: TrainConfig, gaam: Callable[..., Outcome]
) -> None:
    """A line for each decoder; when all is trained already, too."""
    options, num_reporting = PROTOCOLS[protocol]
    command = (
        *("train", "--attn", "gaam:heads=2", "--attn", "none", "--cache", config.cache),
        *("--runs", config.runs, "--seeds", 3, "--epochs", 2, "--lr", "1e-4,1e-2,3e-2"),
        *("--set", "val-fraction=0.3", "--no-probe", *options),
    )
    trained_lines = gaam(*command).out.splitlines()
    existing_lines = gaam(*command).out.splitlines()
    for lines in (trained_lines, existing_lines):
        check_lines_of_tuning(lines)
        # each decoder, and each of its folds, has a line of what was chosen, no other
        run_lines = [line for line in lines if str(config.runs) in line and "%" in line]
        assert len(run_lines) == num_reporting
        assert all("choose" not in line for line in run_lines)
    [new_line] = set(existing_lines) - set(trained_lines)
    assert "trains nothing" in new_line
    assert sorted(existing_lines) == sorted([*trained_lines, new_line])


def check_lines_of_tuning(lines: list[str]) -> None:
    """Every decoder has one, with its rates, or those of its folds."""
    tuning_lines = sorted(line for line in lines if ", validation " in line)
    rate = r"learning rate \S+( in \d folds?)?"
    for attention, line in zip(ATTENTIONS, tuning_lines, strict=True):
        decoder = rf"{re.escape(attention)} \+ linear"
        expected = rf"{decoder}: {rate}(, {rate})?, chosen from 3, validation \d+\.\d%"
        assert re.fullmatch(expected, line), line


def test_the_summary_of_a_tuning_run_has_its_validation_accuracy(
    config: TrainConfig,
) -> None:
    """The one of a reporting run has its accuracy."""
    for run in gaam_decoder.train(change(config, attn=("none",))):
        summary = run.summary()
        validation = f"validation {100 * run.validation_score.mean():.1f}%"
        if run.tuning_only:
            assert validation in summary
        else:
            assert validation not in summary
            assert f"{100 * run.accuracy.mean():.1f}%" in summary
