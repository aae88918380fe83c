"""Mean squares, the variance of a mean, its limits, and the interval of an accuracy."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from gaam_decoder import stats
from gaam_decoder.stats.crossed import SMALLEST, Crossed, crossed

SHAPES = [(1, 2), (1, 30), (2, 2), (2, 50), (3, 7), (6, 40), (20, 300)]
VALUES: dict[str, Callable[[np.random.Generator, tuple[int, int]], np.ndarray]] = {
    "right or wrong": lambda generator, shape: generator.random(shape) < 0.8,
    "differences": lambda generator, shape: generator.integers(-1, 2, shape, dtype=np.int8),
    "shares": lambda generator, shape: generator.integers(0, 6, shape) / 5,
    "numbers": lambda generator, shape: generator.normal(3, 0.1, shape),
    "equal": lambda generator, shape: np.full(shape, 0.7),
    "equal seeds": lambda generator, shape: np.repeat(generator.random((1, shape[1])), shape[0], 0),
    "equal rows": lambda generator, shape: np.repeat(generator.random((shape[0], 1)), shape[1], 1),
}
TAILS = [0.5, 0.49, 0.2, 0.05, 0.025, 1e-3, 1e-9, 1e-40]


def two_way_analysis(value_SN: np.ndarray) -> tuple[float, float, float]:
    """Mean squares of seeds, rows and the rest, by the definition; of one seed only of rows."""
    num_seeds, num_rows = value_SN.shape
    value = [[float(x) for x in row] for row in value_SN]
    mean = sum(map(sum, value)) / (num_seeds * num_rows)
    of_seed = [sum(row) / num_rows for row in value]
    of_row = [sum(row[n] for row in value) / num_seeds for n in range(num_rows)]
    seeds = sum(num_rows * (m - mean) ** 2 for m in of_seed)
    rows = sum(num_seeds * (m - mean) ** 2 for m in of_row)
    rest = sum(
        (value[s][n] - of_seed[s] - of_row[n] + mean) ** 2
        for s in range(num_seeds)
        for n in range(num_rows)
    )
    free = max(num_seeds - 1, 1)
    return seeds / free, rows / (num_rows - 1), rest / (free * (num_rows - 1))


@pytest.mark.parametrize("kind", VALUES)
def test_mean_squares_equal_the_two_way_analysis_of_variance(kind: str) -> None:
    for number, shape in enumerate(SHAPES):
        value_SN = VALUES[kind](np.random.default_rng(number), shape)
        found = crossed(value_SN)
        assert found.mean == pytest.approx(value_SN.mean(dtype=np.float64))
        expected = two_way_analysis(value_SN)
        np.testing.assert_allclose([found.seeds, found.rows, found.rest], expected, atol=1e-11)
        if kind.startswith("equal"):
            assert found.rest == 0, "what rounding leaves is nothing"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed_sd", "row_sd", "rest_sd"),
    [(1.0, 1.0, 1.0), (0.5, 3.0, 1.0), (2.0, 0.7, 0.3), (1.0, 2.0, 0.0)],
)
def test_the_variance_is_that_of_repeated_experiments(
    seed_sd: float, row_sd: float, rest_sd: float
) -> None:
    generator = np.random.default_rng(11)
    repetitions, num_seeds, num_rows = 20_000, 5, 30
    means, estimates = [], []
    for _ in range(repetitions):
        value_SN = generator.normal(0, seed_sd, (num_seeds, 1))
        value_SN = value_SN + generator.normal(0, row_sd, (1, num_rows))
        value_SN += generator.normal(0, rest_sd, (num_seeds, num_rows))
        found = crossed(value_SN)
        means.append(found.mean)
        estimates.append(found.variance)
    truth = seed_sd**2 / num_seeds + row_sd**2 / num_rows + rest_sd**2 / (num_seeds * num_rows)
    assert np.var(means) == pytest.approx(truth, rel=4 * (2 / repetitions) ** 0.5)
    error = np.std(estimates) / repetitions**0.5
    assert np.mean(estimates) == pytest.approx(truth, abs=4 * error)


def test_what_more_seeds_and_rows_would_leave_is_what_the_effects_say() -> None:
    of_seeds, of_rows, rest, num_seeds, num_rows = 0.04, 0.9, 0.3, 6, 50
    found = Crossed(
        mean=0.0,
        seeds=num_rows * of_seeds + rest,
        rows=num_seeds * of_rows + rest,
        rest=rest,
        num_seeds=num_seeds,
        num_rows=num_rows,
    )
    np.testing.assert_allclose(found.resized(num_seeds, num_rows), found)
    for more_seeds, more_rows in ((6, 500), (60, 50), (1000, 10**6), (2, 2)):
        resized = found.resized(more_seeds, more_rows)
        expected = of_seeds / more_seeds + of_rows / more_rows + rest / (more_seeds * more_rows)
        assert resized.variance == pytest.approx(expected)
        assert (resized.num_seeds, resized.num_rows) == (more_seeds, more_rows)


def found_of(generator: np.random.Generator, num_seeds: int, num_rows: int) -> Crossed:
    value_SN = generator.normal(0, 1, (num_seeds, 1)) + generator.normal(0, 2, (1, num_rows))
    return crossed(value_SN + generator.normal(0, 1, (num_seeds, num_rows)))


@pytest.mark.parametrize(("num_seeds", "num_rows"), [(1, 2), (1, 400), (2, 30), (6, 300), (30, 9)])
def test_distance_and_tail_are_inverse_to_one_another(num_seeds: int, num_rows: int) -> None:
    found = found_of(np.random.default_rng(3), num_seeds, num_rows)
    for more in (0.0, 0.01, 3.0):
        distances = [found.distance(tail, more) for tail in TAILS]
        assert distances == sorted(distances), "rarer is further"
        assert distances[0] == pytest.approx(0, abs=1e-9)
        for tail, distance in zip(TAILS[1:], distances[1:], strict=True):
            assert found.tail(distance, more) == pytest.approx(tail, rel=1e-6)
            assert found.tail(-distance, more) == pytest.approx(1 - tail, rel=1e-6)
        assert found.tail(0.0, more) == 0.5
        assert SMALLEST <= found.tail(1e300, more) <= 2 * SMALLEST


def test_a_mean_without_variance_is_no_distance_from_itself_and_any_from_others() -> None:
    found = crossed(np.full((3, 20), 0.25))
    assert [found.distance(tail) for tail in TAILS] == [0.0] * len(TAILS)
    assert found.tail(0.0) == 0.5
    assert found.tail(1e-6) < 1e-90


@pytest.mark.parametrize("num_seeds", [2, 3, 6, 20])
def test_where_rows_do_not_differ_it_is_the_t_interval_over_seeds(num_seeds: int) -> None:
    generator = np.random.default_rng(num_seeds)
    for rest_sd in (0.0, 0.2):
        rest_SN = generator.normal(0, rest_sd, (num_seeds, 40))
        rest_SN -= rest_SN.mean(0)  # rows have the same mean exactly
        value_SN = generator.normal(0.8, 0.3, (num_seeds, 1)) + rest_SN
        found = crossed(value_SN)
        assert found.seeds > found.rest
        of_seeds = value_SN.mean(1)
        expected = scipy.stats.ttest_1samp(of_seeds, 0).confidence_interval(0.95)
        half = found.distance(0.025)
        np.testing.assert_allclose([found.mean - half, found.mean + half], expected, rtol=1e-9)
        p = scipy.stats.ttest_1samp(of_seeds, 0.7).pvalue
        assert 2 * found.tail(abs(found.mean - 0.7)) == pytest.approx(p, rel=1e-6)


@pytest.mark.parametrize("num_seeds", [1, 2, 6])
@pytest.mark.parametrize("num_rows", [2, 10, 300])
def test_where_seeds_do_not_differ_it_is_the_t_interval_over_rows(
    num_seeds: int, num_rows: int
) -> None:
    value_N = np.random.default_rng(num_rows).normal(0.8, 0.3, num_rows)
    found = crossed(np.repeat(value_N[None], num_seeds, 0))
    half = found.distance(0.025)
    expected = scipy.stats.ttest_1samp(value_N, 0).confidence_interval(0.95)
    np.testing.assert_allclose([found.mean - half, found.mean + half], expected, rtol=1e-9)
    p = scipy.stats.ttest_1samp(value_N, 0.7).pvalue
    assert 2 * found.tail(abs(found.mean - 0.7)) == pytest.approx(p, rel=1e-6)


def wilson(share: float, rows: float, quantile: float) -> tuple[float, float]:
    """Shares from which the one seen is as far as may be, where they have the variance there."""

    def beyond(theta: float) -> float:
        return (share - theta) ** 2 - quantile**2 * theta * (1 - theta) / rows

    def limit(near: float, far: float) -> float:
        return near if near == far else float(scipy.optimize.brentq(beyond, near, far, xtol=1e-14))

    # at 0 and 1 the share seen is as near as can be, and not the limit
    return limit(min(share, 1 - 1e-9), 0), limit(max(share, 1e-9), 1)


@pytest.mark.parametrize("num_rows", [2, 3, 20, 400, 5000])
def test_one_decoder_without_a_seed_has_wilsons_interval(num_rows: int) -> None:
    """With Student's quantile, and a row less where its variance is estimated."""
    quantile = float(scipy.stats.t.ppf(0.975, num_rows - 1))
    for right in sorted({0, 1, num_rows // 3, num_rows - 1, num_rows}):
        right_SN = np.arange(num_rows)[None] < right
        found = stats.two_level_interval(right_SN, without_seeds=True)
        rows = num_rows if right in (0, num_rows) else num_rows - 1
        expected = wilson(right / num_rows, rows, quantile)
        np.testing.assert_allclose(found, expected, atol=1e-9)
        same = stats.two_level_interval(np.repeat(right_SN, 4, 0))
        np.testing.assert_allclose(same, expected, atol=1e-9, err_msg="seeds that do not differ")
        if num_rows >= 400:
            usual = scipy.stats.binomtest(right, num_rows).proportion_ci(method="wilson")
            np.testing.assert_allclose(found, usual, atol=3e-4)


@given(
    data=st.data(),
    num_seeds=st.integers(2, 9),
    num_rows=st.integers(2, 60),
    share=st.sampled_from([0.0, 0.02, 0.5, 0.98, 1.0]),
)
def test_an_accuracy_is_in_its_interval_which_is_within_0_and_1(
    data: st.DataObject, num_seeds: int, num_rows: int, share: float
) -> None:
    generator = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    spread = data.draw(st.sampled_from([0.0, 0.3]))
    chance_S = np.clip(share + generator.normal(0, spread, (num_seeds, 1)), 0, 1)
    right_SN = generator.random((num_seeds, num_rows)) < chance_S
    narrow, wide = (stats.two_level_interval(right_SN, level=level) for level in (0.8, 0.95))
    assert narrow is not None
    assert wide is not None
    for low, high in (narrow, wide):
        assert 0 <= low <= right_SN.mean() + 1e-12
        assert right_SN.mean() - 1e-12 <= high <= 1
        assert low < high, "no test is certain"
    assert wide[0] <= narrow[0] + 1e-12
    assert narrow[1] <= wide[1] + 1e-12
    wrong = stats.two_level_interval(~right_SN)
    assert wrong is not None
    np.testing.assert_allclose([1 - wrong[1], 1 - wrong[0]], wide, atol=1e-9)


def test_seeds_that_differ_widen_the_interval() -> None:
    generator = np.random.default_rng(0)
    alike = np.repeat(generator.random((1, 900)) < 0.8, 5, 0)
    apart = generator.random((5, 900)) < np.array([[0.6], [0.7], [0.8], [0.9], [1.0]])
    widths = [np.ptp(stats.two_level_interval(right_SN)) for right_SN in (alike, apart)]
    assert widths[1] > 4 * widths[0]
    of_seeds = stats.t_interval(apart.mean(1))
    assert of_seeds is not None
    assert widths[1] > 0.85 * np.ptp(of_seeds)


def test_fewer_than_two_have_no_interval() -> None:
    for shape, without_seeds in (((1, 10), False), ((2, 1), False), ((0, 10), False),
                                 ((1, 1), True), ((0, 10), True), ((2, 0), False)):  # fmt: skip
        assert stats.two_level_interval(np.ones(shape, bool), without_seeds=without_seeds) is None


@pytest.mark.parametrize("shape", [(0, 5), (2, 1), (2, 0), (0, 0)])
def test_less_than_a_seed_and_two_rows_is_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="a seed and two rows"):
        crossed(np.zeros(shape))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_refused(bad: float) -> None:
    for place in ((0, 0), (2, 9)):
        value_SN = np.zeros((3, 10))
        value_SN[place] = bad
        with pytest.raises(ValueError, match="finite values"):
            crossed(value_SN)
