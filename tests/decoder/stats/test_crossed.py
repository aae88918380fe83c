"""Mean squares, the variance of a mean, its limits, and the interval of an accuracy.

S seeds, N rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gaam_decoder import stats
from gaam_decoder.stats.crossed import crossed

Floats = NDArray[np.float64]
Shape = tuple[int, int]
SHAPES = [(1, 2), (1, 30), (2, 2), (2, 50), (3, 7), (6, 40), (20, 300)]


def right_or_wrong(generator: np.random.Generator, shape: Shape) -> Any:
    return generator.random(shape) < 0.8


def differences(generator: np.random.Generator, shape: Shape) -> Any:
    return generator.integers(-1, 2, shape, dtype=np.int8)


def numbers(generator: np.random.Generator, shape: Shape) -> Any:
    return generator.normal(3, 0.1, shape)


def equal_values(generator: np.random.Generator, shape: Shape) -> Any:
    return np.full(shape, 0.7)


def equal_seeds(generator: np.random.Generator, shape: Shape) -> Any:
    num_seeds, num_rows = shape
    return np.repeat(generator.random((1, num_rows)), num_seeds, 0)


def equal_rows(generator: np.random.Generator, shape: Shape) -> Any:
    num_seeds, num_rows = shape
    return np.repeat(generator.random((num_seeds, 1)), num_rows, 1)


EQUAL = (equal_values, equal_seeds, equal_rows)
VALUES: tuple[Callable[..., Any], ...] = (
    right_or_wrong,
    differences,
    numbers,
    *EQUAL,
)


@pytest.mark.parametrize("draw_values", VALUES, ids=lambda draw: draw.__name__)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_mean_squares_equal_the_two_way_analysis_of_variance(
    shape: Shape, draw_values: Callable[..., Any]
) -> None:
    value_SN = draw_values(np.random.default_rng(SHAPES.index(shape)), shape)
    exact_SN = value_SN.astype(np.longdouble)
    mean = exact_SN.mean()
    mean_S = exact_SN.mean(1)
    mean_N = exact_SN.mean(0)
    rest_SN = exact_SN - mean_S[:, None] - mean_N + mean
    num_seeds, num_rows = shape
    freedom_of_seeds = max(num_seeds - 1, 1)
    freedom_of_rows = num_rows - 1
    expected = [
        mean,
        num_rows * ((mean_S - mean) ** 2).sum() / freedom_of_seeds,
        num_seeds * ((mean_N - mean) ** 2).sum() / freedom_of_rows,
        (rest_SN**2).sum() / (freedom_of_seeds * freedom_of_rows),
    ]
    analysis = crossed(value_SN)
    np.testing.assert_allclose(analysis[:4], np.array(expected, float), atol=1e-11)
    if draw_values in EQUAL:
        assert analysis.ms_rest == 0, "what rounding leaves is nothing"


REPETITIONS = 4000
NUM_SEEDS = 5
NUM_ROWS = 30


@pytest.mark.parametrize(
    ("seed_sd", "row_sd", "rest_sd"),
    [(1.0, 1.0, 1.0), (0.5, 3.0, 1.0), (2.0, 0.7, 0.3)],
)
def test_the_variance_is_that_of_repeated_experiments_and_of_other_sizes(
    seed_sd: float, row_sd: float, rest_sd: float
) -> None:
    generator = np.random.default_rng([int(10 * seed_sd), int(10 * row_sd)])
    shape = (REPETITIONS, NUM_SEEDS, NUM_ROWS)
    value_RSN = generator.normal(0, seed_sd, (REPETITIONS, NUM_SEEDS, 1))
    value_RSN = value_RSN + generator.normal(0, row_sd, (REPETITIONS, 1, NUM_ROWS))
    value_RSN += generator.normal(0, rest_sd, shape)
    analyses = [crossed(value_SN) for value_SN in value_RSN]

    def true_variance(seeds: int, rows: int) -> float:
        return seed_sd**2 / seeds + row_sd**2 / rows + rest_sd**2 / (seeds * rows)

    for seeds, rows in ((NUM_SEEDS, NUM_ROWS), (50, 900)):
        variances = [analysis.resized(seeds, rows).variance for analysis in analyses]
        error = np.std(variances) / REPETITIONS**0.5
        expected = pytest.approx(true_variance(seeds, rows), abs=4 * error)
        assert np.mean(variances) == expected, (seeds, rows)
    error = (2 / REPETITIONS) ** 0.5
    expected = pytest.approx(true_variance(NUM_SEEDS, NUM_ROWS), rel=4 * error)
    assert np.var(value_RSN.mean((1, 2))) == expected


# the rarer, the further
TAILS = [0.49, 0.2, 0.05, 0.025, 1e-3, 1e-9, 1e-40]


@pytest.mark.parametrize("extra", [0.0, 0.01, 3.0])
@pytest.mark.parametrize("shape", [(1, 2), (1, 400), (2, 30), (6, 300), (30, 9)])
def test_distance_and_tail_are_inverse_to_one_another(
    shape: Shape, extra: float
) -> None:
    """Whatever variance is added."""
    analysis = crossed(np.random.default_rng(3).normal(0, 1, shape))
    distances = [analysis.critical_distance(tail, extra) for tail in TAILS]
    assert distances == sorted(distances)
    for tail, distance in zip(TAILS, distances, strict=True):
        assert analysis.one_sided_p(distance, extra) == pytest.approx(tail, rel=1e-6)
        assert analysis.one_sided_p(-distance, extra) == pytest.approx(
            1 - tail, rel=1e-6
        )
    assert analysis.critical_distance(0.5, extra) == pytest.approx(0, abs=1e-9)
    assert distances[0] >= analysis.critical_distance(0.5, extra)
    assert analysis.one_sided_p(0.0, extra) == 0.5


def test_what_does_not_vary_is_certain() -> None:
    certain = crossed(np.full((3, 20), 0.25))
    assert certain.critical_distance(0.025) == 0.0
    assert certain.one_sided_p(0.0) == 0.5
    assert certain.one_sided_p(1e-6) < 1e-90


def only_seeds_differ(value_S: Floats, generator: np.random.Generator) -> Floats:
    """All rows have the same mean exactly."""
    rest_SN = generator.normal(0, 0.02, (len(value_S), 40))
    return np.asarray(value_S[:, None] + rest_SN - rest_SN.mean(0))


def one_seed(value_N: Floats, generator: np.random.Generator) -> Floats:
    return value_N[None]


def six_equal_seeds(value_N: Floats, generator: np.random.Generator) -> Floats:
    return np.repeat(value_N[None], 6, 0)


@pytest.mark.parametrize(
    "make_values",
    [only_seeds_differ, one_seed, six_equal_seeds],
    ids=lambda make_values: make_values.__name__,
)
@pytest.mark.parametrize("count", [2, 3, 6, 20, 300])
def test_where_only_seeds_or_only_rows_differ_it_is_the_t_interval_over_them(
    count: int, make_values: Callable[[Floats, np.random.Generator], Floats]
) -> None:
    generator = np.random.default_rng(count)
    values = np.linspace(0.5, 0.9, count) + generator.normal(0, 0.1, count)
    value_SN = make_values(values, generator)
    same_axis = 1 if make_values is only_seeds_differ else 0
    t_test = scipy.stats.ttest_1samp(value_SN.mean(same_axis), 0.3)
    analysis = crossed(value_SN)
    half = analysis.critical_distance(0.025)
    interval = (analysis.mean - half, analysis.mean + half)
    np.testing.assert_allclose(interval, t_test.confidence_interval(0.95), rtol=1e-9)
    p = 2 * analysis.one_sided_p(abs(analysis.mean - 0.3))
    assert p == pytest.approx(t_test.pvalue, rel=1e-6)


def wilson_limit(share: float, rows: float, quantile: float, end: int) -> float:
    """The share towards this end from which the one seen is as far as may be.

    The distance is measured by the variance of that share, not of the one seen.
    """
    # at 0 and 1 the share seen is as near as can be, and not the limit
    near = max(share, 1e-9) if end == 1 else min(share, 1 - 1e-9)
    if near == end:
        return near

    def excess(limit: float) -> float:
        return (share - limit) ** 2 - quantile**2 * limit * (1 - limit) / rows

    return float(scipy.optimize.brentq(excess, near, end, xtol=1e-14))


@pytest.mark.parametrize("num_rows", [2, 3, 20, 400, 5000])
def test_one_decoder_without_a_seed_has_wilsons_interval(num_rows: int) -> None:
    """With Student's quantile, and a row less where its variance is estimated."""
    quantile = float(scipy.stats.t.ppf(0.975, num_rows - 1))
    for num_right in sorted({0, 1, num_rows // 3, num_rows - 1, num_rows}):
        right_SN = np.arange(num_rows)[None] < num_right
        interval = stats.two_level_interval(right_SN, without_seeds=True)
        equal_seeds = stats.two_level_interval(np.repeat(right_SN, 4, 0))
        assert interval is not None
        assert equal_seeds is not None
        rows = num_rows if num_right in (0, num_rows) else num_rows - 1
        share = num_right / num_rows
        expected = [wilson_limit(share, rows, quantile, end) for end in (0, 1)]
        message = f"{num_right} right"
        for limits in (interval, equal_seeds):
            np.testing.assert_allclose(limits, expected, atol=1e-9, err_msg=message)
        if num_rows >= 400:
            binomial = scipy.stats.binomtest(num_right, num_rows)
            usual = binomial.proportion_ci(method="wilson")
            np.testing.assert_allclose(interval, usual, atol=3e-4, err_msg=message)


@given(
    seed=st.integers(0, 2**32),
    num_seeds=st.integers(2, 9),
    num_rows=st.integers(2, 60),
    share=st.sampled_from([0.0, 0.02, 0.5, 0.98, 1.0]),
    spread=st.sampled_from([0.0, 0.3]),
)
def test_an_accuracy_is_in_its_interval_which_is_within_0_and_1(
    seed: int, num_seeds: int, num_rows: int, share: float, spread: float
) -> None:
    generator = np.random.default_rng(seed)
    chance_S = np.clip(share + generator.normal(0, spread, (num_seeds, 1)), 0, 1)
    right_SN = generator.random((num_seeds, num_rows)) < chance_S
    narrow = stats.two_level_interval(right_SN, level=0.8)
    wide = stats.two_level_interval(right_SN, level=0.95)
    wrong = stats.two_level_interval(~right_SN)
    assert narrow is not None
    assert wide is not None
    assert wrong is not None
    mean = right_SN.mean()
    assert 0 <= wide[0] <= narrow[0] + 1e-12 <= mean + 2e-12
    assert mean - 2e-12 <= narrow[1] - 1e-12 <= wide[1] <= 1
    assert narrow[0] < narrow[1], "no test is certain"
    np.testing.assert_allclose([1 - wrong[1], 1 - wrong[0]], wide, atol=1e-9)
