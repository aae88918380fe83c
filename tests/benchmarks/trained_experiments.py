"""Real trainings of which the truth is known, on random subsets of an endless pool of states.

Two layers say the same of a class, each with noise of its own. ``Mirrored`` is ``Louder`` with the
layers swapped, so that no difference is the truth; ``Averaged`` is better, and at a higher rate.
S seeds that report, K that tune, N test rows, R rates.
"""

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

import gaam_cache
import gaam_decoder
from gaam_decoder import stats
from gaam_decoder.attention import Attention
from gaam_decoder.runs.tuning import choose_candidates
from gaam_decoder.stats.choice import simulate_choices
from tests.decoder.configs import change, loose_config

SIZES, TEST, POOL = (
    (300, 1000),
    (400, 2000),
    2000,
)  # rows of a subset, of its test, of the truth
RATES = (1e-2, 5e-2, 2.5e-1)
CENTRE_CD = 0.9 * np.random.default_rng(0).standard_normal((4, 4))


class Louder(Attention):
    """The first layer is louder. Formula: ``y = (x_1, x_2 / 5)``."""

    quieter = 1.0, 5.0

    def forward(self, x_BLD: Tensor) -> Tensor:
        return x_BLD / x_BLD.new_tensor(self.quieter)[:, None]


class Mirrored(Louder):
    """The second is. Formula: ``y = (x_1 / 5, x_2)``."""

    quieter = 5.0, 1.0


class Averaged(Attention):
    """All that there is in half the features. Formula: ``y = (x_1 + x_2) / 10``."""

    @property
    def output_shape(self) -> tuple[int, int]:
        return 1, self.hidden_size

    def forward(self, x_BLD: Tensor) -> Tensor:
        return x_BLD.mean(1, keepdim=True) / 5


def _rows(generator: np.random.Generator, count: int) -> tuple[np.ndarray, np.ndarray]:
    label_N = generator.integers(0, len(CENTRE_CD), count)
    noise_NLD = generator.standard_normal((count, 2, CENTRE_CD.shape[1]))
    return (CENTRE_CD[label_N][:, None] + noise_NLD).astype(np.float32), label_N


@cache
def train(rows: int, number: int) -> list[tuple[Any, ...]]:
    """Of every mechanism on a subset, always the same one: hits at the rate that was chosen (S, N),
    of all rates on the rows that chose (R, V) and on those of test (R, K, N), and what other seeds
    have on other rows (R,).
    """
    generator, most = np.random.default_rng([rows, number]), max(TEST)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        splits = {
            "train": _rows(generator, rows),
            "test": _rows(generator, most + POOL),
        }
        gaam_cache.write(root / "cache", splits)
        config = loose_config(
            cache=root / "cache", runs=root / "runs", attn=(Louder, Mirrored, Averaged), lr=RATES,
            tune_seeds=(1000, 1001, 1002), seeds=6, epochs=5, probe=False, compile="off",
        )  # fmt: skip
        chosen, found = choose_candidates(gaam_decoder.train(config)), []
        others = gaam_decoder.train(change(config, seeds="6-11", tune_seeds=None))
        for run, start in zip(
            chosen.runs, range(0, len(others), len(RATES)), strict=True
        ):
            tuning = chosen.tunings[run.key]
            answers = list(tuning.answers_of_candidates())
            right = [candidate.contribution_R for candidate in answers]
            logits = [candidate.test_logits_of_seeds for candidate in answers]
            tested_RKN = (np.array(logits).argmax(-1) == run.labels)[:, :, :most]
            pool = [
                one.hits[:, most:].mean() for one in others[start : start + len(RATES)]
            ]
            found.append(
                (
                    run.hits[:, :most],
                    np.stack(right),
                    tested_RKN,
                    tuning.chosen_index,
                    np.array(pool),
                )
            )
    return found


def simulate(which: int, rows: int, test: int, repetitions: int) -> dict[str, float]:
    """The true difference of a mechanism to ``Louder``, and how often what was held and found."""
    every = [train(rows, number) for number in range(repetitions)]
    at_best = [
        np.mean([one[place][-1] for one in every], 0).max() for place in (which, 0)
    ]
    counts = {"truth": at_best[0] - at_best[1] if which > 1 else 0.0}
    counts |= dict.fromkeys(("held", "held_without", "found", "found_without"), 0)
    for (hits, *mine), (others, *theirs) in ((one[which], one[0]) for one in every):
        doubt = [
            simulate_choices(of[0], of[1][:, :, :test].mean(2), of[2]).variance
            for of in (mine, theirs)
        ]
        for name, choice in (("", sum(doubt)), ("_without", 0.0)):
            claim = stats.claim(
                hits[:, :test],
                others[:, :test],
                tuning_variance=choice,
                train_rows=rows,
            )
            assert claim.interval is not None
            assert claim.p is not None
            low, high = claim.interval
            counts[f"held{name}"] += low <= counts["truth"] <= high
            counts[f"found{name}"] += claim.p < stats.ALPHA
    return counts
