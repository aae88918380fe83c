"""Which of several rates is a row: validation chooses, test never does."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from gaam_decoder import RunResult
from gaam_decoder.reports.columns import VALIDATION
from gaam_decoder.reports.conclusion import conclusion
from gaam_decoder.reports.entries import BY_FOLD
from gaam_decoder.reports.names import AT_EDGE
from gaam_decoder.reports.notes import notes
from gaam_decoder.reports.table import Table, build_tables
from tests.decoder.reports.conftest import answers, build_run

RATES = (1e-4, 3e-4, 1e-3, 3e-3)


def grid(
    name: str,
    validation: dict[float, Any],
    *,
    seeds: tuple[int, ...] = tuple(range(6)),
    test: dict[float, float] | None = None,
    **changes: Any,
) -> list[RunResult]:
    """Candidates with these validation accuracies, the test accuracy of each as is said."""
    return [
        build_run(
            name,
            answers(len(seeds), (test or {}).get(lr, 0.8), int(1e6 * lr)),
            seeds=seeds,
            validation=value,
            lr=lr,
            path=f"{name}-{lr}",
            **changes,
        )
        for lr, value in validation.items()
    ]


def rates(table: Table) -> list[tuple[str, float]]:
    return [(row.attention, row.recipe["lr"]) for row in table.entries]


def test_seeds_that_were_trained_to_choose_do_and_the_others_report() -> None:
    kind = {"tuning_seeds": (7, 8)}
    tried = grid("gaam", {1e-4: 0.7, 1e-3: 0.9, 1e-2: 0.8}, seeds=(7, 8), **kind)
    reported = answers(6, 0.8, 3)
    runs = [
        *tried,
        build_run("gaam", reported, lr=1e-3, path="b", validation=0.1, **kind),
    ]
    [table] = build_tables(runs)
    [row] = table.entries
    assert row.recipe["lr"] == 1e-3
    assert row.seeds == (0, 1, 2, 3, 4, 5)
    np.testing.assert_array_equal(row.right, reported)
    [tuning] = row.tunings
    assert (tuning.seeds, tuning.apart) == ((7, 8), True)
    assert "gaam: learning rate 0.001 of 3, validation 90.0%" in notes(table)
    assert (
        "tuning: seeds 7-8 chose by validation accuracy; other seeds report"
        in notes(table)
    )
    candidates = table.to_dict()["entries"][0]["tuning"][0]["candidates"]
    assert [one["validation_accuracy"] for one in candidates] == pytest.approx(
        [0.7, 0.9, 0.8]
    )
    # before the others are trained there is nothing else to report
    [early] = build_tables(tried)
    assert early.entries[0].seeds == (7, 8)
    assert not early.entries[0].tunings[0].apart


def test_of_equal_rates_the_lower_loss_chooses_then_the_smaller_rate() -> None:
    for losses, best in (
        ((0.3, 0.2, 0.4), 1e-3),
        ((0.4, 0.3, 0.2), 1e-2),
        ((0.2,) * 3, 1e-4),
    ):
        runs = grid("gaam", {1e-4: 0.8, 1e-3: 0.8, 1e-2: 0.8})
        for run, loss in zip(runs, losses, strict=True):
            for entry in run.log:
                entry["selection_loss"] = loss
        assert rates(build_tables(runs)[0]) == [("gaam", best)]


def test_tuned_rows_are_compared_whatever_was_best_for_each_and_untuned_ones_are_not() -> (
    None
):
    tuned = grid("gaam", {1e-4: 0.7, 1e-3: 0.9}, test={1e-3: 0.9})
    tuned += grid("none", {1e-4: 0.9, 1e-3: 0.7})
    [table] = build_tables(tuned)
    comparison = table.entries[0].compared
    assert comparison is not None
    expected = answers(6, 0.9, 1000).mean() - answers(6, 0.8, 100).mean()
    assert comparison.claim.difference == pytest.approx(expected)
    assert not comparison.other_grid
    assert "grid" not in conclusion(table)
    [table] = build_tables([*tuned, *grid("gaam", {1e-2: 0.8})])
    assert [
        found.other_grid for found in [row.compared for row in table.entries] if found
    ] == [True]
    assert "grid" in conclusion(table)
    untuned = [*grid("gaam", {1e-3: 0.9}), *grid("none", {1e-4: 0.9})]
    [table] = build_tables(untuned)
    assert [row.compared for row in table.entries] == [None, None]
    assert "not compared" in "\n".join(notes(table))
    mixed = [*grid("gaam", {1e-3: 0.9, 1e-4: 0.8}), *grid("none", {1e-4: 0.9})]
    [table] = build_tables(mixed)
    assert [row.compared for row in table.entries] == [None, None], (
        "one was tuned, the other happened to have a rate"
    )


def test_the_edge_of_a_grid_is_marked_in_settings_and_notes() -> None:
    for best, edge in enumerate((True, False, False, True)):
        validation = {
            lr: 0.9 if place == best else 0.8 for place, lr in enumerate(RATES)
        }
        [table] = build_tables(grid("gaam", validation))
        [row] = table.entries
        assert row.at_edge == ({"lr"} if edge else set())
        assert row.undertrained == edge
        assert [row.settings for row in table.entries] == [
            f"lr={RATES[best]}" + AT_EDGE * edge
        ]
        found = [note for note in notes(table) if "at the edge" in note]
        assert len(found) == edge
        assert table.to_dict()["entries"][0]["undertrained"] == edge


def test_each_fold_chooses_for_itself_and_the_whole_table_stands() -> None:
    best = {1: 1e-4, 2: 1e-3, 3: 1e-3}
    runs = []
    for fold, name in itertools.product(best, ("gaam", "none")):
        validation = {lr: 0.9 if lr == best[fold] else 0.8 for lr in (1e-4, 1e-3)}
        runs += grid(name, validation, fold=f"{fold}/3")
    (whole,) = build_tables(runs)
    assert whole.where.startswith("all 3 folds")
    assert [row.attention for row in whole.entries] == ["gaam", "none"]
    for row in whole.entries:
        assert [tuning.chosen["lr"] for tuning in row.tunings] == [*best.values()]
        assert row.recipe["lr"] == BY_FOLD
        assert row.seeds == tuple(range(6))
    assert whole.entries[0].compared is not None
    assert whole.entries[0].compared.seeds == tuple(range(6))
    assert whole.incomplete == []
    assert [row.settings for row in whole.entries] == [f"lr={BY_FOLD}{AT_EDGE}"] * 2


def chosen_in_notes(table: Table) -> list[str]:
    return [note for note in notes(table) if ", validation " in note]


def folds_of(name: str, best: dict[int, float], repeats: int = 1) -> list[RunResult]:
    """Every fold has a rate that is best in it."""
    runs = []
    for repeat, (fold, rate) in itertools.product(range(repeats), best.items()):
        validation = {lr: 0.9 if lr == rate else 0.8 for lr in (1e-4, 1e-3)}
        parts = grid(name, validation, fold=f"{fold}/{len(best)}", split_seed=repeat)
        for run in parts:
            rows = np.random.default_rng(repeat).permutation(400 * len(best))
            vars(run)["test_rows"] = np.sort(rows[400 * (fold - 1) :][:400])
        runs += parts
    return runs


LINES: dict[str, tuple[list[RunResult], list[str]]] = {
    "a rate": (
        grid("gaam", {1e-4: 0.8, 1e-3: 0.9}), ["gaam: learning rate 0.001 of 2, validation 90.0%"],
    ),
    "a rate and a decay": (
        [*grid("gaam", {1e-4: 0.8, 1e-3: 0.85}, weight_decay=0.0),
         *grid("gaam", {1e-4: 0.8, 1e-3: 0.9}, weight_decay=0.1)],
        ["gaam: learning rate 0.001 and weight decay 0.1 of 4, validation 90.0%"],
    ),
    "the same in all of 25 folds": (
        folds_of("gaam", dict.fromkeys(range(1, 6), 1e-3), repeats=5),
        ["gaam: learning rate 0.001 of 2, validation 90.0%"],
    ),
    "another in some folds": (
        folds_of("gaam", {1: 1e-3, 2: 1e-3, 3: 1e-4}),
        ["gaam: learning rate 0.001 in 2 folds, learning rate 0.0001 in 1 fold of 2, "
         "validation 90.0%"],
    ),
    "two decoders": (
        [*grid("gaam", {1e-4: 0.8, 1e-3: 0.9}), *grid("none", {1e-4: 0.7, 1e-3: 0.6})],
        ["gaam: learning rate 0.001 of 2, validation 90.0%",
         "none: learning rate 0.0001 of 2, validation 70.0%"],
    ),
    "nothing was tuned": (grid("gaam", {1e-4: 0.8}), []),
}  # fmt: skip


@pytest.mark.parametrize("case", LINES)
def test_what_validation_chose_is_a_line_a_decoder(case: str) -> None:
    runs, lines = LINES[case]
    (table,) = build_tables(runs)
    assert sorted(chosen_in_notes(table)) == lines


def test_all_candidates_stand_with_their_validation_accuracy_where_they_are_asked_for() -> (
    None
):
    runs = grid("gaam", {1e-4: 0.812, 1e-3: 0.934}, test={1e-4: 0.7, 1e-3: 0.6})
    (asked,) = build_tables(runs, every_candidate=True)
    assert {row.recipe["lr"]: VALIDATION.text(row) for row in asked.entries} == {
        1e-4: "81.2", 1e-3: "93.4",
    }  # fmt: skip
    (usual,) = build_tables(runs)
    assert [VALIDATION.text(row) for row in usual.entries] == [""]
