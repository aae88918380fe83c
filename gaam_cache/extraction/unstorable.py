"""A state that the storage type cannot hold."""

from __future__ import annotations

import numpy as np
import torch

from gaam_cache.errors import NumericsError
from gaam_cache.extraction.piece import Piece


class Unstorable(Exception):  # noqa: N818 raised and caught between two threads of this package
    """A state that is not finite in the storage type: (row in the piece, layer, feature)."""

    def __init__(self, piece: Piece, pooling: str, index: tuple[int, ...]) -> None:
        super().__init__(piece.where(index[0]), pooling, index)
        self.piece = piece
        self.pooling = pooling
        self.index = index


def unstorable(
    error: Unstorable, value: float, storage_dtype: str, *, first_layer: int, further: bool
) -> NumericsError:
    """What is said of it.

    Args:
        error: which state.
        value: what the encoder yields there.
        storage_dtype: what cannot hold it.
        first_layer: number of the first layer.
        further: whether it is of a row that is encoded as those of a cache were.
    """
    row, place, feature = error.index
    layer = place + first_layer
    overflow = bool(np.isfinite(value))
    hint = "look at the row, or compute in --dtype float32 with a new --out"
    if overflow:
        hint = "--storage-dtype float32 and a new --out"
    if further:
        hint = "leave the row out; the cache could not hold it either"
    return NumericsError(
        f"a state of layer {layer} cannot be stored as {storage_dtype}"
        if overflow
        else f"the encoder's layer {layer} yields {value}",
        expected=f"finite values up to {torch.finfo(getattr(torch, storage_dtype)).max:g}",
        found=f"{value:g} in feature {feature}",
        where=error.piece.where(row),
        hint=hint,
    )
