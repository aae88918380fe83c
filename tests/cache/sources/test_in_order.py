"""Files are looked at by several threads, and seen in the order of their rows."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator

import pytest

from gaam_cache.sources.media import _in_order
from gaam_cache.sources.media._in_order import AHEAD, in_order


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_results_come_in_order_and_nothing_is_taken_far_ahead(
    threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_in_order, "cores", lambda: [*range(threads)])
    generator = random.Random(0)
    taken, seen = 0, 0
    furthest = 0

    def items() -> Iterator[int]:
        nonlocal taken
        for number in range(300):
            taken += 1
            yield number

    def work(number: int) -> int:
        for _ in range(generator.randrange(3)):
            threading.Event().wait(0)  # let others go first
        return number * number

    for number, square in in_order(work, items()):
        assert (number, square) == (seen, seen * seen)
        seen += 1
        furthest = max(furthest, taken - seen)
    assert seen == 300
    assert furthest < AHEAD * threads


def test_several_threads_are_at_work_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_in_order, "cores", lambda: [*range(3)])
    together = threading.Barrier(3)
    assert len(list(in_order(lambda _: together.wait(30), range(3)))) == 3


def test_an_error_comes_in_its_turn_and_ends_what_is_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_in_order, "cores", lambda: [*range(2)])

    def work(number: int) -> int:
        if number == 5:
            raise ValueError("five")
        return number

    looked = in_order(work, range(100))
    assert [next(looked)[0] for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(ValueError, match="five"):
        next(looked)
    before = threading.active_count()
    looked = in_order(work, iter(range(5)))
    next(looked)
    looked.close()  # type: ignore[attr-defined]
    assert threading.active_count() <= before
