"""Rows compared with rows: what is compared, paired, corrected and refused."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import pytest

import gaam_decoder
from gaam_cache.common.errors import ConfigError
from gaam_decoder import RunResult, stats
from gaam_decoder.reports.compare import same_recipe
from gaam_decoder.reports.report import Report
from gaam_decoder.reports.table import Table, build_tables
from gaam_decoder.runs.records import DrawnRows
from tests.decoder.reports.conftest import FIT, answers, build_probe, build_run

NAMES = ("none", "gaam", "mha", "dot")
SIZES: list[dict[str, int]] = [{}, {"train_rows": 8}, {"train_rows": 100}, {"shots": 2}]


def some(count: int = 4, num_seeds: int = 8, **recipe: Any) -> list[RunResult]:
    names = [*NAMES, *(f"way{n}" for n in range(20))][:count]
    return [
        build_run(name, answers(num_seeds, 0.8 + 0.01 * n, n + 1), **recipe)
        for n, name in enumerate(names)
    ]


def claims_of(report: Report) -> Iterator[stats.Claim]:
    for table in report.tables:
        yield from (found.claim for _, found in table.compared)
        yield from (row.probed.claim for row in table.entries if row.probed)
        yield from (
            p.claim for group in table.pairs.groups for p in group.pairs.values()
        )  # type: ignore[union-attr]


def test_no_interval_that_leaves_out_0_stands_beside_undecided() -> None:
    """It is the one that the verdict is made from: at the level of its step in Holm's order."""
    verdicts, apart = set(), 0
    for seed, score in product(range(6), ("accuracy", "log-loss", "macro-f1")):
        rng = np.random.default_rng(seed)
        shares = (0.8, *rng.uniform(0.72, 0.9, 4))
        runs = [build_run(f"way{n}" if n else "none", answers(7, share, n, num_rows=300))
                for n, share in enumerate(shares)]  # fmt: skip
        for run in runs:
            vars(run)["logits"] += rng.normal(0, 0.01, run.logits.shape).astype(
                np.float32
            )
        for claim in claims_of(gaam_decoder.report(runs, score=score)):
            low, high = claim.interval_corrected or (0.0, 0.0)
            assert (low > 0 or high < 0) == (
                claim.p_holm is not None and claim.p_holm < 0.05
            )
            assert (low > 0 or high < 0) == claim.significant
            verdicts.add(claim.verdict)
            plain = claim.interval or (0.0, 0.0)
            assert low <= plain[0] + 1e-12
            assert plain[1] <= high + 1e-12
            apart += (plain[0] > 0 or plain[1] < 0) and claim.verdict == "undecided"
    assert verdicts >= {"better", "worse", "undecided"}
    assert apart, "the uncorrected interval would have contradicted a verdict"
    (table,) = build_tables(some(2, num_seeds=5))
    assert [
        found.claim.interval_corrected
        for found in [row.compared for row in table.entries]
        if found
    ] == [None]


def test_the_baseline_has_the_same_head_and_recipe_or_there_is_no_comparison() -> None:
    runs = [
        build_run("gaam", answers(6, 0.8, 1)),
        build_run("gaam", answers(6, 0.8, 2), head="conv"),
        build_run("gaam", answers(6, 0.8, 3), lr=0.01),
        build_run("mha", answers(6, 0.8, 4)),
        build_run("mha", answers(6, 0.8, 5), lr=0.01),
    ]
    [table] = build_tables(runs, "mha", every_candidate=True)
    found = {
        row.label: row.compared.claim.difference
        for row in table.entries
        if row.compared
    }
    assert found.keys() == {"gaam + linear lr=0.001", "gaam + linear lr=0.01"}
    expected = answers(6, 0.8, 3).mean() - answers(6, 0.8, 5).mean()
    assert found["gaam + linear lr=0.01"] == pytest.approx(expected)
    [table] = build_tables(runs, every_candidate=True)
    assert {row.compared for row in table.entries} == {None}
    with pytest.raises(ConfigError, match=r"'dot'(.|\n)*gaam, mha"):
        build_tables(runs, "dot")


def of_size(attention: str, size: dict[str, int], **more: Any) -> RunResult:
    """As accurate as its rows are many; the baseline a little less."""
    rows = size.get("train_rows") or 3 * size.get("shots", 300)
    accuracy = 0.5 + 0.1 * np.log10(rows) - 0.02 * (attention == "none")
    right = answers(
        1 if more.get("head") == "lbfgs" else 8, accuracy, rows + len(attention)
    )
    path = f"{attention}-{rows}-{len(size)}-{more.get('head', '')}"
    drawn = DrawnRows(learn=rows - 2, choose=2) if size else None
    return build_run(
        attention, right, path=path, split_seed=0, drawn=drawn, **size, **more
    )


