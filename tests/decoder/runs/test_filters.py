"""Filters mean what they say, and what they leave out is said."""

from __future__ import annotations

import csv
import itertools
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gaam_decoder
from gaam_cache import plugins
from gaam_cache.errors import CacheError, ConfigError, NotFoundError
from gaam_decoder import RunResult, Runs
from gaam_decoder.runs.filters import Filters, published
from gaam_decoder.runs.loading import load_runs
from tests.conftest import GOLDEN
from tests.decoder.reports.conftest import answers, build_run
from tests.hostile_strings import HOSTILE, harmful

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
ATTENTIONS = ("none", "gaam", "gaam:heads=2", "gaam:heads=2,location=median", "mha")
HEADS = ("linear", "mlp", "mlp:hidden=3")
FINGERPRINTS = ("a" * 64, "ab" + "c" * 62, "b" * 64)
DATES = ("2026-11-01T00:00:00Z", "2026-11-19T12:00:00Z", "2026-11-20T11:00:00Z")


def made(attention: str, head: str, fingerprint: str, created: str | None) -> RunResult:
    run = build_run(attention, np.ones((6, 9)), head=head, cache={"fingerprint": fingerprint})
    object.__setattr__(run, "created", created)
    return run


@pytest.fixture(scope="module")
def runs() -> list[RunResult]:
    """One of every kind."""
    return [made(*each) for each in itertools.product(ATTENTIONS, HEADS, FINGERPRINTS, DATES)]


def is_meant(run: RunResult, attn: str | None, head: str | None, cache: str | None, since: Any):
    """The rule, told another way."""
    for text, spec in ((attn, run.attention), (head, run.head)):
        if text is not None and not (
            spec == text or (":" not in text and text == spec.split(":")[0])
        ):
            return False
    if cache is not None and run.cache["fingerprint"][: len(cache)] != cache:
        return False
    return since is None or published(run) >= since


def test_every_combination_of_filters_chooses_what_fits_all_of_them(runs: list[RunResult]) -> None:
    combinations = itertools.product(
        (None, *ATTENTIONS), (None, *HEADS), (None, "b" * 9, FINGERPRINTS[1]), (None, "1d", "2h")
    )
    spans = {"1d": timedelta(days=1), "2h": timedelta(hours=2), None: None}
    tried = 0
    for attn, head, cache, since in combinations:
        filters = Filters.of(attn=attn, head=head, cache=cache, since=since, now=NOW)
        chosen, selection = filters.choose(runs)
        after = None if since is None else NOW - spans[since]
        assert chosen == [run for run in runs if is_meant(run, attn, head, cache, after)]
        assert selection.chosen == len(chosen)
        assert selection.total == len(runs)
        there = {run.attention for run in chosen}
        assert set(selection.lost) == {run.attention for run in runs} - there
        tried += 1
    assert tried > 100


def test_several_of_a_kind_are_either_of_them(runs: list[RunResult]) -> None:
    chosen, _ = Filters.of(attn=["mha", "gaam:heads=2"]).choose(runs)
    assert {run.attention for run in chosen} == {"mha", "gaam:heads=2"}
    # what is a default is not spelled out, and a name with nothing behind it has none
    for plain in ("gaam:", "gaam:location=mean"):
        chosen, _ = Filters.of(attn=plain).choose(runs)
        assert {run.attention for run in chosen} == {"gaam"}
    # a mechanism that nobody has installed here is known by the runs of it
    theirs = [made(name, "linear", "c" * 64, None) for name in ("theirs:a=1", "theirs:a=2")]
    assert Filters.of(attn="theirs").choose([*runs, *theirs])[0] == theirs
    assert Filters.of(attn="theirs:a=2").choose([*runs, *theirs])[0] == theirs[1:]


@pytest.mark.parametrize(
    ("given", "moment"),
    [
        ("2026-11-01", datetime(2026, 11, 1, tzinfo=UTC)),
        ("2026-11-01T09:30", datetime(2026, 11, 1, 9, 30, tzinfo=UTC)),
        ("2026-11-01T09:30+02:00", datetime(2026, 11, 1, 7, 30, tzinfo=UTC)),
        ("2026-11-01T09:30:00Z", datetime(2026, 11, 1, 9, 30, tzinfo=UTC)),
        ("12h", NOW - timedelta(hours=12)),
        ("3d", NOW - timedelta(days=3)),
        ("2w", NOW - timedelta(weeks=2)),
        (NOW, NOW),
    ],
)
def test_a_date_is_a_moment(given: Any, moment: datetime) -> None:
    assert Filters.of(since=given, now=NOW).since == moment


def test_what_is_no_filter_is_one_message(runs: list[RunResult], tmp_path: Path) -> None:
    wrong: list[tuple[dict[str, str], type[Exception]]] = [
        *(
            ({"since": text}, ConfigError)
            for text in ("3", "d", "999999w", "0001-01-01T00:00+23:59", "x")
        ),
        *(({"since": text}, ConfigError) for text in HOSTILE.values()),
        ({"attn": "gam"}, ConfigError),
        ({"attn": "gaam:head=2"}, ConfigError),
        ({"head": "liner"}, ConfigError),
        ({"cache": "a" * 4}, NotFoundError),
        ({"cache": "abc"}, NotFoundError),
        ({"cache": str(tmp_path)}, NotFoundError),
        *(({"cache": text}, ConfigError) for text in HOSTILE.values()),
        *(({"attn": text}, ConfigError) for text in HOSTILE.values()),
    ]
    several = [*runs, made("none", "linear", "aaaa" + "d" * 60, None)]
    for given, kind in wrong:
        if given == {"cache": "a" * 4}:
            kind = ConfigError  # two fingerprints begin so
        with pytest.raises(kind) as refused:
            Filters.of(**given, now=NOW).choose(several)
        assert not harmful(str(refused.value)), given


