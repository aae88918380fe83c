"""An entry is of seeds of several runs, folds, repeats, every score, and draws."""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest

from gaam_cache.common.errors import CacheError
from gaam_cache.store.files import digest_of
from gaam_decoder import RunResult
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.reports.entries import Comparison
from gaam_decoder.reports.notes import warnings
from gaam_decoder.reports.scoring import all_scores
from gaam_decoder.reports.sections import sections
from gaam_decoder.reports.table import Table, build_tables
from tests.decoder.reports.conftest import answers, build_run, change_arrays

CLASSES = tuple(f"class {number}" for number in range(12))
ROWS_OF_A_FOLD = 200


def run_with_groups(right: Any, kind: str, source: str) -> RunResult:
    """A run with groups, of which a recipe knows the digest."""
    return build_run(
        "none",
        right,
        fold="2/4",
        groups=digest_of(source.encode()),
        group_source={"kind": kind, "source": source},
    )


def comparison_of(table: Table) -> Comparison:
    """The one comparison of a table."""
    [(_, comparison)] = table.compared_entries
    return comparison


def test_runs_on_other_splits_or_folds_are_another_table() -> None:
    """Although their labels happen to be the same."""
    right = answers(6, 0.8, 1)
    runs = [
        build_run("none", right),
        build_run("none", right, test_split="other"),
        build_run("none", right, fold="2/5"),
        build_run("none", right, fold="2/4"),
        build_run("none", right, fold="2/4", split_seed=1),
        run_with_groups(right, "column", "speaker"),
        run_with_groups(right, "file", "/home/me/sessions.txt"),
        build_run("none", answers(6, 0.8, 1, num_rows=401)),
    ]
    tables = build_tables(runs)
    fold_2_of_4 = "fold 2 of 4 of the 'train' split"
    assert [table.tested_on for table in tables] == [
        "test split 'test'",
        "test split 'other'",
        "fold 2 of 5 of the 'train' split",
        fold_2_of_4,
        f"{fold_2_of_4}, split seed 1",
        f"{fold_2_of_4}, groups of 'speaker' kept together",
        f"{fold_2_of_4}, groups of the file 'sessions.txt' kept together",
        "test split 'test'",
    ]
    assert "fold 2 of 5" in tables[2].title()


def test_all_folds_are_one_entry_whose_test_rows_stand_one_after_the_other() -> None:
    sizes = {1: 300, 2: 301, 3: 299}
    right: dict[int, Any] = {}
    right_of_baseline: dict[int, Any] = {}
    for fold, num_rows in sizes.items():
        right[fold] = answers(7, 0.85, 10 + fold, num_rows=num_rows)
        right_of_baseline[fold] = answers(7, 0.80, 20 + fold, num_rows=num_rows)
    # a mechanism of one fold alone, and folds out of order
    runs = [build_run("mha", right[1], fold="1/3")]
    for fold in (2, 1, 3):
        name = f"{fold}/3"
        failed = {4: "nan"} if fold == 2 else None
        runs.append(build_run("gaam", right[fold], fold=name))
        baseline = build_run("none", right_of_baseline[fold], fold=name, failed=failed)
        runs.append(baseline)
    [table] = build_tables(runs)
    assert table.tested_on == "all 3 folds of the 'train' split"
    assert table.num_test_rows == 900
    assert table.incomplete == ["mha + linear"]
    assert table.num_tests == {"linear": 1}, "folds are not compared a second time"

    all_right = np.concatenate([right[fold] for fold in sizes], 1)
    all_of_baseline = np.concatenate([right_of_baseline[fold] for fold in sizes], 1)
    finished = [0, 1, 2, 3, 5, 6]
    gaam, none = table.entries
    assert gaam.folds == 3
    np.testing.assert_array_equal(gaam.contribution_SN, all_right)
    expected = all_of_baseline[finished].mean(1)
    np.testing.assert_allclose(none.default_score.scored.values, expected)
    assert none.failed == {4: "fold 2/3: nan"}
    assert gaam.seconds == dict.fromkeys(range(7), 1.5)
    assert gaam.comparison is not None
    assert gaam.comparison.seeds == tuple(finished)
    differences = all_right[finished].mean(1) - all_of_baseline[finished].mean(1)
    assert gaam.comparison.claim.difference == pytest.approx(differences.mean())


