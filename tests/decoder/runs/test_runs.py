"""Runs in folders: what is read, which seeds count, and what filters choose."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Iterator
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
from gaam_cache.store.files import fingerprint, read_json, sealed_text, unsealed
from gaam_decoder import RunResult, Runs, load_runs
from gaam_decoder.attention.layer_mean import LayerMean
from gaam_decoder.reports.table import build_tables
from gaam_decoder.runs.folders import find_cache, runs_of_key
from gaam_decoder.runs.read import read_run
from gaam_decoder.runs.tuning import first_run_by_seed, values_by_finished_seed
from tests.conftest import GOLDEN
from tests.decoder.configs import train_config, train_single_run
from tests.decoder.reports.conftest import answers, build_run


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A cache and its runs, moved together from where the runs were made."""
    return Path(shutil.copytree(GOLDEN / "v0.1.0", tmp_path / "study"))


def check_files(run_folder: Path) -> None:
    """A run is read, and its tensors are the bytes that the library writes."""
    assert read_run(run_folder).accuracy.size
    for path in run_folder.glob("*.safetensors"):
        with safe_open(path, "np") as file:
            assert save(file.get_tensors(), file.metadata()) == path.read_bytes()


@pytest.mark.parametrize(
    "run_folder",
    sorted((GOLDEN / "v0.1.0" / "runs").iterdir()),
    ids=lambda folder: folder.name,
)
def test_files_of_0_1_are_read(run_folder: Path) -> None:
    check_files(run_folder)


