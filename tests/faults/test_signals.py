"""SIGINT and SIGTERM at every call that touches the disk, once and twice."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.conftest import Outcome
from tests.faults.conftest import Bench, Forks, Sweep, published, temporary_files

INTERRUPTED = "interrupted; what is finished is kept: run the same again\n"
INT, TERM = int(signal.SIGINT), int(signal.SIGTERM)


@pytest.mark.parametrize(("number", "when"), [(INT, "before"), (TERM, "after")])
def test_a_signal_lets_what_is_being_written_finish(number: int, when: str, sweep: Sweep) -> None:
    def check(operation: str, outcome: Outcome, out: Path) -> None:
        assert (outcome.code, outcome.out) == (130, ""), outcome.err
        assert temporary_files(out) == []
        assert outcome.err == INTERRUPTED
        shards = {file.name.rpartition("-")[0] for file in out.glob("shards/*.h5")}
        assert shards == {file.stem for file in out.glob("shards/*.json")}

    sweep.run(["signal", [number], when], check)


@pytest.mark.slow
def test_a_second_signal_ends_the_process_at_once(sweep: Sweep) -> None:
    def check(operation: str, outcome: Outcome, out: Path) -> None:
        assert (outcome.code, outcome.out, outcome.err) == (130, "", INTERRUPTED)

    sweep.run(["signal", [INT, TERM], "before"], check)


@pytest.mark.slow
def test_a_second_signal_does_not_wait_for_a_disk_that_hangs(
    forks: Forks, bench: Bench, reference: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    job = {"folder": str(out), "nth": 3, "operations": ["fsync"], "fault": ["hang", [INT, INT]]}
    outcome = forks.run(bench.arguments(out), **{**job, "nth": 8})
    assert (outcome.code, outcome.out, outcome.err) == (130, "", INTERRUPTED)
    assert published(out).items() <= reference.items()
    assert forks.run(bench.arguments(out)).code == 0
    assert published(out) == reference


def test_an_ignored_signal_stays_ignored(
    forks: Forks, bench: Bench, reference: dict[str, bytes], tmp_path: Path
) -> None:
    """As under nohup, or in a script that starts the command with '&'."""
    out = tmp_path / "out"
    job = {"folder": str(out), "nth": 9, "fault": ["signal", [INT], "before"]}
    outcome = forks.run(bench.arguments(out), ignored=INT, **job)
    assert (outcome.code, outcome.err) == (0, "")
    assert published(out) == reference


@pytest.mark.parametrize("number", [INT, TERM])
def test_other_commands_treat_signals_alike(
    number: int, forks: Forks, bench: Bench, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    arguments = ["train", "--cache", str(bench.root / "reference"), "--runs", str(runs)]
    arguments += ["--attn", "laplace", "--seeds", "1", "--epochs", "1", "--device", "cpu"]
    job = {"folder": str(runs), "nth": 1, "fault": ["signal", [number], "before"]}
    outcome = forks.run(arguments, **job)
    assert (outcome.code, outcome.out) == (130, ""), outcome.err
    assert outcome.err.startswith("interrupted; ")
    assert outcome.err.count("\n") == 1
