"""Encodes some rows of a cache again, alone, and compares them with the stored states.

N rows, S shards, L layers, D hidden size, B rows of a batch, which is one here.
"""

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.errors import CacheError
from gaam_cache.common.terminal import UNKNOWN_TOTAL, ReportProgress
from gaam_cache.encoders.base import Encoder
from gaam_cache.extraction.behaviour import check_behaviour
from gaam_cache.extraction.job import Job, prepare_job
from gaam_cache.extraction.reopen import recorded_config
from gaam_cache.store.dtypes import as_float32
from gaam_cache.store.plan import (
    Plan,
    ShardSpec,
    comparable_fields,
    explain_differences,
)
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


class ShardRow(NamedTuple):
    """A row, and the shard that holds it."""

    shard: ShardSpec
    row: int  # number within the split, from 0


def random_rows(
    shards: Sequence[ShardSpec], num_rows: int, seed: int
) -> list[ShardRow]:
    """Choose random rows of some shards, each at most once, in the order of the shards.

    Args:
        shards: the shards to choose from.
        num_rows: how many rows to choose; all rows, if the shards hold fewer.
        seed: of the random numbers.

    Returns:
        The rows; none if there are no shards or ``num_rows`` is 0.
    """
    if not shards:
        return []
    # a position counts the rows of all shards from 0 on; where each shard ends
    end_S = np.cumsum([shard.num_rows for shard in shards], dtype=np.int64)
    num_available = int(end_S[-1])
    num_rows = min(num_rows, num_available)
    if not num_rows:
        return []
    generator = np.random.default_rng(seed)
    position_N = generator.choice(num_available, num_rows, replace=False)
    position_N = np.sort(position_N)

    # a position lies in the first shard that ends after it
    chosen_rows = []
    shard_index_N = np.searchsorted(end_S, position_N, side="right")
    for shard_index, position in zip(
        shard_index_N.tolist(), position_N.tolist(), strict=True
    ):
        shard = shards[shard_index]
        # counted from the end of the shard, the row is at the same place in its split
        rows_to_end = int(end_S[shard_index]) - position
        chosen_rows.append(ShardRow(shard, shard.stop - rows_to_end))
    return chosen_rows


def recompute(
    root: Path,
    plan: Plan,
    chosen_rows: Sequence[ShardRow],
    device: str,
    report: ReportProgress,
) -> tuple[dict[str, Any], dict[str, CacheError]]:
    """Encode rows of a cache again, each alone, and compare them with stored states.

    Args:
        root: folder of the cache.
        plan: of the cache.
        chosen_rows: the rows to encode.
        device: where the rows are encoded.
        report: called with (rows done, rows in all, what is going on).

    Returns:
        Figures of the comparison, as ``Verification.recomputed`` has them; and the
        fault of every shard that holds a row with a deviation beyond rounding, by the
        name of the shard.

    Raises:
        CacheError: the states were imported, or the encoder or the rows have changed.
    """
    if plan.imported:
        raise CacheError("imported states cannot be computed again", where=str(root))
    job = prepare_job(recorded_config(plan, root, device=device), report)
    # a new cache would have these fields in its fingerprint
    _check_unchanged(root, plan, job.fields)

    # 'alone': which rows may share a batch need not be measured
    report(0, UNKNOWN_TOTAL, "loading the encoder")
    job.encoder.load_for(encodes_alone=True)
    check_behaviour(job.encoder, plan)

    comparison = _Comparison(root, plan, job)
    for num_done, shard_row in enumerate(chosen_rows, start=1):
        comparison.compare_row(shard_row)
        report(num_done, len(chosen_rows), "comparing rows")
    return comparison.figures(len(chosen_rows)), comparison.fault_by_shard


