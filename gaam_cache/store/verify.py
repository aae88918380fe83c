"""Whether a cache on disk is what it says: every byte, and what an HDF5 library finds in it."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gaam_cache.devices import cores
from gaam_cache.errors import CacheError, ConfigError
from gaam_cache.extraction.recorded import extract_again, repair_command
from gaam_cache.store.digest import short_digest
from gaam_cache.store.dtypes import NUMPY_DTYPES
from gaam_cache.store.files import storage_errors
from gaam_cache.store.plan import PLAN_FILE, SHARD_FOLDER, Plan, ShardSpec, read_plan
from gaam_cache.store.read import MAX_THREADS, CheckMemory
from gaam_cache.store.recompute import Recomputed, recompute
from gaam_cache.store.shard import (
    Receipt,
    missing_shards,
    named_file,
    planned_receipt,
    receipt_path,
    shard_attributes,
)
from gaam_cache.terminal import Report, silent

SHOWN = 20
"""Missing shards and leftovers that are listed for people."""
SAFE_AGE_SECONDS = 3600.0
"""What a writer does between a shard file and its receipt takes moments."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BadShard:
    """A shard that is there and not what it must be."""

    name: str
    reason: str
    """One line."""
    repair: str
    """A command line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Verification:
    """What ``verify`` found."""

    path: str
    fingerprint: str
    shards: int
    """As planned."""
    rows: int
    """Rows of the shards that are good."""
    bytes: int
    """Bytes of shard files that were hashed."""
    missing: tuple[str, ...]
    """Planned shards without a receipt."""
    complete_with: str
    """The command line that makes what is missing."""
    bad: tuple[BadShard, ...]
    leftovers: tuple[str, ...]
    """Temporary files and shards without receipt that nobody can still need; relative paths."""
    pruned: tuple[str, ...] | None
    """What was removed; None where nothing was to be."""
    recomputed: Recomputed | None
    quick: bool = False
    """Whether receipts and sizes were all that was looked at."""

    @property
    def good(self) -> bool:
        """Whether every planned shard is there and right, as far as was looked."""
        return not self.missing and not self.bad

    def to_dict(self) -> dict[str, Any]:
        """JSON values; a deviation that is no number is None."""
        about = {"good": self.good, **asdict(self)}
        if self.recomputed is not None:
            deviation = [x if np.isfinite(x) else None for x in self.recomputed.deviation]
            about["recomputed"]["deviation"] = deviation
        return about

    def in_words(self) -> str:
        """Lines for people: one for every bad shard."""
        present = self.shards - len(self.missing)
        state = "good" if self.good else "incomplete" if not self.bad else "DAMAGED"
        if self.good and self.quick:
            state = "receipts and sizes agree; what the shards hold was not looked at"
        lines = [
            f"cache '{self.path}': {state}",
            f"  fingerprint  {short_digest(self.fingerprint)}",
            f"  shards       {present - len(self.bad):,} good, {len(self.bad):,} bad, "
            f"{len(self.missing):,} missing of {self.shards:,}; {self.rows:,} rows, "
            f"{self.bytes / 1e6:,.1f} MB hashed",
        ]
        if self.recomputed is not None:
            lines.append(self.recomputed.in_words())
        lines += [
            f"bad: {shard.name}: {shard.reason}; repair: {shard.repair}" for shard in self.bad
        ]
        if self.missing:
            names = ", ".join(self.missing[:SHOWN])
            more = f" and {len(self.missing) - SHOWN:,} more" if len(self.missing) > SHOWN else ""
            lines.append(f"missing: {names}{more}; make them: {self.complete_with}")
        if self.pruned is not None:
            lines += [f"removed: {path}" for path in self.pruned] or ["removed: nothing"]
        lines += [f"leftover: {path} (--prune removes it)" for path in self.leftovers[:SHOWN]]
        if len(self.leftovers) > SHOWN:
            lines.append(f"leftover: {len(self.leftovers) - SHOWN:,} more")
        return "\n".join(lines)


def verify(
    path: str | Path,
    *,
    quick: bool = False,
    prune_leftovers: bool = False,
    recompute_rows: int = 0,
    seed: int = 0,
    device: str = "auto",
    progress: Report | None = None,
) -> Verification:
    """Hash every byte of a cache and hold what h5py finds against the receipts; memory stays flat.

    >>> gaam_cache.verify("cache").good
    True

    Args:
        path: the cache.
        quick: look at receipts and at the sizes of files only; read no shard.
        prune_leftovers: remove temporary files and shards without receipt.
        recompute_rows: encode so many random rows again, alone, and compare.
        seed: decides which.
        device: where they are encoded: auto, cpu, cuda, cuda:N or mps.
        progress: called with (done, total, what is going on).

    Raises:
        ConfigError: ``quick`` and ``recompute_rows`` together.
        NotFoundError: no cache there; or no encoder or data set to recompute with.
        CacheError: the plan is damaged, or what it names is no longer what it was.
        StorageError: a file may not be read now, or not be removed.
    """
    if quick and recompute_rows:
        raise ConfigError(
            "--quick reads no shard, --recompute does",
            expected="one of the two",
            found=f"--quick and --recompute {recompute_rows}",
        )
    root, report, memory = Path(path).expanduser(), progress or silent, CheckMemory()
    plan = read_plan(root)
    missing = missing_shards(root, plan)
    absent = set(missing)
    present = [shard for shard in plan.shards() if shard.name not in absent]
    faults: dict[str, str] = {}
    receipts: dict[str, Receipt] = {}

    def look_at(shard: ShardSpec) -> tuple[Receipt | None, str | None]:
        try:
            receipt = planned_receipt(root, plan, shard)
        except CacheError as error:
            return None, error.reason
        if quick:
            return receipt, None
        path = root / SHARD_FOLDER / receipt.file
        fault = memory.fault(path, receipt, again=True)
        return receipt, fault or _hdf5_fault(path, shard_attributes(plan, shard), receipt)

    with ThreadPoolExecutor(min(MAX_THREADS, len(cores())), "verify") as pool:
        found = zip(present, pool.map(look_at, present), strict=True)
        for done, (shard, (receipt, fault)) in enumerate(found, start=1):
            if receipt is not None:
                receipts[shard.name] = receipt
            if fault is not None:
                faults[shard.name] = fault
            report(done, len(present), f"shard {shard.name}")
    memory.save()
    whole = [shard for shard in present if shard.name not in faults]
    recomputed = None
    if recompute_rows and whole:
        recomputed = recompute(
            root, plan, whole, recompute_rows, seed=seed, device=device, report=report
        )
        faults |= recomputed.far
    leftovers = _find_leftovers(root, plan, receipts, complete=not missing)
    for name in leftovers if prune_leftovers else ():
        with storage_errors(root / name):
            (root / name).unlink(missing_ok=True)
    again = extract_again(root, plan)
    return Verification(
        path=str(root),
        fingerprint=plan.fingerprint,
        shards=plan.num_shards,
        rows=sum(shard.stop - shard.start for shard in present if shard.name not in faults),
        bytes=0 if quick else sum(receipt.bytes for receipt in receipts.values()),
        missing=tuple(missing),
        complete_with=again,
        bad=tuple(
            BadShard(name=name, reason=_line(why), repair=repair_command(root, name, again))
            for name, why in faults.items()
        ),
        leftovers=() if prune_leftovers else leftovers,
        pruned=leftovers if prune_leftovers else None,
        recomputed=recomputed,
        quick=quick,
    )


def _line(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))


def _hdf5_fault(path: Path, attributes: dict[str, Any], receipt: Receipt) -> str | None:
    import h5py

    expected = {}
    for name, spec in receipt.datasets.items():
        shape, stored = spec.shape, NUMPY_DTYPES[spec.dtype]
        if spec.dtype == "utf8":
            shape, stored = shape[:1], f"|S{shape[1]}"
        expected[name] = shape, stored, spec.offset, {"dtype": spec.dtype}
    try:
        with h5py.File(path, "r", locking=False) as file:
            if dict(file.attrs) != attributes:
                return f"its attributes are {dict(file.attrs)}, not {attributes}"
            found = {
                name: (one.shape, one.dtype.str, one.id.get_offset(), dict(one.attrs))
                for name, one in file.items()
            }
    except Exception as error:  # noqa: BLE001 whatever the library raises: the file is no shard
        return f"not a readable HDF5 file ({type(error).__name__}: {error})"
    return None if found == expected else f"h5py finds {found}, the receipt says {expected}"


def _find_leftovers(
    root: Path, plan: Plan, receipts: Mapping[str, Receipt], *, complete: bool
) -> tuple[str, ...]:
    """Temporary files, and shard files that no receipt names, of which nothing can become.

    Another extractor may be at work: it renames a shard file, and only then links its receipt. So
    every planned shard has its receipt, or the file has lain there for an hour.
    """
    names = [name for name in os.listdir(root) if name.startswith(f".{PLAN_FILE}.")]  # noqa: PTH208
    with suppress(FileNotFoundError, NotADirectoryError):
        folder = os.listdir(root / SHARD_FOLDER)  # noqa: PTH208 quicker
        names += [f"{SHARD_FOLDER}/{name}" for name in folder]
    planned = {shard.name for shard in plan.shards()}
    own = {f"{SHARD_FOLDER}/{receipt.file}" for receipt in receipts.values()}
    found = []
    for name in sorted(set(names) - own):
        path = root / name
        shard = re.fullmatch(r"(.+-[0-9]{5,})-[0-9a-f]{8}\.h5", path.name)
        if shard is not None and shard[1] in planned:
            receipt = os.path.lexists(receipt_path(root, shard[1]))  # looked for after the file
            if receipt and named_file(root, shard[1]) in (None, path.name):
                continue  # a damaged receipt may mean it
        elif not (path.name.startswith(".") and path.suffix == ".tmp"):
            continue
        with suppress(FileNotFoundError):  # renamed or removed since it was listed
            if complete or time.time() - path.lstat().st_mtime >= SAFE_AGE_SECONDS:
                found.append(name)
    return tuple(found)
