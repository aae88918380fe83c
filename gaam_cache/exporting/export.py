"""A complete cache -> a folder that a hub of data sets takes."""

from __future__ import annotations

import errno
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import gaam_cache
from gaam_cache.cache import open_cache
from gaam_cache.errors import CacheError, GaamError
from gaam_cache.exporting.card import card
from gaam_cache.messages import visible
from gaam_cache.store.digest import chunks, short_digest
from gaam_cache.store.files import (
    NO_HARD_LINKS,
    check_elsewhere,
    open_regular,
    whole_folder,
    write_synced,
)
from gaam_cache.store.plan import PLAN_FILE, SHARD_FOLDER, Plan, portable_plan, read_plan
from gaam_cache.store.shard import planned_receipt, receipt_path
from gaam_cache.store.verify import verify
from gaam_cache.terminal import Report, silent

CARD_FILE, FORMAT_FILE = "README.md", "FORMAT.md"
OWN_FILES = (PLAN_FILE, SHARD_FOLDER, CARD_FILE, FORMAT_FILE)
"""All that lies in an exported cache."""
_COPIED = NO_HARD_LINKS | {errno.EXDEV, errno.EMLINK}
"""What the system says where a link cannot be, and a copy may."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CacheExport:
    """What an export of a cache made."""

    path: str
    fingerprint: str
    rows: dict[str, int]
    columns: tuple[str, ...]
    """Kept columns: data of the rows, which go out with the states."""
    files: int
    bytes: int
    linked: int
    """Files that are the same on disk as those of the cache; the others were copied."""
    names: tuple[str, ...]
    """Names of local files that the fingerprint of imported states covers, which go out too."""

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return asdict(self)

    def in_words(self) -> str:
        """Lines for people."""
        rows = ", ".join(f"{name} {count:,}" for name, count in self.rows.items())
        copied = self.files - self.linked
        how = f"{self.linked:,} linked to those of the cache, {copied:,} written"
        lines = [
            f"exported to '{self.path}', every byte checked",
            f"  fingerprint  {short_digest(self.fingerprint)}",
            f"  rows         {rows}",
            f"  columns      {', '.join(self.columns) or 'none kept'}",
            f"  files        {self.files:,}, {self.bytes / 1e6:,.1f} MB: {how}",
        ]
        if self.names:
            lines.append(f"  file names   {', '.join(self.names)} (the fingerprint covers them)")
        return visible("\n".join(lines), keep="\n")


def is_export(folder: Path) -> bool:
    """Whether a folder is an exported cache, and holds nothing else."""
    there = {path.name for path in folder.iterdir()}
    if there != set(OWN_FILES):
        return False
    try:
        plan = read_plan(folder)
    except GaamError:
        return False
    return plan == portable_plan(plan)


def export_cache(
    path: str | Path,
    out: str | Path,
    *,
    copy: bool = False,
    overwrite: bool = False,
    progress: Report | None = None,
) -> CacheExport:
    """Make a folder of a cache that holds no path and no name of this machine.

    Shards and receipts are those of the cache, by hard links where the file system has them. The
    plan is one of the same fingerprint: the folder is a cache like any other.

    Args:
        path: a complete cache.
        out: a folder that is not there yet, or is empty.
        copy: copy shards instead of linking to them: somebody may write to them.
        overwrite: replace an earlier export.
        progress: called with (done, total, what is going on).

    Raises:
        NotFoundError: no cache there.
        CacheError: it is incomplete or damaged; nothing was exported.
        ConfigError: something is in the way.
        StorageError: the file system refused.
    """
    root, out = Path(path).expanduser(), Path(out).expanduser()
    cache = open_cache(root)
    check_elsewhere(root, out)
    plan = portable_plan(cache.plan)
    with whole_folder(out, is_export, overwrite=overwrite) as folder:
        linked = _take_shards(root, folder, cache.plan, copy=copy)
        write_synced(folder / PLAN_FILE, plan.to_json().encode())
        _check(folder, root, progress or silent)
        form = Path(gaam_cache.__file__).with_name(FORMAT_FILE)
        write_synced(folder / FORMAT_FILE, form.read_bytes())
        write_synced(folder / CARD_FILE, card(plan).encode())
        sizes = [file.stat().st_size for file in folder.rglob("*") if file.is_file()]
    imported = plan.fingerprint_fields["encoder"].get("imported", {"files": {}})
    return CacheExport(
        path=str(out),
        fingerprint=plan.fingerprint,
        rows=plan.rows,
        columns=tuple(plan.columns),
        files=len(sizes),
        bytes=sum(sizes),
        linked=linked,
        names=tuple(imported["files"]),
    )


def _take_shards(root: Path, folder: Path, plan: Plan, *, copy: bool) -> int:
    """Receipts and the files that they name; how many of them are links."""
    (folder / SHARD_FOLDER).mkdir()
    linked = 0
    for shard in plan.shards():
        receipt = receipt_path(root, shard.name)
        named = planned_receipt(root, plan, shard).file
        for file in (receipt, receipt.with_name(named)):
            linked += _take(file, folder / SHARD_FOLDER / file.name, copy=copy)
    return linked


def _take(file: Path, target: Path, *, copy: bool) -> bool:
    """Link or copy; whether it was linked."""
    if not copy:
        try:
            os.link(file, target, follow_symlinks=False)
        except OSError as error:
            if error.errno not in _COPIED:
                raise
        else:
            return True
    try:
        with open_regular(file) as content:
            write_synced(target, chunks(content))
    except ValueError as error:
        raise CacheError("a file of the cache is none", found=str(error)) from error
    return False


def _check(folder: Path, root: Path, report: Report) -> None:
    """Every byte that goes out, as it goes out.

    Raises:
        CacheError: naming what is damaged.
    """
    found = verify(folder, progress=report)
    if not found.good:
        raise CacheError(
            f"the cache '{visible(str(root))}' is damaged; nothing was exported",
            expected="shards that are what their receipts say",
            found="; ".join(f"{shard.name}: {shard.reason}" for shard in found.bad[:3])
            or f"no {', '.join(found.missing[:3])}",
            where=str(root.absolute()),
            hint="'gaam verify' says how to repair it",
        )
