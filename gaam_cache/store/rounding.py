"""How far two computations of one state may differ by rounding alone.

Two computations of one row differ a little: by its batch, the kernel, the machine. The
limits of this file separate such rounding from an encoder that computes other states.

D hidden size.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROUNDING = {"float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}
"""Deviation between two batches on one device, relative to the norm of a layer. The
half precision types round after every operation and get eight units in the last place
of 1; float32, whose errors are sums of many small ones, gets 170."""
UNMOVED = {"float32": 1e-6, "float16": 5e-5, "bfloat16": 5e-5}
"""Deviation that counts as none in a higher precision than this type: in float64, or in
float32, where massive activations of a real Llama make 2e-5."""
TIMES_ALONE = 4.0
"""Largest rounding of another kernel, in multiples of that of a row encoded alone.
Measured on a real Llama: up to 4.7, in rows with massive activations."""

# Multiple of ROUNDING for a data set: it has many more rows than a probe.
OTHER_ROWS = 5.0
# Further multiple for another device, library or number of threads.
ELSEWHERE = 2.0

STORAGE_TOLERANCE = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}
"""Largest relative error of rounding to nearest: half a unit in the last place of 1."""
_SMALLEST_STEP = {"float16": 2.0**-24, "bfloat16": 0.0, "float32": 0.0}
"""Distance between the numbers next to zero; 0 if it is far below every state."""


def relative_deviation(
    states: NDArray[Any], alone: NDArray[Any], storage_dtype: str = "float32"
) -> NDArray[np.float64]:
    """``|states - alone| / |alone|`` over features; infinite if it is not finite.

    Args:
        states: the states to check, (..., D).
        alone: the states that they should equal, (..., D).
        storage_dtype: type of ``states``. Half of its distance between the numbers next
            to zero is not counted, or a layer of very small states would deviate by its
            own size.
    """
    expected = alone.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        norm = np.linalg.norm(expected, axis=-1)
        gap = np.abs(states.astype(np.float64) - expected)
        # Rounding near zero is absolute, not relative.
        gap = np.maximum(gap - _SMALLEST_STEP[storage_dtype] / 2, 0.0)
        deviation = np.linalg.norm(gap, axis=-1) / np.where(norm > 0, norm, 1.0)
    return np.where(np.isfinite(deviation), deviation, math.inf)


def is_within_rounding(
    states: NDArray[Any],
    alone: NDArray[Any],
    exact: NDArray[Any],
    limit: float,
    storage_dtype: str = "float32",
) -> bool:
    """Whether rounding explains how states differ from those of the row encoded alone.

    In every layer, their deviation from the exact states may be ``TIMES_ALONE`` the
    deviation of the row alone, plus ``limit``.

    Args:
        states: the states to check, (..., D), of ``storage_dtype``.
        alone: states of the row alone, in the same arithmetic, (..., D).
        exact: states of the row alone, in higher precision, (..., D).
        limit: relative to the norm of a layer.
        storage_dtype: type of ``states``, see ``relative_deviation``.
    """
    deviation_alone = relative_deviation(alone, exact)
    deviation = relative_deviation(states, exact, storage_dtype)
    return bool((deviation <= TIMES_ALONE * deviation_alone + limit).all())


def proof_limit(compute_dtype: str) -> float:
    """Largest deviation of a state, not yet stored, from that of the row alone."""
    return OTHER_ROWS * ROUNDING[compute_dtype]


def recompute_limit(compute_dtype: str, storage_dtype: str) -> float:
    """Largest deviation of a stored state from one recomputed, maybe elsewhere."""
    computing = ELSEWHERE * OTHER_ROWS * ROUNDING[compute_dtype]
    return STORAGE_TOLERANCE[storage_dtype] + computing
