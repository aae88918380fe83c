"""A shard proves itself: some of its rows are encoded again, alone, before it is published.

What is compared is what the encoder computed, before it is rounded to the storage type.

N rows, L layers, D hidden size.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from gaam_cache.devices import bits
from gaam_cache.encoders._deviation import relative
from gaam_cache.extraction.batches import Lengths

ROWS_PER_PROOF = 500
FEWEST = 2


def choose_rows(lengths: Lengths, batches: Sequence[NDArray[np.int64]]) -> list[int]:
    """Which rows of a shard prove it: one in 500, at least two, the same at every attempt.

    First the shortest row of the batch with the longest, around which padding is greatest; the
    others are spread evenly over the rows in order of their length.
    """
    length_N = np.asarray(lengths)
    count = min(len(length_N), max(FEWEST, -(-len(length_N) // ROWS_PER_PROOF)))
    most = batches[int(np.argmax([np.ptp(length_N[batch]) for batch in batches]))]
    first = int(most[length_N[most].argmin()])
    by_length = np.argsort(length_N, kind="stable")
    others = by_length[by_length != first].tolist()
    ends = (0, len(others) - 1) if count > 2 else (len(others) // 2,) * 2
    steps = np.linspace(*ends, count - 1).round().astype(int)
    return [first, *(others[step] for step in steps)]


def worst_deviation(
    states: Mapping[str, NDArray[Any]],
    computed: Iterable[tuple[int, Mapping[str, Tensor]]],
    alone: Mapping[int, Mapping[str, Tensor]],
    storage_dtype: str,
) -> tuple[float, int, int]:
    """The greatest ``|state - alone| / |alone|``, its layer (from 0) and row.

    Infinite where what is to be stored, (N, L, D), is not the state rounded that came out of the
    row's batch, (L, D).
    """
    worst = 0.0, 0, 0
    for row, pooled in computed:
        for name, x_LD in pooled.items():
            share_L = relative(x_LD.numpy(), alone[row][name][0].numpy())
            stored_LD = bits(x_LD.to(getattr(torch, storage_dtype)))
            share_L[(states[name][row] != stored_LD).any(axis=-1)] = math.inf
            layer = int(share_L.argmax())
            worst = max(worst, (float(share_L[layer]), layer, row))
    return worst
