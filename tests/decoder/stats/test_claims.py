"""What is said of two mechanisms, against definitions, laws and other implementations."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
import scipy.optimize
import scipy.stats

from gaam_decoder import stats
from gaam_decoder.stats import Claim, claim
from gaam_decoder.stats.claims import LEAST_SEEDS
from gaam_decoder.stats.limits import ALPHA, RULE_OF_THREE
from gaam_decoder.stats.paired import FEW, sign_flip_of_rows

SHAPES = [(2, 2), (2, 9), (2, 300), (3, 40), (6, 12), (6, 300), (8, 1000), (21, 60)]
SHIFTS = [0.0, 0.05, 0.3, 1.5]


def latent(
    generator: np.random.Generator,
    num_seeds: int,
    num_rows: int,
    *,
    shift: float = 0.0,
    own: float = 0.5,
    seeds: float = 0.1,
    noise: float = 0.5,
    ease: float = 2.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Hits of two mechanisms: rows are easy or hard for both, and for each in its own way."""
    easy = generator.normal(ease, 2, (1, num_rows))

    def one(better: float) -> np.ndarray:
        rows = own * generator.normal(0, 1, (1, num_rows))
        of_seed = seeds * generator.normal(0, 1, (num_seeds, 1))
        rest = noise * generator.normal(0, 1, (num_seeds, num_rows))
        return easy + rows + of_seed + rest + better > 0

    return one(shift), one(0.0)


