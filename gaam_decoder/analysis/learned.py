"""Where learned parameters end up, and the curve of a learned gate.

The functions read finished runs. S seeds, H heads, D hidden size, K cells (a feature of
a head each, all H * D or some), P points.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common import plugins
from gaam_decoder import stats
from gaam_decoder.recipe import recorded_plugins
from gaam_decoder.runs.records import CacheRecord
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import first_run_by_seed, values_by_finished_seed

if TYPE_CHECKING:
    from torch import Tensor

    from gaam_decoder.attention.frames.density import DensityGate

Floats = NDArray[np.floating]
RESIDUALS: Floats = np.linspace(-4, 4, 161)
"""Points of a curve. Over G layers, no standardised value is beyond sqrt(G - 1)."""
MOST_CELLS = 1024
"""Cells of one seed, evenly spaced, over which a curve is averaged. More cells change
nothing that is visible."""
MECHANISMS = "gaam_decoder.attention"
OFFSET = "offset"
"""Name of the parameter that every density learns, (H, D), beside its own."""


@dataclass(frozen=True, slots=True)
class Gate:
    """A gate that can be planted: the weight of a layer by its standardised value r.

    It is the same for all features, with one head and no offset.
    """

    mechanism: str  # it can express the gate exactly
    parameters: Mapping[str, float]  # by the names in the mechanism
    formula: str
    attn: str  # value of --attn that trains the mechanism


GATES: dict[str, Gate] = {
    "laplace": Gate("laplace", {"b": 0.5}, "exp(-|r| / 0.5)", "laplace:heads=1"),
    "gaussian": Gate("gaam", {"xi": 0.5}, "exp(-r^2 / (2 * 0.5))", "gaam:heads=1"),
    "student-t": Gate(
        "student-t",
        {"nu": 1.0, "xi": 0.25},
        "1 / (1 + r^2 / 0.25)",
        "student-t:heads=1",
    ),
    # training starts at k = 3: from k = 2, where the gate has one peak, it hardly moves
    "two-peaks": Gate(
        "chi2",
        {"excess": 2.0, "xi": 0.5},
        "q / 2 * exp(-(q - 2) / 2), q = r^2 / 0.5",
        "chi2:heads=1,k=3",
    ),
    "none": Gate("none", {}, "1: the mean over layers decides", "none"),
}
"""The gates that ``plant`` knows, by name.

