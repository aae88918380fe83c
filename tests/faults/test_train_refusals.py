"""A file system that says no to a training: one message, nothing finished is lost, same bits."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Outcome
from tests.faults.conftest import Bench, Forks
from tests.faults.test_train import arguments, calls, made


@pytest.fixture(scope="module")
def trainers(forks: Forks, bench: Bench) -> Iterator[Forks]:
    """Forks of a process that has trained; what it made is the reference."""
    warm_up = arguments(bench, bench.root / "refused-runs")
    with forks.after(bench.root / "refused-trainers", warm_up) as server:
        yield server


WRITING = ["mkdir", "create", "write", "fsync", "rename", "unlink"]


def assert_refused(outcome: Outcome, runs: Path, *words: str) -> None:
    """Exit code 1 and one message, which names the folder, what was found and what to do."""
    assert outcome.code == 1, outcome.err
    lines = outcome.err.splitlines()
    assert lines[0].startswith("error: cannot write"), outcome.err
    assert all(line.startswith("  ") for line in lines[1:]), outcome.err
    for word in (str(runs), "to do:", "--runs", "the same command goes on", *words):
        assert word in outcome.err, outcome.err


def strike(
    forks: Forks, bench: Bench, runs: Path, nth: int, number: int, whole: dict[str, Any]
) -> str | None:
    """Let the Nth call fail; what it says, then that the same command ends with the same bits."""
    fault = {"folder": str(runs), "nth": nth, "fault": ["fail", number], "operations": WRITING}
    try:
        outcome = forks.run(arguments(bench, runs), every_epoch=True, **fault)
        if outcome.code or outcome.err:  # a lock that stays behind harms nobody
            assert_refused(outcome, runs, os.strerror(number))
        assert made(runs).items() <= whole.items()
        assert not list(runs.rglob("*.tmp")), "a temporary file is left over"
        again = forks.run(arguments(bench, runs))
        assert (again.code, again.err) == (0, "")
        assert made(runs) == whole
        assert not list(runs.glob(".*.partial"))
    except AssertionError as error:
        return f"call {nth}: {error}"
    return "refused" if outcome.code else "harmless"


@pytest.mark.parametrize(
    ("number", "step"),
    [
        (errno.ENOSPC, 4),
        *(
            pytest.param(number, 1, marks=pytest.mark.slow)
            for number in (errno.ENOSPC, errno.EIO, errno.EROFS)
        ),
    ],
)
def test_at_any_call_that_fails_a_training_is_refused_and_goes_on_with_the_same_bits(
    number: int, step: int, trainers: Forks, bench: Bench, tmp_path: Path
) -> None:
    whole = made(bench.root / "refused-runs")
    lines = [line.split()[1] for line in calls(trainers, bench, tmp_path)]
    count = sum(name in WRITING for name in lines)
    assert count > 50
    places = range(1, count + 1, step)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        said = list(
            pool.map(lambda n: strike(trainers, bench, tmp_path / f"{n}", n, number, whole), places)
        )
    wrong = [text for text in said if text not in ("refused", "harmless")]
    assert not wrong, "\n\n".join(map(str, wrong))
    assert said.count("refused") > 0.6 * len(said)


@pytest.mark.parametrize("share", [0.02, 0.3, 0.6, 0.99])
def test_a_limit_on_the_size_of_files_is_one_message_and_more_completes_the_runs(
    share: float,
    trainers: Forks,
    bench: Bench,
    tmp_path: Path,
) -> None:
    """``share``: of the largest file of a run."""
    whole = made(bench.root / "refused-runs")
    largest = max(file.stat().st_size for file in (bench.root / "refused-runs").rglob("*.*"))
    runs = tmp_path / "runs"
    outcome = trainers.run(arguments(bench, runs), file_bytes=int(share * largest))
    assert_refused(outcome, runs, "File too large", "make room")
    again = trainers.run(arguments(bench, runs))
    assert (again.code, again.err) == (0, "")
    assert made(runs) == whole


def test_a_runs_folder_that_is_a_file_is_left_alone(
    trainers: Forks,
    bench: Bench,
    tmp_path: Path,
) -> None:
    (tmp_path / "mine").write_text("mine")
    for runs in (tmp_path / "mine", tmp_path / "mine" / "below"):
        outcome = trainers.run(arguments(bench, runs))
        assert (outcome.code, outcome.out) == (2, "")
        for word in ("nothing can be written to", str(runs), "a file", "choose another --runs"):
            assert word in outcome.err
    assert (tmp_path / "mine").read_text() == "mine"


@pytest.mark.parametrize("mode", [0o000, 0o555])
def test_without_permission_nothing_is_written(
    mode: int,
    trainers: Forks,
    bench: Bench,
) -> None:
    runs = bench.root / f"closed-{mode:o}"
    runs.mkdir()
    runs.chmod(mode)
    try:
        outcome = trainers.run(arguments(bench, runs), nobody=os.getuid() == 0)
    finally:
        runs.chmod(0o755)
    assert outcome.code == (2 if mode else 1), outcome.err  # nobody sees whether 0 is empty
    assert outcome.err.startswith(("error: cannot ", "error: nothing can be written")), outcome.err
    assert "Permission denied" in outcome.err
    assert "Traceback" not in outcome.err
    assert not list(runs.iterdir())


def test_files_of_a_run_have_the_mode_that_the_umask_leaves(
    trainers: Forks,
    bench: Bench,
    tmp_path: Path,
) -> None:
    (tmp_path / "other").touch()
    expected = (tmp_path / "other").stat().st_mode
    for file in (bench.root / "refused-runs").glob("*/*"):
        assert file.stat().st_mode == expected, file
