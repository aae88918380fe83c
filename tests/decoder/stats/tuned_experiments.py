"""Simulated mechanisms whose rate validation chose; the truth is of the best rates.

As in ``experiments``: right where ``row + own row + row at this rate + seed + noise +
constant`` is above 0. Each of three tuning seeds has another third of the validation
rows. S seeds, N rows, V validation rows, C rates, K tuning seeds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from gaam_decoder import stats
from gaam_decoder.stats.choice import SimulatedChoices, simulate_choices
from tests.decoder.stats.experiments import ROW

Floats = NDArray[np.float64]
OWN = 0.5
RATE = 0.4
SEED = 0.1
NOISE = 1.0
TUNING = 3
REPORTING = 10
WORLDS = {
    "rates alike, no difference": ((3.5, 3.6, 3.7, 3.6), (3.5, 3.6, 3.7, 3.6)),
    "one good rate, no difference": ((2.0, 3.2, 4.6, 2.8), (2.0, 3.2, 4.6, 2.8)),
    "good rates apart": ((3.2, 3.9, 4.1, 3.4), (3.9, 3.8, 3.5, 2.2)),
    "one rate that ruins": ((3.5, 4.0, 4.2, 4.0), (3.0, 4.0, 3.5, 0.8)),
}
"""Constants of four rates, for each of two mechanisms."""
SIZES = ((60, 400), (300, 400), (1000, 2000), (300, 2000))
"""Validation rows and test rows."""


def tune_and_test(
    generator: np.random.Generator,
    constants: tuple[float, ...],
    row_N: Floats,
    num_validation: int,
) -> tuple[NDArray[np.bool_], SimulatedChoices]:
    """Hits of reporting seeds on test rows at the chosen rate, and how sure that is."""
    num_rows = len(row_N)
    num_rates = len(constants)
    normal = generator.standard_normal
    own_N = ROW * row_N + OWN * normal(num_rows)
    latent_CN = np.array(constants)[:, None] + own_N
    latent_CN += RATE * normal((num_rates, num_rows))

    def draw_hits(latent: Floats, seed: Floats) -> NDArray[np.bool_]:
        latent = latent + seed
        return np.asarray(latent + NOISE * normal(latent.shape) > 0)

    seed_CK = SEED * normal((num_rates, TUNING))
    right_KCN = np.stack([draw_hits(latent_CN, seed_CK[:, [k]]) for k in range(TUNING)])
    validation_V = np.arange(num_validation)
    right_CV = right_KCN[validation_V % TUNING, :, validation_V].T
    best = int(right_CV.mean(1).argmax())
    reported_SN = np.stack(
        [draw_hits(latent_CN[best], SEED * normal(1)) for _ in range(REPORTING)]
    )
    score_CK = right_KCN[:, :, num_validation:].mean(2).T
    return reported_SN[:, num_validation:], simulate_choices(right_CV, score_CK, best)


def best_accuracy(constants: tuple[float, ...]) -> float:
    """On all rows, at the best rate."""
    spread = np.sqrt(ROW**2 + OWN**2 + RATE**2 + SEED**2 + NOISE**2)
    return float(max(ndtr(np.array(constants) / spread)))


def simulate(
    world: str, num_validation: int, num_test: int, repetitions: int
) -> dict[str, int]:
    """How often the interval has the difference, and a difference is found.

    With the variance of the choice and, in names that end so, without it.
    """
    first_constants, second_constants = WORLDS[world]
    difference = best_accuracy(first_constants) - best_accuracy(second_constants)
    key = [*world.encode(), num_validation, num_test]
    generator = np.random.default_rng(key)
    counts = dict.fromkeys(("held", "held_without", "found", "found_without"), 0)
    for _ in range(repetitions):
        row_N = generator.standard_normal(num_validation + num_test)
        first: Any
        second: Any
        first, first_choice = tune_and_test(
            generator, first_constants, row_N, num_validation
        )
        second, second_choice = tune_and_test(
            generator, second_constants, row_N, num_validation
        )
        variance = first_choice.variance + second_choice.variance
        for ending, choice in (("", variance), ("_without", 0.0)):
            claim = stats.claim(first, second, tuning_variance=choice)
            assert claim.interval is not None
            assert claim.p is not None
            low, high = claim.interval
            counts[f"held{ending}"] += low <= difference <= high
            counts[f"found{ending}"] += claim.p < stats.ALPHA
    return counts