def probe(size: dict[str, int]) -> RunResult:
    return of_size("none", size, head="lbfgs", fit=FIT)


def test_rows_are_compared_with_the_baseline_and_the_probe_of_their_size() -> None:
    [table] = build_tables(
        [of_size(name, size) for size in SIZES for name in ("gaam", "none")]
    )
    assert [row.drawn for row in table.entries if row.attention == "none"] == [
        None,
        100,
        8,
        6,
    ]
    for row, found in zip(
        table.entries, [row.compared for row in table.entries], strict=True
    ):
        alike = [r for r in table.entries if same_recipe(r.recipe, row.recipe)]
        other = next(r for r in alike if r.attention == "none")
        if row is not other:
            assert found is not None
            expected = (
                row.accuracy.scored.values.mean() - other.accuracy.scored.values.mean()
            )
            assert found.claim.difference == pytest.approx(expected)
    for mine, others in product(SIZES, SIZES):
        [table] = build_tables([of_size("gaam", mine), of_size("none", others)])
        assert any(row.compared for row in table.entries) == (mine == others)
        [table] = build_tables([of_size("gaam", mine), probe(others)])
        assert any(row.probed for row in table.entries) == (mine == others)


def sweep() -> list[RunResult]:
    """Every mechanism on every layer at two rates, tuned by validation."""
    found = []
    for number, (name, layer, lr) in enumerate(
        product(NAMES, range(1, 5), (1e-4, 1e-3))
    ):
        share = 0.6 + 0.02 * NAMES.index(name) + 0.02 * layer
        found.append(build_run(name, answers(8, share, number), path=f"{number}", lr=lr,
                               layers=str(layer), validation=share + lr))  # fmt: skip
    return [*found, probe({})]


def test_no_filter_and_no_top_makes_a_p_value_smaller() -> None:
    def by_runs(report: Report) -> dict[tuple[str, ...], Any]:
        found: dict[tuple[str, ...], Any] = {}
        for table in report.tables:
            for row in table.entries:
                names = [str(run.path) for run in row.runs]
                found |= (
                    {("baseline", *names): row.compared.claim} if row.compared else {}
                )
                found |= {("probe", *names): row.probed.claim} if row.probed else {}
            for group in table.pairs.groups:  # type: ignore[union-attr]
                for places, pair in group.pairs.items():
                    key = sorted(
                        str(group.entries[place].runs[0].path) for place in places
                    )
                    found["pair", *key] = pair.claim
        return found

    runs = sweep()
    whole, compared = by_runs(gaam_decoder.report(runs)), 0
    filters: list[dict[str, Any]] = [{"attn": ["none", name]} for name in NAMES]
    filters += [
        {"layers": "2"},
        {"lr": "0.0001"},
        {"lr": "0.001", "attn": ["none", "gaam"]},
    ]
    filters.append({"top": 3})
    for chosen in filters:
        for names, claim in by_runs(gaam_decoder.report(runs, **chosen)).items():
            if names not in whole or claim.p != whole[names].p:
                continue  # another candidate was chosen: another hypothesis
            compared += 1
            before = whole[names]
            assert claim.num_tests >= before.num_tests, chosen
            assert claim.p_holm >= before.p_holm - 1e-15, chosen
            assert claim.p_equivalent_holm >= before.p_equivalent_holm - 1e-15, chosen
            if "attn" in chosen and "lr" not in chosen:  # and nothing is counted twice
                assert claim.num_tests == before.num_tests
    assert compared > 50


def p_values(table: Table, head: str = "") -> dict[tuple[str, ...], Any]:
    """Of every comparison of a table, or of one head of it, the corrected p and the count."""
    found: dict[tuple[str, ...], Any] = {}
    for row in table.entries:
        for kind, compared in (("baseline", row.compared), ("probe", row.probed)):
            if compared and row.head in (head or row.head):
                claim = compared.claim
                values = claim.p_holm, claim.p_equivalent_holm, claim.num_tests
                found[kind, row.attention, row.head] = values
    assert table.pairs is not None
    for group in table.pairs.groups:
        for places, compared in group.pairs.items():
            mine = [group.entries[place] for place in places]
            if mine[0].head in (head or mine[0].head):
                claim = compared.claim
                names = sorted(row.attention for row in mine)
                values = claim.p_holm, claim.p_equivalent_holm, claim.num_tests
                found["pair", *names, mine[0].head] = values
    return found


