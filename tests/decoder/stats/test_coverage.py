"""How often what is over seeds alone holds, in simulated experiments whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from gaam_decoder import stats

TRIALS = 1500
ERROR = 3 * (0.95 * 0.05 / TRIALS) ** 0.5
"""Three standard errors of a share of 95% in so many trials."""

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("num_seeds", [3, 6, 10])
def test_the_t_interval_holds_the_mean_over_all_seeds(num_seeds: int) -> None:
    values = np.random.default_rng(num_seeds).normal(0.9, 0.01, (TRIALS, num_seeds))
    held = [low <= 0.9 <= high for low, high in map(stats.t_interval, values)]
    assert np.mean(held) == pytest.approx(0.95, abs=ERROR)


def test_the_sign_flip_test_is_wrong_as_often_as_it_says() -> None:
    generator = np.random.default_rng(29)
    p = [stats.sign_flip(row).p for row in generator.normal(0, 1, (TRIALS * 2, 10))]
    for alpha in (0.05, 0.2):
        error = 3 * (alpha * (1 - alpha) / len(p)) ** 0.5
        assert np.mean(np.array(p) <= alpha) == pytest.approx(alpha, abs=error + 2 / 2**10)
