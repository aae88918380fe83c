"""What a report computes and what it says about it."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.stats

from gaam_decoder.reports.notes.claims import claims
from gaam_decoder.reports.notes.notes import notes, warnings
from gaam_decoder.reports.pictures.pictures import row_pictures
from gaam_decoder.reports.table.base import Table
from gaam_decoder.reports.table.build import build_tables
from tests.decoder.reports.conftest import answers, build_run, written


def everything(tables: list[Table]) -> dict:
    return json.loads(written("json", tables))


def test_votes_of_rows_are_counted_and_tested() -> None:
    """Of all else the contract computes every number again."""
    mine, theirs = answers(7, 0.83, 1), answers(7, 0.80, 2)  # no ties
    content = everything(build_tables([build_run("gaam", mine), build_run("none", theirs)]))
    votes, others = (right.mean(0) > 0.5 for right in (mine, theirs))
    found = content["rows"][0]["comparison"]["mcnemar"]
    only = (votes & ~others).sum(), (others & ~votes).sum()
    assert (found["only_this_right"], found["only_baseline_right"]) == only
    assert found["p"] == pytest.approx(scipy.stats.binomtest(int(only[0]), int(sum(only))).pvalue)


def test_failed_seeds_drop_out_of_pairs_and_it_is_said() -> None:
    mine, theirs = answers(8, 0.83, 1), answers(9, 0.80, 2)
    runs = [
        build_run("gaam", mine, failed={3: "the loss became nan in epoch 1"}),
        build_run("none", theirs),
    ]
    [table] = build_tables(runs)
    comparison = table.comparisons[0]
    assert comparison is not None
    assert comparison.seeds == (0, 1, 2, 4, 5, 6, 7)
    assert comparison.dropped == (3, 8)
    keep = list(comparison.seeds)
    expected = (mine[keep].mean(1) - theirs[keep].mean(1)).mean()
    assert comparison.claim.difference == pytest.approx(expected)
    text = "\n".join(notes(table))
    assert "gaam seed 3 failed: the loss became nan in epoch 1" in text
    assert "gaam: without seed 3, 8" in text
    assert any("1 seed failed" in warning for warning in warnings(table))


def test_fewer_than_six_seeds_make_no_claim_however_large_the_difference() -> None:
    for num_seeds in (1, 5):
        runs = [
            build_run("gaam", np.ones((num_seeds, 400))),
            build_run("none", answers(num_seeds, 0.5, 2)),
        ]
        [table] = build_tables(runs)
        comparison = table.comparisons[0]
        assert comparison is not None
        assert comparison.claim.difference > 0.4
        assert comparison.claim.verdict == "undecided"
        assert (comparison.mcnemar, comparison.claim.p_holm) == (None, None)
        assert not comparison.claim.significant
        assert claims(table) == []
        assert table.num_tests == 0
        text = "\n".join(notes(table))
        assert "no claim with fewer than 6 seeds" in text
        assert f"has p = {2 / 2**num_seeds:.3g}" in text
        assert "Fewer than 6 paired seeds: no claim is made." in warnings(table)


def test_a_difference_that_one_comparison_claims_a_hundred_take_back() -> None:
    better, base = answers(6, 0.86, 1), answers(6, 0.8, 2)
    [table] = build_tables([build_run("gaam", better), build_run("none", base)])
    alone = table.comparisons[0]
    assert alone is not None
    p = alone.claim.p
    assert p is not None
    assert alone.claim.p_holm == p < 0.05
    assert alone.claim.verdict == "better"
    [sentence] = claims(table)
    assert sentence.startswith(f"gaam is better than none by {100 * alone.claim.difference:.2f} ")
    for count in (2, int(0.06 / p) + 1):
        names = [f"gaam:heads={n}" for n in range(1, count + 1)]
        [table] = build_tables([*(build_run(n, better) for n in names), build_run("none", base)])
        assert table.num_tests == count
        for comparison in table.comparisons[:-1]:
            assert comparison is not None
            assert comparison.claim.p_holm == pytest.approx(min(1, count * p))
            expected = "better" if count * p < 0.05 else "undecided"
            assert comparison.claim.verdict == expected
    assert expected == "undecided"


def test_a_difference_that_hangs_on_these_test_rows_is_no_claim_and_it_is_said() -> None:
    base = answers(8, 0.8, 2, num_rows=60)
    better = base.copy()
    for seed, row in enumerate(better):
        row[np.flatnonzero(~row)[: 2 + seed % 2]] = True  # always better, by a row or two in all
        row[np.flatnonzero(base.all(0))[0]] = False
    [table] = build_tables([build_run("gaam", better), build_run("none", base)])
    comparison = table.comparisons[0]
    assert comparison is not None
    claim = comparison.claim
    assert claim.interval is not None
    assert claim.interval[0] < 0 < claim.interval[1]
    assert (claim.verdict, claim.on_these_rows.verdict) == ("undecided", "better")
    [sentence] = claims(table)
    assert "gaam is undecided" in sentence
    assert "on these test rows alone it is better" in sentence
    assert "which other rows may not show" in sentence
    sure = build_tables([build_run("gaam", np.ones((8, 60))), build_run("none", base)])
    assert "on these test rows" not in claims(sure[0])[0]


def test_holm_counts_the_comparisons_of_all_tables() -> None:
    runs = []
    for fingerprint in ("f" * 64, "e" * 64):
        cache = {"fingerprint": fingerprint}
        runs += [
            build_run("gaam", answers(7, 0.9, 1), cache=cache),
            build_run("none", answers(7, 0.7, 2), cache=cache),
        ]
    tables = build_tables(runs)
    assert len(tables) == 2
    assert all(table.num_tests == 2 for table in tables)
    for table in tables:
        assert table.comparisons[0] is not None
        claim = table.comparisons[0].claim
        assert claim.p is not None
        assert claim.p_holm == pytest.approx(2 * claim.p)


def test_the_baseline_has_the_same_head_and_recipe_or_there_is_no_comparison() -> None:
    runs = [
        build_run("gaam", answers(6, 0.8, 1)),
        build_run("gaam", answers(6, 0.8, 2), head="conv"),
        build_run("gaam", answers(6, 0.8, 3), lr=0.01),
        build_run("mha", answers(6, 0.8, 4)),
        build_run("mha", answers(6, 0.8, 5), lr=0.01),
    ]
    [table] = build_tables(runs, "mha", every_candidate=True)
    by_label = dict(zip(table.labels(), table.comparisons, strict=True))
    compared = {label for label, comparison in by_label.items() if comparison is not None}
    assert compared == {"gaam + linear lr=0.001", "gaam + linear lr=0.01"}
    difference = by_label["gaam + linear lr=0.01"]
    assert difference is not None
    expected = answers(6, 0.8, 3).mean() - answers(6, 0.8, 5).mean()
    assert difference.claim.difference == pytest.approx(expected)
    assert "not compared" in "\n".join(notes(table))
    assert "gaam + conv" in "\n".join(notes(table))


def test_without_a_control_nothing_is_compared_and_a_hint_is_given() -> None:
    runs = [build_run("gaam", answers(6, 0.8, 1)), build_run("mha", answers(6, 0.8, 2))]
    [table] = build_tables(runs)
    assert table.comparisons == (None, None)
    text = "\n".join(notes(table))
    assert "no control among these rows" in text
    assert "--attn none --attn scalar-mix" in text
    assert "--baseline" in text
    [table] = build_tables(runs, "mha")
    assert table.comparisons[0] is not None


def test_runs_on_other_splits_or_folds_are_another_table() -> None:
    """Although their labels happen to be the same."""
    right = answers(6, 0.8, 1)
    runs = [
        build_run("none", right),
        build_run("none", right, test_split="other"),
        build_run("none", right, fold="2/5"),
        build_run("none", right, fold="3/5"),
        build_run("none", right, fold="2/4"),
        build_run("none", right, fold="2/4", split_seed=1),
        build_run("none", right, fold="2/4", groups="0123456789"),
        build_run("none", answers(6, 0.8, 1, num_rows=401)),
    ]
    tables = build_tables(runs)
    assert len(tables) == len(runs)
    assert [table.where for table in tables[:3]] == [
        *("test split 'test'", "test split 'other'", "fold 2 of 5 of the 'train' split"),
    ]
    assert "fold 2 of 5" in tables[2].title()
    places = {table.where for table in tables}
    assert len(places) == len(tables) - 1, "only the last, of other rows, is called as another"
    assert "fold 2 of 4 of the 'train' split, split seed 1" in places
    assert "fold 2 of 4 of the 'train' split, groups 01234567 kept together" in places


def test_all_folds_together_are_one_row_whose_test_rows_stand_one_after_the_other() -> None:
    sizes = {1: 300, 2: 301, 3: 299}
    mine = {fold: answers(7, 0.85, 10 + fold, num_rows=n) for fold, n in sizes.items()}
    base = {fold: answers(7, 0.80, 20 + fold, num_rows=n) for fold, n in sizes.items()}
    runs = []
    for fold in (2, 1, 3):
        runs += [
            build_run("gaam", mine[fold], fold=f"{fold}/3"),
            build_run("none", base[fold], fold=f"{fold}/3",
                      failed={4: "nan"} if fold == 2 else None),
        ]  # fmt: skip
    runs.append(build_run("mha", mine[1], fold="1/3"))
    (whole,) = build_tables(runs)
    assert whole.where == "all 3 folds of the 'train' split"
    assert (whole.num_test_rows, whole.rows[0].folds) == (900, 3)
    keep = [0, 1, 2, 3, 5, 6]
    gaam, none = whole.rows
    all_mine, all_base = (np.concatenate([d[f] for f in (1, 2, 3)], 1) for d in (mine, base))
    np.testing.assert_array_equal(gaam.scores.right, all_mine)
    np.testing.assert_allclose(none.scores.accuracy, all_base[keep].mean(1))
    assert none.failed == {4: "fold 2/3: nan"}
    assert gaam.seconds == dict.fromkeys(range(7), 1.5)
    comparison = whole.comparisons[0]
    assert comparison is not None
    assert comparison.seeds == tuple(keep)
    expected = all_mine[keep].mean(1) - all_base[keep].mean(1)
    assert comparison.claim.difference == pytest.approx(expected.mean())
    assert whole.num_tests == 1, "folds are not compared a second time"
    text = "\n".join(notes(whole))
    assert "every row is tested once, by decoders that did not learn from it" in text
    assert "not here, because folds are missing: mha + linear (1 of 3)" in text
    assert everything([whole])["rows"][0]["folds"] == 3


def test_seeds_of_two_runs_are_one_row_and_a_repeated_seed_counts_once() -> None:
    right = answers(6, 0.8, 1)
    again = answers(2, 0.1, 9)
    runs = [
        build_run("none", right[:4], seeds=(0, 1, 2, 3), path="a"),
        build_run("none", np.concatenate([again[:1], right[4:]]), seeds=(3, 4, 5), path="b"),
    ]
    [table] = build_tables(runs)
    [row] = table.rows
    assert row.seeds == (0, 1, 2, 3, 4, 5)
    np.testing.assert_allclose(row.scores.accuracy, right.mean(1))
    assert "several runs have seed 3" in "\n".join(notes(table))


def test_a_run_selected_on_test_is_marked_everywhere() -> None:
    [table] = build_tables([build_run("none", answers(2, 0.8, 1), select="test")])
    assert everything([table])["rows"][0]["optimistic"] is True
    assert "epoch chosen on test: optimistic" in "\n".join(notes(table))
    assert warnings(table)[0].startswith("Optimistic")


def test_pictures_show_a_repeated_seed_once_and_no_failed_one() -> None:
    gate = np.arange(4.0)[:, None, None] + np.ones((4, 6, 5))
    gate[2] = np.nan
    learned = {"xi": gate[:, 0]}
    common = {"attention_map": gate, "learned": learned}
    runs = [
        build_run("gaam", answers(4, 0.8, 1), path="a", failed={2: "nan"}, **common),
        build_run("gaam", answers(4, 0.8, 2), path="b", seeds=(3, 4, 5, 6), **common),
    ]
    runs[1].failed[5] = "nan"
    vars(runs[1])["logits"][2] = np.nan
    [table] = build_tables(runs)
    found = {picture.name: picture for picture in row_pictures(table.rows[0], "gaam", ["a"] * 3)}
    assert "mean of 5 seeds" in found["importance-gaam"].caption
    assert "over 5 seeds" in found["confusion-gaam"].caption
    bars = found["layers-gaam"].draw().axes[0].patches
    assert [bar.get_height() for bar in bars] == [pytest.approx(100 / 6)] * 6
