"""Which rows of a cache are computed again, what is stored of them, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.errors import CacheError
from gaam_cache.format.fingerprint import differences
from gaam_cache.format.layout import column_key, planned_receipt
from gaam_cache.format.plan import Plan, ShardSpec
from gaam_cache.format.receipt import NUMPY_DTYPES, SHARD_FOLDER
from gaam_cache.format.strings import unpacked

FILES = "files"
"""The device of rows that are read again, where nobody can compute them."""
RECIPE = "recipe"
"""The device of rows that are planted again."""


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
        instead = {FILES: "from their files", RECIPE: "as they were planted"}
        how = instead.get(self.device, f"alone on {self.device}")
        verdict = "within" if worst <= self.limit else "BEYOND"
        head = (
            f"  recomputed   {self.rows} rows {how} (seed {self.seed}): "
            f"largest relative deviation {worst:.1e}, {verdict} the {self.limit:.1e} that rounding "
            "explains"
        )
        layers = [
            f"{layer}: {value:.1e}"
            for layer, value in enumerate(self.deviation, start=self.first_layer)
        ]
        lines = [", ".join(layers[i : i + 8]) for i in range(0, len(layers), 8)]
        return "\n".join([head, *(f"    layer {line}" for line in lines)])


def check_same(now: dict[str, Any], then: dict[str, Any], what: str, root: Path) -> None:
    """Refuse to compare rows with those of other files.

    Args:
        now: what is there.
        then: what the plan says was there.
        what: it is of, for the message.
        root: the cache.

    Raises:
        CacheError: naming what differs.
    """
    rows = differences(now, then)
    if not rows:
        return
    raise CacheError(
        f"{what} no longer what the cache was made from",
        expected=", ".join(f"{name} {theirs:.40}" for name, _, theirs in rows),
        found=", ".join(f"{name} {ours:.40}" for name, ours, _ in rows),
        where=str(root.absolute()),
        hint="bring them back to verify against them; the cache itself is unchanged by this",
    )


def choose_rows(shards: Sequence[ShardSpec], count: int, seed: int) -> list[tuple[ShardSpec, int]]:
    """Random rows without repetition, as (shard, row in its split), in order."""
    ends = np.cumsum([shard.stop - shard.start for shard in shards])
    total = int(ends[-1])
    rng = np.random.default_rng(seed)
    chosen = []
    for index in np.sort(rng.choice(total, min(count, total), replace=False)).tolist():
        place = int(np.searchsorted(ends, index, side="right"))
        chosen.append((shards[place], shards[place].stop - (int(ends[place]) - index)))
    return chosen


def beside_states(stored: dict[str, NDArray[Any]], plan: Plan) -> tuple[Any, ...]:
    """Label, number of tokens and kept columns of a stored row."""
    texts = (unpacked(stored[column_key(name)][None])[0] for name in plan.columns)
    return int(stored["label"]), int(stored["num_tokens"]), *texts


def stored_row(root: Path, plan: Plan, shard: ShardSpec, row: int) -> dict[str, NDArray[Any]]:
    """All arrays of one row, as they are stored."""
    receipt = planned_receipt(root, plan, shard)
    stored = {}
    for key, spec in receipt.datasets.items():
        values = np.memmap(
            root / SHARD_FOLDER / receipt.file,
            dtype=NUMPY_DTYPES[spec.dtype],
            mode="r",
            offset=spec.offset,
            shape=spec.shape,
        )
        stored[key] = np.array(values[row - shard.start])
    return stored
