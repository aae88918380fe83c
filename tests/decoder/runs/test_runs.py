"""A run on disk is what the library writes, a seed counts once, filters say what is out."""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save

import gaam_cache
import gaam_decoder
from gaam_cache.common import plugins
from gaam_cache.common.errors import (
    CacheError,
    ConfigError,
    NotFoundError,
    OutOfReachError,
)
from gaam_cache.store.files import read_json, sealed_text, unsealed
from gaam_cache.store.plan import fingerprint
from gaam_decoder import Runs, TrainConfig, load_runs
from gaam_decoder.attention.layer_mean import LayerMean
from gaam_decoder.reports.table import build_tables
from gaam_decoder.runs.folders import find_cache, runs_of_key
from gaam_decoder.runs.read import read_run
from gaam_decoder.runs.tuning import by_seed, first_runs
from tests.conftest import GOLDEN
from tests.decoder.reports.conftest import answers, build_run


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A cache and its runs, moved together from where the runs say that the cache was."""
    return Path(shutil.copytree(GOLDEN / "v0.1.0", tmp_path / "study"))


def test_files_of_0_1_are_read_and_are_those_that_are_written_now(
    tiny_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = TrainConfig(
        lr=3e-4,
        cache=tiny_cache,
        runs=tmp_path / "runs",
        seeds=(0, 1, 2),
        epochs=2,
        probe=False,
    )
    made = gaam_decoder.train(config)[0].path
    for run in (made, *(GOLDEN / "v0.1.0" / "runs").iterdir()):
        assert read_run(run).accuracy.size
        for path in run.glob("*.safetensors"):
            with safe_open(path, "np") as file:
                assert save(file.get_tensors(), file.metadata()) == path.read_bytes()
    monkeypatch.setattr("gaam_decoder.runs.read.RUN_VERSION", 2)
    with pytest.raises(OutOfReachError) as refusal:  # it is whole, and another gaam's
        read_run(made)
    assert "run version 2" in refusal.value.details["expected"]
    assert "damaged" not in str(refusal.value)


def test_the_first_run_that_holds_a_seed_counts_everywhere() -> None:
    right = np.arange(40) < np.array([[4], [36]])
    first = build_run("gaam", right[[0] * 3], path="a", failed={0: "lost"})
    second = build_run("gaam", right[[1] * 4], path="b")
    second.seconds.update(dict.fromkeys(range(4), 9.0))
    runs = [second, first]
    assert first_runs(runs) == {0: first, 1: first, 2: first, 3: second}
    assert list(by_seed(runs, lambda run: run.logits)) == [1, 2, 3]
    (row,) = build_tables(runs)[0].entries
    assert row.seconds == {0: 0.5, 1: 0.5, 2: 0.5, 3: 9.0}
    frame = Runs(runs).to_frame()
    assert list(frame[frame["counts"]].sort_values("seed")["accuracy"])[1:] == [
        0.1,
        0.1,
        0.9,
    ]


def test_filters_mean_what_they_say() -> None:
    names = (
        "none",
        "gaam",
        "gaam:heads=2",
        "mha",
        "theirs:a=1",
    )  # nobody has installed theirs
    runs = Runs(
        build_run(name, np.ones((6, 9)), cache={"fingerprint": digit * 64}, lr=lr)
        for name, digit, lr in zip(
            names, "aabba", (0.1, 0.1, 0.1, 0.2, 0.2), strict=True
        )
    )
    expected: list[tuple[dict[str, Any], str]] = [
        ({"attn": "gaam"}, "12"), ({"attn": "gaam:"}, "1"), ({"attn": "theirs"}, "4"),
        ({"attn": ["mha", "gaam:heads=2"]}, "23"), ({"cache": "AAAA"}, "014"),
        ({"lr": "1e-1"}, "012"), ({"lr": 0.1, "cache": "bbbb"}, "2"),
        ({"layers": "all"}, "01234"), ({"head": "mlp"}, ""),
    ]  # fmt: skip
    for asked, which in expected:
        chosen = runs.selected(**asked)
        assert chosen == [runs[int(place)] for place in which], asked
        assert chosen.selection is not None
        assert (chosen.selection.chosen, chosen.selection.total) == (len(which), 5)
        assert chosen.selection.lost.keys() == {*names} - {
            run.attention for run in chosen
        }
    for wrong in ({"attn": "gam"}, {"lr": "x"}, {"layers": "3-1"}):
        with pytest.raises(ConfigError):
            runs.selected(**wrong)


def test_runs_of_several_folders_are_there_once(study: Path, tmp_path: Path) -> None:
    (link := tmp_path / "link").symlink_to(study / "runs")
    first, second = sorted((study / "runs").iterdir())
    for places in ([study / "runs", link], [first, second, link / first.name]):
        found = load_runs(places, cache=study / "cache")
        assert sorted(run.path.name for run in found) == [first.name, second.name], (
            places
        )
    alone = load_runs(first).selection
    assert alone is not None
    assert alone.left_out == {"name": 1}
    with pytest.raises(NotFoundError, match=f"'{first.name}'"):
        load_runs(study / "runs" / f"{first.name}0")


def test_a_report_says_what_it_leaves_out_and_what_that_does() -> None:
    share = {"none": 0.7, "mha": 0.75, "gaam": 0.8}
    some = [
        build_run(name, answers(8, value, len(name))) for name, value in share.items()
    ]
    two = gaam_decoder.report(Runs(some).selected(attn=["none", "gaam"]), head="linear")
    for format in plugins.names("gaam_decoder.reports.formats"):
        said = " ".join(two.text(format).replace("\\", "").split())
        assert ("1 by --attn" if format == "csv" else "2 of 3 runs") in said, format
    every = gaam_decoder.report(some)
    assert two.tables[0].num_tests == every.tables[0].num_tests == {"linear": 2}
    with pytest.raises(ConfigError, match=r"'none'(.|\n)*mha"):
        gaam_decoder.report(some, attn="mha", baseline="none")


def test_the_cache_of_a_run_is_found_where_it_was_or_beside_the_runs_and_never_another(
    study: Path, tmp_path: Path
) -> None:
    run = load_runs(study / "runs")[0]
    moved = dataclasses.replace(run.cache, path=str(tmp_path / "gone"))
    run = dataclasses.replace(run, cache=moved)
    assert find_cache(run.cache, run.path) == study / "cache"
    (study / "cache").rename(tmp_path / "moved")
    with pytest.raises(
        CacheError, match=f"{run.cache.fingerprint[:12]}(.|\n)*{tmp_path}/gone"
    ):
        find_cache(run.cache, run.path)
    assert find_cache(run.cache, run.path, tmp_path / "moved") == tmp_path / "moved"
    content = unsealed(read_json(tmp_path / "moved" / "cache.json"))
    content["fingerprint_fields"]["salt"] = 1
    content["fingerprint"] = fingerprint(content["fingerprint_fields"])
    (tmp_path / "moved" / "cache.json").write_text(sealed_text(content))
    (tmp_path / "moved").rename(study / "cache")
    for named in (None, study / "cache"):
        with pytest.raises(CacheError, match=content["fingerprint"][:12]):
            find_cache(run.cache, run.path, named)


class Wanderer(LayerMean):
    """A mean over layers that goes to another folder."""

    away: Path

    def __init__(self, num_layers: int, hidden_size: int) -> None:
        super().__init__(num_layers, hidden_size)
        os.chdir(self.away)


def test_a_program_that_goes_to_another_folder_finds_all_that_it_named(
    tiny_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it trains, and between training and reporting; even where that folder is removed."""
    here, Wanderer.away = tmp_path / "here", tmp_path / "away"
    here.mkdir()
    Wanderer.away.mkdir()
    monkeypatch.chdir(here)
    Path("cache").symlink_to(tiny_cache)
    config = TrainConfig(
        attn=(Wanderer, "none"),
        cache="cache",
        runs="runs",
        seeds=2,
        lr=3e-4,
        epochs=1,
        probe=False,
    )
    opened = gaam_cache.open_cache("cache")
    runs = gaam_decoder.train(config)
    assert Path.cwd() == Wanderer.away
    assert not list(Wanderer.away.iterdir())
    assert {run.path.parent for run in runs} == {here / "runs"}
    assert {run.cache.path for run in runs} == {str(here / "cache")}
    os.chdir(here)
    loaded = load_runs("runs")
    gone = tmp_path / "gone"
    gone.mkdir()
    os.chdir(gone)
    gone.rmdir()
    assert opened["train"].embeddings[:2].shape[0] == 2
    for run in (*runs, *loaded):
        assert run.logits is not None
        assert run.learned is not None
        assert run.log
        assert str(here) in run.summary()
    assert gaam_decoder.report(runs).text() == gaam_decoder.report(loaded).text()
    for name in ("runs", "../runs"):
        with pytest.raises(NotFoundError, match="the working folder is gone"):
            load_runs(name)


def test_a_run_that_was_moved_is_not_called_damaged(
    study: Path, tmp_path: Path
) -> None:
    first, second, *_ = sorted((study / "runs").iterdir())
    run = load_runs(first)[0]
    first.rename(tmp_path / "moved")
    with pytest.raises(OutOfReachError, match="no longer where it was") as refusal:
        run.log  # noqa: B018 it is read when it is asked for
    assert "damaged" not in str(refusal.value)
    assert load_runs(tmp_path / "moved")[0].log
    ending = "-".join(second.name.split("-")[-3:])
    renamed = first.with_name(f"mine-{ending}")
    (tmp_path / "moved").rename(renamed)  # the end of a name says which run it is
    with pytest.raises(CacheError, match="the name of another run") as misnamed:
        runs_of_key(study / "runs", load_runs(second)[0].key)
    assert run.key[:8] in misnamed.value.details["expected"]
    assert "rm" not in misnamed.value.details["to do"].split()