def test_a_folder_is_the_cache_that_lies_there(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "v0.1.0", tmp_path / "g")
    found = load_runs(tmp_path / "g" / "runs", cache=tmp_path / "g" / "cache")
    assert len(found) == 2
    assert len(load_runs(tmp_path / "g" / "runs", cache="73add615")) == 2
    (tmp_path / "g" / "cache" / "cache.json").write_text("{")
    with pytest.raises(CacheError):
        load_runs(tmp_path / "g" / "runs", cache=tmp_path / "g" / "cache")


def test_runs_of_several_folders_are_there_once(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "v0.1.0" / "runs", tmp_path / "a")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    first, second = sorted((tmp_path / "a").iterdir())
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / first.name).symlink_to(first)
    whole = [run.path.name for run in load_runs(tmp_path / "a")]
    for places in (
        [tmp_path / "a", tmp_path / "a"],
        [tmp_path / "a", tmp_path / "link", tmp_path / "b"],
        [first, second, first, tmp_path / "link" / first.name],
        [tmp_path / "a" / ".." / "a", second],
    ):
        found = load_runs(places)
        assert sorted(run.path.name for run in found) == whole, places
        assert found.selection is None
    alone = load_runs([first])
    assert alone.selection is not None
    assert alone.selection.left_out == {"name": 1}
    assert "1 not named" in alone.selection.in_words()
    with pytest.raises(NotFoundError, match="did you mean"):
        load_runs([tmp_path / "a" / f"{first.name}0"])


def test_a_report_says_what_it_leaves_out_and_what_that_does(runs: list[RunResult]) -> None:
    some = [
        build_run(name, answers(8, share, number), path=name)
        for number, (name, share) in enumerate((("none", 0.7), ("mha", 0.75), ("gaam", 0.8)))
    ]
    whole = gaam_decoder.report(some)
    assert "left out" not in whole.text("json")
    two = gaam_decoder.report(some, attn=["none", "gaam"])
    for format in ("terminal", "markdown", "html", "latex", "json"):
        words = " ".join(two.text(format).replace("\\", "").split())
        for part in ("2 of 3 runs", "left out: 1 by", "Holm corrects for the 2 comparisons of all"):
            assert part in words, (format, part)
    assert [table.num_tests for table in (*whole.tables, *two.tables)] == [2, 2]
    without = gaam_decoder.report(some, attn=["mha", "gaam"])
    assert "the baseline 'none' is among what --attn left out" in without.text("json")
    with pytest.raises(ConfigError, match=r"left out by --attn(.|\n)*also give --attn none"):
        gaam_decoder.report(some, attn="mha", baseline="none")
    with pytest.raises(NotFoundError, match="no run is left"):
        gaam_decoder.report(some, attn="laplace")
    # what was left out before is not forgotten
    again = gaam_decoder.report(Runs(some).chosen(Filters.of(attn=["none", "gaam"])), head="linear")
    assert "2 of 3 runs (--attn none --attn gaam --head linear)" in again.text("json")


def test_every_format_says_what_was_left_out_or_somebody_says_it_beside_it() -> None:
    some = [
        *(build_run(name, answers(8, 0.8, 1), path=name) for name in ("none", "mha", "gaam")),
        build_run("gaam", answers(8, 0.8, 2), path="other", cache={"fingerprint": "e" * 64}),
    ]
    final = build_run("gaam", np.ones((2, 0)), test_split="none", path="f", cache={"dataset": "x"})
    object.__setattr__(final, "majority_accuracy", None)
    some.append(final)
    whole = gaam_decoder.report(some)
    part = gaam_decoder.report(some, attn=["none", "gaam"])
    assert len(part.tables) >= 2
    alone = gaam_decoder.report([some[1], final], attn="gaam")
    assert not any(table.rows for table in alone.tables)
    for format in plugins.names("gaam_decoder.reports.formats"):
        assert whole.beside(format) == []
        for report, said in ((part, "4 of 5 runs"), (alone, "1 of 2 runs")):
            if beside := report.beside(format):
                assert said in beside[0]
                assert "left out: 1 by --attn" in beside[0]
            else:
                assert said in " ".join(report.text(format).replace("\\", "").split()), format
            if format.startswith("csv"):
                assert beside
                lines = list(csv.DictReader(report.text(format).splitlines()))
                assert {line["left_out"] for line in lines} == {"1 by --attn"}
                lines = list(csv.DictReader(whole.text(format).splitlines()))
                assert {line["left_out"] for line in lines} == {""}
                assert None not in lines[0]
                assert None not in lines[0].values()


@pytest.mark.parametrize("spelled", [str.lower, str.upper, str.title, str.swapcase])
def test_digits_of_a_fingerprint_are_digits_in_either_case(spelled: Any) -> None:
    prints = ("deadbeef" + "0" * 56, "deadc0de" + "1" * 56, "0a1b2c3d" * 8)
    runs = [made("none", "linear", one, None) for one in prints]
    for run, one in zip(runs, prints, strict=True):
        for digits in range(5, 65):
            text = spelled(one[:digits])
            assert Filters.of(cache=text).choose(runs)[0] == [run], text
    with pytest.raises(ConfigError, match="several fingerprints"):
        Filters.of(cache=spelled("dead")).choose(runs)
    with pytest.raises(NotFoundError, match="names no cache"):
        Filters.of(cache=spelled("deadbeeg")).choose(runs)
