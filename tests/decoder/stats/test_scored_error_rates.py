"""How often claims by any score are wrong, where the truth is known.

Of a score that claims nothing there is nothing to count; of one that is silent of some experiments,
those in which it is not.
"""

from __future__ import annotations

from functools import cache

import pytest

from tests.decoder.stats.scored_experiments import SCENARIOS, SCORES, Rates, simulate

REPETITIONS = 60
SIZES = ((2, 50), (6, 50), (6, 300))
"""Seeds and test rows; ``bench_error_rates --of scores`` has more of both."""

pytestmark = pytest.mark.slow


@cache
def rates(name: str, size: tuple[int, int], differ: bool) -> dict[str, Rates]:
    return simulate(name, size, REPETITIONS, differ=differ)


def at_most(promise: float, count: int, repetitions: int) -> bool:
    """Within three standard errors of a share that was counted."""
    error = 3 * (promise * (1 - promise) / max(repetitions, 1)) ** 0.5
    return count <= (promise + error) * repetitions


@pytest.mark.parametrize("name", SCENARIOS)
def test_claims_by_every_score_are_wrong_as_seldom_as_they_say(name: str) -> None:
    for size in SIZES:
        same, other = rates(name, size, False), rates(name, size, True)
        for score in same:
            null, differ = same[score], other[score]
            where = (score, size, null, differ)
            assert at_most(0.05, null.found, null.claimed), where
            assert at_most(0.05, null.claimed - null.held, null.claimed), where
            assert at_most(0.05, differ.claimed - differ.held, differ.claimed), where
            assert at_most(0.05, differ.equivalent, differ.claimed), where
            # an interval of few rows that is shown seldom is counted among all
            missed = differ.with_value - differ.value_held
            assert at_most(0.05, missed, differ.repetitions), where


def test_the_experiments_can_tell_a_test_that_is_wrong() -> None:
    """Without what is unseen, few rows make claims of equivalence that are false."""
    from gaam_decoder.stats import scored as module

    before = module.UNSEEN
    module.UNSEEN = 0.0
    try:
        found = simulate("nearly all right", (6, 50), REPETITIONS, differ=True)
    finally:
        module.UNSEEN = before
    assert any(not at_most(0.05, rate.equivalent, rate.claimed) for rate in found.values())


def test_some_score_claims_nothing_and_all_others_do() -> None:
    found = rates("four classes", (6, 300), True)
    assert [name for name, rate in found.items() if not rate.claimed] == [
        name for name, score in SCORES.items() if score.no_claim
    ]
