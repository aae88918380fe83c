"""What a row is of: seeds of several runs, folds, repeats, every score, temperatures, draws."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from gaam_cache.common.errors import CacheError
from gaam_cache.store.files import digest_of
from gaam_decoder import RunResult
from gaam_decoder.reports.scoring import all_scores
from gaam_decoder.reports.table import build_tables
from tests.decoder.reports.conftest import answers, build_run

SCORES = all_scores()


def kept_together(right: Any, kind: str, source: str) -> RunResult:
    """A run with groups, of which a recipe knows the digest."""
    return build_run(
        "none",
        right,
        fold="2/4",
        groups=digest_of(source.encode()),
        group_source={"kind": kind, "source": source},
    )


def test_runs_on_other_splits_or_folds_are_another_table() -> None:
    """Although their labels happen to be the same."""
    right = answers(6, 0.8, 1)
    runs = [
        build_run("none", right),
        build_run("none", right, test_split="other"),
        build_run("none", right, fold="2/5"),
        build_run("none", right, fold="2/4"),
        build_run("none", right, fold="2/4", split_seed=1),
        kept_together(right, "column", "speaker"),
        kept_together(right, "file", "/home/me/sessions.txt"),
        build_run("none", answers(6, 0.8, 1, num_rows=401)),
    ]
    tables = build_tables(runs)
    assert [table.where for table in tables] == [
        "test split 'test'",
        "test split 'other'",
        "fold 2 of 5 of the 'train' split",
        "fold 2 of 4 of the 'train' split",
        "fold 2 of 4 of the 'train' split, split seed 1",
        "fold 2 of 4 of the 'train' split, groups of 'speaker' kept together",
        "fold 2 of 4 of the 'train' split, groups of the file 'sessions.txt' kept together",
        "test split 'test'",
    ]
    assert "fold 2 of 5" in tables[2].title()


def test_all_folds_together_are_one_row_whose_test_rows_stand_one_after_the_other() -> (
    None
):
    sizes = {1: 300, 2: 301, 3: 299}
    mine = {fold: answers(7, 0.85, 10 + fold, num_rows=n) for fold, n in sizes.items()}
    base = {fold: answers(7, 0.80, 20 + fold, num_rows=n) for fold, n in sizes.items()}
    runs = [build_run("mha", mine[1], fold="1/3")]
    for fold in (2, 1, 3):
        failed = {4: "nan"} if fold == 2 else None
        runs += [
            build_run("gaam", mine[fold], fold=f"{fold}/3"),
            build_run("none", base[fold], fold=f"{fold}/3", failed=failed),
        ]
    (whole,) = build_tables(runs)
    assert whole.where == "all 3 folds of the 'train' split"
    assert (whole.num_test_rows, whole.entries[0].folds) == (900, 3)
    assert whole.incomplete == ["mha + linear"]
    keep = [0, 1, 2, 3, 5, 6]
    gaam, none = whole.entries
    all_mine, all_base = (
        np.concatenate([d[f] for f in (1, 2, 3)], 1) for d in (mine, base)
    )
    np.testing.assert_array_equal(gaam.right, all_mine)
    np.testing.assert_allclose(none.accuracy.scored.values, all_base[keep].mean(1))
    assert none.failed == {4: "fold 2/3: nan"}
    assert gaam.seconds == dict.fromkeys(range(7), 1.5)
    found = whole.entries[0].compared
    assert found is not None
    assert found.seeds == tuple(keep)
    expected = all_mine[keep].mean(1) - all_base[keep].mean(1)
    assert found.claim.difference == pytest.approx(expected.mean())
    assert whole.num_tests == {"linear": 1}, "folds are not compared a second time"


def scored(
    attention: str, strength: float, *, num_seeds: int = 7, **settings: Any
) -> RunResult:
    classes = tuple(f"class {number}" for number in range(12))
    made = build_run(
        attention, np.ones((num_seeds, 200), bool), classes=classes, **settings
    )
    generator = np.random.default_rng([*attention.encode()])
    logits = 2 * generator.normal(size=(num_seeds, 200, 12)).astype(np.float32)
    logits[:, np.arange(200), made.labels] += strength
    logits[[made.seeds.index(seed) for seed in made.failed]] = np.nan
    vars(made)["logits"] = logits
    return made


def test_folds_and_repeats_are_rows_of_one_test() -> None:
    for repeats in (1, 2):
        parts = []
        for (attention, strength), split_seed, fold in product(
            (("none", 2.0), ("mha", 4.0)), range(repeats), range(2)
        ):
            where = {"fold": f"{fold + 1}/2", "split_seed": split_seed}
            one = scored(
                attention, strength, path=f"{attention}{split_seed}{fold}", **where
            )
            order = np.random.default_rng(split_seed).permutation(400)
            vars(one)["test_rows"] = np.sort(order[200 * fold :][:200])
            parts.append(one)
        for name, score in SCORES.items():
            [table] = build_tables(parts, score=name)
            row = table.entries[0]
            assert (row.folds, row.repeats) == (2, repeats)
            by_row = row.chosen.scored.by_row
            if by_row is not None:
                assert by_row.shape == (7, 400)
                assert by_row.mean(1) == pytest.approx(row.chosen.scored.values)
            if (
                name == "accuracy" and repeats == 2
            ):  # of every row, whenever it is tested
                expected = np.zeros((7, 400))
                for one in (one for one in parts if one.attention == row.attention):
                    expected[:, one.test_rows] += one.hits / repeats
                np.testing.assert_allclose(by_row, expected)
            [found] = [
                c for c in [row.compared for row in table.entries] if c is not None
            ]
            assert found.claim.verdict == (
                "no claim" if score.no_claim else "better"
            ), name
    vars(parts[0])["test_rows"] = np.arange(200) + 7
    with pytest.raises(CacheError):
        build_tables(parts)


def test_logits_that_are_no_numbers_are_damage_and_not_a_class() -> None:
    for bad in (np.nan, np.inf):
        run = build_run("gaam", answers(3, 0.8, 1))
        run.logits[1, 5, 0] = bad
        with pytest.raises(CacheError, match="gaam-linear"):
            build_tables([run])


def test_seeds_whose_best_epoch_is_the_last_are_more_than_chance_or_nothing() -> None:
    """Of 8 seeds and 15 epochs: one in two plateaus has a late seed or more, one in ten two."""
    for select, late in product(("val", "last"), (0, 1, 2, 8)):
        run = build_run("gaam", answers(8, 0.8, 1), epochs=15, select=select)
        run.epochs.update(dict.fromkeys(range(late), 15))
        [row] = build_tables([run])[0].entries
        assert row.undertrained == (late > 1 and select == "val")
        assert len(row.to_dict()["best_epoch_is_last"]) == late * (select == "val")


def test_an_epoch_that_was_as_accurate_before_speaks_against_more() -> None:
    for earlier, late in ((0.7, 8), (0.8, 0)):
        run = build_run("gaam", answers(8, 0.8, 1), epochs=15)
        run.epochs.update(dict.fromkeys(range(8), 15))
        seen = [{"epoch": 3, "accuracy": earlier}, {"epoch": 15, "accuracy": 0.8}]
        vars(run)["log"] = [one | {"seed": seed} for seed in range(8) for one in seen]
        [row] = build_tables([run])[0].entries
        assert len(row.still_learning) == late
