"""Does one quantity of a few layers rank them as another does?

S seeds of the importance, T of the accuracies, L layers, N test rows, R draws.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaam_decoder.stats.seeds import checked

Floats = NDArray[np.float64]
DRAWS = 1000


class RankCorrelation(NamedTuple):
    """Spearman's rho of two quantities of the same layers."""

    rho: float | None  # None where one of both is the same of all layers
    interval: tuple[float, float] | None
    """95%, of resampled seeds and rows; None for one seed of either, and without a rho."""


def rank_correlation(importance_SL: Floats, right_LTN: NDArray[Any]) -> RankCorrelation:
    """Rank correlation of the mean importance of layers with the accuracy on each alone.

    Ties have the mean of their ranks. The interval is the middle 95% of 1,000 draws, from a fixed
    random state, of the seeds of both and of the test rows, the same rows for all layers. Noise
    makes ranks agree less, so that it lies nearer to 0 than it should where layers are alike; it is
    no test, and layers that are neighbours are alike in both without one saying anything of the
    other.

    Args:
        importance_SL: of every seed.
        right_LTN: whether each seed that was trained on one layer is right on each row.

    Raises:
        ValueError: NaN or infinity.

    Source: Spearman 1904; percentile bootstrap: Efron 1979.
    """
    seeds, layers = checked(importance_SL).shape
    _, others, rows = right_LTN.shape
    accuracy_L = checked(right_LTN.mean((1, 2), dtype=np.float64))
    rho = float(_rho(importance_SL.mean(0)[None], accuracy_L[None])[0])
    if np.isnan(rho):
        return RankCorrelation(None, None)
    if min(seeds, others) < 2:
        return RankCorrelation(rho, None)
    generator = np.random.default_rng(0)
    drawn_RS, drawn_RT, drawn_RN = (
        generator.multinomial(count, np.full(count, 1 / count), DRAWS).astype(np.float32)
        for count in (seeds, others, rows)
    )
    of_rows = right_LTN.reshape(-1, rows).astype(np.float32) @ drawn_RN.T
    accuracy_RL = np.einsum("ltr,rt->rl", of_rows.reshape(layers, others, -1), drawn_RT)
    found_R = _rho(drawn_RS @ importance_SL / seeds, accuracy_RL / float(others * rows))
    low, high = np.nanquantile(found_R, (0.025, 0.975))
    return RankCorrelation(rho, (float(low), float(high)))


def _rho(one_RL: NDArray[Any], other_RL: NDArray[Any]) -> Floats:
    """Of every line; NaN where one of both is constant."""
    from scipy.stats import rankdata  # a report of no importance does without: a second

    # accuracies of the same rows differ by 1/N or not at all; less is rounding
    one, other = (rankdata(np.round(value, 9), axis=1) for value in (one_RL, other_RL))
    one, other = (rank - rank.mean(1, keepdims=True) for rank in (one, other))
    size = np.sqrt((one**2).sum(1) * (other**2).sum(1))
    return np.divide((one * other).sum(1), size, where=size > 0, out=np.full(len(size), np.nan))
