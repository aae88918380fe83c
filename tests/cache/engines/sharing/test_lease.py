from __future__ import annotations

import itertools
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gaam_cache.engines.sharing import lease
from gaam_cache.engines.sharing.holder import Holder, content_of
from gaam_cache.engines.sharing.lease import SHORTEST_PATIENCE_SECONDS, Lease, Leases
from gaam_cache.engines.sharing.processes import is_alive, stat_fields, this_machine

LONG = SHORTEST_PATIENCE_SECONDS + 1


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def owner(folder: Path, name: str, clock: Callable[[], float] = time.monotonic) -> Leases:
    """Leases of a machine of its own, whose process numbers mean nothing to others."""
    return Leases(folder, us=Holder(host=name, pid=7), clock=clock)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def owners(tmp_path: Path, clock: Clock) -> Iterator[list[Leases]]:
    made = [owner(tmp_path / "leases", name, clock) for name in ("one", "two", "three")]
    yield made
    for each in made:
        each.close()


def test_a_name_is_leased_once_and_free_when_done_or_given_back(owners: list[Leases]) -> None:
    one, two, _ = owners
    first = one.take("x")
    assert isinstance(first, Lease)
    holder = two.take("x")
    assert isinstance(holder, Holder)
    assert "one, process 7" in holder.in_words()
    assert isinstance(two.take("y"), Lease)
    first.give_back()
    again = two.take("x")
    assert isinstance(again, Lease)
    again.done()
    assert isinstance(one.take("x"), Lease)


def test_a_lease_that_is_not_renewed_is_stale_by_the_clock_of_who_waits(
    owners: list[Leases], clock: Clock
) -> None:
    one, two, three = owners
    first = one.take("x")
    assert isinstance(first, Lease)
    for _ in range(5):
        assert isinstance(two.take("x"), Holder)
        clock.now += LONG - 2
        os.utime(one.path("x", 0), (clock.now, clock.now))
    assert isinstance(two.take("x"), Holder)
    clock.now += LONG
    assert isinstance(three.take("x"), Holder), "it has only now begun to watch"
    assert not first.lost()
    assert isinstance(two.take("x"), Lease)
    assert first.lost()
    assert isinstance(three.take("x"), Holder)
    first.give_back()  # too late: it is no longer ours to give
    assert isinstance(three.take("x"), Holder)


def test_a_thread_renews_what_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.001)
    renewed = threading.Event()
    utime = os.utime

    def watched(*arguments: Any, **options: Any) -> None:
        utime(*arguments, **options)
        renewed.set()

    monkeypatch.setattr(os, "utime", watched)
    with owner(tmp_path / "leases", "one", clock) as one:
        assert isinstance(one.take("x"), Lease)
        assert renewed.wait(60)


def test_work_that_takes_long_is_waited_for_longer(owners: list[Leases], clock: Clock) -> None:
    one, two, _ = owners
    one.take("x")
    two.expect(1000.0)
    two.take("x")
    clock.now += 1999
    assert isinstance(two.take("x"), Holder)
    clock.now += 2
    assert isinstance(two.take("x"), Lease)


