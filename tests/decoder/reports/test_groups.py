"""Reports on rows that belong together: which groups count, and what is said."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray

import gaam_cache
import gaam_decoder
from gaam_cache.common.errors import ConfigError
from gaam_decoder import RunResult, TrainConfig, stats
from gaam_decoder.recipe import GroupsRecord
from gaam_decoder.reports.conclusion import conclusion
from gaam_decoder.reports.entries import Comparison
from gaam_decoder.reports.notes import notes_on_runs, warnings
from gaam_decoder.reports.table import Table, build_tables
from gaam_decoder.runs.loading import Runs
from tests.conftest import Outcome
from tests.decoder.reports.conftest import (
    FORMATS,
    answers,
    build_run,
    change_arrays,
    text_of,
    words_of,
)

Gaam = Callable[..., Outcome]
Same = dict[str, NDArray[Any]]
"""The name of a kept column -> the group of every test row."""
ROWS = 400
SPEAKER_N = np.arange(ROWS) % 20
CLIP_N = np.arange(ROWS) // 2


def two_runs(same: Same, **cache: Any) -> list[RunResult]:
    """A mechanism and the baseline on the same rows."""
    return [
        build_run("gaam", answers(8, 0.85, 1), same=same, cache=cache),
        build_run("none", answers(8, 0.8, 2), same=same, cache=cache),
    ]


def table_of(runs: list[RunResult], groups: str | None = None) -> Table:
    [table] = build_tables(runs, groups=groups)
    return table


def comparison_of(table: Table) -> Comparison:
    """The one comparison of a table."""
    [(_, comparison)] = table.compared_entries
    return comparison


def record_groups_of_training(runs: list[RunResult]) -> None:
    """Let runs be trained with groups."""
    for run in runs:
        groups = GroupsRecord("a digest", "who", "column")
        change_arrays(run, recipe=replace(run.recipe, groups=groups))


class Case(NamedTuple):
    """Rows that belong together without an option that says so."""

    same: Same
    title: str
    cache: dict[str, Any] = {}  # noqa: RUF012 - nothing changes it
    trained_with_groups: bool = False


TEST_GROUPS = {"plan": {"dataset": {"test_groups": "who"}, "columns": {"who": 3}}}
CASES: dict[str, Case] = {
    "groups of the training": Case(
        {"who": SPEAKER_N}, "20 groups of 'who'", trained_with_groups=True
    ),
    "pieces of one sound": Case({"clip_of": CLIP_N}, "200 groups of 'clip_of'"),
    "copies": Case(
        {"equal rows": np.minimum(np.arange(ROWS), 390)}, "391 groups of equal rows"
    ),
    "the test split was cut off by groups": Case(
        {"who": SPEAKER_N}, "20 groups of 'who'", cache=TEST_GROUPS
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_rows_that_belong_together_count_as_groups_unasked(name: str) -> None:
    case = CASES[name]
    runs = two_runs(case.same, **case.cache)
    if case.trained_with_groups:
        record_groups_of_training(runs)
    table = table_of(runs)
    assert table.title().endswith(case.title)
    claim = comparison_of(table).claim
    [group_N] = case.same.values()
    expected = stats.claim(runs[0].hits, runs[1].hits, groups=group_N)
    assert claim.p == pytest.approx(expected.p)
    assert claim.interval == pytest.approx(expected.interval)
    assert claim.num_groups == int(case.title.split()[0])


def test_groups_for_two_reasons_are_joined() -> None:
    runs = two_runs({"who": SPEAKER_N, "clip_of": np.arange(ROWS) % 40})
    record_groups_of_training(runs)
    table = table_of(runs)
    assert table.title().endswith("20 groups of 'clip_of' and 'who'")
    assert comparison_of(table).claim.num_groups == 20


@pytest.mark.parametrize("groups", [None, "who", "row", "half"])
def test_a_finer_column_never_makes_more_groups_of_what_belongs_together(
    groups: str | None,
) -> None:
    row_N = np.arange(ROWS)
    runs = two_runs({"who": SPEAKER_N, "row": row_N, "half": row_N % 40})
    record_groups_of_training(runs)
    assert table_of(runs, groups).num_groups == 20


def test_a_column_of_rows_makes_no_groups() -> None:
    runs = two_runs({"row": np.arange(ROWS)})
    assert table_of(runs, "row").num_groups is None


def test_no_filter_makes_rows_of_groups() -> None:
    """Runs with groups of training say of all runs which test rows belong together."""
    same = {"who": SPEAKER_N}
    mha = build_run("mha", answers(8, 0.8, 3), same=same)
    record_groups_of_training([mha])
    runs = Runs([*two_runs(same), mha])
    assert table_of(runs).num_groups == 20
    assert table_of(runs.selected(attn=["gaam", "none"])).num_groups == 20


def test_the_table_of_csv_says_that_groups_are_the_unit() -> None:
    tables = build_tables(two_runs({"who": SPEAKER_N}), groups="who")
    line = next(csv.DictReader(io.StringIO(text_of("csv", tables))))
    assert line["groups"] == "20"
    assert line["grouped_by"] == "who"
    assert line["num_groups"] == "20"


def test_json_says_that_groups_are_the_unit() -> None:
    tables = build_tables(two_runs({"who": SPEAKER_N}), groups="who")
    content = json.loads(text_of("json", tables))
    assert content["groups"] == {"number": 20, "columns": ["who"]}
    assert content["entries"][0]["comparison"]["num_groups"] == 20


@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("report_format", sorted(set(FORMATS) - {"csv", "json"}))
def test_every_format_for_readers_says_that_groups_are_the_unit(
    report_format: str,
) -> None:
    tables = build_tables(two_runs({"who": SPEAKER_N}), groups="who")
    words = words_of(report_format, tables)
    words = words.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    assert "20 groups of 'who'" in words


def test_of_rows_nothing_is_said_of_groups() -> None:
    tables = build_tables(two_runs({"who": SPEAKER_N}))
    assert json.loads(text_of("json", tables))["groups"] is None
    assert "groups" not in tables[0].title()
    assert "groups" not in conclusion(tables[0])


@pytest.mark.parametrize("score", ["accuracy", "brier", "macro-f1"])
def test_fewer_than_six_groups_are_no_claim_with_the_reason(score: str) -> None:
    runs = two_runs({"who": SPEAKER_N % 5})
    [table] = build_tables(runs, groups="who", score=score)
    reason = "o claim is made about gaam: 5 groups of rows, and a claim needs 6"
    assert reason in conclusion(table)
    assert comparison_of(table).claim.interval_corrected is None
    interval_over_groups = table.entries[0].compared_score.seeds_rows_interval
    assert interval_over_groups is not None, "of an accuracy there is one"


def test_few_training_groups_make_test_groups_count_less() -> None:
    widths: list[float] = []
    for num_training_groups in (40, 4):
        runs = two_runs({"who": SPEAKER_N})
        for run in runs:
            run.learned_groups["who"] = num_training_groups
        interval = comparison_of(table_of(runs, "who")).claim.interval
        assert interval is not None
        widths.append(interval[1] - interval[0])
    assert widths[1] > 1.3 * widths[0]


def runs_on_speakers(effect: float) -> list[RunResult]:
    """Speakers whose rows are harder or easier for all; beside them other columns."""
    rng = np.random.default_rng(0)
    speaker_N = np.arange(ROWS) // 40
    hard_N = rng.normal(0, effect, 10)[speaker_N]
    right = hard_N + rng.normal(1, 1, (8, ROWS)) > 0
    right_of_baseline = hard_N + rng.normal(1, 1, (8, ROWS)) > 0
    label_N = build_run("none", right_of_baseline).labels
    same: dict[str, NDArray[Any]] = {
        "speaker": speaker_N,
        "chance": rng.integers(0, 8, ROWS),
        "file": np.arange(ROWS),
        "topic": label_N.astype(np.int32),
        "one": np.zeros(ROWS, np.int32),
    }
    return [
        build_run("gaam", right, same=same),
        build_run("none", right_of_baseline, same=same),
    ]


def test_a_column_that_looks_like_groups_is_named_with_its_option() -> None:
    table = table_of(runs_on_speakers(1.0))
    assert dict(table.group_like_columns) == {"speaker": 10}
    [note] = [note for note in notes_on_runs(table) if "--groups" in note]
    assert "'speaker' (10 values)" in note
    assert "--groups speaker" in note
    is_warned = any("--groups speaker" in warning for warning in warnings(table))
    assert is_warned, "nobody may miss it"


def test_a_column_that_is_used_as_groups_is_not_named() -> None:
    table = table_of(runs_on_speakers(1.0), "speaker")
    assert not table.group_like_columns
    assert table.num_groups == 10


def test_a_column_without_an_effect_does_not_look_like_groups() -> None:
    assert not table_of(runs_on_speakers(0.0)).group_like_columns


def test_a_column_seldom_looks_like_groups_by_chance() -> None:
    rng = np.random.default_rng(1)
    num_named = 0
    for _ in range(100):
        right = rng.random((2, 300)) < 0.8
        run = build_run("none", right, same={"who": rng.integers(0, 12, 300)})
        num_named += bool(table_of([run]).group_like_columns)
    assert num_named <= 4


CACHE_THAT_IS_GONE = {"plan": {"dataset": {}, "columns": {"speaker": 3}}}


@pytest.mark.parametrize(
    ("same", "cache", "part"),
    [
        pytest.param({"who": SPEAKER_N}, {}, "one of: who", id="another column"),
        pytest.param({}, {}, "a cache that has some", id="no column"),
        pytest.param({}, CACHE_THAT_IS_GONE, "/nowhere/cache", id="the cache is gone"),
    ],
)
def test_a_column_that_says_nothing_of_the_rows_is_refused(
    same: Same, cache: dict[str, Any], part: str
) -> None:
    runs = two_runs(same, **cache)
    with pytest.raises(ConfigError, match="'speaker'") as refusal:
        table_of(runs, "speaker")
    assert part in str(refusal.value)


def test_groups_that_hold_and_that_nobody_has_are_a_warning() -> None:
    """Runs that were made before runs recorded them, and the cache is gone."""
    plan = {"dataset": {}, "columns": {"clip_of": 8}}
    table = table_of(two_runs({}, plan=plan, path="/nowhere/cache"))
    assert table.num_groups is None
    about_clips = [warning for warning in warnings(table) if "'clip_of'" in warning]
    assert any("independent" in warning for warning in about_clips)


def test_copies_that_nobody_has_recorded_as_groups_are_a_warning() -> None:
    table = table_of(two_runs({}, shared_texts={"test": {"test": 7}}))
    message = "7 rows of 'test' are copies"
    assert any(message in warning for warning in warnings(table))


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of nine speakers, of whom three are 'test'; two test rows are copies."""
    rng = np.random.default_rng(5)
    label_N = np.arange(180) % 2
    states = rng.normal(0, 1, (180, 2, 4)).astype(np.float32)
    states[:, :, 0] += (2 * label_N - 1)[:, None]
    states[171] = states[170]
    label_N[171] = label_N[170]
    speakers = [f"s{row // 20}" for row in range(180)]
    splits = {
        "train": (states[:120], label_N[:120]),
        "test": (states[120:], label_N[120:]),
    }
    columns = {"who": {"train": speakers[:120], "test": speakers[120:]}}
    folder = tmp_path_factory.mktemp("grouped") / "cache"
    gaam_cache.write(folder, splits, columns=columns)
    return folder


