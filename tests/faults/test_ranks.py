"""Ranks that somebody else started together on one folder, killed or not."""

from __future__ import annotations

import fcntl
import itertools
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Outcome, random_rows, shard_bytes, write_csv
from tests.faults.conftest import Bench, Forks, published
from tests.faults.test_train import made

COUNT = 4
ROWS = 192
Start = Callable[[int], dict[str, Any]]


def by_torchrun(number: int) -> dict[str, Any]:
    return {"environ": {"RANK": f"{number}", "WORLD_SIZE": f"{COUNT}"}}


def by_array(number: int) -> dict[str, Any]:
    names = {"TASK_ID": number + 1, "TASK_MIN": 1, "TASK_COUNT": COUNT, "TASK_STEP": 1}
    return {"environ": {f"SLURM_ARRAY_{name}": f"{value}" for name, value in names.items()}}


def by_step(number: int) -> dict[str, Any]:
    names = {"STEP_ID": 0, "PROCID": number, "STEP_NUM_TASKS": COUNT, "LOCALID": number}
    names |= {"STEP_TASKS_PER_NODE": COUNT}
    return {"environ": {f"SLURM_{name}": f"{value}" for name, value in names.items()}}


def by_hand(number: int) -> dict[str, Any]:
    return {"rank": ["--set", f"rank={number}/{COUNT}"]}


STARTS = {"torchrun": by_torchrun, "array": by_array, "srun": by_step, "rank": by_hand}


def together(
    forks: Forks, arguments: list[str], start: Start, folder: Path, jobs: list[dict[str, Any]]
) -> list[Outcome]:
    """Run a command in ranks that begin at one moment."""
    lock = folder / "lock"
    with lock.open("w") as held, ThreadPoolExecutor(COUNT) as pool:
        fcntl.flock(held, fcntl.LOCK_EX)
        running = []
        for number, job in enumerate(jobs):
            own = start(number)
            more = own.pop("rank", [])
            running.append(
                pool.submit(forks.run, [*arguments, *more], lock=str(lock), **own, **job)
            )
        latest = time.monotonic() + 600  # a hang
        while len(list(folder.glob("lock.*"))) < COUNT:
            assert time.monotonic() < latest
            time.sleep(0.01)
        fcntl.flock(held, fcntl.LOCK_UN)
        return [future.result() for future in running]


