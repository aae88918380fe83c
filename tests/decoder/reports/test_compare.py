"""Entries compared with entries: what is compared, paired, corrected and refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.stats import binomtest

import gaam_decoder
from gaam_cache.common.errors import ConfigError
from gaam_decoder import RunResult, stats
from gaam_decoder.reports.compare import same_recipe
from gaam_decoder.reports.entries import Comparison, Entry
from gaam_decoder.reports.recommend import recommended
from gaam_decoder.reports.report import Report
from gaam_decoder.reports.table import Table, build_tables
from gaam_decoder.runs.records import DrawnRows
from tests.decoder.reports.conftest import FIT, answers, build_probe, build_run

Size = dict[str, int]
Key = tuple[str, ...]
"""The kind of a comparison, and what names its two sides."""
MECHANISMS = ("none", "gaam", "mha", "dot")
SIZES: dict[str, Size] = {
    "all": {},
    "8 rows": {"train_rows": 8},
    "100 rows": {"train_rows": 100},
    "2 shots": {"shots": 2},
}


def runs_of_mechanisms(
    count: int = 4, num_seeds: int = 8, **recipe: Any
) -> list[RunResult]:
    """Mechanisms of which later ones are more accurate; the baseline first."""
    names = [*MECHANISMS, *(f"way{number}" for number in range(20))]
    return [
        build_run(name, answers(num_seeds, 0.8 + 0.01 * number, number + 1), **recipe)
        for number, name in enumerate(names[:count])
    ]


class Pair(NamedTuple):
    """Two entries that are compared with each other."""

    entries: list[Entry]
    comparison: Comparison


def pairs_of(table: Table) -> Iterator[Pair]:
    """All pairs of a table that differ in one setting alone."""
    assert table.pairs is not None
    for group in table.pairs.groups:
        for places, comparison in group.pairs.items():
            yield Pair([group.entries[place] for place in places], comparison)


def claims_of(table: Table) -> Iterator[stats.Claim]:
    """The claims of a table, of all three kinds."""
    for _, comparison in table.compared_entries:
        yield comparison.claim
    for entry in table.entries:
        if entry.probe_comparison:
            yield entry.probe_comparison.claim
    for pair in pairs_of(table):
        yield pair.comparison.claim


def leaves_out_0(interval: tuple[float, float] | None) -> bool:
    return interval is not None and (interval[0] > 0 or interval[1] < 0)


def draw_table(seed: int, score: str) -> Table:
    """A baseline and four mechanisms of random accuracies."""
    rng = np.random.default_rng(seed)
    names = ("none", "way1", "way2", "way3", "way4")
    shares = (0.8, *rng.uniform(0.72, 0.9, 4))
    runs = [
        build_run(name, answers(7, share, number, num_rows=300))
        for number, (name, share) in enumerate(zip(names, shares, strict=True))
    ]
    for run in runs:
        noise = rng.normal(0, 0.01, run.logits.shape).astype(np.float32)
        vars(run)["logits"] += noise
    [table] = gaam_decoder.report(runs, score=score).tables
    return table


def test_no_interval_that_leaves_out_0_stands_beside_undecided() -> None:
    """The verdict is made from it: at the level of its step in Holm's order."""
    verdicts: set[str] = set()
    num_contradictions = 0
    for seed, score in product(range(6), ("accuracy", "log-loss", "macro-f1")):
        for claim in claims_of(draw_table(seed, score)):
            case = (seed, score, claim)
            is_significant = claim.p_holm is not None and claim.p_holm < 0.05
            assert leaves_out_0(claim.interval_corrected) == is_significant, case
            assert claim.significant == is_significant, case
            verdicts.add(claim.verdict)
            low, high = claim.interval_corrected or (0.0, 0.0)
            plain_low, plain_high = claim.interval or (0.0, 0.0)
            assert low <= plain_low + 1e-12, case
            assert plain_high <= high + 1e-12, case
            if claim.verdict == "undecided":
                num_contradictions += leaves_out_0(claim.interval)
    assert verdicts >= {"better", "worse", "undecided"}
    assert num_contradictions, "the uncorrected interval would contradict a verdict"


