"""Some seeds train a grid, others what validation chose of it."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gaam_cache
import gaam_decoder
from gaam_decoder import RunResult, TrainConfig
from tests.conftest import Outcome

RATES = (1e-4, 1e-2, 3e-2)


@pytest.fixture
def config(tiny_cache: Path, tmp_path: Path) -> TrainConfig:
    return TrainConfig(
        attn=("gaam:heads=2", "none"),
        cache=tiny_cache,
        runs=tmp_path / "runs",
        seeds=(0, 1, 2),
        tune_seeds=(7, 8),
        epochs=2,
        lr=RATES,
        val_fraction=0.3,
        probe=False,
    )


def trained(runs: list[RunResult]) -> list[tuple[str, float, tuple[int, ...]]]:
    return [(run.attention, run.recipe.lr, run.seeds) for run in runs]


def test_the_grid_is_trained_by_the_seeds_that_choose_and_the_winner_by_the_others(
    config: TrainConfig,
) -> None:
    finished: list[RunResult] = []
    reporting_first = gaam_decoder.train(config, on_run=finished.append)
    runs = [*reporting_first[2:], *reporting_first[:2]]
    assert trained(runs[:6]) == [
        (name, lr, (7, 8))
        for name, lr in itertools.product(map(str, config.attn), RATES)
    ]
    winners = {}
    for run in runs[:6]:  # of equal accuracies the loss decides
        kept = [
            e for seed in (7, 8) for e in run.log
            if (e["seed"], e["epoch"]) == (seed, run.epochs[seed])
        ]  # fmt: skip
        score = (
            sum(e["accuracy"] for e in kept),
            -sum(e["selection_loss"] for e in kept),
        )
        winners.setdefault(run.attention, {})[score] = run.recipe.lr
    chosen = {name: of[max(of)] for name, of in winners.items()}
    assert trained(runs[6:]) == [
        (name, chosen[name], (0, 1, 2)) for name in map(str, config.attn)
    ]
    assert [run.path for run in finished] == [run.path for run in runs]
    assert all(run.tuning_seeds == (7, 8) for run in runs)
    [table] = gaam_decoder.report(config.runs).tables
    assert [(row.attention, row.recipe["lr"], row.seeds) for row in table.entries] == [
        (name, chosen[name], (0, 1, 2)) for name in map(str, config.attn)
    ]
    again = gaam_decoder.train(config, on_run=lambda run: pytest.fail("trained again"))
    assert [run.path for run in again] == [run.path for run in reporting_first]


@pytest.mark.parametrize("groups", [None, "speaker"])
def test_without_a_rate_three_more_seeds_choose_by_all_rows_of_train(
    groups: str | None, tmp_path: Path
) -> None:
    generator = np.random.default_rng(0)
    label_N = np.arange(50) % 2
    state_NLD = (generator.normal(size=(50, 4, 6)) + label_N[:, None, None]).astype(
        np.float32
    )
    cache, names = tmp_path / "cache", [f"s{row // 5}" for row in range(50)]
    parts = {
        "train": (state_NLD, label_N),
        "test": (state_NLD[:20] + 0.1, label_N[:20]),
    }
    gaam_cache.write(
        cache, parts, columns={"speaker": {"train": names, "test": ["t"] * 20}}
    )
    config = TrainConfig(
        attn=("none",), cache=cache, runs=tmp_path / "runs", seeds=(0, 1), epochs=2, groups=groups,
        probe=False,
    )  # fmt: skip
    chosen, *tried = gaam_decoder.train(config)
    assert [run.recipe.lr for run in tried] == list(config.rates)
    for run in tried:
        assert run.seeds == (1000, 1001, 1002)
        assert run.validation is not None
        held = [row_V[row_V >= 0].tolist() for row_V in run.validation.rows]
        assert sorted(itertools.chain(*held)) == list(range(50)), (
            "all rows choose, none twice"
        )
        for place, rows in enumerate(held):
            logits_VC, label_V = run.validation.of_seed(place)
            assert label_V.tolist() == label_N[rows].tolist()
            kept = run.log[2 * place + run.epochs[run.seeds[place]] - 1]
            assert kept["accuracy"] == (logits_VC.argmax(-1) == label_V).mean()
            if groups is not None:
                assert not {names[row] for row in rows} & {
                    names[row] for row in set(range(50)) - set(rows)
                }
    scores = {
        (
            np.mean([e["accuracy"] for e in kept]),
            -np.mean([e["selection_loss"] for e in kept]),
        ): run
        for run in tried
        for kept in [[e for e in run.log if e["epoch"] == run.epochs[e["seed"]]]]
    }
    assert chosen.recipe.lr == scores[max(scores)].recipe.lr
    assert chosen.seeds == (0, 1)
    [table] = gaam_decoder.report(config.runs).tables
    assert [row.seeds for row in table.entries] == [(0, 1)]
    [same] = gaam_decoder.train(replace(config, lr=chosen.recipe.lr))
    assert same.path == chosen.path


PROTOCOLS: dict[str, tuple[str, ...]] = {
    "seeds that choose and report nothing": ("--tune-seeds", "7-8"),
    "all seeds choose and report": (),
    "of folds": ("--tune-seeds", "7-8", "--folds", "2"),
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_command_says_of_candidates_what_validation_says_and_nothing_of_test_rows(
    protocol: str, config: TrainConfig, gaam: Callable[..., Outcome]
) -> None:
    """A line a decoder; when all is there already, too."""
    command = (
        *("train", "--attn", "gaam:heads=2", "--attn", "none", "--cache", config.cache),
        *("--runs", config.runs, "--seeds", 3, "--epochs", 2, "--lr", "1e-4,1e-2,3e-2"),
        *("--set", "val-fraction=0.3", "--no-probe", *PROTOCOLS[protocol]),
    )
    said = [gaam(*command).out.splitlines() for _ in range(2)]
    for lines in said:
        tuned = [line for line in lines if ", validation " in line]
        value = r"learning rate \S+( in \d folds?)?"
        assert len(tuned) == 2
        for name, line in zip(("gaam:heads=2", "none"), sorted(tuned), strict=True):
            words = rf"{re.escape(name)} \+ linear: {value}(, {value})? of 3, validation \d+\.\d%"
            assert re.fullmatch(words, line), line
        # of each decoder, and of each of its folds, what was chosen and nothing else
        runs = [line for line in lines if str(config.runs) in line and "%" in line]
        assert len(runs) == (4 if "--folds" in command else 2)
        assert all("choose" not in line for line in runs)
    assert sorted(said[0]) == sorted(said[1])


def test_a_run_that_was_trained_to_choose_says_its_validation_accuracy(
    config: TrainConfig,
) -> None:
    runs = gaam_decoder.train(replace(config, attn=("none",), probe=False))
    for run in runs:
        accuracy = f"{100 * run.validation_accuracy.mean():.1f}%"
        assert (f"validation {accuracy}" in run.summary()) == run.tuning_only
        assert run.tuning_only or f"{100 * run.accuracy.mean():.1f}%" in run.summary()
