"""Where learned parameters end up, and the curve of a learned gate: functions of finished runs.

S seeds, H heads, D hidden size, K = H * D cells, P points.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common import plugins
from gaam_decoder import stats
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.tuning import by_seed, first_runs

Floats = NDArray[np.floating[Any]]
RESIDUALS: Floats = np.linspace(-4, 4, 161)
"""Where curves are read: over G layers no value is further than sqrt(G - 1) from their mean."""
MOST_CELLS = 1024  # of one seed, evenly spaced: a mean of more has the same curve
MECHANISMS = "gaam_decoder.attention"
OFFSET = "offset"  # every density learns it, (H, D): a recorded gate of features has it


@dataclass(frozen=True, slots=True)
class Gate:
    """One gate: the same for all features, with one head and no offset."""

    mechanism: str  # the one that can express it exactly
    parameters: Mapping[str, float]  # as the mechanism stores them, by name
    formula: str
    attn: str  # what to train, as --attn takes it


GATES: dict[str, Gate] = {
    "laplace": Gate("laplace", {"b": 0.5}, "exp(-|r| / 0.5)", "laplace:heads=1"),
    "gaussian": Gate("gaam", {"xi": 0.5}, "exp(-r^2 / (2 * 0.5))", "gaam:heads=1"),
    "student-t": Gate(
        "student-t",
        {"nu": 1.0, "xi": 0.25},
        "1 / (1 + r^2 / 0.25)",
        "student-t:heads=1",
    ),
    # from k = 2, where a second peak does not begin to show, training hardly gets away
    "two-peaks": Gate(
        "chi2",
        {"excess": 2.0, "xi": 0.5},
        "q / 2 * exp(-(q - 2) / 2), q = r^2 / 0.5",
        "chi2:heads=1,k=3",
    ),
    "none": Gate("none", {}, "1: the mean over layers decides", "none"),
}
"""Widths at which, on Gaussian states of 16 layers, a linear map of the states explains less than
5% of the variance of what a gate with one peak lets through, and 19% of one with two; a Gaussian
gate leaves 4% of the Laplace, 2% of the Student-t and half of the two-peaked one unexplained
(``tests/decoder/analysis/test_plant.py``). None of them is where training starts."""


def parameter_range(
    values: Floats, start: Sequence[float] | None = None
) -> dict[str, Any]:
    """Where one parameter ended up over its heads, features and all finished seeds, as JSON values.

    ``values`` (S, ...) have an entry per finished seed; ``start`` is the smallest and largest value
    before training.
    """
    flat = values.astype(np.float64).reshape(len(values), -1)
    return {
        "start": list(start) if start else None,
        "min": float(flat.min()),
        "median": float(np.median(flat)),
        "max": float(flat.max()),
        "seed_medians_sd": stats.standard_deviation(np.median(flat, axis=1)),
    }


def learned_ranges(runs: Sequence[RunResult]) -> dict[str, dict[str, Any]]:
    """``parameter_range`` of every learned parameter, of runs that differ in their seeds alone.

    Empty where the mechanism learns nothing that means something by itself, or no seed finished.
    """
    ranges = {}
    for name in runs[0].learned:
        if found := by_seed(runs, lambda run, name=name: run.learned.get(name)):  # type: ignore[misc]
            start = runs[0].learned_start.get(name)
            ranges[name] = parameter_range(np.stack(list(found.values())), start)
    return ranges


def learned_curves(runs: Sequence[RunResult]) -> Floats | None:
    """Mean gate over heads and features of every seed at ``RESIDUALS``, (S, P).

    Peak 1 and centred at 0: where a gate lies (``offset``) is in units of the states, and whatever
    all weights are multiplied by, the head undoes. Of runs that differ in their seeds alone; None
    where the mechanism is no density.
    """
    from gaam_decoder.attention.frames.density import DensityGate

    name = runs[0].attention.partition(":")[0]
    known = name in plugins.names(MECHANISMS)
    cls: Any = plugins.load(MECHANISMS, name, kind="mechanism") if known else object
    if not issubclass(cls, DensityGate):
        return None
    import torch

    r_P1, curves = torch.from_numpy(RESIDUALS)[:, None], []
    with torch.inference_mode():
        for seed, run in first_runs(runs).items():
            if seed not in run.failed:
                values = {}
                for name, value_SHD in run.learned.items():
                    cell_K = value_SHD[run.seeds.index(seed)].astype(np.float64).ravel()
                    last, most = len(cell_K) - 1, min(len(cell_K), MOST_CELLS)
                    some = np.linspace(0, last, most).astype(int)
                    values[name] = torch.from_numpy(cell_K[some])
                curves.append(cls.curve(r_P1, values).mean(1).numpy())
    return np.stack(curves)


def planted_gate(cache: Mapping[str, Any]) -> str | None:
    """The gate that was planted, by what a run says of its cache; None where none is known."""
    about = cache.get("planted")
    gate = about.get("gate") if isinstance(about, dict) else None
    return gate if isinstance(gate, str) and gate in GATES else None


def planted_curve(gate: str) -> Floats:
    """The planted gate, a key of ``GATES``, at ``RESIDUALS``, (P,)."""
    import torch

    about = GATES[gate]
    if not about.parameters:
        return np.ones_like(RESIDUALS)
    cls: Any = plugins.load(MECHANISMS, about.mechanism, kind="mechanism")
    values = {
        name: torch.tensor(value).double() for name, value in about.parameters.items()
    }
    curve_P: Floats = cls.density(torch.from_numpy(RESIDUALS), **values).numpy()
    return curve_P
