"""Filters mean what they say, and what they leave out is said."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gaam_decoder
from gaam_cache import plugins
from gaam_cache.errors import CacheError, ConfigError, NotFoundError
from gaam_decoder import RunResult, Runs, load_runs
from gaam_decoder.runs.loading import select
from tests.conftest import GOLDEN
from tests.decoder.reports.conftest import answers, build_run

ATTENTIONS = ("none", "gaam", "gaam:heads=2", "gaam:heads=2,location=median", "mha")
FINGERPRINTS = ("a" * 64, "ab" + "c" * 62)


def made(attention: str, fingerprint: str) -> RunResult:
    return build_run(attention, np.ones((6, 9)), cache={"fingerprint": fingerprint})


@pytest.fixture(scope="module")
def runs() -> list[RunResult]:
    """One of every kind."""
    return [made(*kind) for kind in itertools.product(ATTENTIONS, FINGERPRINTS)]


def test_every_combination_of_filters_chooses_what_fits_all_of_them(runs: list[RunResult]) -> None:
    combinations = itertools.product(
        (None, *ATTENTIONS), (None, "abcc", FINGERPRINTS[0]), (None, 0.001, 0.5)
    )
    for attn, cache, lr in combinations:
        chosen, selection = select(runs, attn=attn, cache=cache, lr=lr)
        assert chosen == [
            run
            for run in runs
            if attn in (None, run.attention, run.attention.split(":")[0])
            and run.cache["fingerprint"].startswith(cache or "")
            and lr in (None, run.recipe["lr"])
        ]
        if any((attn, cache, lr)):
            assert selection is not None
            assert (selection.chosen, selection.total) == (len(chosen), len(runs))
            there = {run.attention for run in chosen}
            assert set(selection.lost) == {run.attention for run in runs} - there


def test_several_of_a_kind_are_either_of_them(runs: list[RunResult]) -> None:
    def chosen(attn: Any) -> set[str]:
        theirs = [made(name, "c" * 64) for name in ("theirs:a=1", "theirs:a=2")]
        return {run.attention for run in select([*runs, *theirs], attn=attn)[0]}

    assert chosen(["mha", "gaam:heads=2"]) == {"mha", "gaam:heads=2"}
    # what is a default is not spelled out, and a name with nothing behind it has none
    assert chosen("gaam:") == chosen("gaam:location=mean") == {"gaam"}
    # a mechanism that nobody has installed here is known by the runs of it
    assert chosen("theirs") == {"theirs:a=1", "theirs:a=2"}
    assert chosen("theirs:a=2") == {"theirs:a=2"}


def test_what_is_no_filter_is_refused(runs: list[RunResult], tmp_path: Path) -> None:
    wrong: list[dict[str, Any]] = [
        *({"attn": text} for text in ("gam", "gaam:head=2")),
        *({"cache": text} for text in ("aaaa", "abc", str(tmp_path), "a\0b")),
        *({"lr": "x"}, {"layers": "3-1"}),
    ]
    several = [*runs, made("none", "aaaa" + "d" * 60)]
    for given in wrong:
        with pytest.raises(ConfigError):
            select(several, **given)


def test_a_folder_is_the_cache_that_lies_there(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "v0.1.0", tmp_path / "g")
    for cache in (tmp_path / "g" / "cache", "73add615", "73ADD615"):
        assert len(load_runs(tmp_path / "g" / "runs", cache=cache)) == 2
    (tmp_path / "g" / "cache" / "cache.json").write_text("{")
    with pytest.raises(CacheError):
        load_runs(tmp_path / "g" / "runs", cache=tmp_path / "g" / "cache")


def test_runs_of_several_folders_are_there_once(tmp_path: Path) -> None:
    shutil.copytree(GOLDEN / "v0.1.0" / "runs", tmp_path / "a")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    first, second = sorted((tmp_path / "a").iterdir())
    whole = [run.path.name for run in load_runs(tmp_path / "a")]
    for places in (
        [tmp_path / "a", tmp_path / "link"],
        [first, second, first, tmp_path / "link" / first.name],
    ):
        found = load_runs(places)
        assert sorted(run.path.name for run in found) == whole, places
        assert found.selection is None
    alone = load_runs([first])
    assert alone.selection is not None
    assert alone.selection.left_out == {"name": 1}
    with pytest.raises(NotFoundError, match="did you mean"):
        load_runs([tmp_path / "a" / f"{first.name}0"])


def test_a_report_says_what_it_leaves_out_and_what_that_does() -> None:
    some = [
        build_run(name, answers(8, share, number), path=name)
        for number, (name, share) in enumerate((("none", 0.7), ("mha", 0.75), ("gaam", 0.8)))
    ]
    whole, two = gaam_decoder.report(some), gaam_decoder.report(some, attn=["none", "gaam"])
    for format in plugins.names("gaam_decoder.reports.formats"):
        said = " ".join(two.text(format).replace("\\", "").split())
        assert ("1 by --attn" if format == "csv" else "2 of 3 runs") in said, format
    assert [table.num_tests for table in (*whole.tables, *two.tables)] == [2, 2]
    with pytest.raises(ConfigError, match=r"left out by --attn(.|\n)*also give --attn none"):
        gaam_decoder.report(some, attn="mha", baseline="none")
    with pytest.raises(NotFoundError, match="no run is left"):
        gaam_decoder.report(some, attn="laplace")
    # what was left out before is not forgotten
    again = gaam_decoder.report(Runs(some).selected(attn=["none", "gaam"]), head="linear")
    assert "2 of 3 runs (--attn none --attn gaam --head linear)" in again.text("json")
