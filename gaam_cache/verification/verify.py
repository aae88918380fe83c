"""Whether a cache on disk is what it says: every byte, every number, every row."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gaam_cache.errors import ConfigError
from gaam_cache.extraction.repair import extract_again, repair_command
from gaam_cache.format.digest import short_digest
from gaam_cache.format.layout import missing_shards
from gaam_cache.format.plan import read_plan
from gaam_cache.reading.check_memory import CheckMemory
from gaam_cache.terminal import Report, silent
from gaam_cache.verification.leftovers import Leftover, find_leftovers, list_files, prune
from gaam_cache.verification.recompute import Recomputed, recompute
from gaam_cache.verification.replanted import Drawn
from gaam_cache.verification.shard_checks import check_receipts, check_shards

SHOWN = 20
"""Missing shards and leftovers that are listed for people."""


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
            kind = {"temporary": "a temporary file", "without receipt": "a shard without receipt"}
            about = kind.get(leftover.kind, "not a file of this cache")
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
    drawn: Drawn | None = None,
    progress: Report | None = None,
) -> Verification:
    """Hash every byte of a cache and check every number in it; memory stays flat.

    Args:
        path: the cache.
        quick: look at receipts and at the sizes of files only; read no shard.
        prune_leftovers: remove files that belong to nothing (see ``gaam_cache.leftovers``).
        recompute_rows: encode so many random rows again, alone, and compare.
        seed: decides which.
        device: where they are encoded: auto, cpu, cuda, cuda:N or mps.
        drawn: plants again what was planted: ``gaam_decoder.analysis.planting.drawn_again``.
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
    check = check_receipts if quick else check_shards
    for done, (shard, checked) in enumerate(check(root, plan, present), start=1):
        report(done, len(present), f"shard {shard.name}")
        named[shard.name] = None if checked.receipt is None else checked.receipt.file
        if checked.fault is not None:
            faults[shard.name] = checked.fault
        if checked.receipt is not None and checked.identity is not None:
            hashed += checked.receipt.bytes
            if checked.fault is None:
                memory.add(checked.identity, checked.receipt, plan)
    memory.save()
    leftovers = find_leftovers(root, plan, listed, named, complete=not missing)
    whole = [shard for shard in present if shard.name not in faults]
    recomputed = None
    if recompute_rows and whole:
        recomputed = recompute(
            root, plan, whole, recompute_rows, seed=seed, device=device, report=report, drawn=drawn
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