def of_table(
    count: int, seed: int, head: str = "linear", **changes: Any
) -> list[RunResult]:
    """A family of its own: another number of mechanisms, other answers."""
    return [
        build_run(name, answers(8, 0.8 + 0.02 * n, seed + n), head=head, **changes)
        for n, name in enumerate(NAMES[:count])
    ]


USUAL, OTHER_CACHE = build_probe(0.9), {"fingerprint": "e" * 64, "dataset": "another"}
FAMILIES: dict[str, list[list[RunResult]]] = {
    "two caches": [
        [*of_table(4, 1), USUAL],
        [*of_table(3, 20, cache=OTHER_CACHE), build_probe(0.9, cache=OTHER_CACHE)],
    ],
    "two test splits": [
        [*of_table(4, 1), USUAL],
        [*of_table(3, 20, test_split="other"), build_probe(0.9, test_split="other")],
    ],
    "two heads": [[*of_table(4, 1), USUAL], [*of_table(3, 20, head="mlp"), USUAL]],
}
"""Runs that stand in one folder; with one probe, in one table."""


@pytest.mark.parametrize("case", FAMILIES)
def test_a_family_of_holm_is_one_cache_head_and_test_rows(case: str) -> None:
    """Beside another, each has the p-values that it has alone."""
    runs = list(dict.fromkeys(run for of_family in FAMILIES[case] for run in of_family))
    tables = build_tables(runs)
    assert len(tables) == (1 if case == "two heads" else 2)
    for number, of_family in enumerate(FAMILIES[case]):
        (alone,) = build_tables(of_family)
        beside = tables[number] if len(tables) > 1 else tables[0]
        head = of_family[0].head
        expected = p_values(alone, head)
        assert {kind for kind, *_ in expected} == {"baseline", "probe", "pair"}
        assert p_values(beside, head) == expected
        assert beside.num_tests[head] == alone.num_tests[head] == len(of_family) - 2


@pytest.mark.parametrize("case", FAMILIES)
def test_what_a_filter_leaves_out_of_a_table_counts_and_no_other_table(
    case: str,
) -> None:
    runs = list(dict.fromkeys(run for of_family in FAMILIES[case] for run in of_family))
    whole = gaam_decoder.report(runs).tables
    some = gaam_decoder.report(runs, attn=["none", "gaam"]).tables
    assert len(whole) == len(some)
    for before, table in zip(whole, some, strict=True):
        known, compared = p_values(before), p_values(table)
        assert compared
        for names, (p_holm, p_equivalent, count) in compared.items():
            p_before, p_equivalent_before, count_before = known[names]
            assert p_holm >= p_before
            assert p_equivalent >= p_equivalent_before
            assert count == count_before, names
        assert table.num_tests == before.num_tests


def test_every_pair_is_the_claim_of_the_two_corrected_for_all() -> None:
    for count, score in product((3, 5), ("accuracy", "log-loss")):
        (table,) = build_tables(some(count), score=score)
        assert table.pairs is not None
        (group,) = table.pairs.groups
        sign = 1 if group.entries[0].chosen.unit.larger_is_better else -1
        means = [sign * (row.chosen.mean or 0) for row in group.entries]
        assert means == sorted(means, reverse=True), "the best stands first"
        assert len(group.pairs) == count * (count - 1) // 2
        p = np.array([pair.claim.p for pair in group.pairs.values()])
        assert [pair.claim.p_holm for pair in group.pairs.values()] == stats.holm(
            p
        ).tolist()
        for places, pair in group.pairs.items() if score == "accuracy" else ():
            one, other = (group.entries[at].accuracy.scored.by_row for at in places)
            assert pair.claim.p == stats.claim(one, other).p


def test_only_rows_that_differ_in_the_setting_alone_are_pairs() -> None:
    runs = [
        *some(3),
        *some(2, lr=0.01, ties="first"),
        *some(2, lr=0.01),
        *some(2, train_rows=9),
    ]
    expected: dict[str | None, list[set[str]]] = {
        None: [set(NAMES[:3]), *[set(NAMES[:2])] * 3],
        "lr": [{"0.001", "0.01"}] * 2,
        "ties": [{"loss", "first"}] * 2,
        "train_rows": [{"all", "9"}] * 2,
    }
    for axis, labels in expected.items():
        (table,) = build_tables(runs, every_candidate=True, pairs=axis)
        assert table.pairs is not None
        assert sorted(set(g.labels) for g in table.pairs.groups) == sorted(labels)
    with pytest.raises(ConfigError, match="'epochs'"):
        build_tables(runs, pairs="epochs")
