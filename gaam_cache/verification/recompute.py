"""Encode some rows again, alone, and compare with what a cache holds.

R rows, L layers, D hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gaam_cache.encoders._base import open_encoder
from gaam_cache.encoders._deviation import recompute_limit, relative
from gaam_cache.extraction.proof import as_numbers
from gaam_cache.extraction.recorded import recorded_config
from gaam_cache.format.layout import UNLABELLED, embeddings_key
from gaam_cache.format.plan import Plan, ShardSpec
from gaam_cache.format.planted import planted_in
from gaam_cache.import_config import is_imported
from gaam_cache.verification.replanted import Drawn, replanted
from gaam_cache.verification.reread import reread
from gaam_cache.verification.rows_again import (
    Recomputed,
    beside_states,
    check_same,
    choose_rows,
    stored_row,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


def recompute(
    root: Path,
    plan: Plan,
    shards: Sequence[ShardSpec],
    count: int,
    *,
    seed: int,
    device: str,
    report: Callable[[int, int, str], None],
    drawn: Drawn | None = None,
) -> Recomputed:
    """Encode random rows one at a time, or read imported ones again, and compare with the cache.

    What was planted is planted again.

    Args:
        root: the cache.
        plan: its plan.
        shards: those to choose rows from, all of them whole.
        count: rows, at most all there are.
        seed: decides which.
        device: auto, cpu, cuda, cuda:N or mps.
        report: called with (rows done, rows in all, what is going on).
        drawn: plants again what was planted.

    Raises:
        CacheError: the rows or the encoder are no longer those of the cache.
        NotFoundError: the data set or the encoder is no longer there.
    """
    if planted_in(plan) is not None:
        return replanted(root, plan, shards, count, seed=seed, report=report, drawn=drawn)
    if is_imported(plan.encoder):
        return reread(root, plan, shards, count, seed=seed, report=report)
    from gaam_cache.extraction.job import content_of, plan_fields
    from gaam_cache.sources._base import find_source

    config = recorded_config(plan, root, device=device)
    report(0, count, "reading the rows")
    source = find_source(config.dataset)
    rows = {split: source.read(config, split, report) for split in config.splits}
    encoder = open_encoder(plan.encoder["kind"], config, rows)
    now = plan_fields(config, rows, plan.class_names, encoder, content_of(rows))
    check_same(now, plan.fingerprint_fields, "the encoder or the data set is", root)
    chosen = choose_rows(shards, count, seed)
    report(0, len(chosen), "loading the encoder")
    encoder.load()
    limit = recompute_limit(encoder.dtype, plan.storage_dtype)
    deviation_L: NDArray[np.float64] = np.zeros(plan.num_layers)
    far: dict[str, str] = {}
    for done, (shard, row) in enumerate(chosen, start=1):
        part = rows[shard.split]
        inputs = encoder.prepare([part.inputs[row]])
        alone = encoder.encode_alone(inputs.items[0])
        stored = stored_row(root, plan, shard, row)
        here_L: NDArray[np.float64] = np.zeros(plan.num_layers)
        for pooling, states_BLD in alone.items():
            alone_LD = states_BLD[0].cpu().numpy()
            stored_LD = as_numbers(stored[embeddings_key(plan, pooling)], plan.storage_dtype)
            here_L = np.maximum(here_L, relative(stored_LD, alone_LD, plan.storage_dtype))
        deviation_L = np.maximum(deviation_L, here_L)
        label = plan.class_names.index(part.labels[row]) if part.labelled else UNLABELLED
        expected = (label, inputs.lengths[0], *(part.kept[name][row] for name in plan.columns))
        found = beside_states(stored, plan)
        if found != expected:
            why = f"row {row} has label, number of tokens and columns {found}, must be {expected}"
            far.setdefault(shard.name, why)
        elif not here_L.max() <= limit:
            layer = int(here_L.argmax()) + plan.first_layer
            far.setdefault(
                shard.name,
                f"row {row}, encoded alone, deviates by {here_L[layer]:.1e} in layer {layer}, "
                f"more than {limit:.1e}",
            )
        report(done, len(chosen), "encoding rows alone")
    return Recomputed(
        rows=len(chosen),
        seed=seed,
        device=str(encoder.device),
        deviation=tuple(deviation_L.tolist()),
        limit=limit,
        first_layer=plan.first_layer,
        far=far,
    )