def train(cache: Path, runs: Path, **changes: Any) -> list[RunResult]:
    settings: dict[str, Any] = {
        "attn": ("none", "last-layer"),
        "epochs": 2,
        "lr": 0.05,
        "seeds": "0-5",
        "probe": False,
        "compile": "off",
    }
    config = TrainConfig(cache=cache, runs=runs, **(settings | changes))
    return list(gaam_decoder.train(config))


def group_names(run: RunResult, cache: Path) -> NDArray[Any]:
    """The speaker of every test row of a run."""
    splits = gaam_cache.open_cache(cache)
    if run.test_rows is None:
        return np.array(splits["test"].column("who"))
    return np.array(splits["train"].column("who"))[run.test_rows]


PROTOCOLS: dict[str, tuple[dict[str, Any], str]] = {
    "folds": ({"folds": 3, "groups": "who"}, "6 groups of 'who'"),
    "repeated folds": (
        {"folds": 2, "groups": "who", "repeats": 2},
        "6 groups of 'who'",
    ),
    "a file": ({"folds": 3, "groups": "who.txt"}, "6 groups of file of --groups"),
    "tuned": (
        {"folds": 2, "groups": "who", "lr": (0.05, 0.01), "tune_seeds": (10, 11)},
        "6 groups of 'who'",
    ),
    "test rows": ({"groups": "who"}, "3 groups of 'who' and equal rows"),
    "copies": ({}, "59 groups of equal rows"),
}
"""Settings of a training, and the end of the title of their report."""


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_run_says_which_of_its_rows_belong_together(
    protocol: str, grouped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("who.txt").write_text("\n".join(f"speaker {row // 20}" for row in range(120)))
    settings, title = PROTOCOLS[protocol]
    runs = train(grouped, Path("runs"), **settings)
    [table] = gaam_decoder.report("runs").tables
    assert table.title().endswith(f", {title}")
    assert "kept together" not in table.title(), "it is said once"
    for run in runs:
        numbers = run.relations["who"].tolist()
        names = group_names(run, grouped).tolist()
        # each number has one name, and each name one number
        num_pairs = len(set(zip(numbers, names, strict=True)))
        assert num_pairs == len(set(numbers)) == len(set(names))


def test_runs_that_record_nothing_are_read_with_their_cache(
    grouped: Path, tmp_path: Path
) -> None:
    runs = train(grouped, tmp_path / "runs", folds=3, groups="who")
    [expected] = gaam_decoder.report(runs).tables
    for run in runs:
        change_arrays(run, relations={})
    [table] = gaam_decoder.report(runs).tables
    assert table.num_groups == expected.num_groups == 6
    interval = table.entries[0].compared_score.seeds_rows_interval
    assert interval == expected.entries[0].compared_score.seeds_rows_interval


def test_the_command_takes_a_kept_column(
    grouped: Path, tmp_path: Path, gaam: Gaam
) -> None:
    runs = tmp_path / "runs"
    train(grouped, runs, folds=3)
    report = ("report", runs, "--format", "json")
    assert json.loads(gaam(*report).out)["groups"] is None
    of_groups = json.loads(gaam(*report, "--groups", "who").out)
    assert of_groups["groups"] == {"number": 6, "columns": ["who"]}
    unknown = "training did not know the groups of 'who'"
    assert unknown in gaam("report", runs, "--groups", "who").out.replace("\n", " ")
    train(grouped, tmp_path / "known", folds=3, groups="who")
    assert unknown not in gaam("report", tmp_path / "known", "--groups", "who").out
    refused = gaam("report", runs, "--groups", "speaker")
    assert refused.code == 2
    assert "who" in refused.err


def test_rows_without_a_name_are_no_group(
    grouped: Path, tmp_path: Path, gaam: Gaam
) -> None:
    splits = gaam_cache.open_cache(grouped)
    states = {
        split: (np.asarray(splits[split].pooled("imported")[:]), splits[split].labels)
        for split in ("train", "test")
    }
    names = {split: list(splits[split].column("who")) for split in ("train", "test")}
    names["test"][:2] = ["", " "]
    cache = tmp_path / "cache"
    gaam_cache.write(cache, states, columns={"who": names})

    runs = tmp_path / "runs"
    train(cache, runs)
    refused = gaam("report", runs, "--groups", "who")
    assert refused.code == 2
    assert "2 without one" in refused.err
    refused = gaam("train", "--cache", cache, "--runs", runs, "--groups", "who")
    assert refused.code == 2
    assert "the split 'test'" in refused.err
    assert "row 1 is empty" in refused.err
