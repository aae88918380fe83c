"""Who may train what: a lock that dies with its process, and no obstacle where there are none."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gaam_cache.errors import StorageError
from gaam_decoder.unfinished.claim import NO_LOCKS_HERE, Claim

ROOT = Path(__file__).parents[2]
HOLD = """
import sys
from pathlib import Path
from gaam_decoder.unfinished.claim import Claim
claim = Claim(Path(sys.argv[1]), "x")
print(claim.take(), flush=True)
sys.stdin.readline()
"""


def test_one_has_it_and_the_next_when_it_is_given_up_and_nothing_is_left(tmp_path: Path) -> None:
    with Claim(tmp_path, "x") as first, Claim(tmp_path, "x") as second:
        assert first.take()
        assert first.sole
        assert not second.take()
        assert not second.sole
        assert Claim(tmp_path, "y").take()
        first.release()
        second.wait(lambda: pytest.fail("it is free"))
        assert second.sole
    assert not list(tmp_path.glob(".x*"))


def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    child = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "True\n"
    with Claim(tmp_path, "x") as ours:
        assert not ours.take()
        child.kill()
        child.communicate()
        assert ours.take()


def test_who_opened_the_file_before_it_was_removed_does_not_get_it_beside_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flock = fcntl.flock
    with Claim(tmp_path, "x") as first, Claim(tmp_path, "x") as late, Claim(tmp_path, "x") as third:
        assert first.take()

        def others_first(descriptor: int, how: int) -> None:
            monkeypatch.setattr(fcntl, "flock", flock)
            first.release()
            assert third.take()
            flock(descriptor, how)

        monkeypatch.setattr(fcntl, "flock", others_first)
        assert not late.take()
        assert third.sole


@pytest.mark.parametrize("number", sorted(NO_LOCKS_HERE))
def test_without_locks_every_claim_succeeds_and_none_is_sole(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, how: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with Claim(tmp_path, "x") as first, Claim(tmp_path, "x") as second:
        assert first.take()
        assert second.take()
        assert not first.sole
        assert not second.sole
    assert not list(tmp_path.iterdir())


def test_another_refusal_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, how: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(StorageError, match="--runs"):
        Claim(tmp_path, "x").take()
