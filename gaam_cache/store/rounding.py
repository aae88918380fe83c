"""How far two computations of one state may lie apart where rounding alone is at work.

D hidden size.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROUNDING = {"float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}
"""What another batch adds on one device, as the share of a layer's norm: where rounding alone is
at work. Eight units in the last place of 1 for the half-precision types, whose activations are
rounded after every operation; float32, whose errors are sums of many small ones, gets 170."""
UNMOVED = {"float32": 1e-6, "float16": 5e-5, "bfloat16": 5e-5}
"""What counts as no shift of a state that is computed in higher precision than this: in float64, or
in float32, of which massive activations of a real Llama make 2e-5."""
TIMES_ALONE = 4.0
"""How much more another kernel may round than that of a row alone: of a real Llama up to 4.7 times,
in rows whose activations are massive."""
OTHER_ROWS = 5.0  # times ``ROUNDING``: the rows of a data set are many more than those of a probe
ELSEWHERE = 2.0  # times that: what another device, library or number of threads adds
STORAGE_TOLERANCE = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}
"""Largest relative error of rounding to nearest: half a unit in the last place of 1."""
_SMALLEST_STEP = {"float16": 2.0**-24, "bfloat16": 0.0, "float32": 0.0}
"""Distance of the numbers next to zero, where it is no smaller than states can be."""


def relative(
    states: NDArray[Any], alone: NDArray[Any], storage_dtype: str = "float32"
) -> Any:
    """``|states - alone| / |alone|`` over features; infinite where that is no number.

    Args:
        states: what is looked at, (..., D).
        alone: what it must be, (..., D).
        storage_dtype: of ``states``; half of the distance between its numbers next to zero is not
            counted, for a layer of very small states would else deviate by its own size.
    """
    exact = alone.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        norm = np.linalg.norm(exact, axis=-1)
        gap = np.abs(states.astype(np.float64) - exact)
        gap = np.maximum(gap - _SMALLEST_STEP[storage_dtype] / 2, 0.0)
        share = np.linalg.norm(gap, axis=-1) / np.where(norm > 0, norm, 1.0)
    return np.where(np.isfinite(share), share, math.inf)


def is_within_rounding(
    states: NDArray[Any],
    alone: NDArray[Any],
    exact: NDArray[Any],
    limit: float,
    storage_dtype: str = "float32",
) -> bool:
    """Whether rounding explains how far states are from those of their row alone.

    They may be ``TIMES_ALONE`` as far from the exact states as those of the row alone are, and by
    ``limit`` further, in every layer.

    Args:
        states: what is looked at, (..., D), of ``storage_dtype``.
        alone: of the row alone, in the same arithmetic, (..., D).
        exact: of the row alone, in higher precision, (..., D).
        limit: relative to the norm of a layer.
        storage_dtype: of ``states``, as ``relative`` takes it.
    """
    rounded = relative(alone, exact)
    off = relative(states, exact, storage_dtype)
    return bool((off <= TIMES_ALONE * rounded + limit).all())


def proof_limit(compute_dtype: str) -> float:
    """The largest deviation of a state, not yet stored, from one computed alone beside it."""
    return OTHER_ROWS * ROUNDING[compute_dtype]


def recompute_limit(compute_dtype: str, storage_dtype: str) -> float:
    """The same of a stored state, where the second computation may happen on another machine."""
    return (
        STORAGE_TOLERANCE[storage_dtype]
        + ELSEWHERE * OTHER_ROWS * ROUNDING[compute_dtype]
    )
