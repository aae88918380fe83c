"""Simulated layers of which the truth is known: importance of each, and accuracy of each alone.

S seeds of both, L layers, N test rows. Hits are made as in ``experiments``: rows are easy or hard
for all layers, and for each in its own way; layers differ in a constant, so that they are in its
order. Importance is a constant of the layer, what a seed adds to all, and what it adds to each.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gaam_decoder import stats
from gaam_decoder.stats.association import alone, associate
from gaam_decoder.stats.rank_association import permutation, spearman
from tests.decoder.stats.experiments import ROW

CELLS = ((4, 6, 300), (6, 6, 300), (6, 20, 2000), (9, 20, 300))
"""Layers, seeds and test rows."""
DEPTHS = (6, 12, 24)


@dataclass(frozen=True, kw_only=True, slots=True)
class Layers:
    """How far layers are apart, and how noisy what is seen of them."""

    apart: float
    """Standard deviation of the constants of the accuracies."""
    important: float
    """Of those of the importance."""
    agree: float = 0.0
    """1: the same order of both in truth; 0: any; -1: the reverse."""
    tied: bool = False
    """Whether every two layers have the same constants."""
    skewed: bool = False
    """Whether a few seeds read a layer much more than the others."""


SCENARIOS = {
    "far apart": Layers(apart=1.0, important=0.3),
    "near": Layers(apart=0.05, important=0.02),
    "near, the same order": Layers(apart=0.05, important=0.02, agree=1.0),
    "near, the reverse order": Layers(apart=0.05, important=0.02, agree=-1.0),
    "the same order": Layers(apart=0.3, important=0.1, agree=1.0),
    "ties": Layers(apart=0.3, important=0.1, tied=True),
    "ties, the same order": Layers(apart=0.3, important=0.1, tied=True, agree=1.0),
    "skewed seeds": Layers(apart=0.3, important=0.05, skewed=True),
    "skewed seeds, near": Layers(apart=0.05, important=0.02, agree=1.0, skewed=True),
    "accuracies all the same": Layers(apart=0.0, important=0.1),
    "importance all the same": Layers(apart=0.3, important=0.0),
}


@dataclass(kw_only=True, slots=True)
class Counts:
    """Of so many repetitions."""

    repetitions: int = 0
    defined: int = 0
    """With a true rank correlation: not all layers are the same in one of both."""
    held: int = 0
    """It is in the interval."""
    p: int = 0
    """p below 0.05."""
    claimed: int = 0
    """Together or opposed."""
    wrong: int = 0
    """That, and the truth has another sign, is 0, or there is none."""


def simulated(name: str, layers: int, seeds: int, rows: int, repetitions: int) -> Counts:
    """What is said of experiments of one kind."""
    about = SCENARIOS[name]
    generator = np.random.default_rng([*name.encode(), layers, seeds, rows])
    found = Counts()
    for _ in range(repetitions):
        true_L, constant_L = _truth(generator, about, layers)
        importance_SL = _importance(generator, true_L, seeds, about)
        said = associate(importance_SL, alone(_hits(generator, constant_L, seeds, rows)))
        truth = spearman(true_L, constant_L)
        found.repetitions += 1
        found.p += said.p is not None and said.p < stats.ALPHA
        if truth is not None and said.interval is not None:
            found.defined += 1
            low, high = said.interval
            found.held += low - 1e-9 <= truth <= high + 1e-9
        sign = {"together": 1, "opposed": -1, "undecided": 0}[said.verdict]
        found.claimed += sign != 0
        found.wrong += sign != 0 and sign * (truth or 0.0) <= 1e-9
    return found


def walks(layers: int, repetitions: int) -> int:
    """How often p is below 0.05 of two random walks over depth that know nothing of each other."""
    generator = np.random.default_rng(layers)
    found = 0
    for _ in range(repetitions):
        one_L, other_L = generator.standard_normal((2, layers)).cumsum(1)
        found += permutation(one_L, other_L).p < stats.ALPHA
    return found


def _truth(
    generator: np.random.Generator, about: Layers, count: int
) -> tuple[np.ndarray, np.ndarray]:
    importance_L, constant_L = generator.standard_normal((2, count))
    if about.agree:
        importance_L, constant_L = np.sort(importance_L), np.sort(constant_L)
    if about.agree < 0:
        constant_L = constant_L[::-1]
    if about.tied:
        importance_L[1::2] = importance_L[: count // 2 * 2 : 2]
        constant_L[1::2] = constant_L[: count // 2 * 2 : 2]
    return 0.5 + about.important * importance_L, 3.0 + about.apart * constant_L


def _importance(
    generator: np.random.Generator, true_L: np.ndarray, seeds: int, about: Layers
) -> np.ndarray:
    shape = seeds, len(true_L)
    own_SL = generator.exponential(size=shape) - 1 if about.skewed else generator.normal(size=shape)
    return np.asarray(true_L + 0.1 * generator.standard_normal((seeds, 1)) + 0.05 * own_SL)


def _hits(
    generator: np.random.Generator, constant_L: np.ndarray, seeds: int, rows: int
) -> list[np.ndarray]:
    row_N = ROW * generator.standard_normal(rows, np.float32)
    found = []
    for constant in constant_L:
        latent_SN = row_N + 0.7 * generator.standard_normal(rows, np.float32)
        latent_SN = latent_SN + constant + 0.2 * generator.standard_normal((seeds, 1), np.float32)
        found.append(latent_SN + generator.standard_normal((seeds, rows), np.float32) > 0)
    return found
