"""Which of several rates is an entry: validation chooses, test never does."""

from __future__ import annotations

import itertools
from collections.abc import Callable
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
from gaam_decoder.runs.result import Validation
from tests.decoder.reports.conftest import answers, build_run, change_arrays

RATES = (1e-4, 3e-4, 1e-3, 3e-3)


def candidates(
    name: str,
    validation: dict[float, Any],
    *,
    seeds: tuple[int, ...] = tuple(range(6)),
    test: dict[float, float] | None = None,
    **changes: Any,
) -> list[RunResult]:
    """Runs by learning rate with these validation accuracies and test accuracies."""
    test_accuracies = dict.fromkeys(validation, 0.8) | (test or {})
    return [
        build_run(
            name,
            answers(len(seeds), test_accuracies[lr], int(1e6 * lr)),
            seeds=seeds,
            validation=accuracy,
            lr=lr,
            path=f"{name}-{lr}",
            **changes,
        )
        for lr, accuracy in validation.items()
    ]


def rates(table: Table) -> list[tuple[str, float]]:
    return [(entry.attention, entry.recipe["lr"]) for entry in table.entries]


def runs_of_tuning_seeds() -> list[RunResult]:
    validation = {1e-4: 0.7, 1e-3: 0.9, 1e-2: 0.8}
    seeds = (7, 8)
    return candidates("gaam", validation, seeds=seeds, tuning_seeds=seeds)


def test_tuning_seeds_choose_and_the_others_report() -> None:
    right = answers(6, 0.8, 3)
    reporting_run = build_run(
        "gaam", right, lr=1e-3, path="b", validation=0.1, tuning_seeds=(7, 8)
    )
    [table] = build_tables([*runs_of_tuning_seeds(), reporting_run])
    [entry] = table.entries
    assert entry.recipe["lr"] == 1e-3
    assert entry.seeds == (0, 1, 2, 3, 4, 5)
    np.testing.assert_array_equal(entry.contribution_SN, right)
    [tuning] = entry.tunings
    assert tuning.seeds == (7, 8)
    assert tuning.has_reporting_seeds
    sentences = notes(table)
    assert "gaam: learning rate 0.001, chosen from 3, validation 90.0%" in sentences
    choice = "tuning: seeds 7-8 chose by validation accuracy; other seeds report"
    assert choice in sentences
    tried = table.to_dict()["entries"][0]["tuning"][0]["candidates"]
    accuracies = [candidate["validation_accuracy"] for candidate in tried]
    assert accuracies == pytest.approx([0.7, 0.9, 0.8])


def test_tuning_seeds_report_before_the_others_are_trained() -> None:
    [table] = build_tables(runs_of_tuning_seeds())
    [entry] = table.entries
    assert entry.seeds == (7, 8)
    assert not entry.tunings[0].has_reporting_seeds
    assert any("those of the tuning seeds" in sentence for sentence in notes(table))


def reporting_run(lr: float, tuning_seeds: tuple[int, ...] = ()) -> RunResult:
    right = answers(6, 0.8, 3)
    return build_run(
        "gaam",
        right,
        lr=lr,
        path=f"reporting-{lr}",
        validation=0.1,
        tuning_seeds=tuning_seeds,
    )


def test_a_rate_that_tuning_did_not_try_changes_no_choice() -> None:
    """The largest rate won: another beyond it does not make it an inner one."""
    validation = {1e-4: 0.7, 1e-3: 0.8, 1e-2: 0.9}
    tuning_runs = candidates("gaam", validation, seeds=(7, 8), tuning_seeds=(7, 8))
    runs = [*tuning_runs, reporting_run(1e-2, (7, 8)), reporting_run(1e-1)]
    [table] = build_tables(runs)
    [entry] = table.entries
    assert entry.recipe["lr"] == 1e-2
    [tuning] = entry.tunings
    assert tuning.at_edge == ("lr",)
    assert tuning.untried == ({"lr": 1e-1, "weight_decay": 0.0},)
    sentences = notes(table)
    assert any("chosen from 3" in sentence for sentence in sentences)
    assert any("gaam at lr 0.1" in sentence for sentence in sentences)


FURTHER_TUNINGS: dict[str, tuple[dict[float, float], tuple[int, ...], int | None]] = {
    "fewer rates, other seeds": ({1e-4: 0.9, 1e-3: 0.8}, (4, 5, 6), None),
    "fewer rates, more folds": ({1e-4: 0.9, 1e-3: 0.8}, (7, 8, 9), 3),
    "one rate more seeds": ({1e-4: 0.95}, (7, 8, 9), 3),
}


