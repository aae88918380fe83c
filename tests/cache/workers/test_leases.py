"""One worker holds a lease at a time; the dead and the silent hold nothing."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from gaam_cache.store import files
from gaam_cache.workers import Holder, Leases, holdings
from tests.conftest import no_links

LONG = 91.0
"""Seconds: more than anybody waits for a sign."""


class Clock:
    """Seconds that pass when they are told to."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=[True, False], ids=["links", "no links"])
def owners(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[list[Leases]]:
    """Of machines of their own, whose process numbers mean nothing to others."""
    if not request.param:
        monkeypatch.setattr(os, "link", no_links(errno.EPERM))
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                Leases(tmp_path / "leases", holder=Holder(name, 7), clock=clock)
            )
            for name in ("one", "two", "three")
        ]


def test_a_name_is_claimed_once_and_free_when_done(
    owners: list[Leases], tmp_path: Path
) -> None:
    one, two, three = owners
    first = one.take("x")
    assert not isinstance(first, Holder)
    holder = two.take("x")
    assert isinstance(holder, Holder)
    assert (holder.host, holder.pid) == ("one", 7)
    assert not isinstance(two.take("y"), Holder)
    held = holdings(tmp_path / "leases")
    assert [(holding.name, holding.host) for holding in held] == [
        ("x", "one"),
        ("y", "two"),
    ]
    assert one.is_other_worker_at("y")
    assert not two.is_other_worker_at("y")
    three.remove_stale_leases()
    first.release()
    assert not isinstance(two.take("x"), Holder)
    # too late: another holds it now
    first.release()
    assert isinstance(one.take("x"), Holder)
    two.__exit__()
    assert not isinstance(one.take("x"), Holder)


def test_a_rank_that_begins_when_another_has_removed_the_folder_claims(
    owners: list[Leases], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_synced = files.write_synced

    def write_late(path: Path, content: bytes) -> None:
        monkeypatch.undo()
        shutil.rmtree(path.parent)
        write_synced(path, content)

    monkeypatch.setattr(files, "write_synced", write_late)
    assert not isinstance(owners[0].take("x"), Holder)


def test_a_claim_that_is_not_renewed_is_stale_by_the_clock_of_who_waits(
    owners: list[Leases], clock: Clock
) -> None:
    one, two, three = owners
    first = one.take("x")
    assert not isinstance(first, Holder)
    for seconds in range(1, 6):
        assert isinstance(two.take("x"), Holder)
        clock.now += LONG - 2
        os.utime(one.path("x"), (seconds, seconds))
    assert isinstance(two.take("x"), Holder)
    assert two.names_at_work() == {"x"}
    clock.now += LONG
    assert isinstance(three.take("x"), Holder), "it has only now begun to watch"
    assert three.names_at_work() == set(), "and cannot know"
    assert not isinstance(two.take("x"), Holder)
    first.release()
    assert isinstance(three.take("x"), Holder)
    clock.now += LONG
    three.remove_stale_leases()
    assert not one.path("x").parent.exists()


def test_a_thread_renews_what_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wait = threading.Event.wait
    renewed = threading.Event()

    def wait_briefly(event: threading.Event, timeout: float | None = None) -> bool:
        return wait(event, timeout and 0.001)

    def note_renewal(*args: Any, **options: Any) -> None:
        renewed.set()

    monkeypatch.setattr(threading.Event, "wait", wait_briefly)
    monkeypatch.setattr(os, "utime", note_renewal)
    with Leases(tmp_path / "leases") as leases:
        assert not isinstance(leases.take("x"), Holder)
        assert wait(renewed, 60)


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b'{"pid": "x"}', b"\xff", b'{"host": 3}']
)
def test_what_is_no_claim_stops_nobody(
    content: bytes, owners: list[Leases], clock: Clock
) -> None:
    owner = owners[0]
    owner.path("x").parent.mkdir()
    owner.path("x").write_bytes(content)
    assert isinstance(owner.take("x"), Holder)
    clock.now += LONG
    lease = owner.take("x")
    assert not isinstance(lease, Holder)
    lease.release()