def test_without_a_claim_there_is_no_corrected_interval() -> None:
    [table] = build_tables(runs_of_mechanisms(2, num_seeds=5))
    [(_, comparison)] = table.compared_entries
    assert comparison.claim.interval_corrected is None


def runs_of_two_heads_and_two_rates() -> list[RunResult]:
    return [
        build_run("gaam", answers(6, 0.8, 1)),
        build_run("gaam", answers(6, 0.8, 2), head="conv"),
        build_run("gaam", answers(6, 0.8, 3), lr=0.01),
        build_run("mha", answers(6, 0.8, 4)),
        build_run("mha", answers(6, 0.8, 5), lr=0.01),
    ]


@pytest.mark.parametrize("num_worse", [0, 2, 9, 13])
def test_two_fits_are_tested_over_rows_as_by_mcnemar(num_worse: int) -> None:
    """They have no seeds; p is that of the exact binomial test, times two (Holm)."""
    right_N = np.ones(400, bool)
    right_N[:40] = False
    worse_N = right_N.copy()
    # right on two rows more, and wrong on others
    worse_N[:2] = True
    worse_N[100 : 100 + num_worse] = False
    fits = {
        name: build_run(name, row_N[None], head="lbfgs", fit=FIT)
        for name, row_N in {
            "none": right_N,
            "last-layer": worse_N,
            "layer-mean": right_N,
        }.items()
    }
    [table] = build_tables([*fits.values()])
    claims = {
        entry.attention: comparison.claim
        for entry, comparison in table.compared_entries
    }
    expected = binomtest(2, 2 + num_worse).pvalue
    assert claims["last-layer"].p == pytest.approx(expected)
    assert claims["last-layer"].p_holm == pytest.approx(min(1, 2 * expected))
    verdict = "worse" if num_worse >= 9 and 2 * expected < 0.05 else "undecided"
    assert claims["last-layer"].verdict == verdict
    assert claims["layer-mean"].p == 1
    # there are no seeds that a test over seeds alone could have
    assert claims["last-layer"].on_these_rows.sign_flip is None
    assert claims["last-layer"].on_these_rows.interval is None
    advice = recommended(table)
    assert advice is not None
    assert "every other decoder" not in advice.advice


def test_beside_decoders_trained_in_steps_a_fit_is_not_compared() -> None:
    fits = [
        build_probe(0.9),
        build_run("last-layer", answers(1, 0.5, 7), head="lbfgs", fit=FIT),
    ]
    none_run = build_run("none", answers(6, 0.8, 0))
    shuffled = build_run("gaam", answers(6, 0.3, 0), shuffle_labels=True)
    [table] = build_tables([*fits, none_run])
    assert not table.compared_entries
    # a control with shuffled labels changes nothing
    for runs in (fits, [*fits, shuffled]):
        [table] = build_tables(runs)
        [(entry, comparison)] = table.compared_entries
        assert entry.attention == "last-layer"
        assert comparison.claim.verdict == "worse"
        advice = recommended(table)
        assert advice is not None
        assert advice.entry.attention == "none"


def test_a_smaller_equivalent_fit_is_recommended() -> None:
    right_N = np.arange(4000) % 5 > 0
    small = build_run("last-layer", right_N[None], head="lbfgs", fit=FIT)
    small.parameters["total"] = 7
    probe = build_run("none", right_N[None], head="lbfgs", fit=FIT)
    [table] = build_tables([probe, small], margin=2)
    advice = recommended(table)
    assert advice is not None
    assert advice.advice.startswith(
        "use last-layer + lbfgs: equivalent to none + lbfgs"
    )


def test_the_baseline_has_the_same_head_and_recipe() -> None:
    runs = runs_of_two_heads_and_two_rates()
    [table] = build_tables(runs, baseline="mha", every_candidate=True)
    differences = {
        entry.label: comparison.claim.difference
        for entry, comparison in table.compared_entries
    }
    assert differences.keys() == {"gaam + linear lr=0.001", "gaam + linear lr=0.01"}
    expected = answers(6, 0.8, 3).mean() - answers(6, 0.8, 5).mean()
    assert differences["gaam + linear lr=0.01"] == pytest.approx(expected)


def test_without_a_baseline_there_is_no_comparison() -> None:
    runs = runs_of_two_heads_and_two_rates()
    [table] = build_tables(runs, every_candidate=True)
    assert table.compared_entries == []


