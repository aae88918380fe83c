"""Reports on rows that belong together: which groups count, who says so, and what is said of it."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gaam_cache
import gaam_decoder
from gaam_cache.common.errors import ConfigError
from gaam_decoder import RunResult, TrainConfig, stats
from gaam_decoder.recipe import GroupsRecord
from gaam_decoder.reports.conclusion import conclusion
from gaam_decoder.reports.notes import caused, warnings
from gaam_decoder.reports.table import Table, build_tables
from gaam_decoder.runs.loading import Runs
from tests.conftest import Outcome
from tests.decoder.reports.conftest import FORMATS, answers, build_run, seen, written

ROWS = 400
WHO = np.arange(ROWS) % 20
CLIP = np.arange(ROWS) // 2


def two(same: dict[str, np.ndarray], **cache: Any) -> list[RunResult]:
    """A mechanism and the baseline on the same rows."""
    return [
        build_run("gaam", answers(8, 0.85, 1), same=same, cache=cache),
        build_run("none", answers(8, 0.8, 2), same=same, cache=cache),
    ]


def table_of(runs: list[RunResult], groups: str | None = None) -> Table:
    (table,) = build_tables(runs, groups=groups)
    return table


def trained_with_groups(runs: list[RunResult]) -> None:
    for run in runs:
        groups = GroupsRecord("a digest", "who", "column")
        vars(run)["recipe"] = replace(run.recipe, groups=groups)


# what says that rows belong together without being asked for
IN_FORCE: dict[str, tuple[dict[str, np.ndarray], dict[str, Any], bool, str]] = {
    "groups of the training": ({"who": WHO}, {}, True, "20 groups of 'who'"),
    "pieces of one sound": ({"clip_of": CLIP}, {}, False, "200 groups of 'clip_of'"),
    "copies": ({"equal rows": np.minimum(np.arange(ROWS), 390)}, {}, False,
               "391 groups of equal rows"),
    "the test split was cut off by groups": (
        {"who": WHO}, {"plan": {"dataset": {"test_groups": "who"}, "columns": {"who": 3}}}, False,
        "20 groups of 'who'"),
    "both": ({"who": WHO, "clip_of": np.arange(ROWS) % 40}, {}, True,
             "20 groups of 'clip_of' and 'who'"),
}  # fmt: skip


@pytest.mark.parametrize("case", IN_FORCE)
def test_rows_that_belong_together_count_as_groups_unasked(case: str) -> None:
    same, cache, trained, said = IN_FORCE[case]
    runs = two(same, **cache)
    if trained:
        trained_with_groups(runs)
    table = table_of(runs)
    assert table.title().endswith(said)
    first, *_ = table.entries
    assert first.compared is not None
    expected = stats.claim(runs[0].hits, runs[1].hits, groups=next(iter(same.values())))
    if case != "both":
        assert first.compared.claim.p == pytest.approx(expected.p)
        assert first.compared.claim.interval == pytest.approx(expected.interval)
    assert first.compared.claim.num_groups == int(said.split()[0])


def test_a_finer_column_never_makes_more_groups_of_what_belongs_together() -> None:
    runs = two({"who": WHO, "row": np.arange(ROWS), "half": np.arange(ROWS) % 40})
    trained_with_groups(runs)
    for asked in (None, "who", "row", "half"):
        assert table_of(runs, asked).num_groups == 20
    assert table_of(two({"row": np.arange(ROWS)}), "row").num_groups is None


def test_no_filter_makes_rows_of_groups() -> None:
    """Runs that were trained with groups say of all runs which test rows belong together."""
    runs = Runs(
        [*two({"who": WHO}), build_run("mha", answers(8, 0.8, 3), same={"who": WHO})]
    )
    trained_with_groups(runs[-1:])
    assert table_of(runs).num_groups == 20
    assert table_of(runs.selected(attn=["gaam", "none"])).num_groups == 20


@pytest.mark.parametrize("format", FORMATS)
def test_every_format_says_that_groups_are_the_unit(format: str, undrawn: None) -> None:
    tables = build_tables(two({"who": WHO}), groups="who")
    text = seen(format, tables)
    if format == "csv":
        (line, *_) = csv.DictReader(io.StringIO(written(format, tables)))
        assert (line["groups"], line["grouped_by"], line["num_groups"]) == (
            "20",
            "who",
            "20",
        )
    elif format == "json":
        found = json.loads(written(format, tables))
        assert found["groups"] == {"number": 20, "columns": ["who"]}
        assert found["entries"][0]["comparison"]["num_groups"] == 20
    else:
        assert "20 groups of 'who'" in text.replace(
            "\N{RIGHT SINGLE QUOTATION MARK}", "'"
        )


def test_of_rows_nothing_is_said_of_groups() -> None:
    tables = build_tables(two({"who": WHO}))
    found = json.loads(written("json", tables))
    assert found["groups"] is None
    assert "groups" not in tables[0].title() + conclusion(tables[0])


@pytest.mark.parametrize("score", ["accuracy", "brier", "macro-f1"])
def test_fewer_than_six_groups_are_no_claim_with_the_reason(score: str) -> None:
    (table,) = build_tables(two({"who": WHO % 5}), groups="who", score=score)
    assert (
        "o claim is made about gaam: 5 groups of rows, and a claim needs 6"
        in conclusion(table)
    )
    first = table.entries[0]
    assert first.compared is not None
    assert first.compared.claim.interval_corrected is None
    assert first.chosen.two_level is not None, (
        "an accuracy has its interval over groups"
    )


def test_few_training_groups_make_test_groups_count_less() -> None:
    wide = []
    for count in (40, 4):
        runs = two({"who": WHO})
        for run in runs:
            run.learned_groups["who"] = count
        claim = table_of(runs, "who").entries[0].compared
        assert claim is not None
        low, high = claim.claim.interval or (0.0, 0.0)
        wide.append(high - low)
    assert wide[1] > 1.3 * wide[0]


def speakers(effect: float) -> list[RunResult]:
    """Speakers whose rows are harder or easier for all; beside them other columns."""
    generator = np.random.default_rng(0)
    hard_N = generator.normal(0, effect, 10)[np.arange(ROWS) // 40]
    right = [hard_N + generator.normal(1, 1, (8, ROWS)) > 0 for _ in range(2)]
    label_N = build_run("none", right[1]).labels
    same = {
        "speaker": np.arange(ROWS) // 40,
        "chance": generator.integers(0, 8, ROWS),
        "file": np.arange(ROWS),
        "topic": label_N.astype(np.int32),
        "one": np.zeros(ROWS, np.int32),
    }
    return [
        build_run(n, r, same=same) for n, r in zip(("gaam", "none"), right, strict=True)
    ]


def test_a_column_that_looks_like_groups_is_named_with_its_option() -> None:
    table = table_of(speakers(1.0))
    assert dict(table.like_groups) == {"speaker": 10}
    (note,) = [one for one in caused(table) if "--groups" in one]
    assert "'speaker' (10 values)" in note
    assert "--groups speaker" in note
    assert any("--groups speaker" in one for one in warnings(table)), (
        "nobody may miss it"
    )
    asked = table_of(speakers(1.0), "speaker")
    assert (dict(asked.like_groups), asked.num_groups) == ({}, 10)
    assert not table_of(speakers(0.0)).like_groups


def test_a_column_seldom_looks_like_groups_by_chance() -> None:
    generator, found = np.random.default_rng(1), 0
    for _ in range(100):
        runs = [build_run("none", generator.random((2, 300)) < 0.8,
                          same={"who": generator.integers(0, 12, 300)})]  # fmt: skip
        found += bool(table_of(runs).like_groups)
    assert found <= 4


@pytest.mark.parametrize("case", ["another column", "no column", "the cache is gone"])
def test_a_column_that_says_nothing_of_the_rows_is_refused(case: str) -> None:
    runs = {
        "another column": two({"who": WHO}),
        "no column": two({}),
        "the cache is gone": two({}, plan={"dataset": {}, "columns": {"speaker": 3}}),
    }[case]
    expected = {"another column": "one of: who", "the cache is gone": "/nowhere/cache"}
    with pytest.raises(ConfigError, match="'speaker'") as refused:
        table_of(runs, "speaker")
    assert expected.get(case, "a cache that has some") in str(refused.value)


def test_groups_that_hold_and_that_nobody_has_are_a_warning() -> None:
    """Runs that were made before runs recorded them, and the cache is gone."""
    plan = {"dataset": {}, "columns": {"clip_of": 8}}
    table = table_of(two({}, plan=plan, path="/nowhere/cache"))
    assert table.num_groups is None
    assert any("'clip_of'" in one and "independent" in one for one in warnings(table))
    copies = table_of(two({}, shared_texts={"test": {"test": 7}}))
    assert any("7 rows of 'test' are copies" in one for one in warnings(copies))


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of nine speakers, three of whom are 'test', and of rows of which some are copies."""
    generator = np.random.default_rng(5)
    label_N = np.arange(180) % 2
    states = generator.normal(0, 1, (180, 2, 4)).astype(np.float32)
    states[:, :, 0] += (2 * label_N - 1)[:, None]
    states[171], label_N[171] = states[170], label_N[170]
    who = [f"s{n // 20}" for n in range(180)]
    splits = {
        "train": (states[:120], label_N[:120]),
        "test": (states[120:], label_N[120:]),
    }
    folder = tmp_path_factory.mktemp("grouped") / "cache"
    gaam_cache.write(
        folder, splits, columns={"who": {"train": who[:120], "test": who[120:]}}
    )
    return folder