def pairs() -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Hits of all sizes: as bits, as shares of several tests, and as numbers of them."""
    generator = np.random.default_rng(0)
    for shape, shift, noise in itertools.product(SHAPES, SHIFTS, (0.0, 0.5)):
        one, other = latent(generator, *shape, shift=shift, noise=noise)
        yield one, other
        yield one.astype(float), other
    for shape in SHAPES[1:]:
        one, other = (generator.integers(0, 6, shape) / 5 for _ in range(2))
        yield one, other


def numbers(found: Claim) -> list[float]:
    """All that does not depend on which of the two is called the baseline."""
    here = found.on_these_rows
    values = [found.p, found.p_equivalent, here.p_equivalent, here.std, here.detectable]
    values.append(here.sign_flip.p if here.sign_flip else None)
    return [-1.0 if value is None else value for value in values]


def all_numbers(found: Claim) -> list[float]:
    intervals = [found.interval, found.on_these_rows.interval]
    bounds = [bound for interval in intervals for bound in interval or (-9.0, -9.0)]
    return [found.difference, *bounds, *numbers(found)]


OPPOSITE = {"better": "worse", "worse": "better", "equivalent": "equivalent"}


def test_swapping_the_two_negates_the_difference_and_changes_no_p() -> None:
    seen = set()
    for one, other in pairs():
        found, swapped = claim(one, other, margin=0.05), claim(other, one, margin=0.05)
        assert swapped.difference == -found.difference
        for this, that in (
            (found.interval, swapped.interval),
            (found.on_these_rows.interval, swapped.on_these_rows.interval),
        ):
            assert this is not None
            assert that is not None
            np.testing.assert_allclose([-that[1], -that[0]], this, atol=1e-12)
        np.testing.assert_allclose(numbers(swapped), numbers(found), rtol=1e-9)
        assert swapped.verdict == OPPOSITE.get(found.verdict, "undecided")
        here, there = found.on_these_rows.verdict, swapped.on_these_rows.verdict
        assert there == OPPOSITE.get(here, "undecided")
        assert (swapped.seeds_to_decide, swapped.rows_to_decide) == (
            found.seeds_to_decide,
            found.rows_to_decide,
        )
        seen.add(found.verdict)
    assert seen == {"better", "worse", "equivalent", "undecided"}, "the loop goes through all"


def test_the_order_of_seeds_and_of_rows_means_nothing() -> None:
    generator = np.random.default_rng(1)
    for one, other in pairs():
        if one.shape[0] > 20 or (one.dtype != bool and one.shape[1] > 20):
            continue  # p of a sign-flip test is estimated from random patterns
        found = claim(one, other)
        seeds, rows = map(generator.permutation, one.shape)
        for mixed in (
            claim(one[seeds], other[seeds]),
            claim(one[:, rows], other[:, rows]),
            claim(one[seeds][:, rows], other[seeds][:, rows]),
        ):
            np.testing.assert_allclose(all_numbers(mixed), all_numbers(found), rtol=1e-7)
            assert mixed.verdict == found.verdict


def test_bits_and_numbers_that_say_the_same_give_the_same() -> None:
    generator = np.random.default_rng(2)
    for shape in SHAPES:
        one, other = latent(generator, *shape, shift=0.3)
        found = claim(one, other)
        for kind in (np.int8, np.int64, np.uint8, np.float32, np.float64):
            again = claim(one.astype(kind), other.astype(kind))
            np.testing.assert_allclose(all_numbers(again), all_numbers(found), rtol=1e-7)


def test_what_is_identical_is_never_better_or_worse() -> None:
    for one, _ in pairs():
        for margin in (1e-6, 0.005, 0.5):
            found = claim(one, one, margin=margin)
            assert found.p == 1
            assert found.difference == 0
            assert found.verdict in ("equivalent", "undecided")
            assert found.interval is not None
            assert found.interval[0] == pytest.approx(-found.interval[1])
            assert found.interval[1] > 0, "rows that did not differ do not show that none would"
    same = np.ones((6, 5000), bool)
    assert claim(same, same, margin=0.01).verdict == "equivalent"
    assert claim(same, same, margin=1e-4).verdict == "undecided"
    # what was never seen in N rows is rarer than -ln(0.05) / N, and not surely rarer than that
    for num_rows in (200, 1000, 5000):
        same = np.ones((6, num_rows), bool)
        limit = -math.log(0.05) / num_rows
        assert claim(same, same, margin=1.02 * limit).verdict == "equivalent"
        assert claim(same, same, margin=0.98 * limit).verdict == "undecided"


def test_the_interval_holds_0_exactly_where_nothing_is_found() -> None:
    generator = np.random.default_rng(3)
    count = {True: 0, False: 0}
    for trial in range(600):
        shape = SHAPES[trial % len(SHAPES)]
        shift = generator.choice([0, 0, 0.1, 0.3, 1.0]) * generator.choice([-1, 1])
        noise, own = generator.choice([0.0, 0.1, 1.0], 2)
        one, other = latent(
            generator, *shape, shift=shift, noise=noise, own=own, ease=1 + trial % 4
        )
        hits: tuple[np.ndarray, ...] = (one, other)
        if trial % 3 == 0:
            hits = tuple(h * generator.integers(1, 6, (1, shape[1])) / 5 for h in hits)
        found = claim(*hits)
        assert found.p is not None
        assert found.interval is not None
        low, high = found.interval
        assert -1 <= low <= found.difference + 1e-12
        assert found.difference - 1e-12 <= high <= 1
        assert (found.p >= ALPHA) == (low <= 0 <= high), (shape, found)
        assert 0 < found.p <= 1
        count[bool(found.p >= ALPHA)] += 1
    assert min(count.values()) > 50


def likeliest_variance(theta: float, better: float, worse: float) -> float:
    """Of a row's difference, its shares the likeliest of those that differ by theta (Tango)."""

    def unlikelihood(rarer: float) -> float:
        shares = (rarer + max(theta, 0), rarer + max(-theta, 0))
        seen = (better, worse)
        terms = [*zip(seen, shares, strict=True), (1 - better - worse, 1 - sum(shares))]
        return -sum(n * math.log(max(p, 1e-300)) for n, p in terms if n > 0)

    most = (1 - abs(theta)) / 2
    found = scipy.optimize.minimize_scalar(
        unlikelihood, bounds=(0, most), method="bounded", options={"xatol": 1e-12}
    )
    rarer = min([found.x, 0.0, most], key=unlikelihood)
    return float(2 * rarer + abs(theta) - theta**2)


