"""Files in a cache that belong to nothing: found, and removed where that is safe.

Another extractor may be at work. It writes a shard under a temporary name, renames it, and only
then links the receipt, so that its files look like leftovers for a while. Therefore a file is
removed only where no extractor can still need it for the cache: it has lain there for an hour, or
no planned shard lacks its receipt (then nobody can publish anything any more; an extractor that
is still about to lose the race stops with a message, and the cache is whole without it). The
folder is listed before the receipts are read: what is found to belong to nothing had no receipt
later than that. Files that are not gaam's are listed and never removed.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gaam_cache.errors import CacheError, StorageError
from gaam_cache.layout import missing_shards
from gaam_cache.plan import PLAN_FILE, Plan
from gaam_cache.receipt import SHARD_FOLDER, read_receipt, receipt_path

SAFE_AGE_SECONDS = 3600.0
_TEMPORARY = re.compile(r"\..+\.tmp")
_SHARD_FILE = re.compile(r"(.+-[0-9]{5,})-[0-9a-f]{8}\.h5")


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


def find_leftovers(root: Path, plan: Plan) -> tuple[Leftover, ...]:
    """All files of a cache that its plan and receipts do not account for, sorted.

    Raises:
        CacheError: the folder cannot be listed.
    """
    found = list(_list(root, PLAN_FILE)) + list(_list(root / SHARD_FOLDER))
    complete = not missing_shards(root, plan)
    planned = {shard.name for shard in plan.shards()}
    leftovers = []
    for path, status in found:
        kind = _kind(root, path, planned)
        if kind is None:
            continue
        old = time.time() - status.st_mtime >= SAFE_AGE_SECONDS
        ours = kind != "unknown" and stat.S_ISREG(status.st_mode)
        leftovers.append(
            Leftover(
                path=str(path.relative_to(root)),
                kind=kind,
                bytes=status.st_size,
                removable=ours and (complete or old),
            )
        )
    return tuple(sorted(leftovers, key=lambda leftover: leftover.path))


def prune(root: Path, leftovers: tuple[Leftover, ...]) -> tuple[str, ...]:
    """Remove what is removable.

    Returns:
        The paths that were removed, relative to the cache.

    Raises:
        StorageError: the file system refused.
    """
    removed = []
    for leftover in leftovers:
        path = root / leftover.path
        # once more: its receipt may have come since
        if not leftover.removable or _kind(root, path, None) != leftover.kind:
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


def _list(folder: Path, only: str = "") -> Iterator[tuple[Path, os.stat_result]]:
    """Entries of a folder; with ``only``, those that were on their way to that name."""
    try:
        for path in folder.iterdir():
            if only and not (path.name.startswith(f".{only}.") and path.suffix == ".tmp"):
                continue
            try:
                yield path, path.lstat()
            except FileNotFoundError:
                continue  # renamed or removed since it was listed
    except FileNotFoundError:
        return
    except OSError as error:
        raise CacheError(
            "the cache cannot be listed", found=error.strerror, where=str(folder.absolute())
        ) from error


def _kind(root: Path, path: Path, planned: set[str] | None) -> str | None:
    """What kind of leftover a file is; None where it belongs to the cache."""
    if _TEMPORARY.fullmatch(path.name):
        return "temporary"
    if path.suffix == ".json" and (planned is None or path.stem in planned):
        return None
    match = _SHARD_FILE.fullmatch(path.name)
    if match is None or (planned is not None and match[1] not in planned):
        return "unknown"
    if not os.path.lexists(receipt_path(root, match[1])):
        return "without receipt"
    try:
        receipt = read_receipt(root, match[1])
    except CacheError:
        return None  # a damaged receipt may mean this file
    return None if receipt.file == path.name else "without receipt"
