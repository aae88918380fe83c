"""One verdict over many data sets: references, and how often it is wrong."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from scipy.stats import chi2, norm, t, ttest_1samp, wilcoxon

from gaam_decoder import stats
from gaam_decoder.stats.across import (
    SetDifference,
    across_corrected,
    average_over_encoders,
    between_variance,
    combine_sets,
    difference_of_claim,
    mid_ranks,
)
from tests.decoder.stats import many_sets

# Colditz et al. 1994, 13 trials of BCG vaccine: log risk ratios and their variances
BCG = [
    (-0.8893, 0.3256), (-1.5854, 0.1946), (-1.3481, 0.4154), (-1.4416, 0.0200),
    (-0.2175, 0.0512), (-0.7861, 0.0069), (-1.6209, 0.2230), (0.0120, 0.0040),
    (-0.4694, 0.0564), (-1.3713, 0.0730), (-0.3394, 0.0124), (0.4459, 0.5325),
    (-0.0173, 0.0714),
]  # fmt: skip


def sets_of(values: list[tuple[float, float]]) -> list[SetDifference]:
    """Data sets of these differences and variances."""
    return [
        SetDifference(name=f"set {number}", difference=difference, variance=variance)
        for number, (difference, variance) in enumerate(values)
    ]


def test_the_variance_between_data_sets_is_that_of_metafor() -> None:
    """R's ``rma(yi, vi, method = "PM")`` gives tau^2 = 0.3181 for these trials."""
    difference_K, variance_K = np.array(BCG).T
    assert between_variance(difference_K, variance_K) == pytest.approx(0.3181, abs=1e-4)


def test_the_variance_between_data_sets_is_that_of_statsmodels() -> None:
    meta_analysis = pytest.importorskip("statsmodels.stats.meta_analysis")
    generator = np.random.default_rng(0)
    for _ in range(20):
        variance_K = generator.uniform(0.1, 2, 8)
        difference_K = generator.normal(0.3, 1.5, 8)
        reference = meta_analysis.combine_effects(
            difference_K,
            variance_K,
            method_re="iterated",
            use_t=True,
            atol=1e-8,
            maxiter=500,
        )
        assert between_variance(difference_K, variance_K) == pytest.approx(
            reference.tau2, abs=1e-6
        )


@pytest.mark.parametrize("quantile", [0.025, 0.75, 0.975])
def test_a_limit_of_the_variance_is_that_of_its_q_profile(quantile: float) -> None:
    """With the limit as variance, the residuals are at that quantile of chi-squared."""
    difference_K, variance_K = np.array(BCG).T
    limit = between_variance(difference_K, variance_K, quantile=quantile)
    weight_K = 1 / (variance_K + limit)
    mean = weight_K @ difference_K / weight_K.sum()
    residuals = weight_K @ (difference_K - mean) ** 2
    assert chi2.sf(residuals, len(BCG) - 1) == pytest.approx(quantile, rel=1e-6)


def test_data_sets_that_are_equally_sure_give_students_t_test() -> None:
    """Hartung and Knapp's interval is then that of the mean of the differences."""
    differences = [0.03, -0.01, 0.05, 0.02, 0.04, -0.02, 0.06]
    answer = combine_sets(
        sets_of([(value, 1e-4) for value in differences]), margin=0.05
    )
    reference = ttest_1samp(differences, 0)
    interval = reference.confidence_interval()
    assert answer.difference == pytest.approx(np.mean(differences))
    assert answer.p == pytest.approx(reference.pvalue)
    assert answer.interval == pytest.approx((interval.low, interval.high))
    assert answer.p_equivalent == pytest.approx(
        ttest_1samp(differences, 0.05, alternative="less").pvalue
    )


def test_data_sets_that_agree_by_chance_are_not_surer_than_their_own_errors() -> None:
    answer = combine_sets(sets_of([(0.010, 1e-4), (0.0101, 1e-4), (0.0099, 1e-4)] * 2))
    assert answer.interval is not None
    low, high = answer.interval
    assert high - low == pytest.approx(2 * 1.96 * 0.01 / 6**0.5, rel=1e-4)
    assert answer.p == pytest.approx(2 * norm.sf(0.01 / (0.01 / 6**0.5)), rel=1e-4)


