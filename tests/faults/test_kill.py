"""kill -9 at every call that touches the disk: what is published stays, and the rerun completes."""

from __future__ import annotations

import signal
from pathlib import Path

from tests.conftest import Outcome
from tests.faults.conftest import Sweep

Records = list[tuple[str, str, str]]


def test_killed_at_any_call_keeps_what_is_published_and_resumes_to_identical_bytes(
    sweep: Sweep,
) -> None:
    def check(operation: str, outcome: Outcome, out: Path) -> None:
        assert outcome.code == -signal.SIGKILL
        if out.exists():
            files = [f.name for f in out.rglob("*") if f.is_file() and f.suffix != ".json"]
            files = [name for name in files if name not in ("train-00000.0", "test-00000.0")]
            assert all(name.endswith((".tmp", ".h5")) for name in files), files

    sweep.run(["kill"], check)


def test_the_faults_meet_every_call_that_the_interpreter_reports(recorded: Records) -> None:
    """Else a way of writing that no fault strikes could come in unnoticed."""
    same = {"unlink": "remove", "replace": "rename"}
    calls = [(same.get(name, name), path) for source, name, path in recorded if source == "call"]
    audited = [(name, path) for source, name, path in recorded if source == "audit"]
    assert [call for call in calls if call[0] not in ("write", "fsync")] == audited
    assert {name for name, _ in calls} >= {"create", "write", "fsync", "rename", "link", "mkdir"}


def test_nothing_becomes_visible_before_it_is_safe_from_a_power_failure(recorded: Records) -> None:
    """SIGKILL loses nothing that was written; a power failure loses what was not synced."""
    synced: set[str] = set()
    unsynced_names: set[str] = set()
    links = 0
    for source, operation, path in recorded:
        if source != "call" or "leases" in Path(path).parts:
            continue
        name = Path(path).name
        if operation in ("create", "write"):
            synced.discard(path)
        elif operation == "fsync":
            synced.add(path)
            unsynced_names = {entry for entry in unsynced_names if str(Path(entry).parent) != path}
        elif operation == "rename":
            assert path in synced, f"{name} gets its name before its content is synced"
            unsynced_names.add(path)
        elif operation == "link" and not name.startswith(".probe"):
            assert path in synced, f"{name} gets its name before its content is synced"
            assert not unsynced_names, f"{name} vouches for a file whose name is not synced"
            unsynced_names.add(path)
            links += 1
    assert links == 3
    assert not unsynced_names