@pytest.mark.parametrize("num_rows", [40, 300, 2000])
def test_one_seed_repeated_has_limits_by_the_likeliest_shares(num_rows: int) -> None:
    """Only rows vary then: each limit is as many standard errors away as the variance there."""
    for better, worse in ((0.0, 0.0), (0.1, 0.1), (0.3, 0.05), (0.0, 0.2), (0.02, 0.0), (0.5, 0.5)):
        counts = [round(better * num_rows), round(worse * num_rows)]
        value_N = np.repeat([1, -1, 0], [*counts, num_rows - sum(counts)])
        one, other = (np.repeat((value_N == sign)[None], 6, 0) for sign in (1, -1))
        found = claim(one, other, margin=0.1)
        shares = counts[0] / num_rows, counts[1] / num_rows
        mean = shares[0] - shares[1]
        seen = sum(shares) - mean**2
        of_rows = np.var(value_N, ddof=1)
        assert found.interval is not None
        few = sum(counts) < FEW

        def error(theta: float) -> float:
            more = max(0.0, likeliest_variance(theta, *shares) - seen)  # noqa: B023
            return float(((of_rows + RULE_OF_THREE * more) / num_rows) ** 0.5)  # noqa: B023

        quantile = scipy.stats.t.ppf(0.975, num_rows - 1)
        for limit in found.interval:
            if abs(limit) < 1 and not (few and limit == 0):
                assert abs(limit - mean) == pytest.approx(quantile * error(limit), rel=1e-4)
        if not few:
            p = 2 * scipy.stats.t.sf(abs(mean) / error(0.0), num_rows - 1)
            assert found.p == pytest.approx(p, rel=1e-4, abs=1e-30)
        nearest = [(0.1 - side * mean) / error(0.1 * side) for side in (1, -1)]
        equal = scipy.stats.t.sf(min(nearest), num_rows - 1)
        assert found.p_equivalent == pytest.approx(equal, rel=1e-3, abs=1e-30)


@pytest.mark.parametrize("num_rows", range(2, 13))
def test_the_exact_test_over_rows_equals_scipys_permutation_test(num_rows: int) -> None:
    generator = np.random.default_rng(num_rows)
    for draw in range(8):
        difference_N = generator.integers(-4, 5, num_rows)
        if not difference_N.any():
            continue
        values = difference_N if draw % 2 else difference_N / 5
        expected = scipy.stats.permutation_test(
            (values.astype(float),),
            lambda d, axis: np.round(d.sum(axis), 9),
            permutation_type="samples",
            n_resamples=np.inf,
            vectorized=True,
        )
        assert sign_flip_of_rows(values) == pytest.approx(expected.pvalue, abs=1e-12)


def test_the_exact_test_over_rows_is_mcnemars_where_seeds_do_not_differ() -> None:
    for num_rows in (5, 60, 400):
        one, other = (np.random.default_rng(num_rows + n).random(num_rows) < 0.9 for n in range(2))
        difference_N = one.astype(int) - other.astype(int)
        assert sign_flip_of_rows(6 * difference_N) == pytest.approx(stats.mcnemar(one, other).p)
    assert sign_flip_of_rows(np.zeros(50, int)) == 1
    assert sign_flip_of_rows(np.ones(FEW, int)) == 0, "many rows: it has no say"
    assert 0 < sign_flip_of_rows(np.ones(FEW - 1, int)) < 1e-20


def test_a_claim_needs_six_seeds_on_these_rows_and_on_others() -> None:
    for num_seeds in range(1, LEAST_SEEDS):
        for baseline in (np.zeros((num_seeds, 500), bool), np.ones((num_seeds, 500), bool)):
            found = claim(np.ones((num_seeds, 500), bool), baseline, margin=0.4)
            assert found.verdict == found.on_these_rows.verdict == "undecided"
            assert not found.significant
            assert not found.negligible
            assert found.on_these_rows.sign_flip is None
    sure = claim(np.ones((LEAST_SEEDS, 500), bool), np.zeros((LEAST_SEEDS, 500), bool))
    assert sure.verdict == sure.on_these_rows.verdict == "better"


def test_more_seeds_do_not_make_a_claim_of_rows_that_hardly_differ() -> None:
    """Every seed of one is better on the same two rows: of other rows this says nothing."""
    for num_seeds in (6, 20, 200):
        other = np.ones((num_seeds, 300), bool)
        other[:, :2] = False
        found = claim(np.ones((num_seeds, 300), bool), other)
        assert found.on_these_rows.verdict == "better"
        assert found.verdict == "undecided"
        assert found.seeds_to_decide is None
        assert found.rows_to_decide is not None
        assert found.rows_to_decide > 300


def test_the_test_over_seeds_alone_is_the_usual_one() -> None:
    for one, other in pairs():
        found = claim(one, other, margin=0.03)
        here = found.on_these_rows
        difference_S = one.mean(1, dtype=float) - other.mean(1, dtype=float)
        if len(difference_S) >= LEAST_SEEDS:
            assert here.sign_flip is not None
            assert here.sign_flip.p == stats.sign_flip(difference_S).p
        else:
            assert here.sign_flip is None
        if np.ptp(difference_S) > 1e-12:
            paired = scipy.stats.ttest_1samp(difference_S, 0)
            expected = np.clip(paired.confidence_interval(), -1, 1)
            np.testing.assert_allclose(here.interval, expected, atol=1e-12)
            tails = [
                scipy.stats.ttest_1samp(difference_S, 0.03, alternative="less").pvalue,
                scipy.stats.ttest_1samp(difference_S, -0.03, alternative="greater").pvalue,
            ]
            assert here.p_equivalent == pytest.approx(max(tails), rel=1e-6)


