"""Rows that belong together: what it was without groups, textbook cases, and how often it is wrong.

``python -m tests.benchmarks.bench_error_rates --of groups`` counts the same over more layouts.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gaam_cache.common import plugins
from gaam_decoder import stats
from gaam_decoder.stats.choice import choice_of
from gaam_decoder.stats.crossed import Crossed, crossed
from gaam_decoder.stats.groups import RowGroups, joined
from gaam_decoder.stats.scored import Scored, claim_by_score, interval_by_score
from tests.decoder.stats import grouped_experiments as experiments

BRIER = plugins.load("gaam_decoder.stats.scores", "brier", kind="score")()
# of claims and intervals of hits and of the Brier score, before there were groups:
# p, p of equivalence, limits of the difference, and of the first
# fmt: off
BEFORE = {
    (6, 40, 0.0): [
        0.315431323616466, 0.7416519724915205, -0.08430582936162298, 0.20527693442348385,
        0.7299164756420664, 0.9477287312834894,
        0.022421461246173703, 0.9769822235825039, -0.19421065597174653, -0.022210502563423842,
        0.2755654885138141, 0.49461608902972465],
    (6, 400, 0.3): [
        0.09363005191485568, 0.6518274267021291, -0.005060914350723591, 0.05899862700367016,
        0.8441657735434872, 0.9097950140807146,
        0.00026364489005933423, 0.9996222603975835, -0.12831647141860386, -0.07164622530812031,
        0.3666808752048068, 0.4421458657286193],
    (8, 1000, 0.0): [
        0.5477586922025234, 0.21029579376817437, -0.021586955253451463, 0.03880975799335834,
        0.7881425264826895, 0.8398184109403081,
        1.6810467774287156e-07, 0.9999995536573802, -0.10479061108347822, -0.08212350324128888,
        0.3791320675900231, 0.4259612508850226],
    (20, 300, 0.1): [
        0.681921429219866, 0.3259937992347171, -0.03816076780457264, 0.0577922915778583,
        0.7619602939968875, 0.8513512551875415,
        1.4160795917031005e-12, 0.9999999999630427, -0.11451816873862208, -0.08711147555495632,
        0.361098424806111, 0.431296945452045],
}
# fmt: on
SIZES = {
    "equal": [7] * 9,
    "uneven": [40, 25, 10, 5, 5, 3, 1, 1],
    "one is most": [60, 4, 4, 4, 4, 4],
    "nearly alone": [2, 2, *[1] * 30],
}


def names_of(sizes: list[int]) -> list[str]:
    return [f"g{number}" for number, rows in enumerate(sizes) for _ in range(rows)]


def all_numbers(case: tuple[int, int, float], groups: Any) -> list[float]:
    num_seeds, num_rows, shift = case
    generator = np.random.default_rng([num_seeds, num_rows])
    easy_N = generator.normal(2, 2, num_rows)
    one, other = (
        easy_N
        + generator.normal(0, 0.7, num_rows)
        + generator.normal(0, 0.2, (num_seeds, 1))
        + generator.normal(0, 0.5, (num_seeds, num_rows))
        + better
        > 0
        for better in (shift, 0.0)
    )
    more: dict[str, Any] = {"margin": 0.02, "choice": 1e-5, "train_rows": num_rows // 2}
    made = stats.claim(one, other, groups=groups, **more)
    units = stats.row_groups(groups)
    values = [
        generator.gamma(2.0, 0.2, (num_seeds, num_rows)) + 0.1 * d for d in (0, 1)
    ]
    both = [
        Scored(values=v.mean(1), by_row=v, unseen=1e-6, groups=units) for v in values
    ]
    scored = claim_by_score(BRIER, *both, margin=0.02)
    found = [made.p, made.p_equivalent, *(made.interval or ())]
    found += stats.two_level_interval(one, groups=units) or ()
    found += [scored.p, scored.p_equivalent, *(scored.interval or ())]
    return [float(x or 0) for x in (*found, *(interval_by_score(BRIER, both[0]) or ()))]


@pytest.mark.parametrize("case", BEFORE, ids=str)
def test_one_group_for_each_row_gives_the_numbers_that_rows_gave(
    case: tuple[int, int, float],
) -> None:
    without = all_numbers(case, None)
    np.testing.assert_allclose(without, BEFORE[case], rtol=1e-9)
    assert all_numbers(case, np.random.default_rng(0).permutation(case[1])) == without


def test_groups_of_equal_size_are_the_crossed_analysis_of_their_means() -> None:
    generator = np.random.default_rng(4)
    for num_seeds, num_groups, rows in ((1, 6, 5), (2, 2, 3), (6, 10, 40), (8, 30, 2)):
        shape = num_seeds, num_groups, rows
        value_SGM = generator.normal(size=(1, num_groups, 1)) + generator.normal(
            size=shape
        )
        value_SN = value_SGM.reshape(num_seeds, -1)
        groups = stats.row_groups(np.repeat(np.arange(num_groups), rows))
        found, textbook = crossed(value_SN, groups), crossed(value_SGM.mean(2))
        assert (found.num_rows, found.rows_each) == (num_groups, rows)
        assert found.freedom == pytest.approx(num_groups - 1)
        np.testing.assert_allclose(found[:4], textbook[:4], rtol=1e-9, atol=1e-12)
        for tail in (0.025, 0.001):
            assert found.distance(tail) == pytest.approx(textbook.distance(tail))
        larger = (crossed_.resized(12, 77) for crossed_ in (found, textbook))
        assert len({round(one.variance, 12) for one in larger}) == 1


def test_the_verdict_on_groups_of_equal_size_is_the_t_test_on_their_means() -> None:
    generator = np.random.default_rng(2)
    group_N = np.repeat(np.arange(120), 10)
    effect = generator.normal(0, 0.7, 120)
    one, other = (
        generator.random((6, 1200))
        < 1 / (1 + np.exp(-1 - better - effect[group_N] * sign))
        for sign, better in ((1, 0.25), (-1, 0.0))
    )
    made = stats.claim(one, other, margin=0.1, groups=group_N)
    mean_SG = (one * 1.0 - other).reshape(6, 120, 10).mean(2)
    textbook = crossed(mean_SG)
    # a little more of each, for rows that differ may be rare and not among those that were seen
    for found, expected in (
        (made.p, 2 * textbook.tail(abs(textbook.mean))),
        (made.p_equivalent, textbook.tail(0.1 - textbook.mean)),
    ):
        assert found is not None
        assert expected <= found <= 1.2 * expected
    low, high = made.interval or (0.0, 0.0)
    assert (
        2 * textbook.distance(0.025)
        <= high - low
        <= 1.05 * 2 * textbook.distance(0.025)
    )
    assert made.num_groups == 120
    few = group_N // 12  # ten groups of 120: the exact test over groups has its say
    exact = stats.sign_flip((one.sum(0) - 1.0 * other.sum(0)).reshape(10, 120).sum(1)).p
    assert (stats.claim(one, other, groups=few).p or 0) >= exact


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_the_variance_is_right_where_groups_are_alike_inside_and_else_too_large(
    sizes: list[int],
) -> None:
    """Its expectation, exactly: the estimate is a quadratic form of independent effects."""
    groups = stats.row_groups(names_of(sizes))
    assert groups is not None
    share_G = np.array(sizes) / sum(sizes)

    def estimated(effect_N: np.ndarray) -> float:
        return crossed(effect_N[None].astype(float), groups).from_rows

    in_order = np.sort(groups.group_N)
    of_groups = [estimated(groups.group_N == number) for number in range(len(sizes))]
    assert sum(of_groups) == pytest.approx(float(np.sum(share_G**2)))
    of_rows = [estimated(row_N) for row_N in np.eye(len(in_order))]
    assert sum(of_rows) >= 1 / len(in_order) - 1e-12
    assert 1 <= groups.freedom <= len(sizes) - 1 + 1e-9
    assert groups.freedom == pytest.approx(max(1, 1 / np.sum(share_G**2) - 1))


def test_neither_names_nor_the_order_of_rows_matter() -> None:
    generator = np.random.default_rng(7)
    names = np.array(names_of([30, 20, 20, 10, 10, 5, 5]))
    one, other = generator.random((2, 6, 100)) < 0.8
    shuffled_N = generator.permutation(100)
    made = stats.claim(one, other, groups=names)
    again = stats.claim(
        one[:, shuffled_N], other[:, shuffled_N], groups=list(names[shuffled_N])
    )
    renamed = stats.claim(one, other, groups=[ord(name[1]) for name in names])
    assert made.num_groups == 7
    for other_made in (again, renamed):
        assert other_made.p == pytest.approx(made.p)
        assert other_made.interval == pytest.approx(made.interval)


@pytest.mark.parametrize("count", [1, 2, 5, 6])
def test_fewer_than_six_groups_allow_no_claim(count: int) -> None:
    sure = np.ones((8, 600), bool)
    group_N = np.repeat(np.arange(count), 600 // count)
    made = stats.claim(sure, ~sure, groups=group_N)
    assert (made.verdict == "better") == (count == 6)
    interval = stats.two_level_interval(sure, groups=stats.row_groups(group_N))
    assert (interval is None) == (count == 1)
    if count < 6:
        assert (made.verdict, made.p, made.interval) == ("no claim", None, None)
        assert f"{count} group" in made.no_claim
        assert made.groups_to_decide is None
        (corrected,) = stats.holm_corrected([made])
        assert corrected.verdict == "no claim"


def test_more_groups_would_decide_and_not_more_rows_of_the_same() -> None:
    generator = np.random.default_rng(1)
    group_N = np.repeat(np.arange(20), 30)
    one, other = experiments.hits(generator, group_N, 1.0, 0.2)
    made = stats.claim(one, other, groups=group_N)
    assert made.verdict == "undecided"
    assert made.rows_to_decide is None
    assert made.groups_to_decide is not None
    assert made.groups_to_decide > 20


def test_few_training_rows_make_groups_count_less() -> None:
    group_N = np.repeat(np.arange(30), 20)
    one, other = experiments.hits(np.random.default_rng(3), group_N, 1.0)
    found = [
        stats.claim(one, other, groups=group_N, train_rows=rows).interval or (0.0, 0.0)
        for rows in (6000, 600, 150)
    ]
    wide = [high - low for low, high in found]
    assert wide[0] == wide[1]
    assert wide[2] / wide[1] == pytest.approx(2, rel=0.1), (
        "a quarter of the groups: half as sure"
    )


def test_what_is_no_group_for_every_row_is_refused() -> None:
    hits = np.ones((6, 10), bool)
    for groups in ([0] * 9, [0, 1], np.arange(11)):
        with pytest.raises(ValueError, match="one name for every row"):
            stats.claim(hits, hits, groups=groups)


def test_every_score_is_compared_over_groups() -> None:
    generator = np.random.default_rng(6)
    effect = generator.normal(0, 0.1, (2, 12, 1))
    loss = (
        0.5
        + effect
        + generator.normal(0, 0.05, (2, 6, 12, 10)).mean(1, keepdims=True)[:, 0]
    )
    loss_2SN = np.tile(loss.reshape(2, 1, 120), (1, 6, 1)) + generator.normal(
        0, 0.01, (2, 6, 120)
    )
    groups = RowGroups(np.repeat(np.arange(12), 10))
    mine, theirs = (Scored(values=v.mean(1), by_row=v, groups=groups) for v in loss_2SN)
    made = claim_by_score(BRIER, mine, theirs, margin=0.05)
    textbook = crossed((loss_2SN[0] - loss_2SN[1]).reshape(6, 12, 10).mean(2))
    assert made.p == pytest.approx(2 * textbook.tail(abs(textbook.mean)), rel=1e-6)
    assert made.num_groups == 12
    low, high = interval_by_score(BRIER, mine) or (0.0, 0.0)
    means = crossed(loss_2SN[0].reshape(6, 12, 10).mean(2))
    assert (high - low) / 2 == pytest.approx(means.distance(0.025), rel=0.01)
    few = RowGroups(np.repeat(np.arange(4), 30))
    mine, theirs = (Scored(values=v.mean(1), by_row=v, groups=few) for v in loss_2SN)
    assert claim_by_score(BRIER, mine, theirs, margin=0.05).verdict == "no claim"


def test_what_other_groups_of_rows_would_have_chosen_is_that_of_their_means() -> None:
    generator = np.random.default_rng(8)
    of_group = generator.random((3, 15, 1))
    right_CGM = generator.random((3, 15, 8)) < of_group
    score_CK = np.array([[0.7, 0.71], [0.8, 0.79], [0.75, 0.76]])
    groups = RowGroups(np.repeat(np.arange(15), 8))
    found = choice_of(right_CGM.reshape(3, -1), score_CK, groups)
    np.testing.assert_allclose(found, choice_of(right_CGM.mean(2), score_CK), rtol=1e-9)
    assert found.share < choice_of(right_CGM.reshape(3, -1), score_CK).share


def test_rows_that_any_relation_puts_together_are_in_one_group() -> None:
    pairs, chain = np.array([0, 0, 1, 1, 2, 3]), np.array([5, 0, 0, 1, 2, 4])
    found = joined([pairs, chain])
    assert len(np.unique(found)) == 3
    assert len(set(found[:4])) == 1, "over a row that both have"
    np.testing.assert_array_equal(joined([pairs]), pairs)


def test_equally_good_mechanisms_are_seldom_called_different_over_groups() -> None:
    """Ten speakers with forty rows each; as if rows were independent, every second time."""
    group_N = np.repeat(np.arange(10), 40)
    generator, repetitions = np.random.default_rng(11), 60
    found = by_rows = 0
    for _ in range(repetitions):
        same = experiments.hits(generator, group_N, 1.0)
        found += stats.claim(*same, groups=group_N).significant
        by_rows += stats.claim(*same).significant
    assert found <= 0.06 * repetitions
    assert by_rows >= 0.3 * repetitions


def test_a_mean_of_one_seed_has_the_variance_of_its_groups() -> None:
    found = crossed(np.array([[1.0, 1.0, 0.0, 0.0]]), RowGroups(np.array([0, 0, 1, 1])))
    assert isinstance(found, Crossed)
    assert found.variance == pytest.approx(np.var([1.0, 0.0], ddof=1) / 2)
