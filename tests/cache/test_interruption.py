from __future__ import annotations

import signal
import sys
from collections.abc import Iterator

import pytest

from gaam_cache.terminal import interruption
from gaam_cache.terminal.progress import show_progress


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in interruption.SIGNALS}
    interruption.unwind_on_signals()
    yield
    interruption.unwind_on_signals()  # forgets what was asked
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