def trained(cache: Path, runs: Path, **changes: Any) -> list[RunResult]:
    settings: dict[str, Any] = {
        "attn": ("none", "last-layer"), "epochs": 2, "lr": 0.05, "seeds": "0-5", "probe": False,
        "compile": "off",
    } | changes  # fmt: skip
    return list(gaam_decoder.train(TrainConfig(cache=cache, runs=runs, **settings)))


PROTOCOLS: dict[str, tuple[dict[str, Any], str]] = {
    "folds": ({"folds": 3, "groups": "who"}, "6 groups of 'who'"),
    "repeated folds": ({"folds": 2, "groups": "who", "repeats": 2}, "6 groups of 'who'"),
    "a file": ({"folds": 3, "groups": "who.txt"}, "6 groups of file of --groups"),
    "tuned": ({"folds": 2, "groups": "who", "lr": (0.05, 0.01), "tune_seeds": (10, 11)},
              "6 groups of 'who'"),
    "test rows": ({"groups": "who"}, "3 groups of 'who' and equal rows"),
    "copies": ({}, "59 groups of equal rows"),
}  # fmt: skip


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_run_says_which_of_its_rows_belong_together(
    protocol: str, grouped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("who.txt").write_text("\n".join(f"speaker {n // 20}" for n in range(120)))
    settings, said = PROTOCOLS[protocol]
    runs = trained(grouped, Path("runs"), **settings)
    (table,) = gaam_decoder.report("runs").tables
    assert table.title().endswith(f", {said}")
    assert "kept together" not in table.title(), "said once"
    for run in runs:
        column = gaam_cache.open_cache(grouped)[
            "test" if run.test_rows is None else "train"
        ]
        names = np.array(column.column("who"))
        expected = names if run.test_rows is None else names[run.test_rows]
        pairs = {*zip(run.same["who"].tolist(), expected.tolist(), strict=True)}
        assert (
            len(pairs) == len({*run.same["who"].tolist()}) == len({*expected.tolist()})
        )


def test_runs_that_record_nothing_are_read_with_their_cache(
    grouped: Path, tmp_path: Path
) -> None:
    runs = trained(grouped, tmp_path / "runs", folds=3, groups="who")
    (expected,) = gaam_decoder.report(runs).tables
    for run in runs:
        vars(run)["same"] = {}
    (table,) = gaam_decoder.report(runs).tables
    assert table.num_groups == expected.num_groups == 6
    assert table.entries[0].chosen.two_level == expected.entries[0].chosen.two_level


def test_the_command_takes_a_kept_column(
    grouped: Path, tmp_path: Path, gaam: Callable[..., Outcome]
) -> None:
    trained(grouped, tmp_path / "runs", folds=3)
    rows = gaam("report", tmp_path / "runs", "--format", "json")
    groups = gaam("report", tmp_path / "runs", "--format", "json", "--groups", "who")
    assert json.loads(rows.out)["groups"] is None
    assert json.loads(groups.out)["groups"] == {"number": 6, "columns": ["who"]}
    refused = gaam("report", tmp_path / "runs", "--groups", "speaker")
    assert (refused.code, "who" in refused.err) == (2, True)
