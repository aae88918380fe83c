"""The importance of every layer for a trained mechanism, from its mean attention maps.

S seeds, L layers, D features (1 if all features share a weight), H heads, Q queries.

Source: Ioannides, Chadha, Elkins 2024, arXiv 2401.11143, the Importance Factor: the
attention map averaged over the evaluation rows, min-max normalised. Deviation: every
seed has its own factor, and their mean and standard deviation are reported.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import values_by_finished_seed

Floats = NDArray[np.floating]
FLAT = 4 * float(np.finfo(np.float32).eps)
"""Relative range of a map up to which rounding explains it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Importance:
    """Importance of every layer, averaged over finished seeds.

    The contribution of a layer is its share of the summed attention map, in percent.
    The importance factor is the map scaled to [0, 1], averaged over the features.
    """

    layers: tuple[int, ...]  # numbers in the encoder
    seeds: tuple[int, ...]
    contribution: tuple[float, ...]
    contribution_sd: tuple[float, ...] | None  # over seeds; None for one seed
    factor: tuple[float, ...]
    factor_sd: tuple[float, ...] | None  # over seeds; None for one seed

    def to_dict(self) -> dict[str, object]:
        """JSON values: one object per layer."""
        figures = {
            "contribution": self.contribution,
            "contribution_sd": self.contribution_sd,
            "factor": self.factor,
            "factor_sd": self.factor_sd,
        }
        layers = []
        for index, layer in enumerate(self.layers):
            record: dict[str, float | None] = {"layer": layer}
            for name, values in figures.items():
                record[name] = None if values is None else values[index]
            layers.append(record)
        return {"seeds": list(self.seeds), "layers": layers}


def layer_map(attention_maps: Floats) -> NDArray[np.float64]:
    """The mean attention maps of seeds as weights, (S, L, D) or (S, L, 1).

    The map of a gate has this shape. The map of an attention over layers, (S, H, Q, L),
    is averaged over heads and queries.
    """
    weights = attention_maps.astype(np.float64)
    if weights.ndim == 4:
        mean_SL: NDArray[np.float64] = weights.mean((1, 2))
        return mean_SL[..., None]
    return weights


def importance_factor(attention_maps: Floats) -> NDArray[np.float64]:
    """``IF = (w - min w) / (max w - min w)`` of every seed's mean map.

    It is 0 everywhere for a constant map. Shapes are as in ``layer_map``.
    """
    map_SLD = layer_map(attention_maps)
    low_S11 = map_SLD.min((1, 2), keepdims=True)
    range_S11 = map_SLD.max((1, 2), keepdims=True) - low_S11
    is_flat_S11 = range_S11 <= FLAT * np.abs(map_SLD).max((1, 2), keepdims=True)
    divisor_S11 = np.where(is_flat_S11, 1.0, range_S11)
    return np.where(is_flat_S11, 0.0, (map_SLD - low_S11) / divisor_S11)


def layer_contribution(attention_maps: Floats) -> NDArray[np.float64]:
    """Each layer's share of the summed map in percent, (S, L).

    All layers of a map of zeros have the same share.

    Args:
        attention_maps: the mean map of every seed, in a shape that ``layer_map`` takes.
    """
    map_SLD = layer_map(attention_maps)
    sum_SL = map_SLD.sum(2)
    total_S1 = sum_SL.sum(1, keepdims=True)
    is_empty_S1 = total_S1 == 0
    share_SL = sum_SL / np.where(is_empty_S1, 1.0, total_S1)
    equal_share = 1 / sum_SL.shape[1]
    percent_SL: NDArray[np.float64] = 100 * np.where(is_empty_S1, equal_share, share_SL)
    return percent_SL


def importance_of(runs: Sequence[RunResult]) -> Importance | None:
    """Importance over all finished seeds of runs that differ in their seeds alone.

    None if the mechanism has no attention map, no seed finished, or nothing was tested.
    """
    map_by_seed = values_by_finished_seed(runs, lambda run: run.attention_map)
    if not map_by_seed:
        return None
    attention_maps = np.stack(list(map_by_seed.values()))
    contribution_SL = layer_contribution(attention_maps)
    factor_SLD = importance_factor(attention_maps)
    factor_SL = factor_SLD.mean(2)
    return Importance(
        layers=runs[0].layer_numbers,
        seeds=tuple(map_by_seed),
        contribution=tuple(contribution_SL.mean(0).tolist()),
        contribution_sd=_standard_deviation(contribution_SL),
        factor=tuple(factor_SL.mean(0).tolist()),
        factor_sd=_standard_deviation(factor_SL),
    )


def factor_by_seed(
    runs: Sequence[RunResult], seeds: Sequence[int]
) -> NDArray[np.float64] | None:
    """Importance factor of every layer for each of some finished seeds, (S, L).

    The runs differ in their seeds alone. None if the mechanism has no attention map, or
    one of the seeds did not finish.
    """
    map_by_seed = values_by_finished_seed(runs, lambda run: run.attention_map)
    if not map_by_seed or not set(seeds) <= map_by_seed.keys():
        return None
    factor_SLD = importance_factor(np.stack([map_by_seed[seed] for seed in seeds]))
    factor_SL: NDArray[np.float64] = factor_SLD.mean(2)
    return factor_SL


def _standard_deviation(value_SL: NDArray[np.float64]) -> tuple[float, ...] | None:
    """Standard deviation over seeds of every layer; None for one seed."""
    if len(value_SL) < 2:
        return None
    return tuple(value_SL.std(0, ddof=1).tolist())
