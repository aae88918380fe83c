"""Some seeds train a grid, others what validation chose of it."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gaam_decoder
from gaam_cache.errors import ConfigError, NumericsError
from gaam_decoder import RunResult, TrainConfig
from gaam_decoder.runs.tuning import choose
from gaam_decoder.training.advice import advice

RATES = (1e-4, 1e-2, 3e-2)


@pytest.fixture
def config(tiny_cache: Path, tmp_path: Path) -> TrainConfig:
    return TrainConfig(
        attn=("gaam", "none"),
        cache=tiny_cache,
        runs=tmp_path / "runs",
        seeds=(0, 1, 2),
        tune_seeds=(7, 8),
        epochs=2,
        lr=RATES,
        val_fraction=0.3,
    )


def made(runs: Path) -> dict[str, bytes]:
    return {str(file.relative_to(runs)): file.read_bytes() for file in runs.rglob("*.safetensors")}


def trained(runs: list[RunResult]) -> list[tuple[str, float, tuple[int, ...]]]:
    return [(run.attention, run.recipe["lr"], run.seeds) for run in runs]


def test_the_grid_is_trained_by_the_seeds_that_choose_and_the_winner_by_the_others(
    config: TrainConfig,
) -> None:
    finished: list[RunResult] = []
    runs = gaam_decoder.train(config, on_run=finished.append)
    assert trained(runs[:6]) == [
        (name, lr, (7, 8)) for name, lr in itertools.product(config.attn, RATES)
    ]
    winners = {}
    for run in runs[:6]:  # of equal accuracies the loss decides
        kept = [
            e for seed in (7, 8) for e in run.log
            if (e["seed"], e["epoch"]) == (seed, run.epochs[seed])
        ]  # fmt: skip
        score = sum(e["accuracy"] for e in kept), -sum(e["selection_loss"] for e in kept)
        winners.setdefault(run.attention, {})[score] = run.recipe["lr"]
    chosen = {name: of[max(of)] for name, of in winners.items()}
    assert trained(runs[6:]) == [(name, chosen[name], (0, 1, 2)) for name in config.attn]
    assert [run.path for run in finished] == [run.path for run in runs]
    assert all(run.tuning_seeds == (7, 8) for run in runs)
    [table] = gaam_decoder.report(config.runs).tables
    assert [(row.attention, row.recipe["lr"], row.seeds) for row in table.rows] == [
        (name, chosen[name], (0, 1, 2)) for name in config.attn
    ]
    again = gaam_decoder.train(config, on_run=lambda run: pytest.fail("trained again"))
    assert [run.path for run in again] == [run.path for run in runs]


def test_the_winner_has_the_bits_that_it_has_alone(config: TrainConfig, tmp_path: Path) -> None:
    runs = gaam_decoder.train(config)
    lr = runs[6].recipe["lr"]
    alone = replace(config, attn=("gaam",), lr=lr, tune_seeds=None, runs=tmp_path / "alone")
    (run,) = gaam_decoder.train(alone)
    assert run.key == runs[6].key
    np.testing.assert_array_equal(run.logits, runs[6].logits)


@pytest.mark.parametrize("after", [1, 3, 5, 6, 7])
def test_interrupted_after_any_run_and_called_again_it_is_the_same(
    config: TrainConfig, tmp_path: Path, after: int
) -> None:
    """After 6 runs the grid is trained and nothing of what it chooses."""
    gaam_decoder.train(replace(config, runs=tmp_path / "whole"))
    count = 0

    def stop(run: RunResult) -> None:
        nonlocal count
        count += 1
        if count == after:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gaam_decoder.train(config, on_run=stop)
    rest: list[RunResult] = []
    gaam_decoder.train(config, on_run=rest.append)
    assert len(rest) == 8 - after
    assert made(config.runs) == made(tmp_path / "whole")


def test_more_of_the_seeds_that_report_train_no_grid(config: TrainConfig) -> None:
    first = gaam_decoder.train(config)
    more: list[RunResult] = []
    runs = gaam_decoder.train(replace(config, seeds=(0, 1, 2, 3, 4)), on_run=more.append)
    assert [run.seeds for run in more] == [(3, 4), (3, 4)]
    assert len(runs) == len(first) + 2


def test_what_was_trained_before_seeds_chose_is_kept(config: TrainConfig) -> None:
    whole = replace(config, seeds=(0, 1, 2, 7, 8), tune_seeds=None)
    gaam_decoder.train(whole)
    runs = gaam_decoder.train(config, on_run=lambda run: pytest.fail("trained again"))
    assert len(runs) == 6
    assert len({run.path for run in runs}) == 6, "a run that both stages read is returned once"


@pytest.mark.parametrize("before", [(), (7,), (0, 7, 8)])
def test_progress_reaches_exactly_its_total(config: TrainConfig, before: tuple[int, ...]) -> None:
    if before:
        gaam_decoder.train(replace(config, seeds=before, tune_seeds=None))
    told: list[tuple[int, int]] = []
    gaam_decoder.train(config, progress=lambda done, total, text: told.append((done, total)))
    grid = 6 * 2 * len({7, 8} - set(before))
    winners = 2 * 2 * len({0, 1, 2} - set(before))
    assert told[-1] == (grid + winners, grid + winners)
    assert all(0 <= done <= total for done, total in told)
    assert [done for done, _ in told] == sorted(done for done, _ in told), "never backwards"
    most = 2 * 2 * 3
    assert {total for _, total in told} <= {grid + winners, grid + most}


def test_a_plan_lists_both_stages(config: TrainConfig) -> None:
    plan = gaam_decoder.estimate(config)
    said = [(run.recipe["lr"], run.candidates, run.seeds) for run in plan.runs]
    assert said == [
        *((lr, 1, (7, 8)) for lr in RATES * 2),
        *((RATES[0], 3, (0, 1, 2)) for _ in config.attn),
    ]
    assert plan.trainings == 18
    assert all(run.seconds for run in plan.runs)
    gaam_decoder.train(config)
    done = gaam_decoder.estimate(config)
    assert (done.trainings, done.seconds, len(done.runs)) == (0, 0, 8)


def test_folds_choose_for_themselves(config: TrainConfig) -> None:
    config = replace(config, attn=("gaam",), folds=2, lr=(1e-4, 3e-2))
    runs = gaam_decoder.train(config)
    assert len(runs) == 2 * 2 + 2
    assert [run.recipe["fold"] for run in runs[4:]] == ["1/2", "2/2"]
    whole, *_ = gaam_decoder.report(config.runs).tables
    assert whole.rows[0].folds == 2
    assert [t.chosen["lr"] for t in whole.rows[0].tunings] == [r.recipe["lr"] for r in runs[4:]]


def test_a_grid_of_two_numbers_is_a_product(config: TrainConfig) -> None:
    config = replace(config, attn=("gaam",), lr=(1e-3, 1e-2), weight_decay=(0.0, 0.1))
    runs = gaam_decoder.train(config)
    tried = [(run.recipe["lr"], run.recipe["weight_decay"]) for run in runs]
    assert tried[:4] == [*itertools.product((1e-3, 1e-2), (0.0, 0.1))]
    assert len(runs) == 5
    [tuning] = choose(runs).tunings.values()
    assert tuning.names == ("lr", "weight_decay")
    assert tuning.chosen == dict(zip(tuning.names, tried[4], strict=True))


def test_where_every_candidate_fails_nothing_is_chosen_and_it_is_said(config: TrainConfig) -> None:
    config = replace(config, attn=("none",), head="mlp", lr=(1e30, 1e35))
    with pytest.raises(NumericsError, match="every seed failed of"):
        gaam_decoder.train(config)
    assert {run.seeds for run in gaam_decoder.load_runs(config.runs)} == {(7, 8)}


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"tune_seeds": (2, 3)}, "are not to report as well"),
    ({"tune_seeds": (0, 1, 2)}, "are not to report as well"),
    ({"lr": 1e-3}, "nothing to choose from"),
    ({"lr": (1e-3,), "weight_decay": (0.1,)}, "nothing to choose from"),
    ({"select": "last", "val_fraction": 0.1}, "choose by validation accuracy"),
    ({"select": "test", "val_fraction": 0.1}, "choose by validation accuracy"),
    ({"tune_seeds": ()}, "tune-seeds"),
    ({"tune_seeds": (1, 1)}, "tune-seeds"),
    ({"tune_seeds": (-1,)}, "tune-seeds"),
    ({"tune_seeds": 0.5}, "tune-seeds"),
]


@pytest.mark.parametrize(("changes", "words"), REFUSED)
def test_seeds_that_cannot_choose_are_refused(
    config: TrainConfig, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        replace(config, **changes)
    assert not config.runs.exists()


def test_the_seeds_that_are_proposed_instead_are_accepted(config: TrainConfig) -> None:
    with pytest.raises(ConfigError) as caught:
        replace(config, seeds=(0, 1, 2, 3), tune_seeds=(0, 1))
    assert "--seeds 2-5" in str(caught.value)
    replace(config, seeds=(2, 3, 4, 5), tune_seeds=(0, 1))


def test_advice_names_the_epochs_and_the_edge_of_a_grid(config: TrainConfig) -> None:
    runs = gaam_decoder.train(replace(config, attn=("none",), lr=(1e-6, 2e-6)))
    for run in runs:
        run.epochs.update(dict.fromkeys(run.seeds, 1))  # or it is a matter of luck
    [tuning] = choose(runs).tunings.values()
    chosen = tuning.chosen["lr"]
    beyond = chosen * 3 if chosen == 2e-6 else chosen / 3
    assert advice(runs) == [
        f"under-trained: none + linear is best at --lr {chosen:g}, the edge of its grid; try --lr "
        f"{beyond:.3g} too"
    ]
    runs[-1].epochs[1] = 2
    assert advice(runs)[0] == (
        f"under-trained: the best epoch is the last of {runs[-1].title} (1 of 3 seeds); "
        "try --epochs 4"
    )
    probe = gaam_decoder.train(replace(config, attn=("none",), head=("lbfgs",)))
    assert advice(probe) == []  # a fit has no epochs
    inner = gaam_decoder.train(replace(config, attn=("none",), tune_seeds=None, lr=1e-2))
    inner[0].epochs.update(dict.fromkeys(inner[0].seeds, 1))
    assert advice(inner) == []
