"""What is said of importance and accuracy is rarely wrong, and says what it can."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from gaam_decoder import stats
from gaam_decoder.stats.association import Association, alone, associate, corrected
from tests.decoder.stats.layer_experiments import SCENARIOS, simulated, walks

SIZES = ((4, 6, 100), (6, 20, 200))
"""Layers, seeds and test rows."""
REPETITIONS = 20


def rising(layers: int = 6, seeds: int = 8, rows: int = 600, sign: int = 1) -> Association:
    """Importance and accuracy in the same order, far apart."""
    generator = np.random.default_rng(0)
    importance = np.linspace(0, 1, layers)[::sign] + 0.01 * generator.normal(size=(seeds, layers))
    hits = [generator.random((seeds, rows)) < share for share in np.linspace(0.1, 0.9, layers)]
    return associate(importance, alone(hits))


@pytest.mark.parametrize("name", SCENARIOS)
def test_intervals_hold_the_truth_and_claims_are_true(name: str) -> None:
    for size in SIZES:
        found = simulated(name, *size, REPETITIONS)
        # 95% or more; three standard errors of a share of 0.05
        limit = 0.05 + 3 * (0.05 * 0.95 / REPETITIONS) ** 0.5
        assert found.defined - found.held <= limit * REPETITIONS, (size, found)
        assert found.wrong <= limit * REPETITIONS, (size, found)


def test_what_is_plain_is_claimed_in_both_directions() -> None:
    for layers, sign in product((5, 6, 7, 9, 12), (1, -1)):
        found = rising(layers, sign=sign)
        assert found.rho == pytest.approx(sign)
        assert found.verdict == ("together" if sign > 0 else "opposed"), layers
        assert found.interval is not None
        assert found.interval[0] <= sign <= found.interval[1]
        assert 0 not in found.interval


def test_four_layers_and_five_seeds_claim_nothing() -> None:
    assert rising(4).verdict == "undecided"
    for seeds in range(2, stats.LEAST_SEEDS):
        found = rising(seeds=seeds)
        assert found.verdict == "undecided"
        assert found.p is found.interval is None
        assert not found.testable
        assert not found.silent
        assert found.rho == pytest.approx(1)


def test_a_claim_needs_both_p_and_interval_and_holm_is_of_all() -> None:
    plain = rising(layers=5)  # p is 2 of 120 orders
    assert plain.p == pytest.approx(2 / 120)
    for more, verdict in ((0, "together"), (1, "together"), (2, "undecided"), (9, "undecided")):
        (found,) = corrected([plain], more)
        assert found.p_holm == pytest.approx(min(1, (1 + more) * 2 / 120))
        assert found.num_tests == 1 + more
        assert found.verdict == verdict
    generator = np.random.default_rng(0)
    noisy = np.linspace(0, 1, 6) + 3 * generator.normal(size=(8, 6))
    noisy[:, np.argsort(noisy.mean(0))] = noisy.copy()
    noisy = np.sort(noisy.mean(0)) + noisy - noisy.mean(0)
    hits = [generator.random((8, 600)) < share for share in np.linspace(0.1, 0.9, 6)]
    found = associate(noisy, alone(hits))
    assert found.p == pytest.approx(2 / 720)
    assert found.interval is not None
    assert found.interval[0] < 0
    assert found.verdict == "undecided"


def test_what_is_the_same_of_all_layers_counts_as_a_test_that_found_nothing() -> None:
    hits = [np.random.default_rng(n).random((8, 60)) < 0.5 for n in range(5)]
    for flat in (
        associate(np.zeros((8, 5)), alone(hits)),
        associate(np.eye(8)[:, :5], alone([hits[0]] * 5)),
    ):
        assert flat.rho is flat.p is flat.interval is None
        assert flat.silent
        found, same = corrected([rising(5), flat])
        assert same.p_holm is None
        assert found.num_tests == 2
        assert found.p_holm == pytest.approx(4 / 120)
    assert not associate(np.zeros((3, 5)), alone(hits)).silent


def test_curves_over_depth_are_often_alike_by_chance() -> None:
    assert walks(12, 200) > 0.15 * 200  # which the report says beside its p


def test_too_few_layers_or_others_are_refused() -> None:
    hits = [np.ones((8, 60), bool)] * 5
    for importance in (np.ones((8, 4)), np.ones((8, 6)), np.ones((0, 5))):
        with pytest.raises(ValueError, match="the same layers"):
            associate(importance, alone(hits))
    with pytest.raises(ValueError, match="4 at least"):
        associate(np.ones((8, 3)), alone(hits[:3]))