def test_a_wider_margin_is_easier_to_be_within_and_changes_nothing_else() -> None:
    margins = [1e-9, 0.001, 0.005, 0.02, 0.1, 0.4, 0.999]
    for one, other in pairs():
        found = [claim(one, other, margin=margin) for margin in margins]
        equal = [c.p_equivalent for c in found if c.p_equivalent is not None]
        inside = [min(p, 0.5) for p in equal]  # above, the difference itself is beyond the margin
        assert all(a >= b - 1e-12 for a, b in itertools.pairwise(inside)), equal
        assert len({(c.p, c.difference, c.interval) for c in found}) == 1


def test_a_correction_decides_the_verdict() -> None:
    one, other = np.ones((6, 400), bool), np.ones((6, 400), bool)
    other[:, :200] = False
    better, equal = claim(one, other), claim(one, one, margin=0.05)
    assert better.verdict == "better"
    assert better.corrected(0.049, 1.0, 2).verdict == "better"
    assert better.corrected(0.05, 1.0, 2).verdict == "undecided"
    assert better.corrected(0.05, 0.04, 2).verdict == "equivalent"
    small = better.corrected(0.01, 0.01, 2)
    assert (small.verdict, small.significant, small.negligible) == ("better", True, True)
    assert equal.verdict == "equivalent"
    assert equal.corrected(1.0, 0.05, 2).verdict == "undecided"
    assert dataclasses.replace(equal.corrected(0.5, 0.5, 2), p_holm=None,
                               p_equivalent_holm=None, num_tests=1) == equal  # fmt: skip


def test_one_seed_or_one_row_leave_a_difference_and_no_claim() -> None:
    for shape in ((1, 1), (1, 50), (6, 1), (30, 1)):
        found = claim(np.ones(shape, bool), np.zeros(shape, bool))
        assert (found.p, found.interval, found.p_equivalent) == (None, None, None)
        assert found.difference == 1
        assert found.verdict == "undecided"
        assert (found.seeds_to_decide, found.rows_to_decide) == (None, None)
        assert (found.on_these_rows.std is None) == (shape[0] == 1)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0), (5,), (2, 3, 4), ()])
def test_no_seeds_and_no_rows_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="seeds, rows"):
        claim(np.ones(shape, bool), np.ones(shape, bool))


def test_hits_of_unequal_shape_are_refused() -> None:
    for shapes in itertools.permutations([(2, 3), (3, 2), (2, 1), (1, 3), (6,)], 2):
        with pytest.raises(ValueError, match="seeds, rows"):
            claim(*(np.ones(shape, bool) for shape in shapes))