@pytest.mark.parametrize("case", FURTHER_TUNINGS)
@pytest.mark.parametrize("is_first", [False, True], ids=["behind it", "before it"])
def test_the_tuning_that_tried_most_rates_decides(case: str, *, is_first: bool) -> None:
    validation, seeds, val_folds = FURTHER_TUNINGS[case]
    tuning_runs = candidates(
        "gaam",
        {1e-4: 0.7, 1e-3: 0.8, 1e-2: 0.9},
        seeds=(7, 8),
        tuning_seeds=(7, 8),
        val_folds=2,
    )
    further_runs = candidates(
        "gaam", validation, seeds=seeds, tuning_seeds=seeds, val_folds=val_folds
    )
    runs = [*tuning_runs, reporting_run(1e-2, (7, 8)), *further_runs]
    if is_first:
        runs = [*further_runs, *runs[: -len(further_runs)]]
    [table] = build_tables(runs)
    [entry] = table.entries
    [tuning] = entry.tunings
    assert tuning.seeds == (7, 8)
    assert entry.recipe["lr"] == 1e-2
    assert entry.seeds == (0, 1, 2, 3, 4, 5)
    # the scores of candidates are of the same validation rows
    assert [candidate.accuracy for candidate in tuning.candidates] == pytest.approx(
        [0.7, 0.8, 0.9]
    )


def test_a_tuning_again_with_more_seeds_decides() -> None:
    first = candidates(
        "gaam", {1e-4: 0.9, 1e-3: 0.7}, seeds=(7, 8), tuning_seeds=(7, 8), val_folds=2
    )
    seeds = (7, 8, 9)
    again = candidates(
        "gaam", {1e-4: 0.7, 1e-3: 0.9}, seeds=seeds, tuning_seeds=seeds, val_folds=3
    )
    [table] = build_tables([*first, *again])
    [tuning] = table.entries[0].tunings
    assert tuning.seeds == seeds
    assert tuning.chosen["lr"] == 1e-3


def test_runs_of_several_versions_of_the_code_are_named() -> None:
    old = build_run("gaam", answers(4, 0.8, 1), path="old")
    new = build_run("gaam", answers(4, 0.8, 2), seeds=(4, 5, 6, 7), path="new")
    old.environment["code"] = {"mechanism gaam": "one"}
    new.environment["code"] = {"mechanism gaam": "another"}
    [table] = build_tables([old, new])
    assert any("code of the mechanism" in sentence for sentence in notes(table))


@pytest.mark.parametrize(
    ("losses", "best"),
    [
        pytest.param((0.3, 0.2, 0.4), 1e-3, id="the second has the lowest loss"),
        pytest.param((0.4, 0.3, 0.2), 1e-2, id="the last has the lowest loss"),
        pytest.param((0.2, 0.2, 0.2), 1e-4, id="equal losses"),
    ],
)
def test_of_equal_rates_the_lower_loss_chooses_then_the_smaller_rate(
    losses: tuple[float, ...], best: float
) -> None:
    runs = candidates("gaam", {1e-4: 0.8, 1e-3: 0.8, 1e-2: 0.8})
    for run, loss in zip(runs, losses, strict=True):
        for line in run.log:
            line["selection_loss"] = loss
    [table] = build_tables(runs)
    assert rates(table) == [("gaam", best)]


def tuned_runs() -> list[RunResult]:
    """A mechanism and the baseline, whose best rates differ."""
    return [
        *candidates("gaam", {1e-4: 0.7, 1e-3: 0.9}, test={1e-3: 0.9}),
        *candidates("none", {1e-4: 0.9, 1e-3: 0.7}),
    ]


def test_tuned_entries_are_compared_whatever_was_best_for_each() -> None:
    [table] = build_tables(tuned_runs())
    comparison = table.entries[0].comparison
    assert comparison is not None
    expected = answers(6, 0.9, 1000).mean() - answers(6, 0.8, 100).mean()
    assert comparison.claim.difference == pytest.approx(expected)
    assert not comparison.grids_differ
    assert "grid" not in conclusion(table)


def test_entries_that_were_tuned_over_other_grids_are_compared_with_a_remark() -> None:
    [table] = build_tables([*tuned_runs(), *candidates("gaam", {1e-2: 0.8})])
    [(_, comparison)] = table.compared_entries
    assert comparison.grids_differ
    assert "grid" in conclusion(table)


