"""Every pair along a setting: what is compared, corrected, refused and shown."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from gaam_cache.errors import ConfigError
from gaam_decoder import stats
from gaam_decoder.reports.comparisons.pairs import MOST_VALUES
from gaam_decoder.reports.report import Report
from gaam_decoder.reports.table.base import Table
from gaam_decoder.reports.table.build import build_tables
from gaam_decoder.reports.writing.section import Section, sections
from gaam_decoder.runs.result import RunResult, Validation
from tests.decoder.reports.conftest import answers, build_run

NAMES = ("none", "gaam", "mha", "dot")


def some(count: int = 4, num_seeds: int = 8, **recipe: Any) -> list[RunResult]:
    names = [*NAMES, *(f"way{n}" for n in range(20))][:count]
    return [
        build_run(name, answers(num_seeds, 0.8 + 0.01 * n, n + 1), **recipe)
        for n, name in enumerate(names)
    ]


def by_name(table: Table) -> dict[str, Section]:
    return {section.name: section for section in sections(table)}


def test_every_pair_is_the_claim_of_the_two_corrected_for_all() -> None:
    for count in (3, 5):
        (table,) = build_tables(some(count))
        assert table.pairs is not None
        (group,) = table.pairs.groups
        claims = [
            stats.claim(group.rows[p.first].scores.by_row, group.rows[p.second].scores.by_row)
            for p in group.pairs
        ]
        assert len(claims) == count * (count - 1) // 2
        expected = stats.holm(np.array([claim.p for claim in claims])).tolist()
        assert [pair.claim.p_holm for pair in group.pairs] == expected
        assert len(by_name(table)["pairs"].values) > 0
        content = json.dumps(json.loads(Report((table,)).text("json")))
        assert content.count('"paired_seeds"') >= len(claims)


def test_only_rows_that_differ_in_the_setting_alone_are_pairs() -> None:
    runs = [*some(3), *some(2, lr=0.01)]
    (table,) = build_tables(runs, every_candidate=True)
    assert table.pairs is not None
    assert sorted(len(group.rows) for group in table.pairs.groups) == [2, 3]
    (table,) = build_tables(runs, every_candidate=True, pairs="lr")
    assert table.pairs is not None
    assert [group.labels for group in table.pairs.groups] != []
    assert {frozenset(group.labels) for group in table.pairs.groups} == {
        frozenset(("0.01", "0.001"))
    }
    assert {group.rows[0].attention for group in table.pairs.groups} == {"none", "gaam"}


def test_a_setting_that_does_not_vary_is_refused_with_those_that_do() -> None:
    with pytest.raises(ConfigError, match="epochs") as caught:
        build_tables(some(3), pairs="epochs")
    assert "attn" in str(caught.value)


def test_of_many_the_most_accurate_are_compared_and_corrected_for_all() -> None:
    count = MOST_VALUES + 3
    (table,) = build_tables(some(count))
    assert table.pairs is not None
    (group,) = table.pairs.groups
    assert (len(group.rows), group.left_out) == (MOST_VALUES, 3)
    assert {pair.claim.num_tests for pair in group.pairs} == {count * (count - 1) // 2}


def test_no_filter_makes_p_smaller() -> None:
    runs = some(5)
    (table,) = build_tables(runs[:3], beside=runs[3:])
    assert table.pairs is not None
    assert {pair.claim.num_tests for pair in table.pairs.groups[0].pairs} == {10}


def test_pairs_are_of_the_score_and_the_best_stands_first() -> None:
    for score in ("accuracy", "macro-f1", "log-loss", "ece"):
        (table,) = build_tables(some(4), score=score)
        assert table.pairs is not None
        (group,) = table.pairs.groups
        sign = 1 if group.rows[0].score.larger_is_better else -1
        means = [sign * (row.chosen_mean or 0) for row in group.rows]
        assert means == sorted(means, reverse=True)
        by_pair = {
            frozenset((group.labels[p.first], group.labels[p.second])): abs(p.claim.difference)
            for p in group.pairs
        }
        for row, found in zip(table.rows, table.comparisons, strict=True):
            if found is not None:
                pair = by_pair[frozenset((row.attention, "none"))]
                assert pair == pytest.approx(abs(found.claim.difference))


def test_rows_of_scaled_and_of_raw_logits_are_no_pair_where_that_matters(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def kept(run: RunResult) -> Validation | None:
        if run.attention not in NAMES[:2]:
            return None
        return Validation(logits=run.logits, labels=run.labels, rows=np.arange(len(run.labels)))

    monkeypatch.setattr(RunResult, "validation", property(kept))
    for score, sizes in (("accuracy", [4]), ("log-loss", [2, 2])):
        (table,) = build_tables(some(4), score=score, temperature=True)
        assert sum(row.scores.temperatures is not None for row in table.rows) == 2
        assert table.pairs is not None
        assert [len(group.rows) for group in table.pairs.groups] == sizes


def test_rows_that_differ_in_what_chose_are_paired_by_seed_and_marked() -> None:
    right, other = answers(8, 0.8, 1), answers(8, 0.9, 2)[2:]
    for select in ("test", "last"):
        runs = [
            build_run("gaam", right, path="a"),
            build_run("gaam", other, path="b", select=select, seeds=tuple(range(2, 8))),
        ]
        (table,) = build_tables(runs, pairs="select")
        assert table.pairs is not None
        (group,) = table.pairs.groups
        (pair,) = group.pairs
        assert group.labels == (select, "val")
        assert pair.seeds == tuple(range(2, 8))
        assert pair.claim.difference == pytest.approx(other.mean() - right[2:].mean())
        assert pair.claim.p == stats.claim(other, right[2:]).p
        found = by_name(table)["pairs"]
        assert found.lead.endswith("some numbers are optimistic") == (select == "test")
        text = " ".join(found.lines)
        assert ("what it is ahead by is optimism" in text) == (select == "test")
        assert "all is: a difference is of both" in text


def test_a_setting_at_its_default_is_called_by_it() -> None:
    for name, value, default in (
        ("ties", "first", "loss"), ("loss_scale", "dynamic", "none"), ("train_rows", 9, "all"),
        ("layers", "1-2", "all"),
    ):  # fmt: skip
        (table,) = build_tables([*some(2), *some(2, **{name: value})], pairs=name)
        assert table.pairs is not None
        for group in table.pairs.groups:
            assert set(group.labels) == {str(value), default}, name


def test_several_settings_are_one_axis() -> None:
    runs = [
        run
        for select, ties in (("val", None), ("test", None), ("val", "first"), ("test", "first"))
        for run in some(2, select=select, **({"ties": ties} if ties else {}))
    ]
    (table,) = build_tables([*runs, *some(2, epochs=9)], pairs="select, ties")
    assert table.pairs is not None
    for group in table.pairs.groups:
        assert set(group.labels) == {"val, loss", "test, loss", "val, first", "test, first"}
        assert len(group.pairs) == 6
    assert {group.name for group in table.pairs.groups} == {"none", "gaam"}
    lead = by_name(table)["pairs"].lead
    assert "rows that differ in select or ties alone" in lead
    for alone, pairs in (("select", 2), ("ties", 2)):
        (table,) = build_tables(runs, pairs=alone)
        assert table.pairs is not None
        assert [len(group.pairs) for group in table.pairs.groups] == [1, 1] * pairs
