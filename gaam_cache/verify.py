"""Whether a cache on disk is what it says: every byte, every number, every row."""

from __future__ import annotations

import hashlib
import shlex
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gaam_cache.errors import CacheError
from gaam_cache.files import open_regular
from gaam_cache.layout import missing_shards, planned_receipt, shard_attributes
from gaam_cache.leftovers import Leftover, find_leftovers, prune
from gaam_cache.plan import Plan, ShardSpec, read_plan
from gaam_cache.receipt import NUMPY_DTYPES, SHARD_FOLDER, receipt_path
from gaam_cache.recompute import Recomputed, extract_command, recompute, recorded_config
from gaam_cache.refusal import ran_out
from gaam_cache.shard_numbers import numbers_fault
from gaam_cache.strict_hdf5 import Inspector

SHOWN = 20
"""Missing shards and leftovers that are listed for people."""

Progress = Callable[[int, int, str], None]


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
    leftovers: tuple[Leftover, ...]
    """Files that belong to nothing and are still there."""
    pruned: tuple[str, ...]
    recomputed: Recomputed | None

    @property
    def good(self) -> bool:
        """Whether every planned shard is there and right."""
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
        lines = [
            f"cache '{self.path}': {state}",
            f"  fingerprint  {self.fingerprint[:12]}",
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
        lines += [f"removed: {path}" for path in self.pruned]
        for leftover in self.leftovers[:SHOWN]:
            what = "--prune removes it" if leftover.removable else "left alone"
            kind = {"temporary": "a temporary file", "without receipt": "a shard without receipt"}
            about = kind.get(leftover.kind, "not a file of this cache")
            lines.append(f"leftover: {_one_line(leftover.path)} ({about}; {what})")
        if len(self.leftovers) > SHOWN:
            lines.append(f"leftover: {len(self.leftovers) - SHOWN:,} more")
        return "\n".join(lines)


def verify(
    path: str | Path,
    *,
    prune_leftovers: bool = False,
    recompute_rows: int = 0,
    seed: int = 0,
    device: str = "auto",
    progress: Progress | None = None,
) -> Verification:
    """Hash every byte of a cache and check every number in it; memory stays flat.

    Args:
        path: the cache.
        prune_leftovers: remove files that belong to nothing (see ``gaam_cache.leftovers``).
        recompute_rows: encode so many random rows again, alone, and compare.
        seed: decides which.
        device: where they are encoded: auto, cpu, cuda or cuda:N.
        progress: called with (done, total, what is going on).

    Raises:
        NotFoundError: no cache there; or no encoder or data set to recompute with.
        CacheError: the plan is damaged, or what it names is no longer what it was.
        StorageError: a leftover cannot be removed.
    """
    root = Path(path).expanduser()
    report = progress or (lambda done, total, text: None)
    plan = read_plan(root)
    leftovers = find_leftovers(root, plan)
    missing = missing_shards(root, plan)
    shards = list(plan.shards())
    absent = set(missing)
    present = [shard for shard in shards if shard.name not in absent]
    faults: dict[str, str] = {}
    hashed = 0
    with Inspector() as inspector:
        for done, shard in enumerate(present):
            report(done, len(present), f"shard {shard.name}")
            reason, size = _check_shard(root, plan, shard, inspector)
            hashed += size
            if reason is not None:
                faults[shard.name] = reason
    whole = [shard for shard in present if shard.name not in faults]
    recomputed = None
    if recompute_rows and whole:
        recomputed = recompute(
            root, plan, whole, recompute_rows, seed=seed, device=device, report=report
        )
        faults |= recomputed.far
    pruned = prune(root, leftovers) if prune_leftovers else ()
    again = _extract_again(plan, root)
    return Verification(
        path=str(root),
        fingerprint=plan.fingerprint,
        shards=len(shards),
        rows=sum(shard.stop - shard.start for shard in present if shard.name not in faults),
        bytes=hashed,
        missing=tuple(missing),
        complete_with=again,
        bad=tuple(
            BadShard(
                name=shard.name,
                reason=_one_line(faults[shard.name]),
                repair=f"rm {shlex.quote(str(receipt_path(root, shard.name)))} && {again}",
            )
            for shard in present
            if shard.name in faults
        ),
        leftovers=tuple(leftover for leftover in leftovers if leftover.path not in pruned),
        pruned=pruned,
        recomputed=recomputed,
    )


def _extract_again(plan: Plan, root: Path) -> str:
    try:
        return extract_command(recorded_config(plan, root))
    except CacheError:
        return "the gaam extract that made the cache"


def _one_line(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))


def _check_shard(
    root: Path, plan: Plan, shard: ShardSpec, inspector: Inspector
) -> tuple[str | None, int]:
    """Why a shard is bad, or None; and how many bytes of it were hashed."""
    try:
        receipt = planned_receipt(root, plan, shard)
        path = root / SHARD_FOLDER / receipt.file
        with open_regular(path) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            if digest != receipt.sha256:
                found = (
                    f"its SHA-256 is {digest[:12]}..., its receipt says {receipt.sha256[:12]}..."
                )
                return f"the file was changed: {found}", receipt.bytes
            arrays = {
                name: {**asdict(spec), "stored": NUMPY_DTYPES[spec.dtype]}
                for name, spec in receipt.datasets.items()
            }
            # a hash says that writer and receipt agree, not that the writer was honest
            fault = inspector.inspect(path, shard_attributes(plan, shard), arrays)
            return fault or numbers_fault(file, plan, shard, receipt), receipt.bytes
    except CacheError as error:
        if ran_out(error):
            raise
        return f"{error.message}: {error.details.get('found', '')}", 0
    except (OSError, ValueError) as error:
        if ran_out(error):
            raise
        return f"the file cannot be read: {error}", 0
