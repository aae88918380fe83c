"""Rank correlations of few layers, against SciPy and all orders there are."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations, product

import numpy as np
import pytest
import scipy.stats

from gaam_decoder.stats import holm
from gaam_decoder.stats.paired import DRAWS
from gaam_decoder.stats.rank_association import (
    EXACT_LAYERS,
    MOST_ENUMERATED,
    _outer,
    bounds,
    orders_of,
    p_of_pairs,
    permutation,
    spearman,
)


def values(count: int, levels: int, seed: int) -> np.ndarray:
    """With ties where there are few levels."""
    return np.random.default_rng(seed).integers(0, levels, count) / 7


def cases() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for count, levels, seed in product((4, 5, 6, 9, 30), (2, 4, 10**6), range(3)):
        one, other = values(count, levels, seed), values(count, levels, seed + 100)
        if len(set(one)) > 1 and len(set(other)) > 1:
            yield one, other
            yield one, one
            yield one, -one


def test_the_correlation_is_that_of_scipy_with_ties_too() -> None:
    for one, other in cases():
        found = spearman(one, other)
        assert found == pytest.approx(scipy.stats.spearmanr(one, other).statistic, abs=1e-12)


def test_what_is_constant_has_no_correlation() -> None:
    for count in (4, 6, 40):
        flat, other = np.full(count, 0.1), values(count, 10**6, 0)
        assert spearman(flat, other) is spearman(other, flat) is spearman(flat, flat) is None
        # a sum in another order is the same number
        assert spearman(flat + 1e-15 * np.arange(count), other) is None


@pytest.mark.parametrize("call", [spearman, permutation])
def test_no_numbers_are_refused(call: object) -> None:
    for bad in (np.nan, np.inf):
        with pytest.raises(ValueError, match="finite"):
            call(np.array([1.0, bad, 2, 3]), np.arange(4.0))  # type: ignore[operator]


def test_p_is_the_share_of_all_orders() -> None:
    for one, other in cases():
        if len(one) > 6:
            continue
        seen = abs(scipy.stats.spearmanr(one, other).statistic)
        ranks = scipy.stats.rankdata(one), scipy.stats.rankdata(other)
        far = [
            abs(np.corrcoef(ranks[0][list(order)], ranks[1])[0, 1]) >= seen - 1e-9
            for order in permutations(range(len(one)))
        ]
        found = permutation(one, other)
        assert found.exact
        assert found.p == pytest.approx(np.mean(far), abs=1e-12)
        assert found.p > 0


def test_above_eight_layers_p_is_drawn_alike_every_time() -> None:
    generator = np.random.default_rng(0)
    for count in (EXACT_LAYERS + 1, 24):
        one = generator.standard_normal(count)
        other = one + 2 * generator.standard_normal(count)
        found = permutation(one, other)
        assert not found.exact
        assert found == permutation(one, other)
        expected = scipy.stats.spearmanr(one, other).pvalue  # of a t, which is near
        assert found.p == pytest.approx(expected, abs=0.02)
        assert permutation(one, one).p < 20 / DRAWS
        assert permutation(one, np.roll(one, 1)).p >= 1 / (1 + DRAWS)


def weak_orders(count: int) -> list[np.ndarray]:
    """All orders with ties."""
    found = {tuple(scipy.stats.rankdata(v, "dense")) for v in product(range(count), repeat=count)}
    return [np.array(one) for one in sorted(found)]


def signs(value: np.ndarray) -> np.ndarray:
    return np.sign(value[:, None] - value[None, :]).astype(np.int8)


def some_of(value: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Signs of an order of which only some are known."""
    keep = np.triu(np.random.default_rng(seed).random((len(value),) * 2) < share, 1)
    return np.where(keep | keep.T, signs(value), 0).astype(np.int8)


