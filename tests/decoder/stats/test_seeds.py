from __future__ import annotations

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from gaam_decoder import stats

VALUES = st.lists(st.floats(0, 1), min_size=2, max_size=40).map(np.array)


@given(values=VALUES, level=st.sampled_from([0.8, 0.95, 0.99]))
def test_t_interval_equals_scipy(values: np.ndarray, level: float) -> None:
    sem = scipy.stats.sem(values)
    ours = stats.t_interval(values, level)
    if sem > 0:
        expected = scipy.stats.t.interval(level, len(values) - 1, values.mean(), sem)
        np.testing.assert_allclose(ours, expected, atol=1e-12)
    else:
        assert ours == (values.mean(), values.mean())


def test_one_value_has_no_spread() -> None:
    one = np.array([0.5])
    assert stats.t_interval(one) is None
    assert stats.standard_deviation(one) is None
    assert stats.minimum_detectable_difference(one) is None


@given(
    num_seeds=st.integers(2, 60), sd=st.floats(1e-4, 0.1), power=st.sampled_from([0.5, 0.8, 0.9])
)
def test_minimum_detectable_difference_has_that_power_by_integration(
    num_seeds: int, sd: float, power: float
) -> None:
    values = np.random.default_rng(num_seeds).normal(size=num_seeds)
    values = (values - values.mean()) / values.std(ddof=1) * sd
    delta = stats.minimum_detectable_difference(values, power=power)
    assert delta is not None
    shift = delta / sd * num_seeds**0.5
    critical = scipy.stats.t.ppf(0.975, num_seeds - 1)
    spread = scipy.stats.chi(num_seeds - 1, scale=(num_seeds - 1) ** -0.5)

    def rejected(s: float) -> float:
        """Chance of rejection where the estimated sd is s times the true one."""
        tail = scipy.stats.norm.sf(critical * s - shift)
        return float(tail * spread.pdf(s))

    found = scipy.integrate.quad(rejected, 0, spread.ppf(1 - 1e-12), points=[0.05, 1], limit=200)[0]
    assert found == pytest.approx(power, abs=1e-6)


def test_a_difference_of_that_size_is_found_in_simulation_as_often_as_promised() -> None:
    generator = np.random.default_rng(3)
    delta = stats.minimum_detectable_difference(np.array([-1.0, 1.0] * 5) / (10 / 9) ** 0.5)
    assert delta is not None
    sample = generator.normal(delta, 1, (20_000, 10))
    found = scipy.stats.ttest_1samp(sample, 0, axis=1).pvalue < 0.05
    assert found.mean() == pytest.approx(0.8, abs=0.012)


@given(num_comparisons=st.integers(1, 200), alpha=st.sampled_from([0.05, 0.01]))
def test_seeds_needed_is_the_least_number(num_comparisons: int, alpha: float) -> None:
    needed = stats.seeds_needed(num_comparisons, alpha=alpha)
    smallest = {
        s: stats.holm(np.full(num_comparisons, 2 / 2**s)).min() for s in (needed - 1, needed)
    }
    assert smallest[needed] < alpha <= smallest[needed - 1]


def test_six_seeds_are_the_least_for_one_comparison() -> None:
    assert stats.seeds_needed(1) == 6


@given(
    accuracy=st.lists(st.floats(0, 1), min_size=2, max_size=9),
    least=st.sampled_from([0, -1]),
)
def test_an_interval_shows_only_what_can_be(accuracy: list[float], least: int) -> None:
    values = np.array(accuracy) if least == 0 else np.diff([*accuracy, 0.5])
    interval = stats.within(stats.t_interval(values), least, 1)
    assert interval is not None
    assert least <= interval[0] <= interval[1] <= 1
    assert stats.within((0.2, 0.3), least, 1) == (0.2, 0.3)
    assert stats.within(None, least, 1) is None


@pytest.mark.parametrize("epochs", [1, 2, 5, 15, 30, 100])
@pytest.mark.parametrize("seeds", [1, 3, 5, 6, 10, 20, 40])
@pytest.mark.parametrize("folds", [1, 2, 5])
def test_a_plateau_is_rarely_called_too_short_and_a_rise_always(
    epochs: int, seeds: int, folds: int
) -> None:
    """Of simulated trainings, whose best epoch is the first of the most accurate ones."""
    generator = np.random.default_rng(epochs * seeds * folds)
    noise = generator.random((2000, seeds, folds, epochs))
    chance = 1 - (1 - 1 / epochs) ** folds
    telling = seeds >= stats.LEAST_SEEDS and chance**seeds < 0.2  # noqa: PLR2004
    for rise in (False, True):
        last = (noise + 1000 * rise * np.arange(epochs)).argmax(-1) == epochs - 1
        late = last.any(2).sum(1)
        called = np.mean([stats.later_than_chance(n, seeds, epochs, folds) for n in late])
        if rise:
            assert called == 1
        elif telling:
            assert called < 0.24  # noqa: PLR2004  0.2 and four standard errors of 2,000
        else:  # one is enough
            assert called == np.mean(late > 0)
    assert not stats.later_than_chance(0, seeds, epochs, folds)