@pytest.mark.parametrize("seed", range(20))
def test_a_p_value_is_the_level_of_the_interval_that_ends_at_the_hypothesis(
    seed: int,
) -> None:
    """The wider of both intervals counts at every level, not at 95% alone."""
    generator = np.random.default_rng(seed)
    variance_K = generator.uniform(0.2, 2, 6)
    difference_K = generator.normal(1.0, generator.choice([0.1, 1.5]), 6)
    values = list(zip(difference_K.tolist(), variance_K.tolist(), strict=True))
    answer = combine_sets(sets_of(values), margin=5.0)

    between = between_variance(difference_K, variance_K)
    weight_K = 1 / (variance_K + max(between, variance_K.mean()))
    mean = weight_K @ difference_K / weight_K.sum()
    residuals = weight_K @ (difference_K - mean) ** 2 / weight_K.sum()
    of_residuals = t(5, scale=(residuals / 5) ** 0.5)
    of_errors = norm(scale=(weight_K**2 @ variance_K) ** 0.5 / weight_K.sum())
    for distance, p, sides in [
        (abs(mean), answer.p, 2),
        (5.0 - abs(mean), answer.p_equivalent, 1),
    ]:
        assert p is not None
        half_widths = [of.isf(p / sides) for of in (of_residuals, of_errors)]
        assert max(half_widths) == pytest.approx(distance)


def test_intervals_end_at_the_largest_possible_difference() -> None:
    sets = sets_of([(0.5, 1e-4), (-0.5, 1e-4)])
    unlimited = combine_sets(sets)
    limited = combine_sets(sets, largest_difference=1.0)
    assert unlimited.interval is not None
    low, high = unlimited.interval
    assert low < -1 < 1 < high
    assert limited.interval == limited.prediction == (-1.0, 1.0)
    assert limited.p == unlimited.p


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        pytest.param([0.03, 0.04, 0.05, 0.03, 0.04], "better", id="better"),
        pytest.param([-0.03, -0.04, -0.05, -0.03, -0.04], "worse", id="worse"),
        pytest.param([0.001, -0.001, 0.0, 0.001, -0.001], "equivalent", id="same"),
        pytest.param([0.05, -0.04, 0.08, -0.06, 0.03], "undecided", id="scattered"),
        pytest.param([0.03, 0.04, 0.05, 0.03], "no claim", id="four sets"),
    ],
)
def test_the_verdict(differences: list[float], verdict: str) -> None:
    answer = combine_sets(
        sets_of([(value, 4e-6) for value in differences]), margin=0.01
    )
    assert answer.verdict == verdict


def test_the_signed_rank_test_is_exact_with_ties_and_zeros() -> None:
    distinct = [0.011, -0.022, 0.033, 0.044, 0.055, -0.066, 0.077]
    answer = combine_sets(sets_of([(value, 1e-4) for value in distinct]))
    assert answer.p_of_these_sets == pytest.approx(
        wilcoxon(distinct, method="exact").pvalue
    )
    tied = combine_sets(sets_of([(value, 1e-4) for value in [0.01] * 5 + [0.0]]))
    assert tied.p_of_these_sets == pytest.approx(2 / 2**5)
    equal = combine_sets(sets_of([(0.0, 1e-4)] * 5))
    assert equal.p_of_these_sets is None


@pytest.mark.parametrize("digits", [9, 17])
def test_ties_and_zeros_of_the_signed_rank_test_survive_rounding(digits: int) -> None:
    """As means of encoders, 0.1 + 0.2 and 0.3 are equal, and 0.1 - 0.3 + 0.2 is 0."""
    numbers = [2 / 3, 2 / 3, -2 / 3, 1 / 3, 1 / 3, -1.0, 4 / 3, 0.0]
    rng = np.random.default_rng(0)
    third_K = rng.normal(size=len(numbers))
    sums_K = [
        float(f"{third:.{digits}g}") + float(f"{number - third:.{digits}g}")
        for number, third in zip(numbers, third_K, strict=True)
    ]
    exact = combine_sets(sets_of([(round(3 * number), 1.0) for number in numbers]))
    rounded = combine_sets(sets_of([(value, 1.0) for value in sums_K]))
    assert rounded.p_of_these_sets == exact.p_of_these_sets


