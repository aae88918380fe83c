"""Rows whose labels were drawn from a teacher are drawn again and compared with a cache.

L layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.encoders._deviation import relative
from gaam_cache.errors import CacheError
from gaam_cache.extraction.proof import as_numbers
from gaam_cache.format.layout import embeddings_key
from gaam_cache.format.plan import Plan, ShardSpec
from gaam_cache.terminal import Report
from gaam_cache.verification.rows_again import (
    RECIPE,
    Recomputed,
    beside_states,
    choose_rows,
    stored_row,
)

Drawn = Callable[[Path, Plan], Mapping[str, tuple[Any, NDArray[np.int64]]]]
"""Gives of every split states (N, L, D), to be sliced, and labels (N,), as they were planted."""


def replanted(
    root: Path,
    plan: Plan,
    shards: Sequence[ShardSpec],
    count: int,
    *,
    seed: int,
    report: Report,
    drawn: Drawn | None,
) -> Recomputed:
    """Compare states and labels of random rows with what the recorded recipe gives, bit by bit.

    Args:
        root: the cache.
        plan: its plan, which says how it was planted.
        shards: those to choose rows from, all of them whole.
        count: rows, at most all there are.
        seed: decides which.
        report: called with (rows done, rows in all, what is going on).
        drawn: plants again.

    Raises:
        CacheError: nobody here plants, or not what the plan says.
        NotFoundError: the cache whose states were taken is not to be found.
    """
    if drawn is None:
        raise CacheError(
            "the rows were planted, and are recomputed by who planted them",
            expected="verify(..., drawn=gaam_decoder.analysis.planting.drawn_again)",
            where=str(root.absolute()),
            hint="gaam verify --recompute does that",
        )
    report(0, count, "planting again")
    again = drawn(root, plan)
    chosen = choose_rows(shards, count, seed)
    deviation_L: NDArray[np.float64] = np.zeros(plan.num_layers)
    far: dict[str, str] = {}
    for done, (shard, row) in enumerate(chosen, start=1):
        states, label_N = again[shard.split]
        ours_LD = states[row : row + 1][0].astype(np.float32)
        there = stored_row(root, plan, shard, row)
        kept = there[embeddings_key(plan, plan.pooling[0])]
        kept_LD = as_numbers(kept, plan.storage_dtype).astype(np.float32)
        deviation_L = np.maximum(deviation_L, relative(kept_LD, ours_LD, plan.storage_dtype))
        if kept_LD.tobytes() != ours_LD.tobytes():
            far.setdefault(shard.name, f"row {row} has other states than were planted")
        elif (found := beside_states(there, plan)) != (expected := (int(label_N[row]), 1)):
            why = f"row {row} has label and number of tokens {found}, planted were {expected}"
            far.setdefault(shard.name, why)
        report(done, len(chosen), "comparing rows")
    return Recomputed(
        rows=len(chosen),
        seed=seed,
        device=RECIPE,
        deviation=tuple(deviation_L.tolist()),
        limit=0.0,
        first_layer=plan.first_layer,
        far=far,
    )
