"""Simulated mechanisms whose rate was chosen by validation; the truth is that of their best rates.

As in ``experiments``: right where ``row + own row + row at this rate + seed + noise + constant`` is
above 0. Each of three tuning seeds is asked for another third of the rows that choose.
"""

from __future__ import annotations

import numpy as np
from scipy.special import ndtr

from gaam_decoder import stats
from gaam_decoder.stats.choice import ChoiceOf, choice_of
from tests.decoder.stats.experiments import ROW

OWN, RATE, SEED, NOISE = 0.5, 0.4, 0.1, 1.0
TUNING, REPORTING = 3, 10
WORLDS = {
    "rates alike, no difference": ((3.5, 3.6, 3.7, 3.6), (3.5, 3.6, 3.7, 3.6)),
    "one good rate, no difference": ((2.0, 3.2, 4.6, 2.8), (2.0, 3.2, 4.6, 2.8)),
    "good rates apart": ((3.2, 3.9, 4.1, 3.4), (3.9, 3.8, 3.5, 2.2)),
    "one rate that ruins": ((3.5, 4.0, 4.2, 4.0), (3.0, 4.0, 3.5, 0.8)),
}
"""Constants of four rates, for each of two mechanisms."""
SIZES = ((60, 400), (300, 400), (1000, 2000), (300, 2000))
"""Rows that choose, and test rows."""


def _tuned(
    generator: np.random.Generator,
    constants: tuple[float, ...],
    row_N: np.ndarray,
    choose: int,
) -> tuple[np.ndarray, ChoiceOf]:
    """Hits of the reporting seeds at the chosen rate, (S, test rows), and how sure that is."""
    normal, num_rates = generator.standard_normal, len(constants)
    at_CN = np.array(constants)[:, None] + ROW * row_N + OWN * normal(len(row_N))
    at_CN += RATE * normal((num_rates, len(row_N)))

    def asked(rate_C: slice | int, seed: np.ndarray) -> np.ndarray:
        latent = at_CN[rate_C] + seed
        return np.asarray(latent + NOISE * normal(latent.shape) > 0)

    seed_CK = SEED * normal((num_rates, TUNING))
    right_KCN = np.stack([asked(slice(None), seed_CK[:, [k]]) for k in range(TUNING)])
    right_CV = right_KCN[np.arange(choose) % TUNING, :, np.arange(choose)].T
    best = int(right_CV.mean(1).argmax())
    hits_SN = np.stack([asked(best, SEED * normal(1)) for _ in range(REPORTING)])[
        :, choose:
    ]
    return hits_SN, choice_of(right_CV, right_KCN[:, :, choose:].mean(2).T)


def simulate(world: str, choose: int, test: int, repetitions: int) -> dict[str, int]:
    """How often the interval holds the difference, and a difference is found; with and without."""
    spread = np.sqrt(ROW**2 + OWN**2 + RATE**2 + SEED**2 + NOISE**2)
    first, second = (max(ndtr(np.array(of) / spread)) for of in WORLDS[world])
    generator = np.random.default_rng([*world.encode(), choose, test])
    counts = dict.fromkeys(("held", "held_without", "found", "found_without"), 0)
    for _ in range(repetitions):
        row_N = generator.standard_normal(choose + test)
        (one, mine), (other, theirs) = (
            _tuned(generator, of, row_N, choose) for of in WORLDS[world]
        )
        for name, variance in (
            ("", mine.variance + theirs.variance),
            ("_without", 0.0),
        ):
            claim = stats.claim(one, other, choice=variance)
            assert claim.interval is not None
            assert claim.p is not None
            low, high = claim.interval
            counts[f"held{name}"] += low <= first - second <= high
            counts[f"found{name}"] += claim.p < stats.ALPHA
    return counts