def test_entries_that_were_not_tuned_and_have_other_rates_are_not_compared() -> None:
    runs = [*candidates("gaam", {1e-3: 0.9}), *candidates("none", {1e-4: 0.9})]
    [table] = build_tables(runs)
    assert [entry.comparison for entry in table.entries] == [None, None]
    assert "not compared" in "\n".join(notes(table))


def test_a_tuned_entry_is_not_compared_with_one_that_happens_to_have_a_rate() -> None:
    tuned = candidates("gaam", {1e-3: 0.9, 1e-4: 0.8})
    [table] = build_tables([*tuned, *candidates("none", {1e-4: 0.9})])
    assert [entry.comparison for entry in table.entries] == [None, None]


@pytest.mark.parametrize("best", RATES)
def test_the_edge_of_a_grid_is_marked_in_settings_and_notes(best: float) -> None:
    validation = dict.fromkeys(RATES, 0.8) | {best: 0.9}
    [table] = build_tables(candidates("gaam", validation))
    [entry] = table.entries
    is_at_edge = best in (RATES[0], RATES[-1])
    assert entry.settings_at_edge == ({"lr"} if is_at_edge else set())
    assert entry.is_undertrained == is_at_edge
    mark = AT_EDGE if is_at_edge else ""
    assert entry.settings == f"lr={best}{mark}"
    about_edges = [note for note in notes(table) if "at the edge" in note]
    assert len(about_edges) == is_at_edge
    assert table.to_dict()["entries"][0]["undertrained"] == is_at_edge


def tuned_folds(
    name: str, best_rates: dict[int, float], repeats: int = 1
) -> list[RunResult]:
    """Candidates of every fold, each of which has its own best rate."""
    num_folds = len(best_rates)
    runs: list[RunResult] = []
    for repeat, fold in itertools.product(range(repeats), best_rates):
        validation = {1e-4: 0.8, 1e-3: 0.8} | {best_rates[fold]: 0.9}
        fold_name = f"{fold}/{num_folds}"
        fold_runs = candidates(name, validation, fold=fold_name, split_seed=repeat)
        order = np.random.default_rng(repeat).permutation(400 * num_folds)
        test_rows = np.sort(order[400 * (fold - 1) :][:400])
        for run in fold_runs:
            change_arrays(run, test_rows=test_rows)
        runs += fold_runs
    return runs


def test_each_fold_chooses_for_itself_and_the_whole_table_stands() -> None:
    best_rates = {1: 1e-4, 2: 1e-3, 3: 1e-3}
    runs: list[RunResult] = []
    for fold, name in itertools.product(best_rates, ("gaam", "none")):
        validation = {1e-4: 0.8, 1e-3: 0.8} | {best_rates[fold]: 0.9}
        runs += candidates(name, validation, fold=f"{fold}/3")
    [table] = build_tables(runs)
    assert table.tested_on.startswith("all 3 folds")
    assert table.incomplete == []
    assert [entry.attention for entry in table.entries] == ["gaam", "none"]
    for entry in table.entries:
        chosen_rates = [tuning.chosen["lr"] for tuning in entry.tunings]
        assert chosen_rates == [*best_rates.values()]
        assert entry.recipe["lr"] == BY_FOLD
        assert entry.seeds == tuple(range(6))
        assert entry.settings == f"lr={BY_FOLD}{AT_EDGE}"
    comparison = table.entries[0].comparison
    assert comparison is not None
    assert comparison.seeds == tuple(range(6))


def a_rate() -> list[RunResult]:
    return candidates("gaam", {1e-4: 0.8, 1e-3: 0.9})


def a_rate_and_a_decay() -> list[RunResult]:
    return [
        *candidates("gaam", {1e-4: 0.8, 1e-3: 0.85}, weight_decay=0.0),
        *candidates("gaam", {1e-4: 0.8, 1e-3: 0.9}, weight_decay=0.1),
    ]


def the_same_in_all_of_25_folds() -> list[RunResult]:
    return tuned_folds("gaam", dict.fromkeys(range(1, 6), 1e-3), repeats=5)


def another_in_some_folds() -> list[RunResult]:
    return tuned_folds("gaam", {1: 1e-3, 2: 1e-3, 3: 1e-4})


def two_decoders() -> list[RunResult]:
    return [*a_rate(), *candidates("none", {1e-4: 0.7, 1e-3: 0.6})]


def nothing_was_tuned() -> list[RunResult]:
    return candidates("gaam", {1e-4: 0.8})


