"""A disk that is really full, and a limit on the size of files."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.conftest import Bench, Forks, published, start_forks, temporary_files
from tests.faults.test_refusals import assert_one_message

PAGE_BYTES = 4096


def test_no_room_for_temporary_files_is_one_message(
    forks: Forks, bench: Bench, tmp_path: Path
) -> None:
    outcome = forks.run(bench.arguments(tmp_path / "out"), file_bytes=0, to_the_end=True)
    assert outcome.code == 1
    assert "cannot keep the rows in a temporary file" in outcome.err
    assert "TMPDIR" in outcome.err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("share", [0.9, 1.5, 3.0, 3.8])
def test_a_limit_on_the_size_of_files_is_one_message_and_a_clean_end(
    share: float, forks: Forks, bench: Bench, reference: dict[str, bytes], tmp_path: Path
) -> None:
    """``share``: of the size of the plan; the shard files are larger, the receipts smaller."""
    out = tmp_path / "out"
    size = len(reference["cache.json"])
    smallest = min(len(content) for name, content in reference.items() if name.endswith(".h5"))
    assert share * size < smallest
    job = {"file_bytes": int(share * size), "to_the_end": True}
    outcome = forks.run(bench.arguments(out), **job)
    assert_one_message(outcome, out, "File too large", "make room")
    assert temporary_files(out) == []
    assert list(published(out)) == (["cache.json"] if share > 1 else [])
    assert forks.run(bench.arguments(out)).code == 0
    assert published(out) == reference


@pytest.fixture(scope="module")
def small_disk(bench: Bench) -> Iterator[Forks]:
    """A server in a mount namespace of its own, where DISK is a file system of one page."""
    disk = bench.root / "disk"
    disk.mkdir()
    mount = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    script = 'mount -t tmpfs -o size=4k tmpfs "$0" && exec "$@"'
    if shutil.which("unshare") is None:
        pytest.skip("no unshare command here")
    tried = subprocess.run([*mount, script, str(disk), "true"], capture_output=True, text=True)
    if tried.returncode:
        pytest.skip(f"no mount in a user namespace here: {tried.stderr.strip()}")
    warm_up = bench.arguments(bench.root / "reference-2")
    server = start_forks(bench.root / "socket-2", warm_up, *mount, script, str(disk))
    yield server
    server.process.terminate()
    server.process.wait()


def test_a_full_disk_is_one_message_at_any_size_and_more_room_completes_the_cache(
    small_disk: Forks, bench: Bench, reference: dict[str, bytes]
) -> None:
    disk = bench.root / "disk"
    seen_from_here = Path(f"/proc/{small_disk.process.pid}/root") / disk.relative_to("/")
    refusals = 0
    for pages in range(1, 40):
        small_disk.run([], shell=f"mount -o remount,size={pages * PAGE_BYTES} {disk}")
        name = f"{pages}"
        outcome = small_disk.run(bench.arguments(disk / name), to_the_end=pages % 4 == 0)
        kept = published(seen_from_here / name) if (seen_from_here / name).exists() else {}
        assert kept.items() <= reference.items()
        if outcome.code == 0:
            assert kept == reference
            break
        refusals += 1
        assert_one_message(outcome, disk, "No space left on device", "make room")
        assert temporary_files(seen_from_here) == []
        small_disk.run([], shell=f"mount -o remount,size=1m {disk}")
        again = small_disk.run(bench.arguments(disk / name))
        assert (again.code, again.err) == (0, "")
        assert published(seen_from_here / name) == reference
        small_disk.run([], shell=f"rm -r {disk / name}")
    else:
        pytest.fail("no size was enough")
    needed = sum(-(-len(content) // PAGE_BYTES) for content in reference.values())
    assert refusals >= needed - 1