def test_a_baseline_that_no_run_has_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"'dot'(.|\n)*gaam, mha"):
        build_tables(runs_of_two_heads_and_two_rates(), baseline="dot")


VALIDATION_SPLITS: dict[str | None, dict[str, Any]] = {
    None: {},
    "validation": {"val_split": "validation"},
}
"""A validation split -> the setting of a recipe that reads it."""


def run_of_size(attention: str, size: Size, **changes: Any) -> RunResult:
    """As accurate as its rows are many; the baseline a little less."""
    rows = size.get("train_rows") or 3 * size.get("shots", 300)
    accuracy = 0.5 + 0.1 * np.log10(rows)
    if attention == "none":
        accuracy -= 0.02
    head = changes.get("head", "")
    num_seeds = 1 if head == "lbfgs" else 8
    right = answers(num_seeds, accuracy, rows + len(attention))
    path = f"{attention}-{rows}-{len(size)}-{head}"
    drawn = DrawnRows(learn=rows - 2, choose=2) if size else None
    return build_run(
        attention,
        right,
        path=path,
        split_seed=0,
        drawn=drawn,
        **(size | changes),
    )


def probe_of_size(size: Size) -> RunResult:
    return run_of_size("none", size, head="lbfgs", fit=FIT)


def test_the_probe_of_a_decoder_has_the_same_validation_rows() -> None:
    """A decoder that holds out rows is not compared with a probe that holds out none."""
    probes = {
        val_split: run_of_size("none", {}, head="lbfgs", fit=FIT, **changes)
        for val_split, changes in VALIDATION_SPLITS.items()
    }
    for val_split, changes in VALIDATION_SPLITS.items():
        decoder = run_of_size("gaam", {}, **changes)
        for of_probe, probe in probes.items():
            [table] = build_tables([decoder, probe])
            [entry] = [entry for entry in table.entries if entry.attention == "gaam"]
            assert (entry.probe_comparison is not None) == (of_probe == val_split)


def test_entries_are_compared_with_the_baseline_of_their_size() -> None:
    runs = [
        run_of_size(name, size) for size in SIZES.values() for name in ("gaam", "none")
    ]
    [table] = build_tables(runs)
    baselines = [entry for entry in table.entries if entry.attention == "none"]
    assert [entry.num_drawn_rows for entry in baselines] == [None, 100, 8, 6]
    assert len(table.compared_entries) == len(SIZES)
    for entry, comparison in table.compared_entries:
        [baseline] = [
            other for other in baselines if same_recipe(other.recipe, entry.recipe)
        ]
        accuracy = entry.default_score.scored.values.mean()
        expected = accuracy - baseline.default_score.scored.values.mean()
        assert comparison.claim.difference == pytest.approx(expected)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("other_size", SIZES)
def test_entries_of_different_sizes_are_never_compared(
    size: str, other_size: str
) -> None:
    run = run_of_size("gaam", SIZES[size])
    [table] = build_tables([run, run_of_size("none", SIZES[other_size])])
    assert any(entry.comparison for entry in table.entries) == (size == other_size)
    [table] = build_tables([run, probe_of_size(SIZES[other_size])])
    assert any(entry.probe_comparison for entry in table.entries) == (
        size == other_size
    )


def sweep() -> list[RunResult]:
    """Every mechanism on every layer at two rates, tuned by validation; and a probe."""
    runs: list[RunResult] = []
    cases = product(MECHANISMS, range(1, 5), (1e-4, 1e-3))
    for number, (name, layer, lr) in enumerate(cases):
        share = 0.6 + 0.02 * MECHANISMS.index(name) + 0.02 * layer
        run = build_run(
            name,
            answers(8, share, number),
            path=f"{number}",
            lr=lr,
            layers=str(layer),
            validation=share + lr,
        )
        runs.append(run)
    return [*runs, probe_of_size({})]


