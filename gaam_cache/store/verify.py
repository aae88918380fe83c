"""Whether a cache on disk is what it says: every byte, every number, every row."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from gaam_cache.devices import cores
from gaam_cache.errors import CacheError, ConfigError, StorageError
from gaam_cache.extraction.recorded import extract_again, repair_command
from gaam_cache.store.digest import short_digest
from gaam_cache.store.dtypes import NUMPY_DTYPES
from gaam_cache.store.files import Identity, raise_if_refused
from gaam_cache.store.plan import PLAN_FILE, SHARD_FOLDER, Plan, ShardSpec, read_plan
from gaam_cache.store.read import MAX_THREADS, CheckMemory, shard_fault
from gaam_cache.store.recompute import Recomputed, recompute
from gaam_cache.store.shard import (
    Receipt,
    missing_shards,
    planned_receipt,
    read_receipt,
    receipt_path,
    shard_attributes,
)
from gaam_cache.terminal import Report, silent

SHOWN = 20
"""Missing shards and leftovers that are listed for people."""
SAFE_AGE_SECONDS = 3600.0
_TEMPORARY = re.compile(r"\..+\.tmp|rows-[0-9a-f]{16}")
"""Also rows that one worker read for others."""
_SHARD_FILE = re.compile(r"(.+-[0-9]{5,})-[0-9a-f]{8}\.h5")
_KINDS = {"temporary": "a temporary file", "without receipt": "a shard without receipt"}


@dataclass(frozen=True, kw_only=True, slots=True)
class BadShard:
    """A shard that is there and not what it must be."""

    name: str
    reason: str
    """One line."""
    repair: str
    """A command line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Leftover:
    """A file that belongs to nothing."""

    path: str
    """Relative to the cache."""
    kind: str
    """'temporary', 'without receipt' or 'unknown'."""
    bytes: int
    removable: bool
    """Whether ``prune`` removes it."""


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
    leftovers: tuple[Leftover, ...]
    """Files that belong to nothing and are still there."""
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
        for leftover in self.leftovers[:SHOWN]:
            what = "--prune removes it" if leftover.removable else "left alone"
            about = _KINDS.get(leftover.kind, "not a file of this cache")
            lines.append(f"leftover: {_one_line(leftover.path)} ({about}; {what})")
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
    """Hash every byte of a cache and check every number in it; memory stays flat.

    Args:
        path: the cache.
        quick: look at receipts and at the sizes of files only; read no shard.
        prune_leftovers: remove files that belong to nothing (see ``find_leftovers``).
        recompute_rows: encode so many random rows again, alone, and compare.
        seed: decides which.
        device: where they are encoded: auto, cpu, cuda, cuda:N or mps.
        progress: called with (done, total, what is going on).

    Raises:
        ConfigError: ``quick`` and ``recompute_rows`` together.
        NotFoundError: no cache there; or no encoder or data set to recompute with.
        CacheError: the plan is damaged, or what it names is no longer what it was.
        StorageError: a leftover cannot be removed.
    """
    if quick and recompute_rows:
        raise ConfigError(
            "--quick reads no shard, --recompute does",
            expected="one of the two",
            found=f"--quick and --recompute {recompute_rows}",
        )
    root = Path(path).expanduser()
    report = progress or silent
    plan = read_plan(root)
    listed = list_files(root)
    missing = missing_shards(root, plan)
    absent = set(missing)
    present = [shard for shard in plan.shards() if shard.name not in absent]
    faults: dict[str, str] = {}
    named: dict[str, str | None] = {}
    hashed = 0
    memory = CheckMemory()
    with ThreadPoolExecutor(min(MAX_THREADS, len(cores())), "verify") as pool:
        try:
            found = pool.map(lambda shard: _look_at(root, plan, shard, quick), present)
            for done, (shard, seen) in enumerate(zip(present, found, strict=True), start=1):
                report(done, len(present), f"shard {shard.name}")
                named[shard.name] = None if seen.receipt is None else seen.receipt.file
                if seen.fault is not None:
                    faults[shard.name] = seen.fault
                if seen.receipt is not None and seen.identity is not None:
                    hashed += seen.receipt.bytes
                    if seen.fault is None:
                        memory.add(seen.identity, seen.receipt, plan)
        finally:
            pool.shutdown(cancel_futures=True)
    memory.save()
    leftovers = find_leftovers(root, plan, listed, named, complete=not missing)
    whole = [shard for shard in present if shard.name not in faults]
    recomputed = None
    if recompute_rows and whole:
        recomputed = recompute(
            root, plan, whole, recompute_rows, seed=seed, device=device, report=report
        )
        faults |= recomputed.far
    pruned = prune(root, leftovers) if prune_leftovers else None
    again = extract_again(root, plan)
    return Verification(
        path=str(root),
        fingerprint=plan.fingerprint,
        shards=len(present) + len(missing),
        rows=sum(shard.stop - shard.start for shard in present if shard.name not in faults),
        bytes=hashed,
        missing=tuple(missing),
        complete_with=again,
        bad=tuple(
            BadShard(
                name=shard.name,
                reason=_one_line(faults[shard.name]),
                repair=repair_command(root, shard.name, again),
            )
            for shard in present
            if shard.name in faults
        ),
        leftovers=tuple(leftover for leftover in leftovers if leftover.path not in (pruned or ())),
        pruned=pruned,
        recomputed=recomputed,
        quick=quick,
    )


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))


class _Seen(NamedTuple):
    fault: str | None
    receipt: Receipt | None = None
    identity: Identity | None = None
    """Of a file that was hashed."""


