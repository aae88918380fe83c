"""How far two computations of one state may differ by rounding alone.

The states of one row differ a little with its batch, the kernel and the machine. The
limits of this file separate such rounding from an encoder that computes other states.

D hidden size. ``(..., D)`` is any number of states, such as one for each layer.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROUNDING = {"float32": 1e-5, "float16": 4e-3, "bfloat16": 3e-2}
"""Largest deviation of a row between two batches on one device, as a share of the norm
of a layer, by the type of the arithmetic. The half precision types round after every
operation: they get eight units in the last place of 1. The errors of float32 are sums
of many small ones: it gets 170 units."""
PRECISE_SHIFT_LIMIT = {"float32": 1e-6, "float16": 5e-5, "bfloat16": 5e-5}
"""Largest deviation that counts as none when the row is computed in a higher precision
than this type. For float32 this is float64; for the half precision types it is float32,
where massive activations of a real Llama make 2e-5."""
TIMES_ALONE = 4.0
"""Largest rounding by another kernel, in multiples of the rounding of the row encoded
alone. Measured on a real Llama: up to 4.7, in rows with massive activations."""

# Multiple of ROUNDING for a data set: it has many more rows than a probe.
DATA_SET_FACTOR = 5.0
# Further multiple for another device, library or number of threads.
OTHER_MACHINE_FACTOR = 2.0

STORAGE_TOLERANCE = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 2.0**-24}
"""Largest relative error of rounding to nearest: half a unit in the last place of 1."""
_SMALLEST_STEP = {"float16": 2.0**-24, "bfloat16": 0.0, "float32": 0.0}
"""Distance between zero and the next number of each storage type; 0 if this is far
below every state."""


def relative_deviation(
    states: NDArray[Any],
    expected_states: NDArray[Any],
    storage_dtype: str = "float32",
) -> NDArray[np.float64]:
    """Distance of two states as a share of the norm of the expected one.

    Formula: ``|states - expected_states| / |expected_states|``, with norms over the D
    features.

    Args:
        states: the states to check, (..., D).
        expected_states: the states that they should equal, (..., D).
        storage_dtype: type of ``states``. Rounding to it moves numbers near zero by up
            to half of the step between its numbers there. So much is subtracted from
            the difference of every feature: otherwise a layer of very small states
            would deviate by its own size.

    Returns:
        The share of every state, (...). It is infinite where a number is not finite,
        and the norm of the difference itself where the expected state is zero.
    """
    expected = expected_states.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        expected_norm = np.linalg.norm(expected, axis=-1)
        difference = np.abs(states.astype(np.float64) - expected)
        # Rounding near zero is absolute, not relative.
        error_near_zero = _SMALLEST_STEP[storage_dtype] / 2
        difference = np.maximum(difference - error_near_zero, 0.0)
        deviation = np.linalg.norm(difference, axis=-1) / np.where(
            expected_norm > 0, expected_norm, 1.0
        )
    return np.where(np.isfinite(deviation), deviation, math.inf)


def is_within_rounding(
    states: NDArray[Any],
    states_alone: NDArray[Any],
    precise_states: NDArray[Any],
    allowance: float,
    storage_dtype: str = "float32",
) -> bool:
    """Whether rounding explains how a row's states differ from those of the row alone.

    Both are compared with the states of the row in higher precision. Formula, which
    must hold in every layer:
    ``deviation(states) <= TIMES_ALONE deviation(states_alone) + allowance``. The factor
    is there because a batch is computed by other kernels, which may round more.

    Args:
        states: the states to check, (..., D), of ``storage_dtype``.
        states_alone: of the row encoded alone in the same arithmetic, (..., D).
        precise_states: of the row encoded alone in higher precision, (..., D).
        allowance: a share of the norm of a layer.
        storage_dtype: type of ``states``, see ``relative_deviation``.
    """
    deviation = relative_deviation(states, precise_states, storage_dtype)
    deviation_alone = relative_deviation(states_alone, precise_states)
    largest_allowed = TIMES_ALONE * deviation_alone + allowance
    is_allowed = deviation <= largest_allowed
    return bool(is_allowed.all())


def deviation_limit(compute_dtype: str) -> float:
    """Up to which deviation rounding explains a row that moves in a batch.

    The deviation is ``|state in the batch - state alone| / |state alone|``, in a layer,
    before the states are rounded to the storage type. ``compute_dtype`` is the type of
    the encoder's arithmetic.
    """
    # ROUNDING was measured on a few rows. The worst of the many rows of a data set
    # deviates more.
    return DATA_SET_FACTOR * ROUNDING[compute_dtype]


def recompute_limit(compute_dtype: str, storage_dtype: str) -> float:
    """Up to which deviation rounding explains a stored state that is computed again.

    The deviation is ``|stored - computed| / |computed|``, in a layer. The later
    computation may be on another machine, with other libraries.

    Args:
        compute_dtype: type of the encoder's arithmetic.
        storage_dtype: type of the stored state.
    """
    computing_limit = OTHER_MACHINE_FACTOR * deviation_limit(compute_dtype)
    return STORAGE_TOLERANCE[storage_dtype] + computing_limit