def run_of_a_fold(
    attention: str, strength: float, fold: int, split_seed: int
) -> RunResult:
    """A run of twelve classes, of one of two folds, with logits of all sizes."""
    run = build_run(
        attention,
        np.ones((7, ROWS_OF_A_FOLD), bool),
        classes=CLASSES,
        path=f"{attention}{split_seed}{fold}",
        fold=f"{fold + 1}/2",
        split_seed=split_seed,
    )
    rng = np.random.default_rng([*attention.encode()])
    logits = 2 * rng.normal(size=(7, ROWS_OF_A_FOLD, 12)).astype(np.float32)
    logits[:, np.arange(ROWS_OF_A_FOLD), run.labels] += strength
    order = np.random.default_rng(split_seed).permutation(2 * ROWS_OF_A_FOLD)
    test_rows = order[ROWS_OF_A_FOLD * fold :][:ROWS_OF_A_FOLD]
    change_arrays(run, logits=logits, test_rows=np.sort(test_rows))
    return run


def runs_of_folds(repeats: int) -> list[RunResult]:
    """Two mechanisms in two folds of every repeat."""
    strengths = {"none": 2.0, "mha": 4.0}
    return [
        run_of_a_fold(attention, strengths[attention], fold, split_seed)
        for attention, split_seed, fold in product(strengths, range(repeats), range(2))
    ]


@pytest.mark.parametrize("repeats", [1, 2])
def test_folds_and_repeats_are_rows_of_one_test(repeats: int) -> None:
    runs = runs_of_folds(repeats)
    for name, score in all_scores().items():
        [table] = build_tables(runs, score=name)
        entry = table.entries[0]
        assert (entry.folds, entry.repeats) == (2, repeats), name
        scored = entry.compared_score.scored
        if scored.by_row is not None:
            assert scored.by_row.shape == (7, 2 * ROWS_OF_A_FOLD), name
            assert scored.by_row.mean(1) == pytest.approx(scored.values), name
        verdict = comparison_of(table).claim.verdict
        assert verdict == ("no claim" if score.no_claim_reason else "better"), name


class RepeatsCase(NamedTuple):
    """Split seeds that decoders have, and what one table makes of them."""

    split_seeds: dict[str, tuple[int, ...]]
    shared: int  # the only split seed of the table
    left_out: tuple[int, ...] = ()
    incomplete: tuple[str, ...] = ()


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            RepeatsCase({"none": (0,), "mha": (0, 1)}, 0, left_out=(1,)),
            id="a further repeat of one decoder",
        ),
        pytest.param(
            RepeatsCase(
                {"none": (0, 1), "mha": (1, 2), "gaam": (1,)}, 1, left_out=(0, 2)
            ),
            id="one repeat that all share",
        ),
        pytest.param(
            RepeatsCase(
                {"none": (0,), "mha": (1,)}, 0, left_out=(1,), incomplete=("mha",)
            ),
            id="no repeat in common",
        ),
        pytest.param(
            RepeatsCase(
                {"none": (0,), "mha": (1,), "gaam": (1,)},
                1,
                left_out=(0,),
                incomplete=("none",),
            ),
            id="the repeat of most decoders",
        ),
    ],
)
def test_a_table_has_the_repeats_that_most_decoders_share(case: RepeatsCase) -> None:
    runs = [
        run_of_a_fold(attention, 3.0, fold, split_seed)
        for attention, split_seeds in case.split_seeds.items()
        for split_seed, fold in product(split_seeds, range(2))
    ]
    [table] = build_tables(runs)
    assert {entry.attention for entry in table.entries} == (
        case.split_seeds.keys() - {*case.incomplete}
    )
    for entry in table.entries:
        assert {run.recipe.split_seed for run in entry.runs} == {case.shared}
    assert tuple(table.left_out_repeats) == case.left_out
    assert table.incomplete == [f"{name} + linear" for name in case.incomplete]
    warning = " ".join(warnings(table))
    assert f" {spell_numbers(case.left_out)} are left out" in warning
    for name in case.incomplete:
        assert f"folds are missing: {name} + linear" in warning