def _look_at(root: Path, plan: Plan, shard: ShardSpec, quick: bool) -> _Seen:
    """Receipt, bytes, numbers, and whether h5py finds what the receipt says."""
    try:
        receipt = planned_receipt(root, plan, shard)
    except CacheError as error:
        return _Seen(error.reason)
    if quick:
        return _Seen(None, receipt)
    path = root / SHARD_FOLDER / receipt.file
    try:
        identity = Identity.of(path.lstat())
        fault = shard_fault(path, plan, shard, receipt)
    except (OSError, ValueError) as error:
        raise_if_refused(error, path)
        return _Seen(f"the file cannot be read: {error}", receipt)
    fault = fault or _hdf5_fault(path, shard_attributes(plan, shard), receipt)
    return _Seen(fault, receipt, identity)


def _hdf5_fault(path: Path, attributes: dict[str, Any], receipt: Receipt) -> str | None:
    """In what the arrays that h5py finds are not those of the receipt."""
    import h5py

    try:
        with h5py.File(path, "r", locking=False) as file:
            if dict(file.attrs) != attributes:
                return f"its attributes are {dict(file.attrs)}, not {attributes}"
            if set(file) != set(receipt.datasets):
                return f"it holds {', '.join(file)} instead of {', '.join(receipt.datasets)}"
            for name, spec in receipt.datasets.items():
                texts = spec.dtype == "utf8"
                shape = spec.shape[:1] if texts else spec.shape
                stored = f"|S{spec.shape[1]}" if texts else NUMPY_DTYPES[spec.dtype]
                expected = shape, stored, spec.offset, {"dtype": spec.dtype}
                one = file[name]
                there = one.shape, one.dtype.str, one.id.get_offset(), dict(one.attrs)
                if there != expected:
                    return f"'{name}' is {there} in HDF5, {expected} in the receipt"
    except Exception as error:  # noqa: BLE001 whatever the library raises: the file is no shard
        return f"not a readable HDF5 file ({type(error).__name__}: {error})"
    return None


def list_files(root: Path) -> list[str]:
    """What may be a leftover: paths in the cache. To be called before receipts are read."""
    on_their_way = re.compile(rf"\.({re.escape(PLAN_FILE)}|rows-\w+)\..*\.tmp|rows-[0-9a-f]{{16}}")
    beside = [name for name in _list(root) if on_their_way.fullmatch(name)]
    return beside + [f"{SHARD_FOLDER}/{name}" for name in _list(root / SHARD_FOLDER)]


def _list(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 names are all we need
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise CacheError(
            "the cache cannot be listed", found=error.strerror, where=str(folder.absolute())
        ) from error


def find_leftovers(
    root: Path, plan: Plan, listed: list[str], named: Mapping[str, str | None], *, complete: bool
) -> tuple[Leftover, ...]:
    """All listed files that the plan and the receipts do not account for, sorted.

    Another extractor may be at work: it renames a shard file, and only then links its receipt. A
    file is therefore removable only where nobody can still need it: it has lain there for an hour,
    or no planned shard lacks its receipt. Files that are not gaam's never are.

    Args:
        root: the cache.
        plan: its plan.
        listed: the result of ``list_files``.
        named: shard -> the file that its receipt names, None where the receipt is damaged.
        complete: whether every planned shard has its receipt.
    """
    planned = {shard.name for shard in plan.shards()}
    leftovers = []
    for name in sorted(listed):
        kind = _kind(root / name, planned, named)
        if kind is None:
            continue
        try:
            status = (root / name).lstat()
        except OSError:
            continue  # renamed or removed since it was listed
        old = time.time() - status.st_mtime >= SAFE_AGE_SECONDS
        removable = kind in _KINDS and stat.S_ISREG(status.st_mode) and (complete or old)
        leftovers.append(Leftover(path=name, kind=kind, bytes=status.st_size, removable=removable))
    return tuple(leftovers)


def _kind(path: Path, planned: set[str], named: Mapping[str, str | None]) -> str | None:
    """What kind of leftover a file is; None where it belongs to the cache."""
    if _TEMPORARY.fullmatch(path.name):
        return "temporary"
    if path.suffix == ".json" and path.stem in planned:
        return None
    match = _SHARD_FILE.fullmatch(path.name)
    if match is None or match[1] not in planned:
        return "unknown"
    if match[1] not in named:
        return "without receipt"
    # a damaged receipt may mean this file
    return None if named[match[1]] in (None, path.name) else "without receipt"


def prune(root: Path, leftovers: tuple[Leftover, ...]) -> tuple[str, ...]:
    """Remove what is removable.

    Returns:
        The paths that were removed, relative to the cache.
    """
    removed = []
    for leftover in leftovers:
        path = root / leftover.path
        # once more: its receipt may have come since
        if not leftover.removable or not _still(root, leftover):
            continue
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(
                f"cannot remove '{path.name}'",
                found=error.strerror,
                where=str(path.parent.absolute()),
            ) from error
        removed.append(leftover.path)
    return tuple(removed)


def _still(root: Path, leftover: Leftover) -> bool:
    """Whether a file belongs to nothing even now: its receipt may have come since."""
    match = _SHARD_FILE.fullmatch(Path(leftover.path).name)
    if leftover.kind == "temporary" or match is None:
        return leftover.kind == "temporary"
    if not os.path.lexists(receipt_path(root, match[1])):
        return True
    try:
        return read_receipt(root, match[1]).file != match[0]
    except CacheError:
        return False