def test_a_huge_value_makes_no_others_equal() -> None:
    ranks = mid_ranks(np.array([-0.80, -0.805, -0.79, 1e6, 2 / 3, 1 - 1 / 3]))
    assert ranks.tolist() == [2, 1, 3, 6, 4.5, 4.5]
    # means of two encoders whose differences nearly cancel
    cancelling = [0.0123333333 - 0.0122666667, 0.0200666667 - 0.02, 0.03, -0.04]
    assert mid_ranks(np.array(cancelling)).tolist() == [2.5, 2.5, 4, 1]
    answer = combine_sets(sets_of([(value, 1.0) for value in [0.001] * 8 + [-1e6]]))
    # eight ranks of 4.5 against one of 9: 27 of 45, or more, in 2^9 patterns of signs
    signed_ranks = [4.5] * 8 + [9]
    sums = [
        sum(pattern) for pattern in product(*[(rank, -rank) for rank in signed_ranks])
    ]
    p = np.mean([abs(total) >= 27 for total in sums])
    assert answer.p_of_these_sets == pytest.approx(p)


def claim_on(right: float, seeds: int = 6) -> stats.Claim:
    """A claim on 200 rows: a mechanism that is right this often, against chance."""
    generator = np.random.default_rng(0)
    right_SN = generator.random((seeds, 200)) < right
    baseline_SN = generator.random((seeds, 200)) < 0.5
    return stats.claim(right_SN, baseline_SN)


def six_claims() -> dict[str, stats.Claim]:
    return {f"set {place}": claim_on(0.6 + place / 100) for place in range(6)}


def test_claims_become_data_sets_and_those_that_do_not_count_are_named() -> None:
    claims = six_claims()
    one_row = stats.claim(np.ones((6, 1), bool), np.zeros((6, 1), bool))
    others = {"five seeds": claim_on(0.9, seeds=5), "one row": one_row}
    answer = stats.across(claims | others)
    assert answer.left_out == {
        "five seeds": "fewer than 6 seeds",
        "one row": "no standard error",
    }
    assert [entry.name for entry in answer.sets] == list(claims)
    assert answer.difference == pytest.approx(
        np.mean([claim.difference for claim in claims.values()]), abs=0.02
    )
    assert answer.verdict == "better"


def test_few_seeds_with_one_encoder_leave_a_data_set_out() -> None:
    claims = {name: [claim, claim] for name, claim in six_claims().items()}
    others = stats.across(claims)
    claims["few"] = [claim_on(0.9), claim_on(0.9, seeds=3)]
    answer = stats.across(claims)
    assert answer.left_out == {"few": "fewer than 6 seeds"}
    assert answer.difference == others.difference


def test_four_data_sets_with_six_seeds_have_no_verdict() -> None:
    claims = six_claims()
    claims |= {name: claim_on(0.7, seeds=5) for name in ("set 4", "set 5")}
    answer = stats.across(claims)
    assert answer.verdict == "no claim"
    assert answer.interval is not None


def test_no_mean_rests_on_few_seeds_alone() -> None:
    claims = {f"set {place}": claim_on(0.7, seeds=5) for place in range(6)}
    with pytest.raises(ValueError, match="no data set counts: fewer than 6 seeds"):
        stats.across(claims)


def test_encoders_that_may_err_alike_are_one_unit() -> None:
    """Three encoders with the same errors say no more than one of them."""
    one = SetDifference(name="a", difference=0.03, variance=4e-4)
    assert average_over_encoders("a", [one] * 3).variance == pytest.approx(4e-4)
    from_rows_alone = replace(one, shared_variance=4e-4)
    averaged = average_over_encoders("a", [from_rows_alone] * 3)
    assert averaged.variance == pytest.approx(4e-4)


