"""Which positions of a model are patches of a picture, measured.

B batch, T positions, C channels, H height, W width, D hidden size.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from gaam_cache.encoders._deviation import ROUNDING
from gaam_cache.encoders._model.forward import Forward, Unusable

CORNER = 4
"""The share of a side, as its divisor, that a changed corner has. No patch is in two corners then,
unless there is one patch in all."""


class Layout(NamedTuple):
    """Positions of the patches: ``start`` to ``stop``. The others are class tokens, registers."""

    start: int
    stop: int


def find_layout(forward: Forward, shape: tuple[int, ...], dtype: str) -> Layout:
    """Positions whose state before the first layer depends on the picture, in one run.

    Nothing is read off a name. A class token, a distillation token or a register is the same for
    every picture there; a patch is not. Of a picture with another upper left corner only patches
    at the beginning may move, with another lower right corner only patches at the end: what moves
    with both has seen the whole picture, and is no patch.

    Args:
        forward: the model.
        shape: (C, H, W) of a picture.
        dtype: arithmetic, which says what counts as moved.

    Raises:
        Unusable: the positions are not those of patches, in the order of reading.
    """
    some_BCHW = _pictures(shape)
    batch = forward.batch(list(some_BCHW))
    states = getattr(forward.run(batch, None, output_hidden_states=True), "hidden_states", None)
    first = states[0] if isinstance(states, tuple | list) and states else None
    if not isinstance(first, Tensor) or first.ndim != 3 or len(first) != len(some_BCHW):
        raise Unusable("the model returns no state for every patch of a picture")
    x_BTD = first.float()
    shift_BT = (x_BTD[1:] - x_BTD[:1]).norm(dim=-1).cpu().numpy()
    everything, upper, lower = (_moved(shift_T, dtype) for shift_T in shift_BT)
    start, stop = int(everything[0]), int(everything[-1]) + 1
    if len(everything) != stop - start:
        raise Unusable("there are positions between the patches that do not depend on the picture")
    if len(everything) == 1:
        return Layout(start, stop)
    if np.intersect1d(upper, lower).size:
        raise Unusable(
            "states before the first layer depend on the whole picture, or on random numbers, as "
            "those of a masked autoencoder do (ViTMAEModel hides patches; the same weights saved "
            "as ViTModel do not)"
        )
    if upper[0] != start or lower[-1] != stop - 1 or upper[-1] > lower[0]:
        raise Unusable("the patches do not stand in the order of the picture")
    return Layout(start, stop)


def _moved(shift_T: NDArray[np.float32], dtype: str) -> NDArray[np.int64]:
    most = float(shift_T.max())
    if not 0 < most < np.inf:
        raise Unusable("another picture gives the same states before the first layer, or no finite")
    return np.flatnonzero(shift_T > ROUNDING[dtype] * most)


def _pictures(shape: tuple[int, ...]) -> NDArray[np.float32]:
    """One, all of it another, its upper left corner another, its lower right one: (4, C, H, W)."""
    rng = np.random.default_rng(0)
    one, other = rng.standard_normal((2, *shape), dtype=np.float32)
    upper, lower = one.copy(), one.copy()
    height, width = (max(1, side // CORNER) for side in shape[1:])
    upper[:, :height, :width] = other[:, :height, :width]
    lower[:, -height:, -width:] = other[:, -height:, -width:]
    return np.stack([one, other, upper, lower])
