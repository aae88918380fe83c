"""Trainers that share the seeds of an item, and folders that cannot be used for that."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import gaam_decoder
from tests.faults.conftest import Bench, Forks
from tests.faults.test_train import made

RECIPE = "--attn layer-mean --epochs 3 --batch-size 4 --set compile=off --device cpu --quiet"


def arguments(bench: Bench, runs: Path, seeds: str, batch: int = 2) -> list[str]:
    places = ("--cache", bench.root / "reference", "--runs", runs, "--seeds", seeds)
    return ["train", *map(str, places), "--set", f"seed-batch={batch}", *RECIPE.split()]


@pytest.fixture(scope="module")
def trainers(forks: Forks, bench: Bench) -> Iterator[Forks]:
    """Forks of a process that has trained all seeds; what it made is the reference."""
    runs = bench.root / "grouped"
    with forks.after(bench.root / "groups", arguments(bench, runs, "0-9")) as server:
        yield server


def logits(runs: Path) -> dict[int, np.ndarray]:
    """Test logits of every seed; no two runs have the same."""
    found = gaam_decoder.load_runs(runs)
    count = Counter(seed for run in found for seed in run.seeds)
    assert set(count.values()) == {1}, count
    return {seed: run.logits[place] for run in found for place, seed in enumerate(run.seeds)}


ASKED = {
    "the same": [("0-9", 2)] * 3,
    "overlapping": [("0-3", 2), ("2-7", 2), ("6-9,0", 2)],
    "one within the other": [("0-9", 2), ("3-4", 2), ("5", 2)],
    "other groups": [("0-9", 2), ("0-9", 3), ("0-9", 5)],
    "overlapping, other groups": [("0-6", 1), ("3-9", 4), ("2-5", 10)],
}


@pytest.mark.parametrize("name", ASKED)
def test_trainers_that_ask_for_overlapping_seeds_train_each_once(
    name: str, trainers: Forks, bench: Bench, tmp_path: Path
) -> None:
    reference = logits(bench.root / "grouped")
    runs, epochs = tmp_path / "runs", tmp_path / "epochs"

    def train(asked: tuple[str, int]) -> None:
        outcome = trainers.run(arguments(bench, runs, *asked), epochs=str(epochs))
        assert (outcome.code, outcome.err) == (0, "")

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(train, ASKED[name]))
    found = logits(runs)
    assert found.keys() == reference.keys() == set(range(10))
    for seed, expected in reference.items():  # one experiment, in whatever group
        np.testing.assert_allclose(
            found[seed], expected, rtol=0, atol=1e-4 * np.abs(expected).max()
        )
    if name == "the same":
        assert sum(epochs.read_bytes()) == 10 * 3
    assert not list(runs.glob(".*"))


IN_THE_WAY: dict[str, Callable[[Path], object]] = {
    "a file": lambda path: path.write_text("mine"),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a pipe": os.mkfifo,
}


@pytest.mark.parametrize("what", IN_THE_WAY)
def test_where_nothing_can_be_announced_the_results_are_the_same(
    what: str, trainers: Forks, bench: Bench, tmp_path: Path
) -> None:
    """Work may be done twice then: whoever publishes first counts, and tidies up.

    The other may find its folder gone under its hands: an error, and nothing wrong in the results.
    """
    runs = tmp_path / "runs"
    runs.mkdir()
    IN_THE_WAY[what](runs / ".claims")
    command = arguments(bench, runs, "0-9")
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(lambda _: trainers.run(command), range(2)))
    for outcome in outcomes:
        gone = "cannot write" in outcome.err and "No such file or directory" in outcome.err
        assert (outcome.code, outcome.err) == (0, "") or (outcome.code == 1 and gone)
    assert 0 in {outcome.code for outcome in outcomes}
    again = trainers.run(command)
    assert (again.code, again.err) == (0, "")
    assert made(runs) == made(bench.root / "grouped")
    assert {path.name for path in runs.glob(".*")} <= {".claims"}


def flip(place: int) -> Callable[[Path], object]:
    """Change a byte."""

    def change(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[place % len(content)] ^= 1
        path.write_bytes(content)

    return change


def test_a_planned_group_that_is_damaged_costs_nothing(
    trainers: Forks, bench: Bench, tmp_path: Path
) -> None:
    """Bytes of it, its end, all of it, or another thing in its place."""
    whole = made(bench.root / "grouped")
    damages: dict[str, Callable[[Path], object]] = {
        **{f"byte {place}": flip(place) for place in range(0, 400, 97)},
        "cut off": lambda path: path.write_bytes(path.read_bytes()[:-1]),
        "empty": lambda path: path.write_bytes(b""),
        "a folder": lambda path: (path.unlink(), path.mkdir()),
        "a link": lambda path: (path.unlink(), path.symlink_to("/dev/zero")),
        "gone": lambda path: path.unlink(),
    }
    for name, damage in damages.items():
        runs = tmp_path / name
        command = arguments(bench, runs, "0-9")
        assert trainers.run(command, epochs=f"{runs}.epochs", dies_after=5).code == -9
        files = runs.glob(".*.partial/group-*")
        plan = min(files, key=lambda path: path.stat().st_size)  # nothing of it is trained
        damage(plan)
        again = trainers.run(command)
        assert again.code == 0, (name, again.err)
        assert again.err.count("warning: ") == (name != "gone"), (name, again.err)
        assert ("is damaged and was removed" in again.err) == (name != "gone")
        assert made(runs) == whole, name
        assert not list(runs.glob(".*"))