@pytest.mark.parametrize("margin", [0, 0.0, -0.1, 1, 1.0, 50, math.nan, math.inf, -math.inf])
def test_a_margin_that_is_none_is_refused(margin: float) -> None:
    with pytest.raises(ValueError, match="above 0 and below 1"):
        claim(np.ones((6, 9), bool), np.zeros((6, 9), bool), margin=margin)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_refused(bad: float) -> None:
    for shape in ((1, 1), (1, 5), (2, 1), (6, 50)):
        hits = np.ones(shape)
        hits[-1, -1] = bad
        for given in ((hits, np.ones(shape)), (np.ones(shape, bool), hits)):
            with pytest.raises(ValueError, match="finite"):
                claim(*given)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("wanted", "scenario"),
    [
        ("seeds", {"shift": 0.12, "own": 0.0, "seeds": 0.3, "noise": 0.7}),
        ("seeds", {"shift": 0.1, "own": 0.1, "seeds": 0.2, "noise": 0.3}),
        ("rows", {"shift": 0.12, "own": 0.5, "seeds": 0.05, "noise": 0.5}),
        ("rows", {"shift": 0.1, "own": 1.0, "seeds": 0.0, "noise": 0.0}),
        ("rows", {"shift": 0.0, "own": 0.1, "seeds": 0.0, "noise": 0.1}),  # equivalence
    ],
)
def test_as_many_as_are_said_to_decide_do_about_every_second_time(
    wanted: str, scenario: dict[str, float]
) -> None:
    """Told of the variances and the difference that there are, not of what one experiment saw."""
    generator = np.random.default_rng(8)
    num_seeds, num_rows = 7, 400
    seen = [claim(*latent(generator, num_seeds, num_rows, **scenario)) for _ in range(400)]
    limits = [found.limits for found in seen if found.limits is not None]
    typical = dataclasses.replace(
        limits[0],
        found=limits[0].found._replace(
            **{
                name: float(np.mean([getattr(one.found, name) for one in limits]))
                for name in ("mean", "seeds", "rows", "rest")
            }
        ),
        better=float(np.mean([one.better for one in limits])),
        worse=float(np.mean([one.worse for one in limits])),
        p_rows=0.0,
    )
    pilot = next(found for found in seen if found.verdict == "undecided")
    told = dataclasses.replace(pilot, difference=typical.found.mean, limits=typical)
    told = dataclasses.replace(told, p=typical.p, p_equivalent=typical.p_equivalent(told.margin))
    assert told.verdict == "undecided"
    size = told.seeds_to_decide if wanted == "seeds" else told.rows_to_decide
    assert size is not None
    shape = (size, num_rows) if wanted == "seeds" else (num_seeds, size)
    assert shape[0] * shape[1] < 2e6
    trials = 200
    decided = [claim(*latent(generator, *shape, **scenario)).verdict for _ in range(trials)]
    share = 1 - decided.count("undecided") / trials
    assert 0.38 < share < 0.8, (size, share)


def test_nothing_that_differs_needs_rows_and_no_seeds() -> None:
    """Rows on which nothing differed are few: more of them would show equivalence."""
    for num_rows in (50, 200):
        found = claim(np.ones((6, num_rows), bool), np.ones((6, num_rows), bool))
        assert found.verdict == "undecided"
        assert found.seeds_to_decide is None
        assert found.rows_to_decide == pytest.approx(-math.log(0.05) / 0.005, rel=0.1)


def test_other_comparisons_make_more_seeds_necessary() -> None:
    generator = np.random.default_rng(5)
    for shift in (0.5, 1.0, 2.0):
        found = claim(*latent(generator, 8, 600, shift=shift))
        assert found.verdict == "better"
        assert (found.seeds_to_decide, found.rows_to_decide) == (None, None)
        needed = [found.corrected(0.06, 1.0, tests).seeds_to_decide for tests in (2, 20, 200)]
        assert 8 <= needed[0] <= needed[1] <= needed[2], needed
    for one, other in pairs():
        found = claim(one, other)
        if found.verdict == "undecided" and len(one) >= LEAST_SEEDS:
            assert found.seeds_to_decide != len(one), "it would have been decided"
        if len(one) < LEAST_SEEDS:
            assert found.rows_to_decide is None, "no number of rows makes up for seeds"


def test_many_rows_that_count_little_do_not_outweigh_the_few_that_were_not_seen() -> None:
    """Rare rows on which the one alone is right, and scattered errors of the same weight."""
    generator = np.random.default_rng(1)
    for num_seeds, num_rows in ((20, 1000), (100, 100), (6, 200), (10, 500)):
        for expected in (1, 2, 3, 5):
            found = 0
            for _ in range(40):
                hard_N = generator.random(num_rows) < expected / num_rows
                hits = generator.random((num_seeds, num_rows)) >= expected / num_rows
                found += claim(hits, np.repeat(~hard_N[None], num_seeds, 0)).significant
            assert found <= 6, (num_seeds, num_rows, expected, found)  # 5% are 2


@pytest.mark.parametrize("wrong", [200, 1.01, -0.01, 1j, "yes"])
def test_what_is_no_hit_is_refused(wrong: object) -> None:
    with pytest.raises(ValueError, match="true or false, or finite shares"):
        claim(np.full((6, 20), wrong), np.zeros((6, 20)))


def test_the_type_of_hits_changes_nothing() -> None:
    for one, other in pairs():
        if one.dtype != np.bool_:
            continue
        first = claim(one, other)
        for kind in (np.float32, np.float64, np.int64, np.uint8):
            again = claim(one.astype(kind), other.astype(kind))
            assert (again.p, again.p_equivalent) == (first.p, first.p_equivalent)
        assert claim(one.tolist(), other.tolist()).p == first.p  # type: ignore[arg-type]
