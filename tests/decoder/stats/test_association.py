"""Rank correlations of few layers, and what is said of importance and accuracy.

How often that is wrong: ``test_error_rates``.
"""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
import scipy.stats

from gaam_decoder import stats
from gaam_decoder.stats.association import Association, alone, associate, corrected
from gaam_decoder.stats.rank_association import (
    bounds,
    orders_of,
    p_of_pairs,
    permutation,
    spearman,
)


def test_the_correlation_is_scipys_and_p_the_share_of_all_orders() -> None:
    for count, levels, seed in product((4, 5, 6, 9, 30), (2, 4, 10**6), range(3)):
        generator = np.random.default_rng([count, levels, seed])
        one, other = generator.integers(0, levels, (2, count)) / 7  # ties of few levels
        if np.ptp(one) == 0 or np.ptp(other) == 0:
            assert spearman(one, other) is None
            continue
        rho = scipy.stats.spearmanr(one, other).statistic
        assert spearman(one, other) == pytest.approx(rho, abs=1e-12)
        found = permutation(one, other)
        assert found == permutation(one, other)
        assert found.exact == (count < 9)
        if count <= 6:
            ranks = scipy.stats.rankdata(one), scipy.stats.rankdata(other)
            every = [ranks[0][list(order)] for order in permutations(range(count))]
            far = np.abs([np.corrcoef(order, ranks[1])[0, 1] for order in every]) >= abs(rho) - 1e-9
            assert found.p == pytest.approx(np.mean(far), abs=1e-12)
        elif levels > 4:  # of a t, which is near
            expected = scipy.stats.spearmanr(one, other).pvalue
            assert found.p == pytest.approx(expected, abs=0.02)
    flat = 0.1 + 1e-15 * np.arange(6)  # a sum in another order is the same number
    assert spearman(flat, np.arange(6.0)) is None
    with pytest.raises(ValueError, match="finite"):
        spearman(np.array([1.0, np.nan, 2, 3]), np.arange(4.0))


def signs(value: np.ndarray) -> np.ndarray:
    return np.sign(value[:, None] - value[None, :]).astype(np.int8)


def some_of(value: np.ndarray, share: float, seed: int) -> np.ndarray:
    """Signs of an order of which only some are known."""
    keep = np.triu(np.random.default_rng(seed).random((len(value),) * 2) < share, 1)
    return np.where(keep | keep.T, signs(value), 0).astype(np.int8)


def test_bounds_hold_all_orders_that_are_left_open_and_no_more() -> None:
    dense = {tuple(scipy.stats.rankdata(v, "dense")) for v in product(range(4), repeat=4)}
    orders = [np.array(one) for one in sorted(dense)]  # all with ties
    ranks = np.array([scipy.stats.rankdata(one) for one in orders]) - 2.5
    size = np.sqrt(np.square(ranks).sum(1))
    every = [signs(one) for one in orders]
    for seed in range(40):
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
        expected = np.nanmin(rho), np.nanmax(rho)  # ties in truth are never beyond orders without
        assert bounds(*known) == pytest.approx(expected, abs=1e-9)
    for count in (7, 8, 12, 40):  # of more than 7 limits that are never inside
        one, other = np.random.default_rng(count).standard_normal((2, count))
        rho = scipy.stats.spearmanr(one, other).statistic
        assert bounds(signs(one), signs(other)) == pytest.approx((rho, rho), abs=1e-9)
        low, high = bounds(some_of(one, 0.9, 1), some_of(other, 0.9, 2))
        assert low - 1e-9 <= rho <= high + 1e-9


def test_pairs_of_layers_are_t_tests_paired_by_seed_and_decided_all_together() -> None:
    for seeds in (2, 6, 20):
        value = np.random.default_rng(seeds).standard_normal((seeds, 5))
        value[:, 1] = value[:, 0]
        value[:, 2] = value[:, 0] + 0.5
        found = p_of_pairs(value)
        np.testing.assert_array_equal(found, found.T)
        for one, other in product(range(5), repeat=2):
            if one == other or {one, other} == {0, 1}:
                expected = 1.0
            elif 2 in (one, other) and {one, other} & {0, 1}:
                expected = 2 / 2**seeds  # where all seeds agree they are so many signs
            else:
                expected = scipy.stats.ttest_rel(value[:, one], value[:, other]).pvalue
            assert found[one, other] == pytest.approx(expected, rel=1e-9), (one, other)
        means, upper = [value.mean(0), value[0]], np.triu_indices(5, 1)
        decided = stats.holm(np.concatenate([found[upper], found[upper] / 4])) < 0.05
        orders = orders_of(means, [found, found / 4], 0.05)
        assert (np.concatenate([one[upper] != 0 for one in orders]) == decided).all()
        for one, mean in zip(orders, means, strict=True):
            assert (one[one != 0] == signs(mean)[one != 0]).all()


def rising(layers: int = 6, seeds: int = 8, rows: int = 600, sign: int = 1) -> Association:
    """Importance and accuracy in the same order, far apart."""
    generator = np.random.default_rng(0)
    importance = np.linspace(0, 1, layers)[::sign] + 0.01 * generator.normal(size=(seeds, layers))
    hits = [generator.random((seeds, rows)) < share for share in np.linspace(0.1, 0.9, layers)]
    return associate(importance, alone(hits))


def test_what_is_plain_is_claimed_in_both_directions_of_five_layers_and_six_seeds() -> None:
    for layers, sign in product((5, 7, 9, 12), (1, -1)):
        found = rising(layers, sign=sign)
        assert found.rho == pytest.approx(sign)
        assert found.verdict == ("together" if sign > 0 else "opposed"), layers
        assert found.interval is not None
        assert found.interval[0] <= sign <= found.interval[1]
    assert rising(4).verdict == "undecided"
    few = rising(seeds=stats.LEAST_SEEDS - 1)
    assert (few.verdict, few.p, few.interval) == ("undecided", None, None)
    assert few.testable is few.silent is False


def test_a_correction_is_holms_and_counts_what_is_the_same_of_all_layers() -> None:
    plain = rising(layers=5)
    hits = [np.random.default_rng(n).random((8, 60)) < 0.5 for n in range(5)]
    flat = associate(np.zeros((8, 5)), alone(hits))
    assert flat.rho is flat.p is flat.interval is None
    for found, more in ((corrected([plain], 1)[0], 1), (corrected([plain, flat])[0], 1),
                        (corrected([plain], 2)[0], 2)):  # fmt: skip
        assert found.p_holm == pytest.approx((1 + more) * 2 / 120)  # p is 2 of 120 orders
        assert found.num_tests == 1 + more
        assert found.verdict == ("together" if more == 1 else "undecided")


def test_too_few_layers_or_others_are_refused() -> None:
    hits = [np.ones((8, 60), bool)] * 5
    for importance, count in ((np.ones((8, 4)), 5), (np.ones((0, 5)), 5), (np.ones((8, 3)), 3)):
        with pytest.raises(ValueError, match="the same layers of both, 4 at least"):
            associate(importance, alone(hits[:count]))
