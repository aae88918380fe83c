"""Simulated experiments with several mechanisms, none of which is better than another.

K mechanisms, S seeds, N rows; how rows, seeds and luck make answers is in ``experiments``.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from gaam_decoder import stats
from tests.decoder.stats.experiments import ROW, SCENARIOS

CELLS = ((3, 6, 300), (3, 20, 2000), (6, 6, 300), (6, 20, 300))
"""Mechanisms, seeds and test rows."""


def hits_of_many(
    name: str, generator: np.random.Generator, num_ways: int, num_seeds: int, num_rows: int
) -> np.ndarray:
    """Hits (K, S, N); the first mechanism has the seeds of the first of two, if these differ."""
    scenario, normal = SCENARIOS[name], generator.standard_normal
    row_N = ROW * normal(num_rows, np.float32)
    found = []
    for way in range(num_ways):
        special = way == 0 and scenario.first_seed is not None
        spread = scenario.first_seed if special else scenario.seed
        skewed = scenario.skewed
        luck_S = 1 - generator.exponential(size=num_seeds) if skewed else normal(num_seeds)
        seed_S = (scenario.constant + spread * luck_S).astype(np.float32)
        latent_SN = row_N + scenario.own * normal(num_rows, np.float32) + seed_S[:, None]
        latent_SN = latent_SN + scenario.noise * normal((num_seeds, num_rows), np.float32)
        found.append(latent_SN > 0)
    return np.stack(found)


def false_alarms(
    name: str, num_ways: int, num_seeds: int, num_rows: int, repetitions: int
) -> tuple[int, int]:
    """How often the smallest Holm p of all pairs, and Friedman's p, are below 0.05."""
    generator = np.random.default_rng([*name.encode(), num_ways, num_seeds, num_rows])
    by_pairs = by_ranks = 0
    for _ in range(repetitions):
        hits_KSN = hits_of_many(name, generator, num_ways, num_seeds, num_rows)
        claims = [stats.claim(one, other) for one, other in combinations(hits_KSN, 2)]
        smallest = min(claim.p_holm or 0.0 for claim in stats.holm_corrected(claims))
        by_pairs += smallest < stats.ALPHA
        by_ranks += stats.friedman(hits_KSN.mean(2).T).p < stats.ALPHA
    return by_pairs, by_ranks