def test_a_row_is_right_as_often_as_it_is_in_all_repeats() -> None:
    runs = runs_of_folds(repeats=2)
    [table] = build_tables(runs)
    entry = table.entries[0]
    expected = np.zeros((7, 2 * ROWS_OF_A_FOLD))
    for run in runs:
        if run.attention == entry.attention:
            expected[:, run.test_rows] += run.hits / 2
    by_row = entry.compared_score.scored.by_row
    assert by_row is not None
    np.testing.assert_allclose(by_row.astype(float), expected)


@pytest.mark.parametrize("repeats", [1, 2], ids=["one repeat", "two repeats"])
def test_recall_counts_a_row_once_for_all_repeats(repeats: int) -> None:
    runs = runs_of_folds(repeats)
    [table] = build_tables(runs)
    [section] = [part for part in sections(table) if part.name == "scores"]
    _scores, recall = section.parts.sheets
    best = table.entries[0]
    runs_of_best = [run for run in runs if run.attention == best.attention]
    lines = [line for line in recall.lines if line[0] == best.label]
    assert len(lines) == len(CLASSES)
    for label, (_decoder, _name, rows, share, *_mistake) in enumerate(lines):
        # the labels of all runs are the same
        assert rows == str(2 * (runs[0].labels == label).sum())
        hits = [run.hits[:, run.labels == label] for run in runs_of_best]
        assert share == f"{100 * np.mean(hits):.1f}"


def test_folds_that_test_other_rows_than_a_repeat_has_are_damage() -> None:
    runs = runs_of_folds(repeats=2)
    change_arrays(runs[0], test_rows=np.arange(ROWS_OF_A_FOLD) + 7)
    with pytest.raises(CacheError):
        build_tables(runs)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_logits_that_are_no_numbers_are_damage_and_not_a_class(value: float) -> None:
    run = build_run("gaam", answers(3, 0.8, 1))
    run.logits[1, 5, 0] = value
    with pytest.raises(CacheError, match="gaam-linear"):
        build_tables([run])


@pytest.mark.parametrize("select", ["val", "last"])
@pytest.mark.parametrize("num_late", [0, 1, 2, 8])
def test_seeds_whose_best_epoch_is_the_last_are_more_than_chance_or_nothing(
    select: str, num_late: int
) -> None:
    """Of 8 seeds and 15 epochs.

    One in two plateaus has a late seed or more, one in ten has two.
    """
    run = build_run("gaam", answers(8, 0.8, 1), epochs=15, select=select)
    run.epochs.update(dict.fromkeys(range(num_late), 15))
    [entry] = build_tables([run])[0].entries
    assert entry.is_undertrained == (num_late > 1 and select == "val")
    expected = num_late if select == "val" else 0
    late_seeds = entry.to_dict()["best_epoch_is_last"]
    assert isinstance(late_seeds, list)
    assert len(late_seeds) == expected


@pytest.mark.parametrize(
    ("earlier_accuracy", "num_late"),
    [
        pytest.param(0.7, 8, id="it was less accurate before"),
        pytest.param(0.8, 0, id="it was as accurate before"),
    ],
)
def test_an_epoch_that_was_as_accurate_before_speaks_against_more(
    earlier_accuracy: float, num_late: int
) -> None:
    run = build_run("gaam", answers(8, 0.8, 1), epochs=15)
    run.epochs.update(dict.fromkeys(range(8), 15))
    log: list[dict[str, Any]] = []
    for seed in range(8):
        log.append({"seed": seed, "epoch": 3, "accuracy": earlier_accuracy})
        log.append({"seed": seed, "epoch": 15, "accuracy": 0.8})
    change_arrays(run, log=log)
    [entry] = build_tables([run])[0].entries
    assert len(entry.seeds_still_learning) == num_late
