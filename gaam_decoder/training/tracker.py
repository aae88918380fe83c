"""How far a sweep has come."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[int, int, str], None]
"""Called with (seed-epochs done, seed-epochs in all, what is going on)."""


class Tracker:
    """Seed-epochs done over all items, for the progress display."""

    def __init__(self, report: Progress, planned: dict[str, int]) -> None:
        self._report = report
        self._planned = planned
        self._done = dict.fromkeys(planned, 0)

    def tell(self, key: str, text: str, done: int | None = None) -> None:
        """Say what is going on with an item, and how many seed-epochs of it are done."""
        if done is not None:
            self._done[key] = min(done, self._planned[key])
        self._report(sum(self._done.values()), sum(self._planned.values()), text)

    def finish(self, key: str) -> None:
        """All of it is done, here or elsewhere."""
        self._done[key] = self._planned[key]
