"""The seeds as a sample, and splits of the same rows, against SciPy."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gaam_decoder import stats

Floats = NDArray[np.float64]
VALUES = st.lists(st.floats(0, 1), min_size=2, max_size=40).map(np.array)


@given(values=VALUES, level=st.sampled_from([0.8, 0.95, 0.99]))
def test_t_interval_equals_scipy(values: Floats, level: float) -> None:
    interval = stats.t_interval(values, level)
    assert interval is not None
    mean = values.mean()
    error = scipy.stats.sem(values)
    if error > 0:
        expected = scipy.stats.t.interval(level, len(values) - 1, mean, error)
        np.testing.assert_allclose(interval, expected, atol=1e-12)
    else:
        assert interval == (mean, mean)
    bounded = stats.within(interval, 0, 1)
    assert bounded is not None
    low, high = bounded
    assert 0 <= low <= mean <= high + 1e-15 <= 1 + 1e-15


@given(
    values=st.lists(st.floats(-0.1, 0.1), min_size=2, max_size=50),
    folds=st.integers(2, 20),
)
def test_the_corrected_resampled_t_test_equals_the_formula_written_out(
    values: list[float], folds: int
) -> None:
    result = stats.corrected_resampled_t(np.array(values), 1 / (folds - 1))
    assert result is not None
    splits = len(values)
    mean = sum(values) / splits
    variance = sum((value - mean) ** 2 for value in values) / (splits - 1)
    error = math.sqrt((1 / splits + 1 / (folds - 1)) * variance)
    assert result.splits == splits
    assert result.difference == pytest.approx(mean, abs=1e-15)
    if error > 1e-12:
        p = 2 * scipy.stats.t.sf(abs(mean) / error, splits - 1)
        assert result.p == pytest.approx(p, rel=1e-6)
        expected = np.clip(scipy.stats.t.interval(0.95, splits - 1, mean, error), -1, 1)
        assert result.interval is not None
        np.testing.assert_allclose(
            np.array(result.interval), expected, rtol=1e-6, atol=1e-12
        )


def corrected_resampled_t(values: Floats) -> object:
    return stats.corrected_resampled_t(values, 0.25)


FUNCTIONS: list[Callable[[Floats], object]] = [
    stats.standard_deviation,
    stats.t_interval,
    stats.minimum_detectable_difference,
    corrected_resampled_t,
]
NO_NUMBERS = {
    "nan": [np.nan],
    "one infinite": [0.5, np.inf],
    "all infinite": [-np.inf] * 30,
}


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_nothing_and_one_value_have_no_answer(
    function: Callable[[Floats], object],
) -> None:
    assert function(np.array([])) is None
    assert function(np.array([0.5])) is None


@pytest.mark.parametrize("values", NO_NUMBERS.values(), ids=NO_NUMBERS.keys())
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_what_is_no_number_is_refused(
    function: Callable[[Floats], object], values: list[float]
) -> None:
    with pytest.raises(ValueError, match="NaN"):
        function(np.array(values))


@pytest.mark.parametrize("value", [0.0, 0.1, 1 / 3, 0.7])
def test_equal_values_do_not_scatter(value: float) -> None:
    equal = np.full(7, value)
    assert stats.standard_deviation(equal) == 0
    assert stats.minimum_detectable_difference(equal) == 0
    result = stats.corrected_resampled_t(equal, 0.25)
    assert result is not None
    assert result.p == (1 if value == 0 else 0)
    for interval in (result.interval, stats.t_interval(equal)):
        assert interval is not None
        np.testing.assert_allclose(interval, [value, value], atol=1e-12)


def test_no_interval_stays_none() -> None:
    assert stats.within(None, 0, 1) is None


def detectable_difference(values: Floats, power: float = 0.8) -> float:
    """The minimum detectable difference, which there is."""
    difference = stats.minimum_detectable_difference(values, power=power)
    assert difference is not None
    return difference


@pytest.mark.parametrize("power", [0.5, 0.8, 0.9])
@pytest.mark.parametrize("num_seeds", [2, 5, 10, 60])
def test_a_detectable_difference_has_that_power(num_seeds: int, power: float) -> None:
    """By the noncentral t-distribution, for a standard deviation of 1/50."""
    values = np.random.default_rng(3).normal(size=num_seeds)
    values = scipy.stats.zscore(values, ddof=1) / 50
    difference = detectable_difference(values, power)
    freedom = num_seeds - 1
    limit = scipy.stats.t.ppf(0.975, freedom)
    shift = 50 * difference * num_seeds**0.5
    assert scipy.stats.nct.sf(limit, freedom, shift) == pytest.approx(power, abs=1e-6)


def test_a_detectable_difference_is_found_in_so_many_of_simulated_samples() -> None:
    values_of_deviation_1 = scipy.stats.zscore(np.arange(10), ddof=1)
    samples = np.random.default_rng(3).normal(0, 1, (20_000, 10))
    samples += detectable_difference(values_of_deviation_1)
    share = (scipy.stats.ttest_1samp(samples, 0, axis=1).pvalue < 0.05).mean()
    assert share == pytest.approx(0.8, abs=0.012)


def smallest_p(num_seeds: int, num_compared: int) -> float:
    """Of a sign-flip test over so many seeds, corrected for so many comparisons."""
    p = np.full(num_compared, 2 / 2**num_seeds)
    return float(stats.holm(p).min())


@pytest.mark.parametrize("alpha", [0.05, 0.01])
@pytest.mark.parametrize("num_compared", [1, 2, 3, 10, 200])
def test_seeds_needed_is_the_least_number(num_compared: int, alpha: float) -> None:
    needed = stats.seeds_needed(num_compared, alpha=alpha)
    assert smallest_p(needed, num_compared) < alpha
    assert smallest_p(needed - 1, num_compared) >= alpha


def test_one_comparison_needs_six_seeds_and_none_is_refused() -> None:
    assert stats.seeds_needed(1) == 6
    with pytest.raises(ValueError, match="compared"):
        stats.seeds_needed(0)


# epochs, seeds and folds of simulated trainings
TRAININGS = [(1, 6, 1), (5, 3, 1), (2, 10, 5), (15, 6, 2), (30, 10, 5)]


def late_seeds(epochs: int, seeds: int, folds: int, rise: float) -> NDArray[np.int64]:
    """How many seeds of 2,000 trainings are best in the last epoch of any fold."""
    generator = np.random.default_rng(epochs)
    accuracy = generator.random((2000, seeds, folds, epochs))
    accuracy += rise * np.arange(epochs)
    is_late = accuracy.argmax(-1) == epochs - 1
    return np.asarray(is_late.any(2).sum(1))


@pytest.mark.parametrize(("epochs", "seeds", "folds"), TRAININGS)
def test_a_rise_is_always_called_too_short(epochs: int, seeds: int, folds: int) -> None:
    for num_late in np.unique(late_seeds(epochs, seeds, folds, rise=1000)):
        assert stats.later_than_chance(int(num_late), seeds, epochs, folds)


@pytest.mark.parametrize(("epochs", "seeds", "folds"), TRAININGS)
def test_a_plateau_is_rarely_called_too_short(
    epochs: int, seeds: int, folds: int
) -> None:
    """Where so few seeds can tell; elsewhere one late seed is enough."""
    num_late = late_seeds(epochs, seeds, folds, rise=0)
    called = [
        stats.later_than_chance(int(count), seeds, epochs, folds) for count in num_late
    ]
    chance_of_seed = 1 - (1 - 1 / epochs) ** folds
    can_tell = seeds >= stats.LEAST_SEEDS and chance_of_seed**seeds < 0.2
    if can_tell:
        # 0.2 and four standard errors of 2,000
        assert np.mean(called) < 0.24
    else:
        assert np.mean(called) == np.mean(num_late > 0)
