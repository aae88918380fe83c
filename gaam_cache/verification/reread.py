"""Rows of imported states are read from their files again and compared with a cache.

D features, L layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from gaam_cache.encoders._deviation import relative
from gaam_cache.extraction.proof import as_numbers
from gaam_cache.extraction.recorded import recorded_import
from gaam_cache.format.layout import UNLABELLED, embeddings_key
from gaam_cache.format.plan import Plan, ShardSpec
from gaam_cache.importing.job import hash_files, opened
from gaam_cache.terminal import Report
from gaam_cache.verification.rows_again import (
    FILES,
    Recomputed,
    beside_states,
    check_same,
    choose_rows,
    stored_row,
)


def reread(
    root: Path, plan: Plan, shards: Sequence[ShardSpec], count: int, *, seed: int, report: Report
) -> Recomputed:
    """Compare random rows with the files, bit by bit.

    Args:
        root: the cache.
        plan: its plan.
        shards: those to choose rows from, all of them whole.
        count: rows, at most all there are.
        seed: decides which.
        report: called with (rows done, rows in all, what is going on).

    Raises:
        CacheError: the states came from a program, or the files are no longer what they were.
        NotFoundError: a file is no longer there.
    """
    deviation_L: NDArray[np.float64] = np.zeros(plan.num_layers)
    far: dict[str, str] = {}
    chosen = choose_rows(shards, count, seed)
    with opened(recorded_import(plan, root)) as job:
        then = plan.fingerprint_fields["encoder"]["imported"]["files"]
        check_same(hash_files(job.containers, report), then, "the files are", root)
        for done, (shard, row) in enumerate(chosen, start=1):
            material = job.materials[shard.split]
            again = material.states.stored(row, row + 1, plan.storage_dtype)[0]
            tokens = 1 if material.num_tokens is None else int(material.num_tokens[row])
            there = stored_row(root, plan, shard, row)
            kept = there[embeddings_key(plan, plan.pooling[0])]
            pair = as_numbers(kept, plan.storage_dtype), as_numbers(again, plan.storage_dtype)
            deviation_L = np.maximum(deviation_L, relative(*pair))
            label = int(material.labels.numbers[row]) if material.labelled else UNLABELLED
            expected_row = (label, tokens, *(material.kept[name][row] for name in plan.columns))
            if kept.tobytes() != again.tobytes() or expected_row != beside_states(there, plan):
                far.setdefault(shard.name, f"row {row} is not that of the files")
            report(done, len(chosen), "reading rows again")
    return Recomputed(
        rows=len(chosen),
        seed=seed,
        device=FILES,
        deviation=tuple(deviation_L.tolist()),
        limit=0.0,
        first_layer=plan.first_layer,
        far=far,
    )