def test_bounds_hold_all_orders_that_are_left_open_and_no_more() -> None:
    orders = weak_orders(4)
    ranks = np.array([scipy.stats.rankdata(one) for one in orders])
    ranks -= ranks.mean(1, keepdims=True)
    size = np.sqrt(np.square(ranks).sum(1))
    every = [signs(one) for one in orders]
    for seed in range(60):
        pick = np.random.default_rng(seed).integers(0, len(orders), 2)
        share = (0.2, 0.5, 1.0)[seed % 3]
        known = [some_of(orders[place], share, seed + n) for n, place in enumerate(pick)]
        if not all(one.any() for one in known):
            assert bounds(*known) == (-1, 1)
            continue
        kept = [[n for n, sign in enumerate(every) if (sign[one != 0] == one[one != 0]).all()]
                for one in known]  # fmt: skip
        with np.errstate(invalid="ignore"):
            rho = ranks[kept[0]] @ ranks[kept[1]].T / np.outer(size[kept[0]], size[kept[1]])
        low, high = bounds(*known)
        # ties in truth are never beyond orders without
        assert np.nanmin(rho) == pytest.approx(low, abs=1e-9)
        assert np.nanmax(rho) == pytest.approx(high, abs=1e-9)


def test_the_limits_of_many_layers_are_never_inside_and_exact_where_all_is_known() -> None:
    for seed in range(60):
        count = 4 + seed % (MOST_ENUMERATED - 4)
        generator = np.random.default_rng(seed)
        one, other = generator.standard_normal((2, count))
        share = (0.3, 0.7, 0.9)[seed % 3]
        known = some_of(one, share, seed), some_of(other, share, seed + 1)
        inner, outer = bounds(*known), _outer(*known)
        assert outer[0] - 1e-12 <= inner[0] <= inner[1] <= outer[1] + 1e-12, seed
    for count in (4, 7, 8, 12, 40):
        one, other = np.random.default_rng(count).standard_normal((2, count))
        rho = scipy.stats.spearmanr(one, other).statistic
        found = bounds(signs(one), signs(other))
        assert found == pytest.approx((rho, rho), abs=1e-9), count
        low, high = bounds(some_of(one, 0.9, 1), some_of(other, 0.9, 2))
        assert low - 1e-9 <= rho <= high + 1e-9


def test_pairs_of_layers_are_t_tests_paired_by_seed_and_equal_seeds_are_signs() -> None:
    for seeds, count in product((2, 6, 20), (4, 7)):
        value = np.random.default_rng(seeds).standard_normal((seeds, count))
        value[:, 1] = value[:, 0]
        value[:, 2] = value[:, 0] + 0.5
        found = p_of_pairs(value)
        np.testing.assert_array_equal(found, found.T)
        for one, other in product(range(count), repeat=2):
            if one == other or {one, other} == {0, 1}:
                expected = 1.0
            elif 2 in (one, other) and {one, other} & {0, 1}:
                expected = 2 / 2**seeds
            else:
                expected = scipy.stats.ttest_rel(value[:, one], value[:, other]).pvalue
            assert found[one, other] == pytest.approx(expected, rel=1e-9), (one, other)
    with pytest.raises(ValueError, match="two seeds"):
        p_of_pairs(np.ones((1, 4)))


def test_what_is_decided_holds_for_all_pairs_of_both_together() -> None:
    for seed in range(20):
        generator = np.random.default_rng(seed)
        means = generator.standard_normal((2, 5))
        p = generator.random((2, 5, 5)) ** 6
        p = np.minimum(p, p.transpose(0, 2, 1))
        upper = np.triu_indices(5, 1)
        expected = holm(np.concatenate([p[0][upper], p[1][upper]])) < 0.05
        found = orders_of(list(means), list(p), 0.05)
        assert (np.concatenate([one[upper] != 0 for one in found]) == expected).all()
        for one, mean in zip(found, means, strict=True):
            assert (one == -one.T).all()
            assert (one[one != 0] == signs(mean)[one != 0]).all()
