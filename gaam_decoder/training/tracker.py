"""How far a sweep has come."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

Progress = Callable[[int, int, str], None]
"""Called with (seed-epochs done, seed-epochs in all, what is going on)."""
TELL_SECONDS = 0.2
"""Between two words of a worker: epochs may be shorter."""


class Tracker:
    """Seed-epochs done over all items, for the progress display."""

    def __init__(self, report: Progress) -> None:
        self._report = report
        self._planned: dict[str, int] = {}
        self._done: dict[str, int] = {}
        self._before: dict[str, int] = {}
        """What was done of each when more of it was expected."""

    def expect(self, planned: dict[str, int]) -> None:
        """So many seed-epochs more of each are to be done."""
        for key, count in planned.items():
            self._planned[key] = self._planned.get(key, 0) + count
            self._before[key] = self._done.setdefault(key, 0)

    def forget(self, key: str) -> None:
        """What was expected in its place is known now."""
        del self._planned[key], self._done[key]

    def tell(self, key: str, text: str, done: int | None = None, new: int = 0) -> None:
        """Say what is going on with an item.

        Args:
            key: of the item.
            text: what is going on.
            done: seed-epochs of it that are done.
            new: of these, what this process has done since it was last asked.
        """
        if done is not None:
            self._done[key] = min(self._before[key] + done, self._planned[key])
        self.say(text, new)

    def say(self, text: str, new: int) -> None:
        """Pass it on."""
        self._report(sum(self._done.values()), self.total, text)

    @property
    def total(self) -> int:
        """Seed-epochs that are to be done in all."""
        return sum(self._planned.values())

    def finish(self, key: str) -> None:
        """All of it is done, here or elsewhere."""
        self._done[key] = self._planned[key]


class Told(Tracker):
    """Of a worker, whose words go to whoever started it."""

    def __init__(self, tell: Callable[[str, Any], None]) -> None:
        super().__init__(lambda done, total, text: None)
        self._tell = tell
        self._new = 0
        self._told = -TELL_SECONDS

    def say(self, text: str, new: int) -> None:
        """Pass it on now and then, with what this worker alone has done since."""
        self._new += new
        if (now := time.monotonic()) - self._told >= TELL_SECONDS:
            self._tell("progress", (self._new, self.total, text))
            self._new, self._told = 0, now
