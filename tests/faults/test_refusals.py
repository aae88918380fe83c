"""A file system that says no: one message with the folder and what to do, and nothing left over."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Outcome
from tests.faults.conftest import Bench, Forks, Sweep, published, temporary_files


def assert_one_message(outcome: Outcome, folder: Path, *words: str, code: int = 1) -> None:
    """One message, which names the folder, what was found and what to do; 2: before any work."""
    assert (outcome.code, outcome.out) == (code, ""), outcome.err
    lines = outcome.err.splitlines()
    assert lines[0].startswith("error: ")
    assert all(line.startswith("  ") for line in lines[1:]), outcome.err
    assert str(folder) in outcome.err
    for word in (*words, "to do:", "--out"):
        assert word in outcome.err, outcome.err


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_call_that_fails_is_reported_and_leaves_no_temporary_file(
    number: int, sweep: Sweep
) -> None:
    def check(operation: str, outcome: Outcome, out: Path) -> None:
        if outcome.code == 0:  # a lease that cannot be had stops nobody
            assert published(out) == sweep.reference
            return
        remedy = "make room" if number == errno.ENOSPC else "look at the disk"
        assert_one_message(outcome, out, os.strerror(number), remedy)
        assert temporary_files(out) == []

    operations = ["mkdir", "create", "write", "fsync", "rename", "link"]
    sweep.run(["fail", number], check, operations=operations)


def test_a_failing_unlink_is_reported_and_the_rerun_completes(sweep: Sweep) -> None:
    def check(operation: str, outcome: Outcome, out: Path) -> None:
        if outcome.code == 0:
            assert published(out) == sweep.reference
            return
        assert_one_message(outcome, out, os.strerror(errno.EIO))

    sweep.run(["fail", errno.EIO], check, operations=["unlink"])


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP])
def test_a_file_system_without_hard_links_is_refused_before_the_encoder_is_loaded(
    number: int, forks: Forks, bench: Bench, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    job = {"folder": str(out), "nth": 1, "operations": ["link"], "fault": ["fail", number]}
    outcome = forks.run(bench.arguments(out), no_load=True, **job)
    assert_one_message(outcome, out, "no hard links", "another file system")
    assert [path.name for path in out.rglob("*")] == []


def test_a_resumed_extraction_learns_before_the_encoder_is_loaded_that_it_cannot_write(
    forks: Forks, bench: Bench, reference: dict[str, bytes], tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "cache.json").write_bytes(reference["cache.json"])
    (out / "shards").write_text("in the way")
    outcome = forks.run(bench.arguments(out), no_load=True)
    assert_one_message(outcome, out, "cannot write 'shards'", "File exists", "move the file away")
    assert (out / "shards").read_text() == "in the way"


def test_an_output_path_that_is_a_file_is_left_alone(
    forks: Forks, bench: Bench, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.write_text("mine")
    for path in (out, out / "below"):
        outcome = forks.run(bench.arguments(path))
        assert_one_message(outcome, out, "a file", "nothing was done yet", code=2)
    assert out.read_text() == "mine"


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that other users can reach; pytest's own they cannot."""
    with tempfile.TemporaryDirectory(prefix="gaam-faults-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)


@pytest.mark.parametrize("state", ["absent", "empty", "partial", "closed", "shards closed"])
def test_without_permission_nothing_is_written(
    state: str, forks: Forks, bench: Bench, reference: dict[str, bytes], place: Path
) -> None:
    """As root the command gives up being root; as anyone else the folder is read-only anyway."""
    out = place / "out"
    if state != "absent":
        out.mkdir()
    if state in ("partial", "shards closed"):
        (out / "cache.json").write_bytes(reference["cache.json"])
        (out / "shards").mkdir(mode=0o555 if state == "partial" else 0o000)
    before = sorted(place.rglob("*"))
    closed = out if out.exists() else place
    closed.chmod(0o000 if state == "closed" else 0o555)
    try:
        outcome = forks.run(bench.arguments(out), nobody=os.getuid() == 0)
    finally:
        closed.chmod(0o755)
    right = "read" if state == "shards closed" else "write"
    asked = 2 if state in ("absent", "empty") else 1  # else all that is wanted may be there
    where = place if state == "absent" else out
    said = ("Permission denied", f"get the right to {right} there")
    assert_one_message(outcome, where, *said, code=asked)
    assert sorted(place.rglob("*")) == before


def test_a_complete_cache_that_nobody_may_write_needs_no_writing(
    forks: Forks, bench: Bench, reference: dict[str, bytes], place: Path
) -> None:
    out = place / "out"
    (out / "shards").mkdir(parents=True)
    for name, content in reference.items():
        (out / name).write_bytes(content)
    for folder in (out / "shards", out):
        folder.chmod(0o555)
    try:
        outcome = forks.run(bench.arguments(out), nobody=os.getuid() == 0)
    finally:
        for folder in (out, out / "shards"):
            folder.chmod(0o755)
    assert (outcome.code, outcome.err) == (0, "")
    assert published(out) == reference
