from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from gaam_decoder.stats.rank_correlation import rank_correlation


def layers(
    importance_L: np.ndarray, accuracy_L: np.ndarray, seeds: int, rows: int, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    importance_SL = importance_L + generator.normal(0, 0.1, (seeds, len(importance_L)))
    return importance_SL, generator.random((len(accuracy_L), seeds, rows)) < accuracy_L[
        :, None, None
    ]


def test_rho_is_that_of_the_means() -> None:
    for seed in range(20):
        generator = np.random.default_rng(seed)
        importance_SL, right_LTN = layers(*generator.random((2, 7)), 6, 30, seed)
        if seed % 2:  # ties
            right_LTN[1] = right_LTN[0]
        found = rank_correlation(importance_SL, right_LTN)
        expected = scipy.stats.spearmanr(importance_SL.mean(0), right_LTN.mean((1, 2))).statistic
        assert found.rho == pytest.approx(expected)


def test_the_interval_is_that_of_a_bootstrap_of_seeds_and_rows() -> None:
    importance_SL, right_LTN = layers(np.arange(6) / 10, 0.5 + np.arange(6) / 40, 5, 80)
    found = rank_correlation(importance_SL, right_LTN)
    generator, drawn = np.random.default_rng(1), []
    for _ in range(2000):
        seeds, others = generator.integers(0, 5, (2, 5))
        rows = generator.integers(0, 80, 80)
        accuracy = right_LTN[:, others][:, :, rows].mean((1, 2))
        drawn.append(scipy.stats.spearmanr(importance_SL[seeds].mean(0), accuracy).statistic)
    assert found.interval == pytest.approx(np.quantile(drawn, (0.025, 0.975)), abs=0.12)
    more = rank_correlation(*layers(np.arange(6) / 10, 0.5 + np.arange(6) / 40, 50, 4000))
    assert found.interval is not None
    assert more.interval is not None
    assert more.interval[0] > found.interval[0]
    assert more.interval[1] == pytest.approx(1.0)


def test_what_has_no_order_or_one_seed_has_no_number() -> None:
    rising = np.arange(5.0)
    importance_SL, right_LTN = layers(rising, rising / 5, 3, 40)
    assert rank_correlation(np.ones((3, 5)), right_LTN) == (None, None)
    assert rank_correlation(importance_SL, np.ones((5, 3, 40), bool)) == (None, None)
    assert rank_correlation(importance_SL[:1], right_LTN).interval is None
    with pytest.raises(ValueError, match="NaN"):
        rank_correlation(importance_SL * np.nan, right_LTN)