def test_files_of_a_new_run_are_read_by_this_version_alone(
    tiny_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = train_config(
        tiny_cache, tmp_path / "runs", lr=3e-4, seeds=(0, 1, 2), epochs=2
    )
    run_folder = train_single_run(config).path
    check_files(run_folder)
    monkeypatch.setattr("gaam_decoder.runs.read.RUN_VERSION", 2)
    # the run is whole, and of another gaam
    with pytest.raises(OutOfReachError) as refusal:
        read_run(run_folder)
    assert "run version 2" in refusal.value.details["expected"]
    assert "damaged" not in str(refusal.value)


def test_of_runs_with_the_same_seed_the_first_counts_everywhere() -> None:
    poor = np.tile(np.arange(40) < 4, (3, 1))
    good = np.tile(np.arange(40) < 36, (4, 1))
    first = build_run("gaam", poor, path="a", failed={0: "lost"})
    second = build_run("gaam", good, path="b")
    second.seconds.update(dict.fromkeys(range(4), 9.0))
    runs = [second, first]
    assert first_run_by_seed(runs) == {0: first, 1: first, 2: first, 3: second}
    assert list(values_by_finished_seed(runs, lambda run: run.logits)) == [1, 2, 3]
    [entry] = build_tables(runs)[0].entries
    assert entry.seconds == {0: 0.5, 1: 0.5, 2: 0.5, 3: 9.0}
    frame = Runs(runs).to_frame()
    counted = frame[frame["counts"]].sort_values("seed")
    assert list(counted["accuracy"])[1:] == [0.1, 0.1, 0.9]


# mechanism, digit of the fingerprint of its cache, rate; nobody has installed "theirs"
FILTERED = [
    ("none", "a", 0.1),
    ("gaam", "a", 0.1),
    ("gaam:heads=2", "b", 0.1),
    ("mha", "b", 0.2),
    ("theirs:a=1", "a", 0.2),
]


def runs_to_filter() -> Runs:
    return Runs(
        build_run(name, np.ones((6, 9)), cache={"fingerprint": digit * 64}, lr=rate)
        for name, digit, rate in FILTERED
    )


# fmt: off
FILTERS: list[tuple[dict[str, Any], list[int]]] = [
    ({"attn": "gaam"}, [1, 2]),
    ({"attn": "gaam:"}, [1]),
    ({"attn": "theirs"}, [4]),
    ({"attn": ["mha", "gaam:heads=2"]}, [2, 3]),
    ({"cache": "AAAA"}, [0, 1, 4]),
    ({"lr": "1e-1"}, [0, 1, 2]),
    ({"lr": 0.1, "cache": "bbbb"}, [2]),
    ({"layers": "all"}, [0, 1, 2, 3, 4]),
    ({"head": "mlp"}, []),
]
# fmt: on


@pytest.mark.parametrize(("filters", "places"), FILTERS, ids=str)
def test_filters_choose_what_they_name(
    filters: dict[str, Any], places: list[int]
) -> None:
    runs = runs_to_filter()
    chosen = runs.selected(**filters)
    assert chosen == [runs[place] for place in places]
    selection = chosen.selection
    assert selection is not None
    assert selection.num_selected == len(places)
    assert selection.total == 5
    names = {name for name, _, _ in FILTERED}
    assert selection.lost_mechanisms.keys() == names - {run.attention for run in chosen}


@pytest.mark.parametrize("filters", [{"attn": "gam"}, {"lr": "x"}, {"layers": "3-1"}])
def test_a_filter_that_can_choose_nothing_is_refused(filters: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        runs_to_filter().selected(**filters)


def test_runs_of_several_folders_are_loaded_once(study: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(study / "runs")
    first, second = sorted((study / "runs").iterdir())
    runs_of_folders = load_runs([study / "runs", link], cache=study / "cache")
    named_runs = load_runs([first, second, link / first.name], cache=study / "cache")
    for runs in (runs_of_folders, named_runs):
        assert sorted(run.path.name for run in runs) == [first.name, second.name]


def test_a_run_that_is_named_is_loaded_alone(study: Path) -> None:
    first, _ = sorted((study / "runs").iterdir())
    selection = load_runs(first).selection
    assert selection is not None
    assert selection.left_out == {"name": 1}
    with pytest.raises(NotFoundError, match=f"{first.name}'"):
        load_runs(study / "runs" / f"{first.name}0")


@pytest.fixture
def three_runs() -> list[RunResult]:
    accuracy = {"none": 0.7, "mha": 0.75, "gaam": 0.8}
    return [
        build_run(name, answers(8, share, len(name)))
        for name, share in accuracy.items()
    ]


@pytest.mark.parametrize("format_name", plugins.names("gaam_decoder.reports.formats"))
def test_a_report_names_what_it_leaves_out(
    format_name: str, three_runs: list[RunResult]
) -> None:
    chosen = Runs(three_runs).selected(attn=["none", "gaam"])
    report = gaam_decoder.report(chosen, head="linear")
    text = " ".join(report.text(format_name).replace("\\", "").split())
    assert ("1 by --attn" if format_name == "csv" else "2 of 3 runs") in text


def test_what_a_report_leaves_out_counts_as_a_test(three_runs: list[RunResult]) -> None:
    chosen = Runs(three_runs).selected(attn=["none", "gaam"])
    table_of_two = gaam_decoder.report(chosen, head="linear").tables[0]
    table_of_all = gaam_decoder.report(three_runs).tables[0]
    assert table_of_two.num_tests == table_of_all.num_tests == {"linear": 2}


def test_a_baseline_that_is_left_out_is_refused(three_runs: list[RunResult]) -> None:
    with pytest.raises(ConfigError, match=r"'none'(.|\n)*mha"):
        gaam_decoder.report(three_runs, attn="mha", baseline="none")


@pytest.fixture
def run(study: Path, tmp_path: Path) -> RunResult:
    """A run that was made with a cache in a folder that is gone."""
    run = load_runs(study / "runs")[0]
    cache = dataclasses.replace(run.cache, path=str(tmp_path / "gone"))
    return dataclasses.replace(run, cache=cache)


def test_the_cache_of_a_run_is_found_beside_the_runs(
    run: RunResult, study: Path
) -> None:
    assert find_cache(run.cache, run.path) == study / "cache"


def test_a_cache_that_was_moved_is_found_where_it_is_named(
    run: RunResult, study: Path, tmp_path: Path
) -> None:
    moved = (study / "cache").rename(tmp_path / "moved")
    message = f"{run.cache.fingerprint[:12]}(.|\n)*{tmp_path}/gone"
    with pytest.raises(CacheError, match=message):
        find_cache(run.cache, run.path)
    assert find_cache(run.cache, run.path, moved) == moved


@pytest.mark.parametrize("is_named", [False, True], ids=["beside", "named"])
def test_another_cache_is_never_taken(
    is_named: bool, run: RunResult, study: Path
) -> None:
    cache = study / "cache"
    plan = unsealed(read_json(cache / "cache.json"))
    plan["fingerprint_fields"]["salt"] = 1
    plan["fingerprint"] = fingerprint(plan["fingerprint_fields"])
    (cache / "cache.json").write_text(sealed_text(plan))
    with pytest.raises(CacheError, match=plan["fingerprint"][:12]):
        find_cache(run.cache, run.path, cache if is_named else None)


class Wanderer(LayerMean):
    """A mean over layers that goes to another folder."""

    away: Path

    def __init__(self, num_layers: int, hidden_size: int) -> None:
        super().__init__(num_layers, hidden_size)
        os.chdir(self.away)


@pytest.fixture
def working_folder(
    tiny_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """A folder with a cache, in which the program starts; it may go elsewhere."""
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "cache").symlink_to(tiny_cache)
    # this undoes every change of the folder, too
    monkeypatch.chdir(folder)
    yield folder
    os.chdir(folder)


def go_to_a_removed_folder(folder: Path) -> None:
    folder.mkdir()
    os.chdir(folder)
    folder.rmdir()


def test_a_program_that_goes_to_another_folder_finds_all_that_it_named(
    working_folder: Path, tmp_path: Path
) -> None:
    """While it trains, and from then on; even where that folder is removed."""
    Wanderer.away = tmp_path / "away"
    Wanderer.away.mkdir()
    config = train_config(
        Path("cache"),
        Path("runs"),
        attn=(Wanderer, "none"),
        seeds=2,
        lr=3e-4,
        epochs=1,
    )
    cache = gaam_cache.open_cache("cache")
    runs = gaam_decoder.train(config)
    assert Path.cwd() == Wanderer.away
    assert not list(Wanderer.away.iterdir())
    assert {run.path.parent for run in runs} == {working_folder / "runs"}
    assert {run.cache.path for run in runs} == {str(working_folder / "cache")}
    os.chdir(working_folder)
    loaded = load_runs("runs")
    go_to_a_removed_folder(tmp_path / "gone")
    assert cache["train"].embeddings[:2].shape[0] == 2
    for run in (*runs, *loaded):
        assert run.logits is not None
        assert run.learned is not None
        assert run.log
        assert str(working_folder) in run.summary()
    assert gaam_decoder.report(runs).text() == gaam_decoder.report(loaded).text()


@pytest.mark.parametrize("name", ["runs", "../runs"])
def test_a_relative_path_in_a_folder_that_is_gone_is_refused(
    name: str, working_folder: Path, tmp_path: Path
) -> None:
    go_to_a_removed_folder(tmp_path / "gone")
    with pytest.raises(NotFoundError, match="the working folder is gone"):
        load_runs(name)


def test_a_run_that_was_moved_is_not_called_damaged(
    study: Path, tmp_path: Path
) -> None:
    first, *_ = sorted((study / "runs").iterdir())
    run = load_runs(first)[0]
    first.rename(tmp_path / "moved")
    with pytest.raises(OutOfReachError, match="no longer where it was") as refusal:
        run.log  # noqa: B018 it is read when it is asked for
    assert "damaged" not in str(refusal.value)
    assert load_runs(tmp_path / "moved")[0].log


def test_a_run_with_the_name_of_another_run_is_refused(study: Path) -> None:
    """The end of a name says which run it is."""
    first, second = sorted((study / "runs").iterdir())
    first_key = load_runs(first)[0].key
    second_key = load_runs(second)[0].key
    ending = "-".join(second.name.split("-")[-3:])
    first.rename(first.with_name(f"mine-{ending}"))
    with pytest.raises(CacheError, match="the name of another run") as refusal:
        runs_of_key(study / "runs", second_key)
    assert first_key[:8] in refusal.value.details["expected"]
    assert "rm" not in refusal.value.details["to do"].split()
