"""Mean squares, the variance of a mean, its limits, and the interval of an accuracy."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.optimize
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from gaam_decoder import stats
from gaam_decoder.stats.crossed import crossed

SHAPES = [(1, 2), (1, 30), (2, 2), (2, 50), (3, 7), (6, 40), (20, 300)]
VALUES: dict[str, Callable[[np.random.Generator, tuple[int, int]], np.ndarray]] = {
    "right or wrong": lambda generator, shape: generator.random(shape) < 0.8,
    "differences": lambda generator, shape: generator.integers(
        -1, 2, shape, dtype=np.int8
    ),
    "numbers": lambda generator, shape: generator.normal(3, 0.1, shape),
    "equal": lambda generator, shape: np.full(shape, 0.7),
    "equal seeds": lambda generator, shape: np.repeat(
        generator.random((1, shape[1])), shape[0], 0
    ),
    "equal rows": lambda generator, shape: np.repeat(
        generator.random((shape[0], 1)), shape[1], 1
    ),
}


def test_mean_squares_equal_the_two_way_analysis_of_variance() -> None:
    for number, shape in enumerate(SHAPES):
        for kind, make in VALUES.items():
            value_SN = make(np.random.default_rng(number), shape)
            found, exact_SN = crossed(value_SN), value_SN.astype(np.longdouble)
            mean, of_S, of_N = exact_SN.mean(), exact_SN.mean(1), exact_SN.mean(0)
            rest_SN = exact_SN - of_S[:, None] - of_N + mean
            free = max(shape[0] - 1, 1)
            expected = [
                mean,
                shape[1] * ((of_S - mean) ** 2).sum() / free,
                shape[0] * ((of_N - mean) ** 2).sum() / (shape[1] - 1),
                (rest_SN**2).sum() / (free * (shape[1] - 1)),
            ]
            np.testing.assert_allclose(found[:4], np.array(expected, float), atol=1e-11)
            if kind.startswith("equal"):
                assert found.rest == 0, "what rounding leaves is nothing"


def test_the_variance_is_that_of_repeated_experiments_and_of_more_seeds_and_rows() -> (
    None
):
    generator = np.random.default_rng(11)
    repetitions, num_seeds, num_rows = 4000, 5, 30
    for seed_sd, row_sd, rest_sd in ((1.0, 1.0, 1.0), (0.5, 3.0, 1.0), (2.0, 0.7, 0.3)):
        values = generator.normal(0, seed_sd, (repetitions, num_seeds, 1))
        values = values + generator.normal(0, row_sd, (repetitions, 1, num_rows))
        values += generator.normal(0, rest_sd, (repetitions, num_seeds, num_rows))
        for seeds, rows in ((num_seeds, num_rows), (50, 900)):
            found = [
                crossed(value_SN).resized(seeds, rows).variance for value_SN in values
            ]
            truth = seed_sd**2 / seeds + row_sd**2 / rows + rest_sd**2 / (seeds * rows)
            error = np.std(found) / repetitions**0.5
            assert np.mean(found) == pytest.approx(truth, abs=4 * error)
        truth = (
            seed_sd**2 / num_seeds
            + row_sd**2 / num_rows
            + rest_sd**2 / num_seeds / num_rows
        )
        assert np.var(values.mean((1, 2))) == pytest.approx(
            truth, rel=4 * (2 / repetitions) ** 0.5
        )


def test_distance_and_tail_are_inverse_to_one_another() -> None:
    tails = [0.5, 0.49, 0.2, 0.05, 0.025, 1e-3, 1e-9, 1e-40]
    for shape in ((1, 2), (1, 400), (2, 30), (6, 300), (30, 9)):
        found = crossed(np.random.default_rng(3).normal(0, 1, shape))
        for more in (0.0, 0.01, 3.0):
            distances = [found.distance(tail, more) for tail in tails]
            assert distances == sorted(distances), "rarer is further"
            assert distances[0] == pytest.approx(0, abs=1e-9)
            for tail, distance in zip(tails[1:], distances[1:], strict=True):
                assert found.tail(distance, more) == pytest.approx(tail, rel=1e-6)
                assert found.tail(-distance, more) == pytest.approx(1 - tail, rel=1e-6)
            assert found.tail(0.0, more) == 0.5
    certain = crossed(np.full((3, 20), 0.25))
    assert (certain.distance(0.025), certain.tail(0.0)) == (0.0, 0.5)
    assert certain.tail(1e-6) < 1e-90


def test_where_only_seeds_or_only_rows_differ_it_is_the_t_interval_over_them() -> None:
    generator = np.random.default_rng(0)
    for count in (2, 3, 6, 20, 300):
        value = np.linspace(0.5, 0.9, count) + generator.normal(0, 0.1, count)
        rest_SN = generator.normal(0, 0.02, (count, 40))
        of_seeds = (
            value[:, None] + rest_SN - rest_SN.mean(0)
        )  # rows have the same mean exactly
        for axis, value_SN in (
            (1, of_seeds),
            (0, value[None]),
            (0, np.repeat(value[None], 6, 0)),
        ):
            found, usual = (
                crossed(value_SN),
                scipy.stats.ttest_1samp(value_SN.mean(axis), 0.3),
            )
            half = found.distance(0.025)
            interval = found.mean - half, found.mean + half
            np.testing.assert_allclose(
                interval, usual.confidence_interval(0.95), rtol=1e-9
            )
            assert 2 * found.tail(abs(found.mean - 0.3)) == pytest.approx(
                usual.pvalue, rel=1e-6
            )


def wilson(share: float, rows: float, quantile: float) -> tuple[float, float]:
    """Shares from which the one seen is as far as may be, where they have the variance there."""

    def beyond(theta: float) -> float:
        return (share - theta) ** 2 - quantile**2 * theta * (1 - theta) / rows

    def limit(near: float, far: float) -> float:
        return (
            near
            if near == far
            else float(scipy.optimize.brentq(beyond, near, far, xtol=1e-14))
        )

    # at 0 and 1 the share seen is as near as can be, and not the limit
    return limit(min(share, 1 - 1e-9), 0), limit(max(share, 1e-9), 1)


def test_one_decoder_without_a_seed_has_wilsons_interval() -> None:
    """With Student's quantile, and a row less where its variance is estimated."""
    for num_rows in (2, 3, 20, 400, 5000):
        quantile = float(scipy.stats.t.ppf(0.975, num_rows - 1))
        for right in sorted({0, 1, num_rows // 3, num_rows - 1, num_rows}):
            right_SN = np.arange(num_rows)[None] < right
            found = stats.two_level_interval(right_SN, without_seeds=True)
            rows = num_rows if right in (0, num_rows) else num_rows - 1
            expected = wilson(right / num_rows, rows, quantile)
            np.testing.assert_allclose(found, expected, atol=1e-9)
            same = stats.two_level_interval(np.repeat(right_SN, 4, 0))
            np.testing.assert_allclose(same, expected, atol=1e-9, err_msg="equal seeds")
            if num_rows >= 400:
                usual = scipy.stats.binomtest(right, num_rows).proportion_ci(
                    method="wilson"
                )
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
    narrow, wide = (
        stats.two_level_interval(right_SN, level=level) for level in (0.8, 0.95)
    )
    wrong = stats.two_level_interval(~right_SN)
    assert narrow is not None
    assert wide is not None
    assert wrong is not None
    mean = right_SN.mean()
    assert 0 <= wide[0] <= narrow[0] + 1e-12 <= mean + 2e-12
    assert mean - 2e-12 <= narrow[1] - 1e-12 <= wide[1] <= 1
    assert narrow[0] < narrow[1], "no test is certain"
    np.testing.assert_allclose([1 - wrong[1], 1 - wrong[0]], wide, atol=1e-9)
