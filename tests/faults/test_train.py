"""Trainings that are killed, interrupted or not alone."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from gaam_cache.store.digest import unsealed
from tests.conftest import Outcome
from tests.faults.conftest import Bench, Forks

RECIPE = ("--attn", "gaam", "--attn", "scalar-mix", "--epochs", "3", "--batch-size", "4")
ENGINE = ("--set", "seed-batch=2", "--set", "compile=off", "--device", "cpu", "--quiet")


def arguments(bench: Bench, runs: Path, seeds: str = "0-2") -> list[str]:
    places = ("--cache", bench.root / "reference", "--runs", runs)
    return ["train", *map(str, places), *RECIPE, *ENGINE, "--seeds", seeds]


@pytest.fixture(scope="module")
def trainers(forks: Forks, bench: Bench) -> Iterator[Forks]:
    """Forks of a process that has trained; what it made is the reference."""
    with forks.after(bench.root / "trainers", arguments(bench, bench.root / "runs")) as server:
        yield server


def made(runs: Path) -> dict[str, Any]:
    """Every file of every finished run, without when it was made and how long it took."""
    content: dict[str, Any] = {}
    for file in sorted(runs.glob("[!.]*/*")):
        name = str(file.relative_to(runs))
        if file.name == "log.jsonl":
            lines = [json.loads(line) for line in file.read_text().splitlines()]
            content[name] = [{k: v for k, v in line.items() if k != "seconds"} for line in lines]
        elif file.name == "run.json":
            about = unsealed(json.loads(file.read_text()))
            about["files"].pop("log.jsonl")
            about.pop("created")
            for seed in about["seeds"]:
                seed.pop("seconds")
            content[name] = about
        else:
            content[name] = file.read_bytes()
    return content


def strike(
    trainers: Forks, bench: Bench, runs: Path, nth: int, fault: list[Any], whole: dict[str, Any]
) -> Outcome:
    """Let a fault strike at the Nth call; then the same command again must make the reference."""
    job = {"folder": str(runs), "nth": nth, "fault": fault, "every_epoch": True}
    outcome = trainers.run(arguments(bench, runs), **job)
    assert made(runs).items() <= whole.items()
    again = trainers.run(arguments(bench, runs))
    assert (again.code, again.err) == (0, "")
    assert made(runs) == whole
    assert not list(runs.glob(".*"))
    return outcome


def calls(trainers: Forks, bench: Bench, folder: Path) -> list[str]:
    log = folder / "log"
    job = {"folder": str(folder / "recorded"), "nth": 0, "fault": ["record", str(log)]}
    outcome = trainers.run(arguments(bench, folder / "recorded"), every_epoch=True, **job)
    assert outcome.code == 0, outcome.err
    return [line for line in log.read_text().splitlines() if line.startswith("call ")]


def test_killed_at_any_call_a_training_ends_with_the_same_bits(
    trainers: Forks, bench: Bench, tmp_path: Path, places: slice
) -> None:
    whole = made(bench.root / "runs")
    count = len(calls(trainers, bench, tmp_path))
    assert count > 30
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        outcomes = list(
            pool.map(
                lambda nth: strike(trainers, bench, tmp_path / f"{nth}", nth, ["kill"], whole),
                range(1, count + 1)[places],
            )
        )
    assert {outcome.code for outcome in outcomes} == {-signal.SIGKILL}


def test_interrupted_at_a_call_a_training_ends_with_the_same_bits(
    trainers: Forks, bench: Bench, tmp_path: Path
) -> None:
    whole = made(bench.root / "runs")
    count = len(calls(trainers, bench, tmp_path))
    for nth in range(2, count, 9):
        fault = ["signal", [signal.SIGINT], "before"]
        outcome = strike(trainers, bench, tmp_path / f"{nth}", nth, fault, whole)
        assert outcome.code == 130
        assert "interrupted" in outcome.err
        assert "Traceback" not in outcome.err


def together(trainers: Forks, lock: Path, commands: list[list[str]]) -> list[Outcome]:
    """Run several commands that start at the same moment."""
    with lock.open("w") as held, ThreadPoolExecutor(len(commands)) as pool:
        fcntl.flock(held, fcntl.LOCK_EX)
        running = [pool.submit(trainers.run, command, lock=str(lock)) for command in commands]
        deadline = time.monotonic() + 600  # a hang
        while len(list(lock.parent.glob("lock.*"))) < len(commands):
            assert time.monotonic() < deadline
            for future in running:
                if future.done():  # before it said that it waits
                    raise AssertionError(future.result())
            time.sleep(0.01)
        fcntl.flock(held, fcntl.LOCK_UN)
        return [future.result() for future in running]


@pytest.mark.parametrize("count", [2, 4])
def test_trainers_started_together_make_every_run_once(
    count: int, trainers: Forks, bench: Bench, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    outcomes = together(trainers, tmp_path / "lock", [arguments(bench, runs)] * count)
    assert [(outcome.code, outcome.err) for outcome in outcomes] == [(0, "")] * count
    assert made(runs) == made(bench.root / "runs")
    assert not list(runs.glob(".*"))


def test_trainers_whose_seeds_overlap_train_no_seed_twice(
    trainers: Forks, bench: Bench, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    commands = [arguments(bench, runs, seeds) for seeds in ("0-3", "2-5")]
    outcomes = together(trainers, tmp_path / "lock", commands)
    assert [outcome.code for outcome in outcomes] == [0, 0]
    for name in ("gaam", "scalar-mix"):
        found = [
            seed["seed"]
            for file in runs.glob(f"{name}-*/run.json")
            for seed in json.loads(file.read_text())["seeds"]
        ]
        assert sorted(found) == [0, 1, 2, 3, 4, 5]


TUNED = ("--lr", "1e-4,1e-2", "--tune-seeds", "7,8")


def test_trainers_that_choose_together_train_no_seed_twice_and_choose_the_same(
    trainers: Forks, bench: Bench, tmp_path: Path
) -> None:
    """One may still train the grid while the other has all of it."""
    alone = trainers.run([*arguments(bench, tmp_path / "alone"), *TUNED])
    assert (alone.code, alone.err) == (0, "")
    runs = tmp_path / "runs"
    commands = [[*arguments(bench, runs), *TUNED]] * 3
    outcomes = together(trainers, tmp_path / "lock", commands)
    assert [(outcome.code, outcome.err) for outcome in outcomes] == [(0, "")] * 3
    assert made(runs) == made(tmp_path / "alone")
    assert not list(runs.glob(".*"))
    abouts = [unsealed(json.loads(file.read_text())) for file in runs.glob("*/run.json")]
    seeds = [[seed["seed"] for seed in about["seeds"]] for about in abouts]
    assert sorted(seeds) == [[0, 1, 2]] * 2 + [[7, 8]] * 4


@pytest.mark.slow
def test_killed_at_a_call_a_training_that_chooses_ends_with_the_same_bits(
    trainers: Forks, bench: Bench, tmp_path: Path
) -> None:
    whole = tmp_path / "whole"
    command = [*arguments(bench, whole), *TUNED]
    assert trainers.run(command).code == 0
    log = tmp_path / "log"
    record = {"folder": str(tmp_path / "recorded"), "nth": 0, "fault": ["record", str(log)]}
    assert trainers.run([*arguments(bench, tmp_path / "recorded"), *TUNED], **record).code == 0
    count = sum(line.startswith("call ") for line in log.read_text().splitlines())
    for nth in range(5, count, max(1, count // 12)):
        runs = tmp_path / f"{nth}"
        job = {"folder": str(runs), "nth": nth, "fault": ["kill"]}
        trainers.run([*arguments(bench, runs), *TUNED], **job)
        assert made(runs).items() <= made(whole).items()
        again = trainers.run([*arguments(bench, runs), *TUNED])
        assert (again.code, again.err) == (0, "")
        assert made(runs) == made(whole)
        assert not list(runs.glob(".*"))
