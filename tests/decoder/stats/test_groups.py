"""Rows that belong together, against rows alone, and against textbook cases.

``python -m tests.benchmarks.bench_error_rates --of groups`` counts how often claims are
wrong over more layouts. S seeds, N rows, G groups, M rows of a group.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import stdtrit

from gaam_cache.common import plugins
from gaam_decoder import stats
from gaam_decoder.stats.choice import simulate_choices
from gaam_decoder.stats.crossed import Crossed, crossed
from gaam_decoder.stats.groups import RowGroups, join_relations
from gaam_decoder.stats.scored import Scored, claim_by_score, interval_by_score
from gaam_decoder.stats.scores import Score
from tests.decoder.stats import grouped_experiments as experiments

Hits = NDArray[np.bool_]
Floats = NDArray[np.float64]
Case = tuple[int, int, float]


@cache
def brier() -> Score:
    score: Score = plugins.load("gaam_decoder.stats.scores", "brier", kind="score")()
    return score


# Of seeds, rows and a shift, the numbers before there were groups: of claims and
# intervals of hits, and then of the Brier score: p and p of equivalence, limits of the
# difference, and limits of the first.
# fmt: off
BEFORE = {
    (6, 40, 0.0): [
        0.315431323616466, 0.7416519724915205,
        -0.08430582936162298, 0.20527693442348385,
        0.7299164756420664, 0.9477287312834894,
        0.022421461246173703, 0.9769822235825039,
        -0.19421065597174653, -0.022210502563423842,
        0.2755654885138141, 0.49461608902972465,
    ],
    (6, 400, 0.3): [
        0.09363005191485568, 0.6518274267021291,
        -0.005060914350723591, 0.05899862700367016,
        0.8441657735434872, 0.9097950140807146,
        0.00026364489005933423, 0.9996222603975835,
        -0.12831647141860386, -0.07164622530812031,
        0.3666808752048068, 0.4421458657286193,
    ],
    (8, 1000, 0.0): [
        0.5477586922025234, 0.21029579376817437,
        -0.021586955253451463, 0.03880975799335834,
        0.7881425264826895, 0.8398184109403081,
        1.6810467774287156e-07, 0.9999995536573802,
        -0.10479061108347822, -0.08212350324128888,
        0.3791320675900231, 0.4259612508850226,
    ],
    (20, 300, 0.1): [
        0.681921429219866, 0.3259937992347171,
        -0.03816076780457264, 0.0577922915778583,
        0.7619602939968875, 0.8513512551875415,
        1.4160795917031005e-12, 0.9999999999630427,
        -0.11451816873862208, -0.08711147555495632,
        0.361098424806111, 0.431296945452045,
    ],
}
# fmt: on


def hits_of_case(case: Case, generator: np.random.Generator) -> tuple[Hits, Hits]:
    """Hits of two mechanisms, the first better by the shift."""
    num_seeds, num_rows, shift = case
    easy_N = generator.normal(2, 2, num_rows)

    def hits_of_one(better: float) -> Hits:
        own_N = generator.normal(0, 0.7, num_rows)
        seed_S = generator.normal(0, 0.2, (num_seeds, 1))
        noise_SN = generator.normal(0, 0.5, (num_seeds, num_rows))
        return np.asarray(easy_N + own_N + seed_S + noise_SN + better > 0)

    first_SN = hits_of_one(shift)
    second_SN = hits_of_one(0.0)
    return first_SN, second_SN


def numbers_of(*parts: Any) -> list[float]:
    """All numbers of p, intervals and the like, and 0 for what there is not."""
    numbers: list[float] = []
    for part in parts:
        if isinstance(part, tuple):
            numbers.extend(part)
        else:
            numbers.append(float(part or 0))
    return numbers


def all_numbers(case: Case, groups: Any) -> list[float]:
    """What is claimed of simulated mechanisms, by hits and by the Brier score."""
    num_seeds, num_rows, _ = case
    generator = np.random.default_rng([num_seeds, num_rows])
    first_SN, second_SN = hits_of_case(case, generator)
    units = stats.row_groups(groups)
    claim = stats.claim(
        first_SN,
        second_SN,
        groups=groups,
        margin=0.02,
        tuning_variance=1e-5,
        train_rows=num_rows // 2,
    )

    def scored(worse: float) -> Scored:
        loss_SN = generator.gamma(2.0, 0.2, (num_seeds, num_rows)) + worse
        return Scored(
            values=loss_SN.mean(1),
            by_row=loss_SN,
            unseen_change=1e-3,
            groups=units,
        )

    first = scored(0.0)
    second = scored(0.1)
    claim_of_score = claim_by_score(brier(), first, second, margin=0.02)
    return numbers_of(
        claim.p,
        claim.p_equivalent,
        claim.interval,
        stats.two_level_interval(first_SN, groups=units),
        claim_of_score.p,
        claim_of_score.p_equivalent,
        claim_of_score.interval,
        interval_by_score(brier(), first),
    )


@pytest.mark.parametrize("case", BEFORE, ids=str)
def test_one_group_for_each_row_gives_the_numbers_that_rows_gave(case: Case) -> None:
    without_groups = all_numbers(case, None)
    np.testing.assert_allclose(without_groups, BEFORE[case], rtol=1e-9)
    group_N = np.random.default_rng(0).permutation(case[1])
    assert all_numbers(case, group_N) == without_groups


@pytest.mark.parametrize(
    ("num_seeds", "num_groups", "rows_each"),
    [(1, 6, 5), (2, 2, 3), (6, 10, 40), (8, 30, 2)],
)
def test_groups_of_equal_size_are_the_crossed_analysis_of_their_means(
    num_seeds: int, num_groups: int, rows_each: int
) -> None:
    generator = np.random.default_rng([num_seeds, num_groups])
    shape = (num_seeds, num_groups, rows_each)
    effect_G = generator.normal(size=(1, num_groups, 1))
    value_SGM = effect_G + generator.normal(size=shape)
    groups = stats.row_groups(np.repeat(np.arange(num_groups), rows_each))
    analysis = crossed(value_SGM.reshape(num_seeds, -1), groups)
    textbook = crossed(value_SGM.mean(2))
    assert analysis.num_units == num_groups
    assert analysis.rows_per_unit == rows_each
    assert analysis.freedom_of_groups == pytest.approx(num_groups - 1)
    np.testing.assert_allclose(analysis[:4], textbook[:4], rtol=1e-9, atol=1e-12)
    for tail in (0.025, 0.001):
        assert analysis.critical_distance(tail) == pytest.approx(
            textbook.critical_distance(tail)
        )
    larger = analysis.resized(12, 77).variance
    assert larger == pytest.approx(textbook.resized(12, 77).variance, abs=1e-12)


def hits_of_120_groups() -> tuple[Hits, Hits]:
    """Ten rows of each group; which mechanism is better differs from group to group."""
    generator = np.random.default_rng(2)
    group_N = np.repeat(np.arange(120), 10)
    effect_N = generator.normal(0, 0.7, 120)[group_N]

    def hits_of_one(sign: int, better: float) -> Hits:
        chance_N = 1 / (1 + np.exp(-1 - better - effect_N * sign))
        return np.asarray(generator.random((6, 1200)) < chance_N)

    first_SN = hits_of_one(1, 0.25)
    second_SN = hits_of_one(-1, 0.0)
    return first_SN, second_SN


def test_the_verdict_on_groups_of_equal_size_is_the_t_test_on_their_means() -> None:
    """And a little wider, for rows that differ may be rare and not have been seen."""
    first_SN, second_SN = hits_of_120_groups()
    group_N = np.repeat(np.arange(120), 10)
    claim = stats.claim(first_SN, second_SN, margin=0.1, groups=group_N)
    difference_SN = first_SN * 1.0 - second_SN
    textbook = crossed(difference_SN.reshape(6, 120, 10).mean(2))
    p = 2 * textbook.one_sided_p(abs(textbook.mean))
    p_equivalent = textbook.one_sided_p(0.1 - textbook.mean)
    width = 2 * textbook.critical_distance(0.025)
    assert claim.p is not None
    assert claim.p_equivalent is not None
    assert claim.interval is not None
    low, high = claim.interval
    assert p <= claim.p <= 1.2 * p
    assert p_equivalent <= claim.p_equivalent <= 1.2 * p_equivalent
    assert width <= high - low <= 1.05 * width
    assert claim.num_groups == 120


def test_of_few_groups_the_exact_test_over_groups_has_its_say() -> None:
    first_SN, second_SN = hits_of_120_groups()
    ten_groups_N = np.repeat(np.arange(10), 120)
    difference_N = first_SN.sum(0) - 1.0 * second_SN.sum(0)
    exact = stats.sign_flip(difference_N.reshape(10, 120).sum(1)).p
    claim = stats.claim(first_SN, second_SN, groups=ten_groups_N)
    assert claim.p is not None
    assert claim.p >= exact


SIZES = {
    "equal": [7] * 9,
    "uneven": [40, 25, 10, 5, 5, 3, 1, 1],
    "one is most": [60, 4, 4, 4, 4, 4],
    "nearly alone": [2, 2, *[1] * 30],
}


def names_of_groups(sizes: list[int]) -> list[str]:
    """The name of its group for every row."""
    return [f"g{number}" for number, rows in enumerate(sizes) for _ in range(rows)]


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES.keys())
def test_the_variance_is_right_where_groups_are_alike_inside_and_else_too_large(
    sizes: list[int],
) -> None:
    """Its expectation, exactly: the estimate is quadratic in independent effects."""
    groups = stats.row_groups(names_of_groups(sizes))
    assert groups is not None
    num_rows = sum(sizes)
    share_G = np.array(sizes) / num_rows

    def estimated_variance(effect_N: NDArray[Any]) -> float:
        return crossed(effect_N[None].astype(float), groups).variance_from_rows

    variances_of_groups = [
        estimated_variance(groups.group_N == number) for number in range(len(sizes))
    ]
    assert sum(variances_of_groups) == pytest.approx(float(np.sum(share_G**2)))
    variances_of_rows = [estimated_variance(effect_N) for effect_N in np.eye(num_rows)]
    assert sum(variances_of_rows) >= 1 / num_rows - 1e-12
    assert 1 <= groups.degrees_of_freedom <= len(sizes) - 1 + 1e-9
    assert groups.degrees_of_freedom == pytest.approx(
        max(1, 1 / np.sum(share_G**2) - 1)
    )


def test_neither_names_nor_the_order_of_rows_matter() -> None:
    generator = np.random.default_rng(7)
    names = np.array(names_of_groups([30, 20, 20, 10, 10, 5, 5]))
    first_SN, second_SN = generator.random((2, 6, 100)) < 0.8
    shuffled_N = generator.permutation(100)
    claim = stats.claim(first_SN, second_SN, groups=names)
    shuffled = stats.claim(
        first_SN[:, shuffled_N],
        second_SN[:, shuffled_N],
        groups=list(names[shuffled_N]),
    )
    numbered = stats.claim(first_SN, second_SN, groups=[ord(name[1]) for name in names])
    assert claim.num_groups == 7
    for same in (shuffled, numbered):
        assert same.p == pytest.approx(claim.p)
        assert same.interval == pytest.approx(claim.interval)


def claim_of_perfect(num_groups: int) -> stats.Claim:
    """A mechanism that is always right, against one that never is, over 600 rows."""
    right_SN = np.ones((8, 600), bool)
    group_N = np.repeat(np.arange(num_groups), 600 // num_groups)
    return stats.claim(right_SN, ~right_SN, groups=group_N)


@pytest.mark.parametrize("num_groups", [1, 2, 5])
def test_fewer_than_six_groups_allow_no_claim(num_groups: int) -> None:
    claim = claim_of_perfect(num_groups)
    assert claim.verdict == "no claim"
    assert claim.p is None
    assert claim.interval is None
    assert f"{num_groups} group" in claim.no_claim_reason
    assert claim.groups_to_decide is None
    [corrected] = stats.holm_corrected([claim])
    assert corrected.verdict == "no claim"


def test_six_groups_allow_a_claim() -> None:
    assert claim_of_perfect(6).verdict == "better"


@pytest.mark.parametrize("num_groups", [1, 2, 5, 6])
def test_an_accuracy_has_an_interval_over_two_groups_or_more(num_groups: int) -> None:
    group_N = np.repeat(np.arange(num_groups), 600 // num_groups)
    interval = stats.two_level_interval(
        np.ones((8, 600), bool), groups=stats.row_groups(group_N)
    )
    assert (interval is None) == (num_groups == 1)


def test_more_groups_would_decide_and_not_more_rows_of_the_same() -> None:
    group_N = np.repeat(np.arange(20), 30)
    hits = experiments.hits(np.random.default_rng(1), group_N, 1.0, 0.2)
    claim = stats.claim(*hits, groups=group_N)
    assert claim.verdict == "undecided"
    assert claim.rows_to_decide is None
    assert claim.groups_to_decide is not None
    assert claim.groups_to_decide > 20


def test_few_training_rows_make_groups_count_less() -> None:
    group_N = np.repeat(np.arange(30), 20)
    hits = experiments.hits(np.random.default_rng(3), group_N, 1.0)
    widths = []
    for train_rows in (6000, 600, 150):
        claim = stats.claim(*hits, groups=group_N, train_rows=train_rows)
        assert claim.interval is not None
        low, high = claim.interval
        widths.append(high - low)
    assert widths[0] == widths[1]
    # a quarter of the groups is half as sure
    assert widths[2] / widths[1] == pytest.approx(2, rel=0.1)


@pytest.mark.parametrize(
    "groups",
    [
        pytest.param([0] * 9, id="a name too few"),
        pytest.param([0, 1], id="two names"),
        pytest.param(list(range(11)), id="a name too many"),
    ],
)
@pytest.mark.parametrize("make", [list, np.array], ids=["list", "array"])
def test_what_is_no_group_for_every_row_is_refused(
    groups: list[int], make: Any
) -> None:
    hits = np.ones((6, 10), bool)
    with pytest.raises(ValueError, match="one name for every row"):
        stats.claim(hits, hits, groups=make(groups))


def losses_of_12_groups() -> Floats:
    """Of two mechanisms with six seeds and ten rows a group: (2, S, N)."""
    generator = np.random.default_rng(6)
    effect = generator.normal(0, 0.1, (2, 12, 1))
    row_effect = generator.normal(0, 0.05, (2, 6, 12, 10)).mean(1, keepdims=True)[:, 0]
    loss = (0.5 + effect + row_effect).reshape(2, 1, 120)
    noise = generator.normal(0, 0.01, (2, 6, 120))
    return np.asarray(np.tile(loss, (1, 6, 1)) + noise)


def scored_over(loss_SN: Floats, num_groups: int) -> Scored:
    """These losses, with groups of neighbours."""
    num_rows = loss_SN.shape[1]
    groups = RowGroups(np.repeat(np.arange(num_groups), num_rows // num_groups))
    return Scored(values=loss_SN.mean(1), by_row=loss_SN, groups=groups)


def test_every_score_is_compared_over_groups() -> None:
    first_SN, second_SN = losses_of_12_groups()
    first = scored_over(first_SN, 12)
    second = scored_over(second_SN, 12)
    claim = claim_by_score(brier(), first, second, margin=0.05)
    textbook = crossed((first_SN - second_SN).reshape(6, 12, 10).mean(2))
    assert claim.p == pytest.approx(
        2 * textbook.one_sided_p(abs(textbook.mean)), rel=1e-6
    )
    assert claim.num_groups == 12
    interval = interval_by_score(brier(), first)
    assert interval is not None
    low, high = interval
    means = crossed(first_SN.reshape(6, 12, 10).mean(2))
    assert (high - low) / 2 == pytest.approx(means.critical_distance(0.025), rel=0.01)


@pytest.mark.parametrize("size", [1, 10, 100], ids="groups of {}".format)
def test_rows_of_a_group_that_are_all_right_are_no_independent_rows(size: int) -> None:
    """What 1,000 rows say that all are right, 10 groups of 100 do not say."""
    hit_SN = np.ones((6, 1000), bool)
    groups = stats.row_groups(np.repeat(np.arange(1000 // size), size))
    claim = stats.claim(hit_SN, hit_SN, margin=0.004, groups=groups)
    assert (claim.verdict == "equivalent") == (size == 1)
    interval = stats.two_level_interval(hit_SN, groups=groups)
    assert interval is not None
    independent_rows = 1000 / (1 + 0.05 * (size - 1))
    quantile = -stdtrit(1000 // size - 1, 0.025)
    assert interval[0] == pytest.approx(1 / (1 + quantile**2 / independent_rows))

    wrong_SN = (~hit_SN).astype(float)
    scored = Scored(
        values=wrong_SN.mean(1), by_row=wrong_SN, unseen_change=1e-3, groups=groups
    )
    claim = claim_by_score(brier(), scored, scored, margin=0.004)
    assert (claim.verdict == "equivalent") == (size == 1)


def test_fewer_than_six_groups_allow_no_claim_of_a_score() -> None:
    first_SN, second_SN = losses_of_12_groups()
    first = scored_over(first_SN, 4)
    second = scored_over(second_SN, 4)
    claim = claim_by_score(brier(), first, second, margin=0.05)
    assert claim.verdict == "no claim"


def test_what_other_groups_of_rows_would_have_chosen_is_that_of_their_means() -> None:
    generator = np.random.default_rng(8)
    chance_CG = generator.random((3, 15, 1))
    right_CGM = generator.random((3, 15, 8)) < chance_CG
    right_CN = right_CGM.reshape(3, -1)
    score_CK = np.array([[0.7, 0.71], [0.8, 0.79], [0.75, 0.76]])
    groups = RowGroups(np.repeat(np.arange(15), 8))
    over_groups = simulate_choices(right_CN, score_CK, 1, groups)
    over_means = simulate_choices(right_CGM.mean(2), score_CK, 1)
    np.testing.assert_allclose(over_groups, over_means, rtol=1e-9)
    assert over_groups.share < simulate_choices(right_CN, score_CK, 1).share


def test_candidates_with_the_same_results_share_every_choice() -> None:
    """Three of four are the same; the best mean is theirs in nearly all draws."""
    generator = np.random.default_rng(0)
    good_N = generator.random(300) < 0.9
    poor_N = generator.random(300) < 0.3
    result_CN = np.stack([good_N, good_N, poor_N, good_N])
    score_CK = np.array([[0.80], [0.70], [0.30], [0.75]])
    choices = simulate_choices(result_CN, score_CK, chosen_index=0)
    assert choices.share == pytest.approx(1 / 3)
    assert choices.variance == pytest.approx((0.1**2 + 0.05**2) / 3)
    # of equal means the loss may choose any; the variance is around its score
    choices = simulate_choices(result_CN, score_CK, chosen_index=3)
    assert choices.variance == pytest.approx((0.05**2 + 0.05**2) / 3)


def test_rows_that_any_relation_puts_together_are_in_one_group() -> None:
    pairs = np.array([0, 0, 1, 1, 2, 3])
    chain = np.array([5, 0, 0, 1, 2, 4])
    group_N = join_relations([pairs, chain])
    assert len(np.unique(group_N)) == 3
    assert len(set(group_N[:4])) == 1, "over a row that both have"
    np.testing.assert_array_equal(join_relations([pairs]), pairs)


def test_equally_good_mechanisms_are_seldom_called_different_over_groups() -> None:
    """Ten speakers of forty rows; as if rows were independent, every second time."""
    group_N = np.repeat(np.arange(10), 40)
    generator = np.random.default_rng(11)
    repetitions = 60
    over_groups = 0
    over_rows = 0
    for _ in range(repetitions):
        same = experiments.hits(generator, group_N, 1.0)
        over_groups += stats.claim(*same, groups=group_N).significant
        over_rows += stats.claim(*same).significant
    assert over_groups <= 0.06 * repetitions
    assert over_rows >= 0.3 * repetitions


def test_a_mean_of_one_seed_has_the_variance_of_its_groups() -> None:
    groups = RowGroups(np.array([0, 0, 1, 1]))
    analysis = crossed(np.array([[1.0, 1.0, 0.0, 0.0]]), groups)
    assert isinstance(analysis, Crossed)
    assert analysis.variance == pytest.approx(np.var([1.0, 0.0], ddof=1) / 2)