@pytest.fixture(scope="module")
def alone(forks: Forks, bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set, and the cache of it that one process made."""
    root = tmp_path_factory.mktemp("alone")
    rows = [("a", "goal"), ("b", "bank"), *random_rows(ROWS - 2, 3)]
    write_csv(root / "data" / "train.csv", rows)
    assert forks.run(extraction(bench, root, root / "cache")).code == 0
    return root


def extraction(bench: Bench, root: Path, out: Path) -> list[str]:
    places = ("--encoder", bench.encoder, "--dataset", root / "data", "--out", out)
    more = "--split train --set shard-rows=8 --set batch-tokens=32 --device cpu"
    return ["extract", *map(str, places), *more.split()]


def mostly_slow(quick: set[Any], *axes: Any) -> list[Any]:
    """All combinations; those that are not ``quick`` take more than a minute together."""
    every = itertools.product(*axes)
    return [
        case if case in quick else pytest.param(*case, marks=pytest.mark.slow) for case in every
    ]


QUICK = {("torchrun", 0), ("array", 1), ("srun", 3), ("rank", 1)}
QUICK_TRAININGS = {(False, "array", 1), (True, "torchrun", 1), (False, "torchrun", 3)}


@pytest.mark.parametrize(("start", "killed"), mostly_slow(QUICK, STARTS, [0, 1, 3]))
def test_ranks_make_the_bytes_of_one_and_read_the_rows_once(
    start: str, killed: int, forks: Forks, bench: Bench, alone: Path, tmp_path: Path
) -> None:
    """Killed is whoever notes the end of a certain batch: at most what he had in work is lost."""
    out, notes, reads = tmp_path / "out", tmp_path / "notes", tmp_path / "reads"
    common = {"notes": str(notes), "reads": str(reads)}
    jobs = [{**common, "dies_after": 4 if number < killed else None} for number in range(COUNT)]
    outcomes = together(forks, extraction(bench, alone, out), STARTS[start], tmp_path, jobs)
    living = [outcome for outcome in outcomes if outcome.code != -9]
    assert len(living) == COUNT - killed
    assert [(outcome.code, outcome.err) for outcome in living] == [(0, "")] * len(living)
    assert len(reads.read_bytes()) == 1
    done = [outcome for outcome in living if "' is complete" in outcome.out]
    for outcome in living:
        assert ("others are at work on" in outcome.out) == (outcome not in done)
        assert ("next: gaam train" in outcome.out) == (outcome in done)
    assert done or killed, "the last to leave says that nothing is left"
    if not done:  # the others had left when the last one was killed
        assert len(published(out)) < len(shard_bytes(alone / "cache"))
        again = forks.run(extraction(bench, alone, out), notes=str(notes))
        assert (again.code, again.err) == (0, "")
    assert published(out) == shard_bytes(alone / "cache")
    assert {path.name for path in out.iterdir()} == {"cache.json", "shards"}
    encoded = sum(notes.read_bytes())
    assert ROWS <= encoded <= ROWS + 3 * 8 * killed


TRAIN = ("--attn", "gaam", "--attn", "scalar-mix", "--epochs", "3", "--batch-size", "4")
ENGINE = (
    "--set",
    "seed-batch=2",
    "--set",
    "compile=off",
    "--no-probe",
    "--device",
    "cpu",
    "--quiet",
)
TUNED = ("--lr", "1e-4,1e-3", "--tune-seeds", "0-1")


def training(bench: Bench, runs: Path, *more: str) -> list[str]:
    places = ("--cache", bench.root / "reference", "--runs", runs)
    return ["train", *map(str, places), *TRAIN, *ENGINE, "--seeds", "2-7", *more]


@pytest.fixture(scope="module")
def trainers(forks: Forks, bench: Bench) -> Iterator[Forks]:
    """Forks of a process that has trained; what it made is a reference."""
    warm_up = training(bench, bench.root / "rank-runs")
    with forks.after(bench.root / "ranks", warm_up) as server:
        tuned = server.run(training(bench, bench.root / "rank-tuned", *TUNED))
        assert tuned.code == 0, tuned.err
        yield server


@pytest.mark.parametrize(
    ("tuned", "start", "killed"),
    mostly_slow(QUICK_TRAININGS, [False, True], ["torchrun", "array"], [0, 1, 3]),
)
def test_ranks_train_the_bits_of_one(
    tuned: bool, start: str, killed: int, trainers: Forks, bench: Bench, tmp_path: Path
) -> None:
    runs, epochs = tmp_path / "runs", tmp_path / "epochs"
    jobs = [
        {"epochs": str(epochs), "dies_after": 2 if number < killed else None}
        for number in range(COUNT)
    ]
    command = training(bench, runs, *(TUNED if tuned else ()))
    outcomes = together(trainers, command, STARTS[start], tmp_path, jobs)
    living = [outcome for outcome in outcomes if outcome.code != -9]
    # who found nothing left to train was not killed
    assert COUNT - killed <= len(living)
    assert [(outcome.code, outcome.err) for outcome in living] == [(0, "")] * len(living)
    whole = made(bench.root / ("rank-tuned" if tuned else "rank-runs"))
    done = [outcome for outcome in living if "next: gaam report" in outcome.out]
    for outcome in living:
        assert ("others are still at work on" in outcome.out) == (outcome not in done)
    assert done or killed, "the last to leave says that nothing is left"
    if not done:  # the others had left when the last one was killed
        assert made(runs).items() < whole.items()
        again = trainers.run(command, epochs=str(epochs))
        assert (again.code, again.err) == (0, "")
    assert made(runs) == whole
    assert not list(runs.glob(".*"))
    trained = sum(epochs.read_bytes())
    seeds_and_epochs = 2 * 6 * 3 + (2 * 2 * 2 * 3 if tuned else 0)
    assert seeds_and_epochs <= trained <= seeds_and_epochs + 2 * killed
