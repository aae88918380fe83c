"""Claims about two mechanisms, against definitions, laws and other implementations.

``tests/contract/test_6_verdicts.py`` computes p, intervals and equivalence from their
definitions. S seeds, N rows.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.stats
from numpy.typing import NDArray

from gaam_decoder import stats
from gaam_decoder.stats import LEAST_SEEDS, Claim, claim
from gaam_decoder.stats.mean_test import HitsTest
from gaam_decoder.stats.paired import FEW_DIFFERENT_ROWS, sign_flip_of_rows

Hits = NDArray[np.bool_]
SHAPES = [(2, 2), (2, 9), (2, 300), (3, 40), (6, 12), (6, 300), (8, 1000), (21, 60)]
SHIFTS = [0.0, 0.05, 0.3, 1.5]
OPPOSITE = {"better": "worse", "worse": "better", "equivalent": "equivalent"}


def simulated_hits(
    generator: np.random.Generator,
    num_seeds: int,
    num_rows: int,
    *,
    shift: float = 0.0,
    own: float = 0.5,
    seeds: float = 0.1,
    noise: float = 0.5,
    ease: float = 2.0,
) -> tuple[Hits, Hits]:
    """Hits of two mechanisms, the first better by the shift.

    Rows are easy or hard for both, and for each in its own way.
    """
    easy_N = generator.normal(ease, 2, (1, num_rows))

    def hits_of_one(better: float) -> Hits:
        own_N = own * generator.normal(0, 1, (1, num_rows))
        seed_S = seeds * generator.normal(0, 1, (num_seeds, 1))
        noise_SN = noise * generator.normal(0, 1, (num_seeds, num_rows))
        return np.asarray(easy_N + own_N + seed_S + noise_SN + better > 0)

    first_SN = hits_of_one(shift)
    second_SN = hits_of_one(0.0)
    return first_SN, second_SN


class Pair(NamedTuple):
    """What two mechanisms answered to the same rows."""

    first_SN: Any
    second_SN: Any


def pairs() -> dict[str, Pair]:
    """Hits of all sizes: as bits, and as shares of several tests."""
    generator = np.random.default_rng(0)
    pairs = {}
    for shape, shift in itertools.product(SHAPES, SHIFTS):
        noise = generator.choice([0.0, 0.5])
        first_SN, second_SN = simulated_hits(
            generator, *shape, shift=shift, noise=noise
        )
        share_N = generator.integers(1, 6, (1, shape[1])) / 5
        pairs[f"{shape}, shift {shift}"] = Pair(first_SN, second_SN)
        pairs[f"{shape}, shift {shift}, shares"] = Pair(first_SN * share_N, second_SN)
    return pairs


def p_values(result: Claim) -> list[float]:
    """Numbers that do not depend on which mechanism is the first; -1: there is none."""
    on_rows = result.on_these_rows
    values = [
        result.p,
        result.p_equivalent,
        on_rows.p_equivalent,
        on_rows.std,
        on_rows.detectable,
        None if on_rows.sign_flip is None else on_rows.sign_flip.p,
    ]
    return [-1.0 if value is None else value for value in values]


def signed_numbers(result: Claim) -> list[float]:
    """The difference, and the limits of both intervals."""
    assert result.interval is not None
    assert result.on_these_rows.interval is not None
    return [result.difference, *result.interval, *result.on_these_rows.interval]


def test_swapping_the_two_negates_the_difference_and_changes_no_p() -> None:
    verdicts = set()
    for name, (first_SN, second_SN) in pairs().items():
        result = claim(first_SN, second_SN, margin=0.05)
        swapped = claim(second_SN, first_SN, margin=0.05)
        difference, low, high, low_on_rows, high_on_rows = signed_numbers(result)
        negated = [-difference, -high, -low, -high_on_rows, -low_on_rows]
        for numbers, expected in (
            (p_values(swapped), p_values(result)),
            (signed_numbers(swapped), negated),
        ):
            np.testing.assert_allclose(
                numbers, expected, rtol=1e-9, atol=1e-12, err_msg=name
            )
        assert swapped.verdict == OPPOSITE.get(result.verdict, "undecided"), name
        assert swapped.seeds_to_decide == result.seeds_to_decide, name
        assert swapped.rows_to_decide == result.rows_to_decide, name
        verdicts.add(result.verdict)
    assert verdicts == {"better", "worse", "equivalent", "undecided"}


def test_what_is_identical_is_never_better_or_worse() -> None:
    for name, (first_SN, _) in pairs().items():
        result = claim(first_SN, first_SN, margin=0.005)
        assert result.p == 1, name
        assert result.difference == 0, name
        assert result.verdict in ("equivalent", "undecided"), name
        assert result.interval is not None, name
        low, high = result.interval
        assert low == pytest.approx(-high), name
        # rows that did not differ do not show that none would
        assert high > 0, name


@pytest.mark.parametrize("num_rows", [200, 5000])
def test_identical_answers_are_equivalent_where_there_are_enough_rows(
    num_rows: int,
) -> None:
    """What was never seen in N rows is surely rarer than -ln(0.05) / N, and no less."""
    same_SN = np.ones((6, num_rows), bool)
    limit = -math.log(0.05) / num_rows
    assert claim(same_SN, same_SN, margin=1.02 * limit).verdict == "equivalent"
    undecided = claim(same_SN, same_SN, margin=0.98 * limit)
    assert undecided.verdict == "undecided"
    assert undecided.seeds_to_decide is None
    assert undecided.rows_to_decide == pytest.approx(num_rows / 0.98, rel=0.1)


def test_the_interval_holds_0_exactly_where_no_difference_is_significant() -> None:
    generator = np.random.default_rng(3)
    num_significant = 0
    for trial in range(300):
        shape = SHAPES[trial % len(SHAPES)]
        shift = generator.choice([0, 0, 0.1, 0.3, 1.0]) * generator.choice([-1, 1])
        noise, own = generator.choice([0.0, 0.1, 1.0], 2)
        ease = 1 + trial % 4
        first_SN, second_SN = simulated_hits(
            generator, *shape, shift=shift, noise=noise, own=own, ease=ease
        )
        weight_N: Any = np.ones((1, shape[1]), bool)
        if trial % 3 == 0:
            weight_N = generator.integers(1, 6, (1, shape[1])) / 5
        result = claim(first_SN * weight_N, second_SN * weight_N)
        assert result.p is not None
        assert result.interval is not None
        low, high = result.interval
        assert -1 <= low <= result.difference + 1e-12
        assert result.difference - 1e-12 <= high <= 1
        assert 0 < result.p <= 1
        is_significant = result.p < stats.ALPHA
        assert is_significant == (not low <= 0 <= high), (shape, result)
        num_significant += is_significant
    assert 25 < num_significant < 275, "both are tried"


def sums_of_rows(values: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    return np.round(values.sum(axis), 9)


@pytest.mark.parametrize("scale", [1, 5], ids=["whole numbers", "fifths"])
@pytest.mark.parametrize("num_rows", range(2, 12))
def test_the_exact_test_over_rows_is_scipys_permutation_test(
    num_rows: int, scale: int
) -> None:
    generator = np.random.default_rng([num_rows, scale])
    difference_N = generator.integers(-4, 5, num_rows)
    difference_N[0] = 3
    value_N = difference_N if scale == 1 else difference_N / scale
    expected = scipy.stats.permutation_test(
        (value_N.astype(float),),
        sums_of_rows,
        permutation_type="samples",
        n_resamples=np.inf,
        vectorized=True,
    )
    assert sign_flip_of_rows(value_N) == pytest.approx(expected.pvalue, abs=1e-12)


@pytest.mark.parametrize("num_rows", [5, 60, 400])
def test_the_exact_test_over_rows_of_equal_seeds_is_mcnemars(num_rows: int) -> None:
    first_N, second_N = np.random.default_rng(0).random((2, num_rows)) < 0.9
    p = sign_flip_of_rows(6 * (first_N.astype(int) - second_N))
    only_first = int((first_N & ~second_N).sum())
    num_different = int((first_N != second_N).sum())
    if num_different:
        expected = scipy.stats.binomtest(only_first, num_different).pvalue
    else:
        expected = 1
    assert p == pytest.approx(expected)


def test_the_exact_test_over_rows_says_nothing_of_equal_or_many_rows() -> None:
    assert sign_flip_of_rows(np.zeros(50, int)) == 1
    assert sign_flip_of_rows(np.ones(FEW_DIFFERENT_ROWS, int)) == 0, (
        "many rows: it has no say"
    )


@pytest.mark.parametrize("baseline", [False, True], ids=["all wrong", "all right"])
@pytest.mark.parametrize("num_seeds", range(1, LEAST_SEEDS))
def test_fewer_than_six_seeds_allow_no_claim(num_seeds: int, baseline: bool) -> None:
    right_SN = np.ones((num_seeds, 500), bool)
    result = claim(right_SN, np.full((num_seeds, 500), baseline), margin=0.4)
    assert result.verdict == result.on_these_rows.verdict == "undecided"
    assert result.significant is False
    assert result.negligible is False
    assert result.rows_to_decide is None, "no number of rows makes up for seeds"


def test_six_seeds_allow_a_claim() -> None:
    right_SN = np.ones((LEAST_SEEDS, 500), bool)
    result = claim(right_SN, ~right_SN)
    assert result.verdict == result.on_these_rows.verdict == "better"


@pytest.mark.parametrize("num_seeds", [6, 200])
def test_a_difference_on_two_rows_is_no_claim_about_other_rows(num_seeds: int) -> None:
    """However many seeds there are: of other rows no seed says anything."""
    right_SN = np.ones((num_seeds, 300), bool)
    other_SN = right_SN.copy()
    other_SN[:, :2] = False
    result = claim(right_SN, other_SN)
    assert result.verdict == "undecided"
    assert result.on_these_rows.verdict == "better"
    assert result.seeds_to_decide is None
    assert result.rows_to_decide is not None


@pytest.mark.parametrize("shape", [(1, 1), (1, 50), (6, 1)], ids=str)
def test_one_seed_or_one_row_has_a_difference_and_no_test(
    shape: tuple[int, int],
) -> None:
    result = claim(np.ones(shape, bool), np.zeros(shape, bool))
    assert result.p is None
    assert result.interval is None
    assert result.p_equivalent is None
    assert result.difference == 1
    assert result.verdict == "undecided"


def right_and_half_right() -> tuple[Hits, Hits]:
    """Hits of a mechanism that is right on all rows, and of one that is on half."""
    right_SN = np.ones((6, 400), bool)
    half_SN = right_SN.copy()
    half_SN[:, :200] = False
    return right_SN, half_SN


@pytest.mark.parametrize(
    ("p_holm", "p_equivalent_holm", "verdict"),
    [
        (0.049, 1.0, "better"),
        (0.05, 1.0, "undecided"),
        (0.05, 0.04, "equivalent"),
        (0.01, 0.01, "better"),
    ],
)
def test_a_correction_decides_the_verdict(
    p_holm: float, p_equivalent_holm: float, verdict: str
) -> None:
    better = claim(*right_and_half_right())
    assert better.verdict == "better"
    corrected = dataclasses.replace(
        better, p_holm=p_holm, p_equivalent_holm=p_equivalent_holm
    )
    assert corrected.verdict == verdict


def test_a_correction_decides_equivalence() -> None:
    right_SN, _ = right_and_half_right()
    equivalent = claim(right_SN, right_SN, margin=0.05)
    assert equivalent.verdict == "equivalent"
    corrected = dataclasses.replace(equivalent, p_holm=1.0, p_equivalent_holm=0.05)
    assert corrected.verdict == "undecided"


def test_other_comparisons_make_more_seeds_necessary() -> None:
    hits = simulated_hits(np.random.default_rng(5), 8, 600, shift=0.5)
    undecided = dataclasses.replace(claim(*hits), p_holm=0.06, p_equivalent_holm=1.0)
    needed = []
    for num_tests in (2, 20, 200):
        seeds = dataclasses.replace(undecided, num_tests=num_tests).seeds_to_decide
        assert seeds is not None
        needed.append(seeds)
    assert needed == sorted(needed)


def equal_seeds() -> tuple[Hits, Hits]:
    """Hits of eight equal seeds of two mechanisms, on 2,000 rows."""
    first_N, second_N = np.random.default_rng(0).random((2, 2000)) < 0.8
    return np.tile(first_N, (8, 1)), np.tile(second_N, (8, 1))


def test_as_many_training_rows_as_test_rows_change_nothing() -> None:
    result = claim(*equal_seeds(), train_rows=2000)
    expected = claim(*equal_seeds())
    assert result.p == expected.p
    assert result.interval == expected.interval


def test_fewer_training_rows_make_as_wide_as_so_few_test_rows() -> None:
    first_SN, second_SN = equal_seeds()
    result = claim(first_SN, second_SN, train_rows=500)
    assert result.interval is not None
    low, high = result.interval
    error = (first_SN[0] * 1.0 - second_SN[0]).std(ddof=1) / 500**0.5
    assert (high - low) / 2 == pytest.approx(1.96 * error, rel=0.02)


def test_more_test_rows_than_training_rows_cannot_decide() -> None:
    first_SN, second_SN = equal_seeds()
    near_SN = first_SN.copy()
    near_SN[:, ::8] = second_SN[:, ::8]
    assert claim(near_SN, first_SN, train_rows=100).rows_to_decide is None


@pytest.mark.parametrize("train_rows", [0, -1, float("nan")])
def test_an_impossible_number_of_training_rows_is_refused(train_rows: float) -> None:
    with pytest.raises(ValueError, match="training rows"):
        claim(*equal_seeds(), train_rows=train_rows)


DIFFERENT = {"shift": 0.12, "own": 0.5, "seeds": 0.05, "noise": 0.5}
EQUIVALENT = {"shift": 0.0, "own": 0.1, "seeds": 0.0, "noise": 0.1}


def with_true_effects(claims: list[Claim]) -> Claim:
    """An undecided claim with the mean effects of all: nearly what there really is."""
    tests = [
        entry.test_over_rows
        for entry in claims
        if isinstance(entry.test_over_rows, HitsTest)
    ]
    mean = {
        name: float(np.mean([getattr(test.anova, name) for test in tests]))
        for name in ("mean", "ms_seeds", "ms_rows", "ms_rest")
    }
    anova: Any = tests[0].anova
    typical = dataclasses.replace(
        tests[0],
        anova=anova._replace(**mean),
        share_better=float(np.mean([test.share_better for test in tests])),
        share_worse=float(np.mean([test.share_worse for test in tests])),
        p_exact=0.0,
    )
    undecided = next(entry for entry in claims if entry.verdict == "undecided")
    return dataclasses.replace(
        undecided,
        difference=mean["mean"],
        test_over_rows=typical,
        p=typical.p,
        p_equivalent=typical.p_equivalent(undecided.margin),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "scenario", [DIFFERENT, EQUIVALENT], ids=["different", "equivalent"]
)
def test_as_many_rows_as_decide_do_so_about_every_second_time(
    scenario: dict[str, float],
) -> None:
    """By the true variances and difference, not by what one experiment saw."""
    num_seeds = 7
    trials = 200
    generator = np.random.default_rng(8)
    claims = [
        claim(*simulated_hits(generator, num_seeds, 400, **scenario))
        for _ in range(400)
    ]
    size = with_true_effects(claims).rows_to_decide
    assert size is not None
    num_decided = 0
    for _ in range(trials):
        result = claim(*simulated_hits(generator, num_seeds, size, **scenario))
        num_decided += result.verdict != "undecided"
    assert 0.38 < num_decided / trials < 0.8, size


@pytest.mark.parametrize("rare_rows", [1, 3])
@pytest.mark.parametrize(("num_seeds", "num_rows"), [(20, 1000), (100, 100), (6, 200)])
def test_many_rows_that_count_little_do_not_outweigh_the_few_that_were_not_seen(
    num_seeds: int, num_rows: int, rare_rows: int
) -> None:
    """Rows on which one alone is right, and scattered errors that weigh as much."""
    generator = np.random.default_rng([num_seeds, num_rows, rare_rows])
    share = rare_rows / num_rows
    num_significant = 0
    for _ in range(25):
        hard_N = generator.random(num_rows) < share
        first_SN = generator.random((num_seeds, num_rows)) >= share
        second_SN = np.tile(~hard_N, (num_seeds, 1))
        num_significant += claim(first_SN, second_SN).significant
    # 5% are 1
    assert num_significant <= 4