def claims_by_runs(report: Report) -> dict[Key, Any]:
    """The claims of a report, by their kind and the paths of their runs."""
    claims: dict[Key, Any] = {}
    for table in report.tables:
        for entry in table.entries:
            paths = [str(run.path) for run in entry.runs]
            if entry.comparison:
                claims["baseline", *paths] = entry.comparison.claim
            if entry.probe_comparison:
                claims["probe", *paths] = entry.probe_comparison.claim
        for pair in pairs_of(table):
            paths = sorted(str(entry.runs[0].path) for entry in pair.entries)
            claims["pair", *paths] = pair.comparison.claim
    return claims


FILTERS: tuple[dict[str, Any], ...] = (
    *({"attn": ["none", name]} for name in MECHANISMS),
    {"layers": "2"},
    {"lr": "0.0001"},
    {"lr": "0.001", "attn": ["none", "gaam"]},
    {"top": 3},
)


def test_no_filter_and_no_top_makes_a_p_value_smaller() -> None:
    runs = sweep()
    unfiltered = claims_by_runs(gaam_decoder.report(runs))
    num_compared = 0
    for options in FILTERS:
        filtered = claims_by_runs(gaam_decoder.report(runs, **options))
        for key in filtered.keys() & unfiltered.keys():
            claim = filtered[key]
            before = unfiltered[key]
            # where another candidate was chosen, the hypothesis is another
            if claim.p != before.p:
                continue
            num_compared += 1
            assert claim.num_tests >= before.num_tests, options
            assert claim.p_holm >= before.p_holm - 1e-15, options
            assert claim.p_equivalent_holm >= before.p_equivalent_holm - 1e-15, options
            if options.keys() == {"attn"}:
                assert claim.num_tests == before.num_tests, "nothing is counted twice"
    assert num_compared > 50


class Corrected(NamedTuple):
    """Corrected p-values of a claim, and the number of tests that they correct for."""

    p_holm: Any
    p_equivalent_holm: Any
    num_tests: int


def corrected(comparison: Comparison) -> Corrected:
    claim = comparison.claim
    return Corrected(claim.p_holm, claim.p_equivalent_holm, claim.num_tests)


def corrected_p_values(table: Table, head: str = "") -> dict[Key, Corrected]:
    """The corrected p-values of a table, or of one head, by the names compared."""
    values: dict[Key, Corrected] = {}
    for entry in table.entries:
        if entry.comparison:
            key = ("baseline", entry.attention, entry.head)
            values[key] = corrected(entry.comparison)
        if entry.probe_comparison:
            values["probe", entry.attention, entry.head] = corrected(
                entry.probe_comparison
            )
    for pair in pairs_of(table):
        names = sorted(entry.attention for entry in pair.entries)
        first, second = names
        values["pair", first, second, pair.entries[0].head] = corrected(pair.comparison)
    if not head:
        return values
    return {key: value for key, value in values.items() if key[-1] == head}


def family(count: int, seed: int, **changes: Any) -> list[RunResult]:
    """A family of its own: another number of mechanisms, other answers."""
    return [
        build_run(name, answers(8, 0.8 + 0.02 * number, seed + number), **changes)
        for number, name in enumerate(MECHANISMS[:count])
    ]


OTHER_CACHE = {"fingerprint": "e" * 64, "dataset": "another"}
Families = list[list[RunResult]]


def families_of_two_caches() -> Families:
    other_probe = build_probe(0.9, cache=OTHER_CACHE)
    return [
        [*family(4, 1), build_probe(0.9)],
        [*family(3, 20, cache=OTHER_CACHE), other_probe],
    ]


def families_of_two_test_splits() -> Families:
    other_probe = build_probe(0.9, test_split="other")
    return [
        [*family(4, 1), build_probe(0.9)],
        [*family(3, 20, test_split="other"), other_probe],
    ]


def families_of_two_heads() -> Families:
    """With one probe, in one table."""
    probe = build_probe(0.9)
    return [[*family(4, 1), probe], [*family(3, 20, head="mlp"), probe]]


FAMILIES = [families_of_two_caches, families_of_two_test_splits, families_of_two_heads]
BuildFamilies = Callable[[], Families]


def together(families: Families) -> list[RunResult]:
    """The runs of all families in one folder."""
    return list(dict.fromkeys(run for family in families for run in family))


