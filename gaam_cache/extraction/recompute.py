"""Encodes some rows of a cache again, alone, and compares them with the stored states.

L layers, D hidden size, S shards, N rows.
"""

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.errors import CacheError
from gaam_cache.common.terminal import ReportProgress
from gaam_cache.encoders.base import Encoder
from gaam_cache.extraction.behaviour import check_behaviour
from gaam_cache.extraction.job import Job, prepare_job
from gaam_cache.extraction.reopen import recorded_config
from gaam_cache.store.dtypes import as_float32
from gaam_cache.store.plan import Plan, ShardSpec, comparable, explain_differences
from gaam_cache.store.rounding import (
    is_within_rounding,
    recompute_limit,
    relative_deviation,
)
from gaam_cache.store.shard import (
    damaged_shard_error,
    embeddings_key,
    map_arrays,
    read_receipt,
)


def random_rows(
    shards: Sequence[ShardSpec], count: int, seed: int
) -> list[tuple[ShardSpec, int]]:
    """Choose random rows of some shards, in their order; all where there are fewer.

    A row comes with its shard, and is counted within its split.
    """
    if not shards:
        return []
    # the rows of all shards, counted through: where each shard ends
    end_S = np.cumsum([shard.stop - shard.start for shard in shards], dtype=np.int64)
    total = int(end_S[-1])
    count = min(count, total)
    if not count:
        return []
    row_N = np.random.default_rng(seed).choice(total, count, replace=False)
    row_N = np.sort(row_N)

    chosen = []
    shard_N = np.searchsorted(end_S, row_N, side="right")
    for index, row in zip(shard_N.tolist(), row_N.tolist(), strict=True):
        shard = shards[index]
        rows_to_end = int(end_S[index]) - row
        chosen.append((shard, shard.stop - rows_to_end))
    return chosen


def recompute(
    root: Path,
    plan: Plan,
    chosen: Sequence[tuple[ShardSpec, int]],
    device: str,
    report: ReportProgress,
) -> tuple[dict[str, Any], dict[str, CacheError]]:
    """Encode rows of a cache again, one at a time, and compare.

    Args:
        root: folder of the cache.
        plan: of the cache.
        chosen: the rows, each with its shard.
        device: where they are encoded.
        report: called with (rows done, rows in all, what is going on).

    Returns:
        Figures of the comparison, as ``Verification.recomputed`` has them; and for
        every shard with a row that deviates by more than rounding explains the fault.

    Raises:
        CacheError: the states were imported, or the encoder or the rows have changed.
    """
    if plan.imported:
        raise CacheError("imported states cannot be computed again", where=str(root))
    job = prepare_job(recorded_config(plan, root, device=device), report)
    _check_unchanged(root, plan, job.fields)

    # every row is encoded alone: which rows may share a batch need not be measured
    report(0, 0, "loading the encoder")
    job.encoder.load_for(batching="alone")
    check_behaviour(job.encoder, plan)

    comparison = _Comparison(root, plan, job)
    for done, (shard, row) in enumerate(chosen, start=1):
        comparison.compare(shard, row)
        report(done, len(chosen), "comparing rows")
    return comparison.figures(len(chosen)), comparison.faults


def _check_unchanged(root: Path, plan: Plan, fields: Mapping[str, Any]) -> None:
    """Refuse an encoder or a data set that has changed since."""
    fields_now, fields_then = comparable(fields, plan.fingerprint_fields)
    changes = explain_differences(fields_now, fields_then, plan)
    if not changes:
        return
    raise CacheError(
        "the encoder or the data set has changed since the cache was made",
        found="\n".join(changes),
        where=str(root),
        hint=(
            "bring the old ones back to verify against them; "
            "the cache itself is unchanged by this"
        ),
    )


class _Comparison:
    """Compares rows, and remembers the largest deviation of every layer."""

    def __init__(self, root: Path, plan: Plan, job: Job) -> None:
        self.faults: dict[str, CacheError] = {}
        self._root = root
        self._plan = plan
        self._rows = job.rows
        self._encoder: Encoder = job.encoder
        self._limit = recompute_limit(job.encoder.dtype, plan.storage_dtype)
        self._explained = self._limit  # the largest deviation that rounding explains
        self._deviation_L: NDArray[np.float64] = np.zeros(plan.num_layers)
        self._other_versions = _other_versions(plan)

    def compare(self, shard: ShardSpec, row: int) -> None:
        """Encode a row alone, and compare it with its stored states."""
        # a memory map: only the bytes of this row are read
        arrays = map_arrays(self._root, read_receipt(self._root, self._plan, shard))
        inputs = self._encoder.prepare([self._rows[shard.split].inputs[row]])
        item = inputs.items[0]
        for pooling, alone_BLD in self._encoder.encode_alone(item).items():
            stored_LD = arrays[embeddings_key(self._plan, pooling)][row - shard.start]
            if self._plan.storage_dtype == "bfloat16":
                stored_LD = as_float32(stored_LD)
            alone_LD = alone_BLD[0].cpu().numpy()
            share_L = relative_deviation(stored_LD, alone_LD, self._plan.storage_dtype)
            self._deviation_L = np.maximum(self._deviation_L, share_L)
            # one fault a shard is enough, and higher precision takes time
            if share_L.max() <= self._limit or shard.name in self.faults:
                continue
            if self._is_rounding(item, pooling, stored_LD, alone_LD):
                self._explained = max(self._explained, float(share_L.max()))
            else:
                self.faults[shard.name] = self._fault(shard, row, share_L)

    def _is_rounding(
        self,
        item: Any,
        pooling: str,
        stored_LD: NDArray[Any],
        alone_LD: NDArray[Any],
    ) -> bool:
        """Whether rounding explains a deviation, as higher precision shows."""
        exact = self._encoder.exact([item], 0)
        if exact is None:
            return False
        _, exact_alone = exact
        return is_within_rounding(
            stored_LD,
            alone_LD,
            exact_alone[pooling],
            self._limit,
            self._plan.storage_dtype,
        )

    def _fault(
        self, shard: ShardSpec, row: int, share_L: NDArray[np.float64]
    ) -> CacheError:
        layer = int(share_L.argmax())
        reason = (
            f"row {row}, encoded alone, deviates by {share_L[layer]:.1e} in layer "
            f"{layer + self._plan.first_layer}, more than {self._limit:.1e}"
        )
        fault = damaged_shard_error(self._root, self._plan, shard.name, reason)
        if self._other_versions:
            fault.details["to do"] = (
                "compare again with the libraries that made the cache: "
                f"{self._other_versions}"
            )
        return fault

    def figures(self, num_rows: int) -> dict[str, Any]:
        """Figures of the comparison: JSON values."""
        deviations = [
            float(deviation) if np.isfinite(deviation) else None
            for deviation in self._deviation_L
        ]
        largest = self._deviation_L.max()
        layer = self._plan.first_layer + int(self._deviation_L.argmax())
        return {
            "rows": num_rows,
            "device": str(self._encoder.device),
            "deviation": deviations,
            "largest": f"{largest:.1e} in layer {layer}",
            "limit": self._explained,
            "first_layer": self._plan.first_layer,
            # the shard may be right where other versions compute otherwise
            "in_doubt": sorted(self.faults) if self._other_versions else [],
        }


def _other_versions(plan: Plan) -> str:
    """The libraries that made a cache; empty where the same versions are installed."""
    then = {
        library: plan.created_with.get(library, "unknown")
        for library in ("torch", "transformers")
    }
    now = {library: version(library) for library in then}
    if now == then:
        return ""
    return ", ".join(f"{library} {number}" for library, number in then.items())
