from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from gaam_decoder import stats
from gaam_decoder.stats import bootstrap


def test_resampling_rows_equals_drawing_them_one_by_one() -> None:
    right = np.random.default_rng(5).random((3, 40)) < 0.7
    ours = stats.resample_rows(right, num_resamples=50, seed=9)
    drawn = np.random.default_rng(9).integers(0, 40, (50, 40))
    for r in range(50):
        np.testing.assert_allclose(ours[:, r], right[:, drawn[r]].mean(1), atol=1e-6)


def test_resampling_in_pieces_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    right = np.random.default_rng(5).random((3, 40)) < 0.7
    whole = stats.resample_rows(right, num_resamples=51)
    monkeypatch.setattr(bootstrap, "CHUNK", 400)
    np.testing.assert_array_equal(stats.resample_rows(right, num_resamples=51), whole)


def test_rows_that_do_not_vary_leave_the_t_interval() -> None:
    accuracy = np.random.default_rng(0).normal(0.8, 0.01, 12)
    low, high = stats.two_level_interval(np.repeat(accuracy[:, None], 40_000, 1))
    expected = stats.t_interval(accuracy)
    # the quantiles of a mean of 12 draws are nearly normal, and estimated
    np.testing.assert_allclose([low, high], expected, atol=0.12 * (expected[1] - expected[0]))


def test_seeds_that_do_not_vary_leave_the_interval_of_the_rows() -> None:
    right = np.repeat(np.random.default_rng(0).random((1, 900)) < 0.8, 5, 0)
    resampled = stats.resample_rows(right, num_resamples=20_000)
    low, high = stats.two_level_interval(resampled)
    hits = int(right[0].sum())
    expected = scipy.stats.bootstrap(
        (right[0].astype(float),), np.mean, method="percentile", n_resamples=20_000, rng=0
    ).confidence_interval
    np.testing.assert_allclose([low, high], expected, atol=0.0015)
    wilson = scipy.stats.binomtest(hits, 900).proportion_ci(method="wilson")
    np.testing.assert_allclose([low, high], wilson, atol=0.004)


def test_interval_equals_a_plain_loop_over_seeds_and_rows() -> None:
    generator = np.random.default_rng(1)
    right = generator.random((8, 300)) < generator.uniform(0.6, 0.9, (8, 1))
    low, high = stats.two_level_interval(stats.resample_rows(right, num_resamples=20_000))
    means, of_rows, of_seeds = [], [], []
    for _ in range(20_000):
        rows = generator.integers(0, 300, 300)
        seeds = generator.integers(0, 8, 8)
        by_seed = right[:, rows].mean(1)
        of_rows.append(by_seed.mean())
        of_seeds.append((8 / 7) ** 0.5 * (by_seed[seeds].mean() - by_seed.mean()))
        means.append(of_rows[-1] + of_seeds[-1])
    df = 7 * ((np.var(of_rows) + np.var(of_seeds)) / np.var(of_seeds)) ** 2  # Satterthwaite
    widen = scipy.stats.t.ppf(0.975, df) / scipy.stats.norm.ppf(0.975)
    expected = right.mean() + widen * (np.quantile(means, [0.025, 0.975]) - right.mean())
    np.testing.assert_allclose([low, high], expected, atol=0.003)


def test_one_seed_has_no_interval_over_seeds() -> None:
    assert stats.two_level_interval(np.full((1, 10), 0.5)) is None