@pytest.mark.parametrize("build_families", FAMILIES)
def test_a_family_of_holm_is_one_cache_head_and_test_rows(
    build_families: BuildFamilies,
) -> None:
    """Beside another, each has the p-values that it has alone."""
    families = build_families()
    tables = build_tables(together(families))
    is_one_table = build_families is families_of_two_heads
    assert len(tables) == (1 if is_one_table else 2)
    for number, runs in enumerate(families):
        [alone] = build_tables(runs)
        beside = tables[0] if is_one_table else tables[number]
        head = runs[0].head
        expected = corrected_p_values(alone, head)
        assert {kind for kind, *_ in expected} == {"baseline", "probe", "pair"}
        assert corrected_p_values(beside, head) == expected
        # neither the baseline nor the probe is compared with the baseline
        assert beside.num_tests[head] == alone.num_tests[head] == len(runs) - 2


@pytest.mark.parametrize("build_families", FAMILIES)
def test_what_a_filter_leaves_out_of_a_table_counts_and_no_other_table(
    build_families: BuildFamilies,
) -> None:
    runs = together(build_families())
    unfiltered = gaam_decoder.report(runs).tables
    filtered = gaam_decoder.report(runs, attn=["none", "gaam"]).tables
    for before, table in zip(unfiltered, filtered, strict=True):
        values_before = corrected_p_values(before)
        values = corrected_p_values(table)
        assert values
        for key, value in values.items():
            assert value.p_holm >= values_before[key].p_holm, key
            p_equivalent = values_before[key].p_equivalent_holm
            assert value.p_equivalent_holm >= p_equivalent, key
            assert value.num_tests == values_before[key].num_tests, key
        assert table.num_tests == before.num_tests


@pytest.mark.parametrize("count", [3, 5])
@pytest.mark.parametrize("score", ["accuracy", "log-loss"])
def test_every_pair_is_corrected_for_all_pairs(count: int, score: str) -> None:
    [table] = build_tables(runs_of_mechanisms(count), score=score)
    assert table.pairs is not None
    [group] = table.pairs.groups
    sign = 1 if group.entries[0].compared_score.score.larger_is_better else -1
    means = [sign * (entry.compared_score.mean or 0) for entry in group.entries]
    assert means == sorted(means, reverse=True), "the best stands first"
    claims = [comparison.claim for comparison in group.pairs.values()]
    assert len(claims) == count * (count - 1) // 2
    expected = stats.holm(np.array([claim.p for claim in claims]))
    assert [claim.p_holm for claim in claims] == expected.tolist()


@pytest.mark.parametrize("count", [3, 5])
def test_every_pair_is_the_claim_of_the_two(count: int) -> None:
    [table] = build_tables(runs_of_mechanisms(count))
    for pair in pairs_of(table):
        right, other_right = (
            entry.default_score.scored.by_row for entry in pair.entries
        )
        assert right is not None
        assert other_right is not None
        assert pair.comparison.claim.p == stats.claim(right, other_right).p


def runs_that_differ_in_several_settings() -> list[RunResult]:
    return [
        *runs_of_mechanisms(3),
        *runs_of_mechanisms(2, lr=0.01, ties="first"),
        *runs_of_mechanisms(2, lr=0.01),
        *runs_of_mechanisms(2, train_rows=9),
    ]


@pytest.mark.parametrize(
    ("axis", "labels"),
    [
        (None, [set(MECHANISMS[:3]), *[set(MECHANISMS[:2])] * 3]),
        ("lr", [{"0.001", "0.01"}] * 2),
        ("ties", [{"loss", "first"}] * 2),
        ("train_rows", [{"all", "9"}] * 2),
    ],
)
def test_only_entries_that_differ_in_the_setting_alone_are_pairs(
    axis: str | None, labels: list[set[str]]
) -> None:
    runs = runs_that_differ_in_several_settings()
    [table] = build_tables(runs, every_candidate=True, pairs=axis)
    assert table.pairs is not None
    labels_of_groups = [sorted(set(group.labels)) for group in table.pairs.groups]
    assert sorted(labels_of_groups) == sorted(sorted(group) for group in labels)


def test_a_setting_that_no_entries_differ_in_is_refused() -> None:
    runs = runs_that_differ_in_several_settings()
    with pytest.raises(ConfigError, match="'epochs'"):
        build_tables(runs, pairs="epochs")
