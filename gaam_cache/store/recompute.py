"""Some rows again, encoded alone, read from their files or planted, compared with a cache.

N rows of a split, L layers, D hidden size.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.encoders._base import open_encoder
from gaam_cache.encoders._deviation import recompute_limit, relative
from gaam_cache.errors import CacheError
from gaam_cache.extraction.job import content_of, plan_fields
from gaam_cache.extraction.recorded import recorded_config, recorded_import
from gaam_cache.extraction.shards import RowArrays
from gaam_cache.import_config import is_imported
from gaam_cache.sources._base import Rows, find_source
from gaam_cache.store.dtypes import as_float32, unpacked
from gaam_cache.store.importing import hash_files, opened
from gaam_cache.store.plan import SHARD_FOLDER, Plan, ShardSpec, differences
from gaam_cache.store.read import arrays_of
from gaam_cache.store.shard import embeddings_key, planned_receipt
from gaam_cache.terminal import Report

FILES = "files"
"""The device of rows that are read again, where nobody can compute them."""
Again = Callable[[str, int], tuple[Mapping[str, NDArray[Any]], int]]
"""Split and row -> states (L, D) by pooling, and number of tokens."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recomputed:
    """How far stored states are from states that were computed alone."""

    rows: int
    seed: int
    device: str
    deviation: tuple[float, ...]
    """For every layer the largest ``|stored - alone| / |alone|`` over rows and poolings."""
    limit: float
    """What the storage type and the arithmetic explain; beyond this a shard counts as bad."""
    first_layer: int
    """Number of the first of these layers."""
    far: dict[str, str]
    """Shard -> why it counts as bad."""

    def in_words(self) -> str:
        """Lines for people."""
        worst = max(self.deviation)
        how = "from their files" if self.device == FILES else f"alone on {self.device}"
        verdict = "within" if worst <= self.limit else "BEYOND"
        head = (
            f"  recomputed   {self.rows} rows {how} (seed {self.seed}): "
            f"largest relative deviation {worst:.1e}, {verdict} the {self.limit:.1e} that rounding "
            "explains"
        )
        layers = [f"{n}: {value:.1e}" for n, value in enumerate(self.deviation, self.first_layer)]
        lines = [", ".join(layers[i : i + 8]) for i in range(0, len(layers), 8)]
        return "\n".join([head, *(f"    layer {line}" for line in lines)])


def recompute(
    root: Path,
    plan: Plan,
    shards: Sequence[ShardSpec],
    count: int,
    *,
    seed: int,
    device: str,
    report: Report,
) -> Recomputed:
    """Make random rows of whole shards again, one at a time, and compare with the cache."""
    ends = np.cumsum([shard.stop - shard.start for shard in shards])
    rng, total = np.random.default_rng(seed), int(ends[-1])
    chosen = np.sort(rng.choice(total, min(count, total), replace=False)).tolist()
    deviation_L: NDArray[np.float64] = np.zeros(plan.num_layers)
    far: dict[str, str] = {}
    report(0, len(chosen), "reading the rows")
    with ExitStack() as stack:
        if is_imported(plan.encoder):
            (again, rows), device, limit = _from_files(root, plan, report, stack), FILES, 0.0
        else:
            again, rows, device, limit = _encoded(root, plan, device, report)
        row_arrays = RowArrays(plan, rows)
        for done, index in enumerate(chosen, start=1):
            place = int(np.searchsorted(ends, index, side="right"))
            shard = shards[place]
            row = shard.stop - (int(ends[place]) - index)
            receipt = planned_receipt(root, plan, shard)
            arrays = arrays_of(root / SHARD_FOLDER / receipt.file, receipt)
            there = {key: array[row - shard.start] for key, array in arrays.items()}
            states, tokens = again(shard.split, row)
            of_row = ShardSpec(split=shard.split, index=0, start=row, stop=row + 1)
            for key, (_, [expected]) in row_arrays.of(of_row, [tokens]).items():
                if not np.array_equal(there[key], expected):
                    text = key.startswith("column_")
                    is_, must = (unpacked(x[None]) if text else x for x in (there[key], expected))
                    far.setdefault(shard.name, f"row {row} has {key} {is_}, must be {must}")
            here_L: NDArray[np.float64] = np.zeros(plan.num_layers)
            for pooling, ours_LD in states.items():
                kept_LD = _numbers(there[embeddings_key(plan, pooling)], plan)
                here_L = np.maximum(here_L, relative(kept_LD, ours_LD, plan.storage_dtype))
                if device == FILES and kept_LD.tobytes() != ours_LD.tobytes():
                    far.setdefault(shard.name, f"row {row} has other states than its files")
            deviation_L = np.maximum(deviation_L, here_L)
            if not here_L.max() <= limit:
                layer = int(here_L.argmax())
                why = f"row {row}, encoded alone, deviates by {here_L[layer]:.1e} in layer "
                why += f"{layer + plan.first_layer}, more than {limit:.1e}"
                far.setdefault(shard.name, why)
            report(done, len(chosen), "comparing rows")
    return Recomputed(
        rows=len(chosen),
        seed=seed,
        device=device,
        deviation=tuple(deviation_L.tolist()),
        limit=limit,
        first_layer=plan.first_layer,
        far=far,
    )


def _numbers(stored: NDArray[Any], plan: Plan) -> NDArray[Any]:
    return as_float32(stored) if plan.storage_dtype == "bfloat16" else stored


def _encoded(
    root: Path, plan: Plan, device: str, report: Report
) -> tuple[Again, Mapping[str, Rows], str, float]:
    config = recorded_config(plan, root, device=device)
    source = find_source(config.dataset)
    rows = {split: source.read(config, split, report) for split in config.splits}
    encoder = open_encoder(plan.encoder["kind"], config, rows)
    identity, content = encoder.identity(), content_of(rows)
    now = plan_fields(rows, plan.class_names, content, identity, config.storage_dtype)
    _check_same(now, plan.fingerprint_fields, "the encoder or the data set is", root)
    report(0, 0, "loading the encoder")
    encoder.load()

    def again(split: str, row: int) -> tuple[Mapping[str, NDArray[Any]], int]:
        inputs = encoder.prepare([rows[split].inputs[row]])
        alone = encoder.encode_alone(inputs.items[0])
        return {name: x_BLD[0].cpu().numpy() for name, x_BLD in alone.items()}, inputs.lengths[0]

    limit = recompute_limit(encoder.dtype, plan.storage_dtype)
    return again, rows, str(encoder.device), limit


def _from_files(
    root: Path, plan: Plan, report: Report, stack: ExitStack
) -> tuple[Again, Mapping[str, Rows]]:
    config = recorded_import(plan, root)
    found = stack.enter_context(opened(config))
    then = plan.fingerprint_fields["encoder"]["imported"]["files"]
    _check_same(hash_files(config.files, report), then, "the files are", root)

    def again(split: str, row: int) -> tuple[Mapping[str, NDArray[Any]], int]:
        part = found.rows[split]
        states = part.stored(row, row + 1, plan.storage_dtype)[0]
        return {plan.pooling[0]: _numbers(states, plan)}, int(part.tokens[row])

    return again, found.rows


def _check_same(now: dict[str, Any], then: dict[str, Any], what: str, root: Path) -> None:
    if rows := differences(now, then):
        raise CacheError(
            f"{what} no longer what the cache was made from",
            expected=", ".join(f"{name} {theirs:.40}" for name, _, theirs in rows),
            found=", ".join(f"{name} {ours:.40}" for name, ours, _ in rows),
            where=str(root.absolute()),
            hint="bring them back to verify against them; the cache itself is unchanged by this",
        )
