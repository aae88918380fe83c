from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from gaam_cache import terminal
from gaam_cache.terminal import show_progress


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in terminal.SIGNALS}
    terminal.unwind_on_signals()
    yield
    terminal.unwind_on_signals()  # forgets what was asked
    for number, handler in before.items():
        signal.signal(number, handler)


class Dropped:
    """Gets a signal in a destructor, whose exceptions Python ignores."""

    def __del__(self) -> None:
        signal.raise_signal(signal.SIGTERM)


def test_a_signal_whose_exception_got_lost_ends_the_work_at_the_next_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ignored = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    with show_progress("test", "rows", quiet=True) as progress:
        progress(1, 3, "")
        thing = Dropped()
        del thing
        assert [type(what.exc_value) for what in ignored] == [KeyboardInterrupt]
        with pytest.raises(KeyboardInterrupt):
            progress(2, 3, "")


def test_without_a_signal_work_goes_on() -> None:
    with show_progress("test", "rows", quiet=True) as progress:
        for done in range(3):
            progress(done, 3, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_thread_that_is_about_to_begin_is_waited_for(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine a signal comes while the system has not yet begun the thread."""
    begin = threading._start_new_thread  # type: ignore[attr-defined]
    begins, done = threading.Event(), []

    def late(function: Any, arguments: Any, *more: Any) -> Any:
        def wait_and_run() -> None:
            begins.wait()
            function(*arguments)

        return begin(wait_and_run, ())

    name = f"{terminal.WRITER}_0"
    thread = threading.Thread(target=lambda: done.append(1), name=name)
    sleep = time.sleep

    def begin_at_last(seconds: float) -> None:
        begins.set()
        sleep(seconds)

    monkeypatch.setattr(threading, "_start_new_thread", late)
    monkeypatch.setattr(time, "sleep", begin_at_last)
    monkeypatch.setattr(
        thread._started,  # type: ignore[attr-defined]
        "wait",
        lambda *_: signal.raise_signal(number),
    )
    with pytest.raises(KeyboardInterrupt) as caught, terminal.explained(lambda: "some"):
        thread.start()
    assert done == [1]
    assert caught.value.__notes__ == ["some"]


def test_what_is_being_written_is_waited_for_and_what_only_stands_by_is_not() -> None:
    """A pool that reads rows ends with the process alone, and so do pools of libraries."""
    waiting, done, told = threading.Event(), [], []

    def write() -> None:
        waiting.wait(0.2)
        done.append(1)

    def interrupt() -> None:
        writer.submit(write)
        writer.shutdown(wait=False)
        with (
            pytest.raises(KeyboardInterrupt) as caught,
            terminal.explained(lambda: f"{done}"),
        ):
            raise KeyboardInterrupt
        told.extend(caught.value.__notes__)

    with ThreadPoolExecutor(1, "read") as ours, ThreadPoolExecutor(1) as of_a_library:
        writer = ThreadPoolExecutor(1, terminal.WRITER)
        assert ours.submit(int).result() == of_a_library.submit(int).result() == 0
        unwinding = threading.Thread(target=interrupt, daemon=True)
        unwinding.start()
        unwinding.join(60)
        assert not unwinding.is_alive()
    assert told == ["[1]"]