@pytest.mark.parametrize(
    ("build_runs", "lines"),
    [
        (a_rate, ["gaam: learning rate 0.001, chosen from 2, validation 90.0%"]),
        (
            a_rate_and_a_decay,
            [
                "gaam: learning rate 0.001 and weight decay 0.1, chosen from 4, validation 90.0%"
            ],
        ),
        (
            the_same_in_all_of_25_folds,
            ["gaam: learning rate 0.001, chosen from 2, validation 90.0%"],
        ),
        (
            another_in_some_folds,
            [
                "gaam: learning rate 0.001 in 2 folds, learning rate 0.0001 in 1 fold, "
                "chosen from 2, validation 90.0%"
            ],
        ),
        (
            two_decoders,
            [
                "gaam: learning rate 0.001, chosen from 2, validation 90.0%",
                "none: learning rate 0.0001, chosen from 2, validation 70.0%",
            ],
        ),
        (nothing_was_tuned, []),
    ],
)
def test_what_validation_chose_is_a_line_for_each_decoder(
    build_runs: Callable[[], list[RunResult]], lines: list[str]
) -> None:
    [table] = build_tables(build_runs())
    about_choices = [note for note in notes(table) if ", validation " in note]
    assert sorted(about_choices) == lines


def test_all_candidates_have_their_validation_accuracy_where_they_are_shown() -> None:
    validation = {1e-4: 0.812, 1e-3: 0.934}
    runs = candidates("gaam", validation, test={1e-4: 0.7, 1e-3: 0.6})
    [table] = build_tables(runs, every_candidate=True)
    cells = {entry.recipe["lr"]: VALIDATION.text(entry) for entry in table.entries}
    assert cells == {1e-4: "81.2", 1e-3: "93.4"}
    [usual_table] = build_tables(runs)
    assert [VALIDATION.text(entry) for entry in usual_table.entries] == [""]


def logits_that_are_mostly_right(factor: float) -> tuple[Any, Any]:
    """Logits of 6 seeds on 90 rows with three classes, times a factor; and labels."""
    generator = np.random.default_rng(4)
    label_N = np.arange(90) % 3
    logits_SNC = generator.normal(size=(6, 90, 3)) + 2 * np.eye(3)[label_N]
    return (factor * logits_SNC).astype(np.float32), label_N


def candidates_that_differ_in_temperature(
    monkeypatch: pytest.MonkeyPatch,
) -> list[RunResult]:
    """Two rates of equal answers; the logits of the second are five times as large."""
    runs = candidates("gaam", {1e-4: 0.8, 1e-3: 0.8})
    factor_of = dict(zip(runs, (1.0, 5.0), strict=True))
    for run in runs:
        logits_SNC, label_N = logits_that_are_mostly_right(factor_of[run])
        change_arrays(run, logits=logits_SNC, labels=label_N)

    def validation(run: RunResult) -> Validation:
        logits_SVC, label_V = logits_that_are_mostly_right(factor_of[run])
        return Validation(logits=logits_SVC, labels=label_V, rows=np.arange(90))

    monkeypatch.setattr(RunResult, "validation", property(validation))
    return runs


@pytest.mark.parametrize(
    ("temperature", "differ"), [(True, False), (False, True)], ids=["scaled", "raw"]
)
def test_the_variance_of_tuning_is_that_of_the_scores_in_the_table(
    temperature: bool, differ: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A temperature makes the log loss of both candidates the same."""
    runs = candidates_that_differ_in_temperature(monkeypatch)
    [table] = build_tables(runs, score="log-loss", temperature=temperature)
    [entry] = table.entries
    [choices] = entry.simulated_choices
    assert (choices.variance > 1e-6) == differ
    # intervals of the score and of differences include it
    assert entry.compared_score.scored.tuning_variance == choices.variance
    # so many training rows limit both
    assert entry.train_rows == runs[0].cache.rows[runs[0].recipe.train_split]


def test_the_variance_of_tuning_is_around_the_candidate_that_the_loss_chose(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Both candidates are right equally often; the second has the lower loss."""
    runs = candidates_that_differ_in_temperature(monkeypatch)
    for run, loss in zip(runs, (0.9, 0.1), strict=True):
        for entry in run.log:
            entry["selection_loss"] = loss
    [table] = build_tables(runs, score="log-loss")
    [tuning] = table.entries[0].tunings
    assert tuning.chosen["lr"] == 1e-3
    assert tuning.chosen_index == 1