def _check_unchanged(root: Path, plan: Plan, fields: Mapping[str, object]) -> None:
    """Refuse an encoder or a data set that has changed since the cache was made.

    ``fields`` are the fields of the fingerprint that a new cache would have now.

    Raises:
        CacheError: the message lists what has changed.
    """
    fields_now, fields_then = comparable_fields(fields, plan.fingerprint_fields)
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
    """Compares rows with their stored states, and keeps the largest deviations."""

    def __init__(self, root: Path, plan: Plan, job: Job) -> None:
        self.fault_by_shard: dict[str, CacheError] = {}
        """Name of a shard -> its first fault, a deviation that rounding cannot explain.
        """
        self._root = root
        self._plan = plan
        self._rows = job.rows
        self._encoder: Encoder = job.encoder
        # a smaller deviation is taken for rounding without a closer look
        self._limit = recompute_limit(job.encoder.dtype, plan.storage_dtype)
        self._largest_explained_deviation = self._limit
        """The limit, or a larger deviation that higher precision showed to be rounding.
        """
        self._largest_deviation_L: NDArray[np.float64] = np.zeros(plan.num_layers)
        self._differing_libraries = _differing_libraries(plan)
        """The libraries that made the cache; empty if the same are installed here."""

    def compare_row(self, shard_row: ShardRow) -> None:
        """Encode a row alone, and compare its states of every pooling with the cache.

        The results are kept: see ``figures`` and ``fault_by_shard``.
        """
        shard, row = shard_row
        # a memory map: only the bytes of this row are read
        arrays = map_arrays(self._root, read_receipt(self._root, self._plan, shard))
        inputs = self._encoder.prepare([self._rows[shard.split].inputs[row]])
        item = inputs.items[0]
        for pooling, alone_BLD in self._encoder.encode_alone(item).items():
            stored_LD = arrays[embeddings_key(self._plan, pooling)][row - shard.start]
            # NumPy has no bfloat16: such states are stored as their bits
            if self._plan.storage_dtype == "bfloat16":
                stored_LD = as_float32(stored_LD)
            alone_LD = alone_BLD[0].cpu().numpy()
            self._compare_states(shard_row, item, pooling, stored_LD, alone_LD)

    def _compare_states(
        self,
        shard_row: ShardRow,
        item: object,
        pooling: str,
        stored_LD: NDArray[Any],
        alone_LD: NDArray[Any],
    ) -> None:
        """Record how far stored states are from those of the row encoded alone.

        A deviation that rounding does not explain becomes the fault of the row's shard.

        Args:
            shard_row: the row.
            item: the row as the encoder reads it.
            pooling: of the states.
            stored_LD: the states in the cache.
            alone_LD: the states that were just computed.
        """
        deviation_L = relative_deviation(stored_LD, alone_LD, self._plan.storage_dtype)
        self._largest_deviation_L = np.maximum(self._largest_deviation_L, deviation_L)
        largest = deviation_L.max()
        # up to the limit, a deviation is taken for rounding without a closer look
        if largest <= self._limit:
            return

        # A shard with one fault is bad already. To explain a further deviation, the row
        # would be computed in higher precision, which is slow.
        shard_name = shard_row.shard.name
        if shard_name in self.fault_by_shard:
            return
        if self._rounding_explains(item, pooling, stored_LD, alone_LD):
            self._largest_explained_deviation = max(
                self._largest_explained_deviation, float(largest)
            )
        else:
            self.fault_by_shard[shard_name] = self._deviation_error(
                shard_row, deviation_L
            )

    def _rounding_explains(
        self,
        item: object,
        pooling: str,
        stored_LD: NDArray[Any],
        alone_LD: NDArray[Any],
    ) -> bool:
        """Whether rounding explains a deviation above the limit.

        The encoder computes the row in higher precision, which shows the size of the
        rounding. If the device has no such arithmetic, or too little memory for it, the
        answer is no. See ``_compare_states`` for the arguments.
        """
        # the row is alone in its batch, and so its index is 0
        precise_states = self._encoder.states_in_higher_precision([item], row=0)
        if precise_states is None:
            return False
        return is_within_rounding(
            stored_LD,
            alone_LD,
            precise_states.alone[pooling],
            self._limit,
            self._plan.storage_dtype,
        )

    def _deviation_error(
        self, shard_row: ShardRow, deviation_L: NDArray[np.float64]
    ) -> CacheError:
        """The error for the shard of a row with a deviation beyond rounding.

        ``deviation_L`` has the deviation of the row in every layer.
        """
        shard, row = shard_row
        layer_index = int(deviation_L.argmax())
        layer = layer_index + self._plan.first_layer
        reason = (
            f"row {row}, encoded alone, deviates by {deviation_L[layer_index]:.1e} in "
            f"layer {layer}, more than {self._limit:.1e}"
        )
        error = damaged_shard_error(self._root, self._plan, shard.name, reason)
        # perhaps only the libraries differ: the advice to make the shard anew is wrong
        if self._differing_libraries:
            error.details["to do"] = (
                "compare again with the libraries that made the cache: "
                f"{self._differing_libraries}"
            )
        return error

    def figures(self, num_rows: int) -> dict[str, Any]:
        """Figures of the comparison, as JSON values.

        ``num_rows`` is the number of rows that were compared. JSON has no infinity: an
        infinite deviation becomes None.
        """
        deviations = [
            float(deviation) if np.isfinite(deviation) else None
            for deviation in self._largest_deviation_L
        ]
        largest = self._largest_deviation_L.max()
        layer = self._plan.first_layer + int(self._largest_deviation_L.argmax())

        # A shard with a fault is damaged if the same libraries have made it. Others may
        # compute other numbers: the shard may be right, and is only in doubt.
        shards_in_doubt = []
        if self._differing_libraries:
            shards_in_doubt = sorted(self.fault_by_shard)
        return {
            "rows": num_rows,
            "device": str(self._encoder.device),
            "deviation": deviations,
            "largest": f"{largest:.1e} in layer {layer}",
            # every deviation up to this one is explained by rounding
            "limit": self._largest_explained_deviation,
            "first_layer": self._plan.first_layer,
            "in_doubt": shards_in_doubt,
        }


def _differing_libraries(plan: Plan) -> str:
    """The libraries that made a cache, with versions; empty if the same are installed.

    An example is 'torch 2.8.0, transformers 4.57.0'.
    """
    recorded_versions = {
        library: plan.created_with.get(library, "unknown")
        for library in ("torch", "transformers")
    }
    installed_versions = {library: version(library) for library in recorded_versions}
    if installed_versions == recorded_versions:
        return ""
    return ", ".join(
        f"{library} {recorded}" for library, recorded in recorded_versions.items()
    )