Their widths make gates differ. On Gaussian states of 16 layers, a linear map of the
states explains less than 5% of the variance of the output of a gate with one peak, and
19% for two peaks. A Gaussian gate leaves 4% of the Laplace gate unexplained, 2% of the
Student-t gate and half of the two-peaked gate (``tests/decoder/analysis/test_plant.py``
measures it). Training starts from other parameters.
"""


def parameter_range(
    values: Floats, start: Sequence[float] | None = None
) -> dict[str, Any]:
    """The range of one parameter over heads, features and seeds, as JSON values.

    Args:
        values: of every finished seed, (S, ...); K numbers a seed.
        start: smallest and largest value before training.
    """
    value_SK = values.astype(np.float64).reshape(len(values), -1)
    median_S = np.median(value_SK, axis=1)
    return {
        "start": list(start) if start else None,
        "min": float(value_SK.min()),
        "median": float(np.median(value_SK)),
        "max": float(value_SK.max()),
        "seed_medians_sd": stats.standard_deviation(median_S),
    }


def learned_ranges(runs: Sequence[RunResult]) -> dict[str, dict[str, Any]]:
    """``parameter_range`` of every learned parameter, by name.

    The runs differ in their seeds alone. Empty if the mechanism learns nothing that
    means something by itself, or if no seed finished.
    """
    ranges = {}
    for name in runs[0].learned:
        values_by_seed = _values_by_seed(runs, name)
        if values_by_seed:
            values = np.stack(list(values_by_seed.values()))
            ranges[name] = parameter_range(values, runs[0].learned_start.get(name))
    return ranges


def _values_by_seed(runs: Sequence[RunResult], name: str) -> dict[int, NDArray[Any]]:
    """The values of one learned parameter, for each finished seed."""
    return values_by_finished_seed(runs, lambda run: run.learned.get(name))


def learned_curves(runs: Sequence[RunResult]) -> Floats | None:
    """The learned gate of every seed, averaged over heads and features, (S, P).

    The curve gives the weight of a layer at each standardised value of ``RESIDUALS``.
    Every gate is drawn with its centre at 0 and its peak at 1. Its learned centre,
    ``offset``, is left out: it has the unit of the states as the decoder reads them.
    Its learned height means nothing: the head can undo a factor of all weights.

    Args:
        runs: that differ in their seeds alone.

    Returns:
        The curves; None if the mechanism does not weight layers by a density.
    """
    density_gate = _density_gate(runs[0])
    if density_gate is None:
        return None
    import torch

    residual_P1 = torch.from_numpy(RESIDUALS)[:, None]
    curves = []
    with torch.inference_mode():
        for seed, run in first_run_by_seed(runs).items():
            if seed in run.failed:
                continue
            seed_index = run.seeds.index(seed)
            # a sample of cells (a feature of a head each) takes less time than all
            parameters = {
                name: _sampled_cells(value_SHD[seed_index])
                for name, value_SHD in run.learned.items()
            }
            # a row for every point of the curve, a column for every sampled cell
            curve_PK = density_gate.curve(residual_P1, parameters)
            curves.append(curve_PK.mean(1).numpy())
    return np.stack(curves)


def has_learned_curve(run: RunResult) -> bool:
    """Whether the mechanism of a run is a density that is known here."""
    return _density_gate(run) is not None


def is_density(attention: str) -> bool:
    """Whether a mechanism weights the layers by a density of each value.

    ``attention`` is its name, with or without options. Unknown names are none.
    """
    # late: runs are listed without torch
    from gaam_decoder.attention.frames.density import DensityGate
    from gaam_decoder.attention.gaussian_mixture import GaussianMixture

    # the mixture standardises in its own way, so it extends another class
    mechanism = _mechanism_class(attention)
    return issubclass(mechanism, (DensityGate, GaussianMixture))


def _density_gate(run: RunResult) -> "type[DensityGate] | None":
    """The class of a run's mechanism; None if it is unknown here, or no density.

    It is unknown if its code is not that of the run.
    """
    from gaam_decoder.attention.frames.density import DensityGate

    mechanism = _mechanism_class(run.attention)
    if not issubclass(mechanism, DensityGate):
        return None
    name = run.attention.partition(":")[0]
    recorded_code = recorded_plugins(run.settings).get(f"mechanism {name}")
    # a run does not record gaam's own code
    if recorded_code is None:
        return mechanism
    code = plugins.code_hash(MECHANISMS, name, kind="mechanism")
    return mechanism if code == recorded_code else None


def _mechanism_class(attention: str) -> type:
    """The class of a mechanism; ``object`` if it is unknown here."""
    name = attention.partition(":")[0]
    is_a_persons_own = bool(plugins.file_of(MECHANISMS, name))
    if name not in plugins.names(MECHANISMS) and not is_a_persons_own:
        return object
    mechanism: type = plugins.load(MECHANISMS, name, kind="mechanism")
    return mechanism


def _sampled_cells(value_HD: NDArray[Any]) -> "Tensor":
    """The values of at most ``MOST_CELLS`` evenly spaced cells, (K,), in float64.

    A cell is one feature of one head.
    """
    import torch

    value_K = value_HD.astype(np.float64).ravel()
    count = min(len(value_K), MOST_CELLS)
    indices = np.linspace(0, len(value_K) - 1, count).astype(int)
    return torch.from_numpy(value_K[indices])


def planted_gate(cache: CacheRecord) -> str | None:
    """Name of the gate that was planted in a run's cache; None if none is known.

    Args:
        cache: the run's record of its cache.
    """
    planted = cache.planted
    if not isinstance(planted, dict):
        return None
    gate = planted.get("gate")
    return gate if isinstance(gate, str) and gate in GATES else None


def planted_curve(gate_name: str) -> Floats:
    """A planted gate at ``RESIDUALS``, (P,).

    Args:
        gate_name: a key of ``GATES``.
    """
    import torch

    gate = GATES[gate_name]
    if not gate.parameters:
        return np.ones_like(RESIDUALS)
    mechanism: type[DensityGate] = plugins.load(
        MECHANISMS, gate.mechanism, kind="mechanism"
    )
    parameters = {
        name: torch.tensor(value).double() for name, value in gate.parameters.items()
    }
    curve_P: Floats = mechanism.density(
        torch.from_numpy(RESIDUALS), **parameters
    ).numpy()
    return curve_P
