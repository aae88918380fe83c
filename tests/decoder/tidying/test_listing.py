"""Everything in a folder of runs is listed; nothing is taken away under a training."""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from rich.cells import cell_len

import gaam_decoder
from gaam_cache.engines.sharing.holder import content_of, this_process
from gaam_cache.errors import ConfigError, NotFoundError
from gaam_cache.format.sealed import sealed_text, unsealed
from gaam_decoder import TrainConfig
from gaam_decoder.runs.loading import load_runs
from gaam_decoder.tidying import (
    Filters,
    list_runs,
    moving,
    removal,
    removal_of_unfinished,
    rename,
    table,
)
from gaam_decoder.tidying.at_work import STALE_SECONDS, at_work
from gaam_decoder.unfinished import checkpoint
from gaam_decoder.unfinished.look import LEASE_FOLDER
from tests.conftest import GOLDEN
from tests.hostile_strings import HOSTILE, flooded, harmful

NONE = Filters()
KEY = "1f50a817"


@pytest.fixture(scope="module")
def begun(tiny_cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which a training of five seeds was stopped."""
    runs = tmp_path_factory.mktemp("begun") / "runs"
    config = TrainConfig(
        cache=tiny_cache,
        runs=runs,
        attn=("gaam",),
        seeds=tuple(range(5)),
        seed_batch=2,
        epochs=3,
        compile="off",
        device="cpu",
        probe=False,
    )
    calls = 0

    def stop(done: int, total: int, text: str) -> None:
        nonlocal calls
        calls += 1
        if done > total // 2:
            raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(checkpoint, "SECONDS_BETWEEN_CHECKPOINTS", 0.0)
        monkeypatch.setattr(checkpoint, "SHARE_OF_TIME", float("inf"))
        with pytest.raises(KeyboardInterrupt):
            gaam_decoder.train(config, progress=stop)
    assert list(runs.glob(".*.partial"))
    return runs


@pytest.fixture
def runs(begun: Path, tmp_path: Path) -> Path:
    """Two finished runs, a damaged one, unfinished work."""
    folder = Path(shutil.copytree(begun, tmp_path / "runs"))
    shutil.copytree(GOLDEN / "v0.1.0" / "runs", folder, dirs_exist_ok=True)
    (folder / "mha-linear-00000000-s0-1").mkdir()
    return folder


def lease(runs: Path, name: str, **changes: object) -> Path:
    """Somebody is at work on ``name``."""
    (runs / LEASE_FOLDER).mkdir(exist_ok=True)
    path = runs / LEASE_FOLDER / f"{name}.0"
    path.write_bytes(content_of(this_process()._replace(**changes)))
    return path


def test_all_states_are_listed_and_filters_hide_no_damage(runs: Path) -> None:
    listing = list_runs([runs], NONE)
    states = [entry.state for entry in listing.entries]
    assert states == ["finished", "damaged", "finished", "unfinished"]
    assert listing.damage
    last = listing.entries[-1]
    assert len(last.seeds) == 5
    assert 0 < len(last.done) < 5
    assert "nobody" in (last.what or "")
    some = list_runs([runs], Filters.of(attn="none"))
    assert [entry.state for entry in some.entries] == ["damaged", "finished", "unfinished"]
    for entry, run in zip(listing.entries[::2], load_runs(GOLDEN / "v0.1.0" / "runs"), strict=True):
        assert entry.accuracy == run.accuracy.mean()
        assert entry.bytes == sum(file.stat().st_size for file in run.path.iterdir())
        assert entry.created_by_file
    text = table(some)
    for part in ("DAMAGED", "UNFINISHED", "1 of 2 runs", "whatever the filters say"):
        assert part in text
    json.dumps(listing.to_dict(), allow_nan=False)
    with pytest.raises(NotFoundError):
        list_runs([runs / "none"], NONE)


def test_the_table_stays_whole_in_80_columns_whatever_things_are_called(tmp_path: Path) -> None:
    source = sorted((GOLDEN / "v0.1.0" / "runs").iterdir())[0]
    content = unsealed(json.loads((source / "run.json").read_text()))
    for number, name in enumerate(HOSTILE.values()):
        run = tmp_path / "runs" / f"gaam-linear-{number:08x}-s0-1"
        shutil.copytree(source, run)
        content["cache"] |= {"dataset": name, "encoder": name}
        (run / "run.json").write_text(sealed_text(content | {"attention": name, "head": name}))
    listing = list_runs([tmp_path / "runs"], NONE)
    assert len(listing.entries) == len(HOSTILE)
    text = table(listing)
    assert not harmful(text)
    assert not flooded(text)
    lines = text.splitlines()
    assert len(lines) == 2 + 2 * len(HOSTILE) + 2
    assert max(map(cell_len, lines)) <= 80


def test_what_somebody_trains_is_not_taken_away(runs: Path, tmp_path: Path) -> None:
    run, _, other = (path for path in sorted(runs.iterdir()) if path.name[0] != ".")
    held = lease(runs, f"gaam-{KEY}-0011aabb")
    for act in (
        lambda: removal([run], NONE, runs),
        lambda: removal([], Filters.of(since="2000-01-01"), runs),
        lambda: moving([run], NONE, runs, tmp_path / "to"),
        lambda: rename(run, "x"),
    ):
        with pytest.raises(ConfigError, match="a training of it is at work"):
            act()
    assert removal([other], NONE, runs).folders == (other,)
    # given back, dead, or not heard of for long: nobody is at work
    clock = held.stat().st_mtime
    for changes, age in (
        ({"given_back": True}, 0),
        ({"pid": 2**22 + 5, "started": "1"}, 0),
        ({"machine": "another", "host": "h"}, STALE_SECONDS + 60),
    ):
        lease(runs, f"gaam-{KEY}-0011aabb", **changes)
        os.utime(held, (clock - age, clock - age))
        assert not at_work(runs), changes
        assert removal([run], NONE, runs).folders == (run,)
    lease(runs, f"gaam-{KEY}-0011aabb", machine="another", host="h")
    assert at_work(runs)[0].host == "h"


def test_only_unfinished_work_that_nobody_is_at_is_removed(runs: Path) -> None:
    work = next(runs.glob(".*.partial"))
    before = {path.name for path in runs.iterdir()}
    name = work.name[1:].removesuffix(".partial")
    held = lease(runs, f"{name}-00aa11bb")
    for words in ([], [name], [work.name]):
        with pytest.raises(ConfigError, match="process"):
            removal_of_unfinished(words, NONE, runs)
    held.unlink()
    with pytest.raises(ConfigError, match="no such unfinished work"):
        removal_of_unfinished([f"{name}x"], NONE, runs)
    with pytest.raises(ConfigError, match="filters say nothing"):
        removal_of_unfinished([], Filters.of(attn="gaam"), runs)
    # what was on its way out is nobody's; what is being written may be
    out = runs / f".removed-{KEY}-s0-1.{2**22 + 5}.00aa11bb.tmp"
    new, old = (runs / f".gaam-linear-{KEY}-s{n}.{2**22 + 5}.00aa11bb.tmp" for n in (5, 6))
    mine = runs / f".gaam-linear-{KEY}-s7.{os.getpid()}.00aa11bb.tmp"
    for folder in (out, new, old, mine):
        folder.mkdir()
    os.utime(old, (1e9, 1e9))
    plan = removal_of_unfinished([], NONE, runs)
    assert set(plan.folders) == {work, out, old}
    assert len(plan.at_work) == 2
    plan.carry_out()
    gone = before - {path.name for path in runs.iterdir()}
    assert gone == {work.name}
    assert new.exists()
    assert mine.exists()
    assert len(load_runs(list(runs.glob("[gn]*-linear-[1f]*")))) == 2


def test_a_renamed_run_is_found_by_a_training_and_a_report(
    tmp_path: Path, tiny_cache: Path
) -> None:
    config = TrainConfig(
        cache=tiny_cache,
        runs=tmp_path / "runs",
        attn=("none",),
        seeds=(0, 1),
        epochs=1,
        compile="off",
        device="cpu",
        probe=False,
    )
    (run,) = gaam_decoder.train(config)
    assert run.created is not None
    accuracy = gaam_decoder.report(config.runs).text("json").replace(run.path.name, "")
    renamed = rename(run.path, "mine")
    assert [found.path for found in gaam_decoder.train(config)] == [renamed]
    assert gaam_decoder.report(config.runs).text("json").replace(renamed.name, "") == accuracy
    # more seeds are trained beside it, and which run counts depends on no name
    both = gaam_decoder.train(replace(config, seeds=(0, 1, 2)))
    assert sorted(seed for found in both for seed in found.seeds) == [0, 1, 2]
    # cut off later, it is a damaged run and no missing one
    (renamed / "run.json").unlink()
    assert list_runs([config.runs], NONE).damage
    # what is removed is trained again
    removal([renamed], NONE, config.runs).carry_out()
    assert {0, 1} <= {seed for found in gaam_decoder.train(config) for seed in found.seeds}
    assert (config.runs / run.path.name).is_dir()