def test_seeds_and_tuning_of_encoders_are_averaged_and_their_rows_are_not() -> None:
    """A simulated data set: one error of the rows for all encoders, others for each."""
    generator = np.random.default_rng(0)
    shared_std_errors = [0.5, 0.8, 1.1]
    own_std_errors = [1.0, 0.7, 1.3]
    differences = [
        SetDifference(
            name="a",
            difference=0.0,
            variance=shared**2 + own**2,
            shared_variance=shared**2,
        )
        for shared, own in zip(shared_std_errors, own_std_errors, strict=True)
    ]
    averaged = average_over_encoders("a", differences)

    num_draws = 100_000
    of_rows_D = generator.normal(size=num_draws)
    errors_ED = [
        shared * of_rows_D + own * generator.normal(size=num_draws)
        for shared, own in zip(shared_std_errors, own_std_errors, strict=True)
    ]
    simulated = np.mean(errors_ED, axis=0).var()
    assert averaged.variance == pytest.approx(simulated, rel=0.02)


def test_claims_of_several_encoders_share_what_comes_from_their_rows() -> None:
    claim = claim_on(0.7)
    assert claim.test_over_rows is not None
    anova = claim.test_over_rows.anova
    [data_set] = stats.across({"a": [claim] * 4}).sets
    variance = claim.test_over_rows.variance_over_sets(claim.margin)
    expected = variance - anova.variance_from_seeds * 3 / 4
    assert data_set.variance == pytest.approx(expected)


@pytest.mark.parametrize("num_rows", [12, 50, 100])
def test_sets_whose_rows_hardly_differ_are_rarely_called_equivalent(
    num_rows: int,
) -> None:
    """A mechanism that is wrong on one row in a hundred, under all seeds."""
    generator = np.random.default_rng(0)
    num_equivalent = 0
    num_held = 0
    for _ in range(40):
        claims = {}
        for place in range(5):
            wrong_N = generator.random(num_rows) < 0.01
            right_SN = np.repeat(~wrong_N[None], 6, axis=0)
            claims[str(place)] = stats.claim(right_SN, np.ones((6, num_rows), bool))
        answer = stats.across(claims)
        assert answer.interval is not None
        num_equivalent += answer.verdict == "equivalent"
        num_held += answer.interval[0] <= -0.01 <= answer.interval[1]
    assert num_equivalent <= 2
    assert num_held >= 36


def test_a_lower_loss_is_a_better_mechanism() -> None:
    claim = claim_on(0.7)
    gain = difference_of_claim("a", claim)
    assert gain is not None
    assert gain.difference == claim.difference > 0


def test_answers_are_corrected_by_holm_and_those_without_a_test_stay() -> None:
    strong = combine_sets(sets_of([(0.03 + place / 1000, 1e-5) for place in range(6)]))
    weak = combine_sets(sets_of([(0.01, 1e-5), (-0.012, 1e-5)] * 3))
    few = combine_sets(sets_of([(0.03, 1e-5)] * 2))
    assert strong.p is not None
    assert weak.p is not None
    corrected = across_corrected([weak, few, strong])
    assert corrected[1] is few
    assert corrected[2].p_holm == pytest.approx(2 * strong.p)
    assert corrected[0].p_holm == pytest.approx(max(weak.p, 2 * strong.p))


@pytest.mark.parametrize(
    "values",
    [
        pytest.param([], id="no data set"),
        pytest.param([(float("nan"), 1e-4)], id="nan"),
        pytest.param([(0.1, float("inf"))], id="infinite variance"),
    ],
)
def test_what_has_no_answer_is_refused(values: list[tuple[float, float]]) -> None:
    with pytest.raises(ValueError, match=r"data set|finite"):
        combine_sets(sets_of(values))


@pytest.mark.slow
@pytest.mark.parametrize("encoders", many_sets.ENCODERS)
@pytest.mark.parametrize("num_sets", many_sets.NUMBERS_OF_SETS)
@pytest.mark.parametrize("between", many_sets.BETWEEN)
def test_verdicts_over_data_sets_are_rarely_false(
    num_sets: int, between: float, encoders: str
) -> None:
    num_encoders, alike = many_sets.ENCODERS[encoders]
    rates = many_sets.simulate(
        num_sets, between, 400, num_encoders=num_encoders, alike=alike
    )
    # 5% of 400, and three standard errors of that
    assert rates.found_any <= 33
    assert rates.equivalent_any <= 33
    assert rates.held >= 400 - 33
