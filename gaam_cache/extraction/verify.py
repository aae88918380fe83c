"""Whether a cache on disk is what it says: every byte, and what an HDF5 library finds in it.

And whether some rows, encoded again alone, have the stored states. L layers, D hidden size.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.devices import cores
from gaam_cache.common.errors import CacheError, OutOfReachError
from gaam_cache.common.messages import brief, visible
from gaam_cache.common.paths import absolute_path, shown_path
from gaam_cache.common.terminal import ReportProgress, no_progress
from gaam_cache.extraction.behaviour import check_behaviour
from gaam_cache.extraction.job import prepare_job
from gaam_cache.extraction.reopen import recorded_config
from gaam_cache.store.dtypes import NUMPY_DTYPES, as_float32
from gaam_cache.store.files import short_digest
from gaam_cache.store.plan import (
    SHARD_FOLDER,
    Plan,
    ShardSpec,
    comparable,
    explain_differences,
    read_plan,
)
from gaam_cache.store.reader import MAX_THREADS
from gaam_cache.store.rounding import is_within_rounding, recompute_limit, relative
from gaam_cache.store.shard import (
    Receipt,
    check_content,
    damaged_shard_error,
    embeddings_key,
    map_arrays,
    missing_shards,
    read_receipt,
    shard_attributes,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Verification:
    """What ``verify`` found.

    >>> gaam_cache.verify("cache").in_words().splitlines()[0]
    "cache 'cache': good"
    """

    path: str
    fingerprint: str
    maker: str  # the command that makes what is missing
    shards: int  # as planned
    rows: int  # of the shards that are good
    bytes: int  # of shard files that were hashed and not found wrong
    missing: tuple[str, ...]  # planned shards without a receipt
    bad: tuple[
        dict[str, str], ...
    ]  # what is not what it must be: 'name', 'reason', 'repair'
    out_of_reach: tuple[
        dict[str, str], ...
    ]  # links to what is not on this machine; the same keys
    recomputed: dict[str, Any] | None
    """Of rows encoded again: largest ``|stored - alone| / |alone|`` by layer, and its limit."""

    @property
    def good(self) -> bool:  # every planned shard is there and right
        return not (self.missing or self.bad or self.out_of_reach)

    def to_dict(self) -> dict[str, Any]:
        return {"good": self.good, **asdict(self)}

    def in_words(self) -> str:
        """Lines for people: one for every bad shard."""
        in_doubt = set((self.recomputed or {}).get("in_doubt", ()))
        state = "good" if self.good else "incomplete"
        if self.bad:
            damaged = {one["name"] for one in self.bad} - in_doubt
            state = "DAMAGED" if damaged else "in doubt, rows come out otherwise here"
        whole = self.shards - len(self.missing) - len(self.bad) - len(self.out_of_reach)
        away = f"{len(self.out_of_reach):,} out of reach, " if self.out_of_reach else ""
        lines = [
            f"cache '{shown_path(self.path)}': {state}",
            f"  fingerprint  {short_digest(self.fingerprint)}",
            f"  shards       {whole:,} good, {len(self.bad):,} bad, {away}"
            f"{len(self.missing):,} missing of {self.shards:,}; {self.rows:,} rows, "
            f"{self.bytes / 1e6:,.1f} MB hashed",
        ]
        if self.recomputed is not None:
            lines.append(
                "  recomputed   {rows} rows alone on {device} (seed {seed}): largest relative "
                "deviation {largest}; rounding explains {limit:.1e}".format(
                    **self.recomputed
                )
            )
        lines += [
            "bad: {name}: {reason}; repair: {repair}".format(**one) for one in self.bad
        ]
        line = "out of reach: {name}: {reason}; to do: {repair}"
        lines += [line.format(**one) for one in self.out_of_reach]
        if self.missing:
            names = brief(", ".join(self.missing), 400)
            lines.append(
                f"missing: {names}; run the {self.maker} that made the cache again"
            )
        return "\n".join(lines)


def verify(
    path: str | Path,
    *,
    recompute_rows: int = 0,
    seed: int = 0,
    device: str = "auto",
    progress: ReportProgress | None = None,
) -> Verification:
    """Hash every byte of a cache and hold what h5py finds against the receipts; memory stays flat.

    >>> gaam_cache.verify("cache").good
    True

    Args:
        path: the cache.
        recompute_rows: encode so many random rows again, alone, and compare.
        seed: decides which.
        device: where they are encoded: auto, cpu, cuda, cuda:N or mps.
        progress: called with (done, total, what is going on).

    Raises:
        NotFoundError: no cache there; or no encoder or data set to recompute with.
        CacheError: the plan is damaged, or what it names is no longer what it was.
    """
    root, report = absolute_path(path), progress or no_progress
    plan = read_plan(root)
    missing = dict.fromkeys(missing_shards(root, plan))
    present = [shard for shard in plan.shards() if shard.name not in missing]

    def look_at(shard: ShardSpec) -> int | CacheError:
        try:
            receipt = read_receipt(root, plan, shard)
            check_content(root, plan, receipt)
            _check_hdf5(root, plan, shard, receipt)
            return receipt.bytes
        except CacheError as error:
            return error

    faults, sizes = dict[str, CacheError](), dict[str, int]()
    with ThreadPoolExecutor(min(MAX_THREADS, len(cores())), "verify") as pool:
        found = zip(present, pool.map(look_at, present), strict=True)
        for done, (shard, seen) in enumerate(found, start=1):
            of: dict[str, Any] = faults if isinstance(seen, CacheError) else sizes
            of[shard.name] = seen
            report(done, len(present), f"shard {shard.name}")
    recomputed, whole = None, [shard for shard in present if shard.name in sizes]
    end_S = np.cumsum([shard.stop - shard.start for shard in whole], dtype=np.int64)
    if count := min(recompute_rows, int(end_S[-1]) if whole else 0):
        row_N = np.sort(
            np.random.default_rng(seed).choice(int(end_S[-1]), count, replace=False)
        )
        places = np.searchsorted(end_S, row_N, side="right").tolist()
        rows = zip(places, row_N.tolist(), strict=True)
        chosen = [
            (whole[at], whole[at].stop - int(end_S[at]) + row) for at, row in rows
        ]
        recomputed, far = _recompute(root, plan, chosen, device, report)
        recomputed["seed"] = seed
        faults |= far
    away = {
        name: one for name, one in faults.items() if isinstance(one, OutOfReachError)
    }
    bad = {name: one for name, one in faults.items() if name not in away}
    return Verification(
        path=str(root),
        fingerprint=plan.fingerprint,
        maker=plan.maker,
        shards=plan.num_shards,
        rows=sum(
            shard.stop - shard.start for shard in present if shard.name not in faults
        ),
        bytes=sum(sizes.values()),
        missing=tuple(missing),
        bad=_in_words(bad),
        out_of_reach=_in_words(away),
        recomputed=recomputed,
    )


def _in_words(faults: Mapping[str, CacheError]) -> tuple[dict[str, str], ...]:
    return tuple(
        {
            "name": name,
            "reason": visible(one.details["found"]),
            "repair": one.details["to do"],
        }
        for name, one in faults.items()
    )


def _check_hdf5(root: Path, plan: Plan, shard: ShardSpec, receipt: Receipt) -> None:
    import h5py

    expected = {}
    for name, spec in receipt.datasets.items():
        shape, stored = spec.shape, NUMPY_DTYPES[spec.dtype]
        if spec.dtype == "utf8":
            shape, stored = shape[:1], f"|S{shape[1]}"
        expected[name] = shape, stored, spec.offset, {"dtype": spec.dtype}
    about: Any = shard_attributes(plan, shard), expected
    try:
        with h5py.File(root / SHARD_FOLDER / receipt.file, "r", locking=False) as file:
            arrays = {
                name: (one.shape, one.dtype.str, one.id.get_offset(), dict(one.attrs))
                for name, one in file.items()
            }
            found: Any = dict(file.attrs), arrays
            if found == about:
                return
    except Exception as error:  # noqa: BLE001 whatever the library raises: the file is no shard
        found = f"{type(error).__name__}: {error}"
    raise damaged_shard_error(
        root, plan, shard.name, f"h5py finds {found}; must be {about}"
    )


def _recompute(
    root: Path,
    plan: Plan,
    chosen: Sequence[tuple[ShardSpec, int]],
    device: str,
    report: ReportProgress,
) -> tuple[dict[str, Any], dict[str, CacheError]]:
    """Make rows again, one at a time, and compare; and of shards that are too far off why."""
    if plan.imported:
        raise CacheError(
            "states that others made cannot be computed again", where=str(root)
        )
    job = prepare_job(recorded_config(plan, root, device=device), report)
    fields_now, fields_then = comparable(job.fields, plan.fingerprint_fields)
    if changed := explain_differences(fields_now, fields_then, plan):
        raise CacheError(
            "the encoder or the data set is no longer what the cache was made from",
            found="\n".join(changed),
            where=str(root),
            hint="bring them back to verify against them; the cache itself is unchanged by this",
        )
    report(0, 0, "loading the encoder")
    encoder, far = job.encoder, dict[str, CacheError]()
    made_with = _other_versions(plan)
    encoder.load_for(batching="alone")
    check_behaviour(encoder, plan)
    deviation_L: NDArray[np.float64] = np.zeros(plan.num_layers)
    explains = limit = recompute_limit(encoder.dtype, plan.storage_dtype)
    for done, (shard, row) in enumerate(chosen, start=1):
        arrays = map_arrays(root, read_receipt(root, plan, shard))
        inputs = encoder.prepare([job.rows[shard.split].inputs[row]])
        for pooling, ours_BLD in encoder.encode_alone(inputs.items[0]).items():
            kept_LD = arrays[embeddings_key(plan, pooling)][row - shard.start]
            kept_LD = (
                as_float32(kept_LD) if plan.storage_dtype == "bfloat16" else kept_LD
            )
            ours_LD, stored = ours_BLD[0].cpu().numpy(), plan.storage_dtype
            here_L = relative(kept_LD, ours_LD, stored)
            deviation_L = np.maximum(deviation_L, here_L)
            if here_L.max() <= limit or shard.name in far:
                continue
            exact = encoder.exact([inputs.items[0]], 0)
            if exact and is_within_rounding(
                kept_LD, ours_LD, exact[1][pooling], limit, stored
            ):
                explains = max(explains, float(here_L.max()))
            else:
                layer = int(here_L.argmax())
                why = f"row {row}, encoded alone, deviates by {here_L[layer]:.1e} in layer "
                why += f"{layer + plan.first_layer}, more than {limit:.1e}"
                refusal = damaged_shard_error(root, plan, shard.name, why)
                if made_with:
                    refusal.details["to do"] = (
                        f"compare again with what made it: {made_with}"
                    )
                far.setdefault(shard.name, refusal)
        report(done, len(chosen), "comparing rows")
    about = {
        "rows": len(chosen),
        "device": str(encoder.device),
        "deviation": [float(x) if np.isfinite(x) else None for x in deviation_L],
        "largest": f"{deviation_L.max():.1e} in layer {plan.first_layer + deviation_L.argmax()}",
        "limit": explains,
        "first_layer": plan.first_layer,
        # a shard may be right, and these versions compute otherwise
        "in_doubt": sorted(far) if made_with else [],
    }
    return about, far


def _other_versions(plan: Plan) -> str:
    """What computed a cache, where other versions would compute it here; else nothing."""
    now = {library: version(library) for library in ("torch", "transformers")}
    then = {library: plan.created_with.get(library, "unknown") for library in now}
    made_with = ", ".join(f"{library} {number}" for library, number in then.items())
    return made_with if now != then else ""
