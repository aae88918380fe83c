"""Several mechanisms at once: against SciPy, brute force, and experiments whose truth is known."""

from __future__ import annotations

import math
from itertools import permutations, product

import numpy as np
import pytest
import scipy.stats

from gaam_decoder import stats
from gaam_decoder.stats.omnibus import critical_difference, ranks
from tests.decoder.stats.experiments import SCENARIOS
from tests.decoder.stats.many import CELLS, false_alarms


@pytest.mark.parametrize("num_ways", range(3, 13))
def test_friedman_is_that_of_scipy_with_and_without_ties(num_ways: int) -> None:
    generator = np.random.default_rng(num_ways)
    for num_seeds, num_rows in product((2, 6, 20), (5, 50, 4000)):
        accuracy_SK = generator.binomial(num_rows, 0.8, (num_seeds, num_ways)) / num_rows
        found = stats.friedman(accuracy_SK)
        expected = scipy.stats.friedmanchisquare(*accuracy_SK.T)
        assert found.chi_squared == pytest.approx(expected.statistic)
        assert found.p_chi_squared == pytest.approx(expected.pvalue)
        np.testing.assert_allclose(ranks(accuracy_SK), scipy.stats.rankdata(-accuracy_SK, axis=1))
        rest = num_seeds * (num_ways - 1) - expected.statistic
        f = (num_seeds - 1) * expected.statistic / rest
        p = scipy.stats.f.sf(f, num_ways - 1, (num_ways - 1) * (num_seeds - 1))
        least = math.factorial(num_ways) ** (1.0 - num_seeds)
        assert found.p == pytest.approx(max(p, least))


def test_its_p_is_near_that_of_all_permutations() -> None:
    generator = np.random.default_rng(0)
    orders = np.array(list(permutations(range(1, 4))))
    sums = np.zeros((1, 3))
    for _ in range(6):
        sums = (sums[:, None] + orders).reshape(-1, 3)
    spread = ((sums / 6 - 2) ** 2).sum(1)
    for _ in range(20):
        found = stats.friedman(generator.random((6, 3)))
        seen = sum((rank - 2) ** 2 for rank in found.mean_ranks)
        assert found.p == pytest.approx(float((spread >= seen - 1e-9).mean()), abs=0.12)


def test_what_all_seeds_agree_on_is_no_likelier_than_permutations_allow() -> None:
    found = stats.friedman(np.tile([0.9, 0.8, 0.7], (6, 1)))
    assert found.p == pytest.approx(6.0**-5)
    assert found.mean_ranks == (1, 2, 3)
    tied = stats.friedman(np.full((6, 4), 0.8))
    assert (tied.p, tied.chi_squared) == (1, 0)


@pytest.mark.parametrize("num_ways", range(2, 13))
def test_the_critical_difference_is_a_quantile_of_the_studentized_range(num_ways: int) -> None:
    quantile = scipy.stats.studentized_range.ppf(0.95, num_ways, np.inf) / 2**0.5
    expected = quantile * (num_ways * (num_ways + 1) / 60) ** 0.5
    assert critical_difference(num_ways, 10) == pytest.approx(expected, rel=1e-7)


@pytest.mark.parametrize("num_ways", range(3, 13))
def test_bars_join_all_that_is_within_the_critical_difference_and_no_bar_another(
    num_ways: int,
) -> None:
    generator = np.random.default_rng(num_ways)
    for _ in range(20):
        quality_K = generator.normal(0, 2, num_ways)
        found = stats.friedman(quality_K + generator.normal(size=(20, num_ways)))
        bars = [set(group) for group in found.alike()]
        for one, other in product(range(num_ways), repeat=2):
            near = abs(found.mean_ranks[one] - found.mean_ranks[other]) <= found.critical_difference
            assert one == other or near == any({one, other} <= bar for bar in bars)
        assert not any(one < other for one, other in product(bars, bars))


def test_pairs_that_were_not_tested_count_as_if_they_had_shown_nothing() -> None:
    generator = np.random.default_rng(0)
    hits = [generator.random((6, 300)) < share for share in (0.8, 0.85, 0.9)]
    claims = [stats.claim(one, hits[0]) for one in hits[1:]]
    found = stats.holm_corrected(claims, untested=5)
    expected = stats.holm(np.array([claims[0].p, claims[1].p, 1, 1, 1, 1, 1]))
    assert [claim.p_holm for claim in found] == expected[:2].tolist()
    assert {claim.num_tests for claim in found} == {7}


@pytest.mark.slow
@pytest.mark.parametrize("cell", CELLS)
def test_pairs_say_in_five_of_100_cases_at_most_that_what_is_alike_differs(
    cell: tuple[int, int, int],
) -> None:
    repetitions, by_pairs = 100, 0
    for name in SCENARIOS:
        found, _ = false_alarms(name, *cell, repetitions)
        assert found / repetitions <= 0.05 + 3 * (0.05 * 0.95 / repetitions) ** 0.5, name
        by_pairs += found
    total = repetitions * len(SCENARIOS)
    assert by_pairs / total <= 0.05 + 3 * (0.05 * 0.95 / total) ** 0.5


def test_ranks_over_seeds_would_find_differences_that_are_those_of_the_rows() -> None:
    """Why the diagram of ranks is not the answer."""
    _, by_ranks = false_alarms("rows alone", 3, 20, 300, 100)
    assert by_ranks > 15