def test_a_dead_process_of_this_machine_holds_nothing(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path\n"
    code += "from gaam_cache.engines.sharing.lease import Leases\n"
    code += "print(Leases(Path(sys.argv[1])).take('x').number, flush=True); import os, signal\n"
    code += "sys.stdin.readline(); os.kill(os.getpid(), signal.SIGKILL)"
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[4],
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stdout.readline() == b"0\n"
    with Leases(tmp_path) as ours:
        holder = ours.take("x")
        assert isinstance(holder, Holder)
        assert holder.pid == child.pid
        child.stdin.close()
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, but not yet buried
        assert isinstance(ours.take("x"), Lease)
    child.wait()
    child.stdout.close()


def test_a_number_that_another_process_has_by_now_is_no_sign_of_life() -> None:
    started = stat_fields(os.getpid())[1]
    assert is_alive(os.getpid(), started)
    assert is_alive(os.getpid(), None)
    if started is not None:
        assert this_machine() is not None
        assert not is_alive(os.getpid(), str(int(started) + 1))


FOREIGN: dict[str, Callable[[Path], object]] = {
    "empty": Path.touch,
    "no JSON": lambda path: path.write_bytes(b"\xff\x00{"),
    "a list": lambda path: path.write_text("[1, 2]"),
    "deep": lambda path: path.write_text("[" * 4000),
    "strange numbers": lambda path: path.write_text(json.dumps({"host": "x", "pid": -1})),
    "no number": lambda path: path.write_text(json.dumps({"host": "x", "pid": "1"})),
    "no text": lambda path: path.write_text(json.dumps({"host": {"a": 1}, "pid": 1})),
    "other keys": lambda path: path.write_text(json.dumps({"host": "x", "pid": 1, "y": 2})),
    "escape sequences": lambda path: path.write_text(json.dumps({"host": "\x1b[2J", "pid": 1})),
    "huge": lambda path: path.write_bytes(b" " * 2**20),
    "folder": Path.mkdir,
    "pipe": os.mkfifo,
    "link to nothing": lambda path: path.symlink_to("nowhere"),
    "link to itself": lambda path: path.symlink_to(path.name),
    "link to a device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_what_is_no_lease_is_waited_for_once_and_stops_nobody(
    kind: str, owners: list[Leases], clock: Clock, tmp_path: Path
) -> None:
    one = owners[0]
    (tmp_path / "leases").mkdir()
    FOREIGN[kind](tmp_path / "leases" / "x.0")
    holder = one.take("x")
    assert isinstance(holder, Holder)
    assert holder.in_words().isprintable()
    clock.now += LONG
    taken = one.take("x")
    assert isinstance(taken, Lease)
    one.renew()
    taken.done()
    one.clear({"x"})


@pytest.mark.parametrize("kind", [kind for kind in FOREIGN if kind != "folder"])
def test_where_the_folder_cannot_be_used_everything_is_free(
    kind: str, owners: list[Leases], tmp_path: Path
) -> None:
    FOREIGN[kind](tmp_path / "leases")
    for each in owners:
        taken = each.take("x")
        assert isinstance(taken, Lease)
        assert not taken.lost()
        each.renew()
        each.clear({"x"})
        taken.give_back()
        taken.done()


def test_clearing_removes_what_is_done_and_leaves_what_is_not_ours(
    owners: list[Leases], tmp_path: Path
) -> None:
    folder = tmp_path / "leases"
    for each, name in zip(owners, ("x", "y", "z"), strict=True):
        each.take(name)
    (folder / ".x.0.812.0a1b2c3d.tmp").touch()
    (folder / "notes.txt").touch()
    owners[0].clear({"x", "y"})
    assert sorted(path.name for path in folder.iterdir()) == ["notes.txt", "z.0"]
    (folder / "notes.txt").unlink()
    owners[0].clear({"x", "y", "z"})
    assert not folder.exists()


def leave(folder: Path, name: str, number: int, holder: Holder) -> None:
    """An announcement of somebody else, as it lies there."""
    folder.mkdir(exist_ok=True)
    (folder / f"{name}.{number}").write_bytes(content_of(holder))


DEAD_PID = 2**22 + 1
"""More than a process may have."""


def kinds_of_holder() -> dict[str, tuple[Holder, bool]]:
    """What may stand in an announcement, and whether its holder may be at work."""
    machine = this_machine()
    started = stat_fields(os.getpid())[1]
    other = {"host": "elsewhere", "machine": "elsewhere"}
    here = {"host": "here", "machine": machine, "started": started}
    kinds = {
        "another machine": (Holder(pid=7, **other), True),
        "another machine, with a number that is dead here": (Holder(pid=DEAD_PID, **other), True),
        "another machine, given back": (Holder(pid=7, given_back=True, **other), False),
        "a machine that cannot be told": (Holder(host="x", pid=DEAD_PID), True),
        "a process of this machine": (Holder(pid=os.getpid(), **here), True),
        "given back here": (Holder(pid=os.getpid(), given_back=True, **here), False),
    }
    if machine is not None:
        dead = here | {"started": None}
        kinds["a dead process of this machine"] = (Holder(pid=DEAD_PID, **dead), False)
        later = here | {"started": str(int(started or 0) + 1)}
        kinds["an earlier process of the same number"] = (Holder(pid=os.getpid(), **later), False)
    return kinds


KINDS = kinds_of_holder()
US = Holder(host="here", pid=os.getppid(), machine=this_machine())


def test_who_looks_sees_the_last_announcement_of_every_name(tmp_path: Path, clock: Clock) -> None:
    """All pairs of announcements of one name; two who look see the same."""
    for number, (first, second) in enumerate(itertools.product(KINDS, repeat=2)):
        folder = tmp_path / f"{number}"
        leave(folder, "x-1", 0, KINDS[first][0])
        leave(folder, "x-1", 1, KINDS[second][0])
        leave(folder, "y-1", 0, KINDS["given back here"][0])
        works = KINDS[second][1]
        views = [Leases(folder, us=US, clock=clock) for _ in range(2)]
        for view in views:
            assert view.others_at_work("x-") == works, (first, second)
            assert view.others_at_work("x-1") == works
            assert not view.others_at_work("x-2")
            assert not view.others_at_work("y")
            # of another machine nothing was seen yet but a file
            assert view.alive() == ({"x-1"} if second == "a process of this machine" else set())
        views[0].clear_dead()
        names = {path.name for path in folder.iterdir()} if folder.exists() else set()
        assert names == ({"x-1.0", "x-1.1"} if works else set()), (first, second)
        assert isinstance(views[1].take("x-1"), Holder) == works
        views[1].close()


def test_a_log_whose_end_counts_keeps_its_beginning(tmp_path: Path) -> None:
    """Else whoever comes next would find number 0 free, and there were two."""
    folder = tmp_path / "leases"
    leave(folder, "x", 0, KINDS["given back here"][0])
    with owner(folder, "one") as one, owner(folder, "two") as two, owner(folder, "three") as three:
        assert isinstance(one.take("x"), Lease)
        for each in (one, two, three):
            each.clear_dead()
            assert isinstance(three.take("x"), Holder)
        assert sorted(path.name for path in folder.iterdir()) == ["x.0", "x.1"]


def test_our_own_announcements_are_no_ones_elses(tmp_path: Path) -> None:
    with owner(tmp_path / "leases", "one") as one, owner(tmp_path / "leases", "two") as two:
        assert isinstance(one.take("x-1"), Lease)
        assert not one.others_at_work("x")
        assert two.others_at_work("x")
        assert one.alive() == two.alive() == set()
        one.clear_dead()
        assert isinstance(two.take("x-1"), Holder)


def test_another_machine_is_alive_when_it_has_renewed_and_until_it_does_no_longer(
    owners: list[Leases], clock: Clock
) -> None:
    one, two, _ = owners
    assert isinstance(one.take("x"), Lease)
    path = one.path("x", 0)
    assert two.alive() == set(), "it may have died before we came"
    for step in range(1, 4):
        os.utime(path, (step, step))  # by the clock of that machine, which says nothing
        clock.now += LONG / 2
        assert two.alive() == {"x"}
        assert two.others_at_work("x")
    clock.now += LONG
    assert two.alive() == set()
    assert not two.others_at_work("x")
    os.utime(path, (9, 9))
    assert two.alive() == {"x"}, "it was slow, not dead"


def test_what_was_cut_off_goes_when_its_maker_is_dead(tmp_path: Path) -> None:
    folder = tmp_path / "leases"
    folder.mkdir()
    for pid in (os.getpid(), DEAD_PID):
        (folder / f".x.0.{pid}.0a1b2c3d.tmp").touch()
    (folder / "notes.txt").touch()
    with owner(folder, "one") as one:
        assert not one.others_at_work("x")
        assert one.alive() == set()
        one.clear_dead()
    left = {path.name for path in folder.iterdir()}
    assert left == {f".x.0.{os.getpid()}.0a1b2c3d.tmp", "notes.txt"}


@pytest.mark.parametrize("kind", FOREIGN)
def test_looking_and_clearing_survive_what_is_no_announcement(
    kind: str, owners: list[Leases], tmp_path: Path
) -> None:
    folder = tmp_path / "leases"
    folder.mkdir()
    for name in ("x.0", "x.1", "odd", ".x.0.1.ab.tmp", "x.99999999999999999999"):
        FOREIGN[kind](folder / name)
    one = owners[0]
    one.others_at_work("x")
    assert one.alive() == set()
    one.clear_dead()
    one.clear({"x"})
    assert (folder / "odd").exists() or (folder / "odd").is_symlink()


class World:
    """Three owners, one piece of work, and who may believe to hold it."""

    def __init__(self, folder: Path) -> None:
        self.clock = Clock()
        self.owners = [owner(folder, name, self.clock) for name in "abc"]
        self.leases: list[Lease | None] = [None] * 3
        self.renewed = [0.0] * 3
        self.judged: list[Lease] = []

    def step(self, action: str, who: int) -> None:
        mine = self.leases[who]
        if action == "pass":
            self.clock.now += LONG
        elif action == "take":
            taken = self.owners[who].take("x") if mine is None else None
            if isinstance(taken, Lease):
                self.leases[who] = taken
                self.renewed[who] = self.clock.now
        elif mine is None:
            return
        elif action == "renew":
            self.owners[who].renew()
            # what the clock of a real file system does between two renewals
            path = self.owners[who].path("x", mine.number or 0)
            os.utime(path, ns=(0, int(self.clock.now * 1e9) + who))
            self.renewed[who] = self.clock.now
        elif action == "die":
            self.owners[who].forget(mine)
            self.leases[who] = None
        else:
            assert action == "give back"
            mine.give_back()
            self.leases[who] = None

    def check(self) -> None:
        """Of those that hold a lease and were not found stale, there is one at most."""
        believing = [who for who, mine in enumerate(self.leases) if mine and not mine.lost()]
        assert len(believing) <= 1
        for who, mine in enumerate(self.leases):
            if mine and mine.lost() and mine not in self.judged:
                self.judged.append(mine)
                assert self.clock.now - self.renewed[who] > SHORTEST_PATIENCE_SECONDS


ACTIONS = [(name, who) for name in ("take", "renew", "die", "give back") for who in range(3)]


def follow(folder: Path, steps: Sequence[tuple[str, int]]) -> None:
    world = World(folder)
    try:
        for number, step in enumerate(steps):
            world.step(*step)
            try:
                world.check()
            except AssertionError as error:
                raise AssertionError(f"after {steps[: number + 1]}") from error
    finally:
        for each in world.owners:
            each.close()


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither syncing nor a thread: what is looked at is the order of steps."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(threading.Thread, "start", lambda thread: None)
    monkeypatch.setattr(threading.Thread, "join", lambda thread: None)


@pytest.mark.usefixtures("quick")
def test_in_any_order_of_steps_no_two_hold_a_live_lease(tmp_path: Path) -> None:
    """All orders of three steps after one has begun, and 500 longer ones."""
    every = [*ACTIONS, ("pass", 0)]
    short = [[("take", 0), *rest] for rest in itertools.product(every, repeat=3)]
    generator = random.Random(0)
    often = [*every, *[("take", who) for who in range(3)], *[("pass", 0)] * 3]
    long = [generator.choices(often, k=25) for _ in range(500)]
    for number, steps in enumerate([*short, *long]):
        follow(tmp_path / f"{number}", steps)


class Turns:
    """Threads that take turns at every call that touches the disk, in an order that is given."""

    def __init__(self, order: Sequence[int]) -> None:
        self._order = list(order)
        self._condition = threading.Condition()
        self._ready: set[int] = set()
        self._finished: set[int] = set()
        self._turn: int | None = None
        self._who = threading.local()

    def watched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            who = getattr(self._who, "number", None)
            if who is not None:
                self._wait(who)
            return function(*arguments, **options)

        return call

    def _wait(self, who: int) -> None:
        with self._condition:
            self._turn = None
            self._ready.add(who)
            self._condition.notify_all()
            assert self._condition.wait_for(lambda: self._turn == who, 60)
            self._ready.discard(who)

    def run(self, programs: Sequence[Callable[[], None]]) -> None:
        """Run each in a thread of its own; where the order names one that is done, the next."""

        def body(number: int, program: Callable[[], None]) -> None:
            self._who.number = number
            try:
                self._wait(number)
                program()
            finally:
                with self._condition:
                    self._finished.add(number)
                    self._turn = None
                    self._condition.notify_all()

        threads = [
            threading.Thread(target=body, args=(number, program))
            for number, program in enumerate(programs)
        ]
        for thread in threads:
            thread.start()
        order = itertools.chain(self._order, itertools.cycle(range(len(programs))))
        with self._condition:
            everyone = set(range(len(programs)))

            def settled() -> bool:
                return self._turn is None and self._ready | self._finished == everyone

            while self._finished != everyone:
                assert self._condition.wait_for(settled, 60)
                if self._finished == everyone:
                    break
                self._turn = next(who for who in order if who in self._ready)
                self._condition.notify_all()
        for thread in threads:
            thread.join()


CALLS = (("link", os), ("lstat", os), ("unlink", os), ("rename", os), ("mkdir", os))


def orders(programs: int, length: int) -> Iterator[list[int]]:
    """Every order in which one goes on until another interrupts it, with up to three changes."""
    for first in range(programs):
        for changes in itertools.product(range(1, length), repeat=3):
            for others in itertools.product(range(1, programs), repeat=3):
                order, who = [], first
                for run, step in zip(changes, others, strict=True):
                    order += [who] * run
                    who = (who + step) % programs
                yield [*order, *[who] * length]


@pytest.mark.parametrize("start", ["free", "stale", "given back", "stale, then alive"])
def test_whoever_interrupts_whom_inside_a_call_one_gets_the_lease(
    start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two want what is free or stale; in the last case its owner comes back and gives it back."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    monkeypatch.setattr(Leases, "_renew_until_closed", lambda leases: None)
    real = {name: getattr(module, name) for name, module in CALLS}
    tried = 0
    for number, order in enumerate(orders(3 if "alive" in start else 2, 6)):
        world = World(tmp_path / f"{number}")
        first = world.owners[2].take("x") if start != "free" else None
        if start == "given back":
            assert isinstance(first, Lease)
            first.give_back()
        for each in world.owners[:2] if first else []:
            if start != "given back":
                assert isinstance(each.take("x"), Holder)
        world.clock.now += LONG
        got: list[Lease | Holder] = []

        def want(each: Leases, got: list[Lease | Holder] = got) -> None:
            got.append(each.take("x"))

        programs: list[Callable[[], Any]] = [
            lambda each=each: want(each)  # type: ignore[misc]
            for each in world.owners[:2]
        ]
        if "alive" in start:
            assert isinstance(first, Lease)
            programs.append(first.give_back)
        turns = Turns(order)
        for name, module in CALLS:
            monkeypatch.setattr(module, name, turns.watched(real[name]))
        turns.run(programs)
        for name, module in CALLS:
            monkeypatch.setattr(module, name, real[name])
        held = [lease for lease in got if isinstance(lease, Lease) and not lease.lost()]
        assert len(held) == 1, order
        assert all(lease.number is not None for lease in held), order
        for each in world.owners:
            each.close()
        tried += 1
    assert tried >= 250
