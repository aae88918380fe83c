"""How often claims and intervals are wrong, where the truth is known.

``python -m tests.benchmarks.bench_error_rates`` prints the same of more sizes.
"""

from __future__ import annotations

import numpy as np
import pytest

from gaam_decoder import stats
from tests.decoder.stats import experiments, scored_experiments, tuned_experiments

SIZES = ((2, 50), (6, 300), (20, 300))
"""Seeds and test rows."""
REPETITIONS, SCORED = 150, 60
KNOWN = {"skewed seeds": 0.89, "strong seeds": 0.91}
"""Coverage of an accuracy at the worst size: few seeds are much worse than the others."""

pytestmark = pytest.mark.slow


def seldom(count: int, repetitions: int, promise: float = 0.05) -> bool:
    """At most what is promised, within three standard errors of a share that was counted."""
    error = 3 * (promise * (1 - promise) / max(repetitions, 1)) ** 0.5
    return count <= (promise + error) * repetitions


@pytest.mark.parametrize("name", experiments.SCENARIOS)
def test_claims_and_intervals_of_accuracies_are_wrong_as_seldom_as_they_say(
    name: str,
) -> None:
    for size in SIZES:
        for difference in experiments.differences_of(name):
            found = experiments.simulate(name, difference, *size, REPETITIONS)
            where = (size, difference, found)
            assert seldom(
                found.equivalent if difference else found.found, REPETITIONS
            ), where
            assert seldom(REPETITIONS - found.held, REPETITIONS), where
            missed = REPETITIONS - found.accuracy_held
            assert seldom(missed, REPETITIONS, 1 - KNOWN.get(name, 0.95)), where


@pytest.mark.parametrize("name", experiments.SCENARIOS)
def test_mechanisms_whose_names_are_swapped_by_lot_do_not_differ(name: str) -> None:
    """On every row chance says which is which; a test over seeds alone finds a difference."""
    found = experiments.swapped(name, 6, 300, 2 * REPETITIONS)
    assert seldom(found.found, 2 * REPETITIONS), found
    assert seldom(2 * REPETITIONS - found.held, 2 * REPETITIONS), found
    if name == "rows and seeds":
        assert found.found_by_seeds / (2 * REPETITIONS) > 0.15, "the attack works"


@pytest.mark.parametrize("name", scored_experiments.SCENARIOS)
def test_claims_by_every_score_are_wrong_as_seldom_as_they_say(name: str) -> None:
    scores = scored_experiments.scores_of(scored_experiments.SCENARIOS[name].task)
    for size in ((2, 50), (6, 50), (6, 300)):
        both = [
            scored_experiments.simulate(name, size, SCORED, differ=d)
            for d in (False, True)
        ]
        for score, null in both[0].items():
            differ, where = both[1][score], (score, size, null, both[1][score])
            assert (differ.claimed == 0) == bool(scores[score].no_claim), where
            assert seldom(null.found, null.claimed), where
            assert seldom(null.claimed - null.held, null.claimed), where
            assert seldom(differ.claimed - differ.held, differ.claimed), where
            assert seldom(differ.equivalent, differ.claimed), where
            # an interval of few rows that is shown seldom is counted among all
            assert seldom(differ.with_value - differ.value_held, differ.repetitions), (
                where
            )


@pytest.mark.parametrize("world", tuned_experiments.WORLDS)
def test_intervals_hold_the_difference_of_the_best_rates_though_validation_chose(
    world: str,
) -> None:
    found = tuned_experiments.simulate(world, 300, 400, REPETITIONS)
    assert seldom(REPETITIONS - found["held"], REPETITIONS), found
    if "no difference" in world:
        assert seldom(found["found"], REPETITIONS), found
    if world == "one rate that ruins":
        assert not seldom(REPETITIONS - found["held_without"], REPETITIONS), (
            "the choice matters"
        )


def test_the_experiments_can_tell_a_test_that_is_wrong(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without what is unseen, few rows make claims of equivalence that are false."""
    monkeypatch.setattr("gaam_decoder.stats.scored.UNSEEN", 0.0)
    found = scored_experiments.simulate(
        "nearly all right", (6, 50), SCORED, differ=True
    )
    assert any(not seldom(rate.equivalent, rate.claimed) for rate in found.values())


def test_over_seeds_alone_the_t_interval_and_the_sign_flip_test_hold() -> None:
    generator = np.random.default_rng(29)
    for num_seeds in (3, 10):
        values = generator.normal(0.9, 0.01, (1500, num_seeds))
        held = [low <= 0.9 <= high for low, high in map(stats.t_interval, values)]  # type: ignore[misc]
        assert seldom(held.count(False), 1500)
    p = np.array([stats.sign_flip(row).p for row in values - 0.9])
    assert seldom(int((p <= stats.ALPHA).sum()), 1500)
