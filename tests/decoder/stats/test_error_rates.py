"""How often claims and intervals are wrong, where the truth is known.

``python -m tests.benchmarks.bench_error_rates`` prints the same of more sizes.
"""

from __future__ import annotations

import itertools
from functools import cache

import pytest

from tests.decoder.stats.experiments import SCENARIOS, Rates, differences_of, simulate, swapped

SIZES = ((2, 50), (3, 300), (6, 300), (6, 2000), (20, 300))
"""Seeds and test rows."""
REPETITIONS = 200
SWAPS = 300
KNOWN = {"skewed seeds": 0.89, "strong seeds": 0.91}
"""Coverage of an accuracy at the worst size: few seeds are much worse than the others."""

pytestmark = pytest.mark.slow


@cache
def rates(name: str, difference: float, size: tuple[int, int]) -> Rates:
    return simulate(name, difference, *size, REPETITIONS)


def error(share: float, repetitions: int) -> float:
    """Three standard errors of a share that was counted."""
    return 3 * (share * (1 - share) / repetitions) ** 0.5


def pooled(name: str, differences: list[float]) -> Rates:
    first, *others = (rates(name, d, size) for d, size in itertools.product(differences, SIZES))
    for other in others:
        first += other
    return first


def at_most(promise: float, count: int, repetitions: int) -> bool:
    return count / repetitions <= promise + error(promise, repetitions)


def at_least(promise: float, count: int, repetitions: int) -> bool:
    return at_most(1 - promise, repetitions - count, repetitions)


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_difference_is_found_where_there_is_none(name: str) -> None:
    for size in SIZES:
        found = rates(name, 0.0, size)
        assert at_most(0.05, found.found, found.repetitions), (size, found)
    found = pooled(name, [0.0])
    assert at_most(0.05, found.found, found.repetitions), found


@pytest.mark.parametrize("name", SCENARIOS)
def test_mechanisms_whose_names_are_swapped_by_lot_do_not_differ(name: str) -> None:
    """On every row chance says which is which; a test over seeds alone finds a difference."""
    for size in ((6, 300), (20, 300)):
        found = swapped(name, *size, SWAPS)
        assert at_most(0.05, found.found, SWAPS), (size, found)
        assert at_least(0.95, found.held, SWAPS), (size, found)


def test_over_seeds_alone_swapped_names_would_be_told_apart() -> None:
    """The attack works: without the rows in the test it is what it was."""
    found = swapped("rows and seeds", 6, 300, SWAPS)
    assert found.found_by_seeds / SWAPS > 0.15


@pytest.mark.parametrize("name", SCENARIOS)
def test_what_differs_by_the_margin_is_not_called_equivalent(name: str) -> None:
    differences = differences_of(name)[1:]
    for difference, size in itertools.product(differences, SIZES):
        found = rates(name, difference, size)
        assert at_most(0.05, found.equivalent, found.repetitions), (difference, size, found)
    found = pooled(name, differences)
    assert at_most(0.05, found.equivalent, found.repetitions), found


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_interval_holds_the_difference(name: str) -> None:
    for difference, size in itertools.product(differences_of(name), SIZES):
        found = rates(name, difference, size)
        assert at_least(0.95, found.held, found.repetitions), (difference, size, found)
    found = pooled(name, differences_of(name))
    assert at_least(0.95, found.held, found.repetitions), found


@pytest.mark.parametrize("name", SCENARIOS)
def test_the_interval_of_an_accuracy_holds_it(name: str) -> None:
    for difference, size in itertools.product(differences_of(name), SIZES):
        found = rates(name, difference, size)
        promise = KNOWN.get(name, 0.95)
        assert at_least(promise, found.accuracy_held, found.repetitions), (size, found)
    found = pooled(name, differences_of(name))
    promise = 0.93 if name in KNOWN else 0.95
    assert at_least(promise, found.accuracy_held, found.repetitions), found
