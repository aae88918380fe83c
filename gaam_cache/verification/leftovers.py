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
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gaam_cache.errors import CacheError, StorageError
from gaam_cache.format.plan import PLAN_FILE, Plan
from gaam_cache.format.receipt import SHARD_FOLDER, read_receipt, receipt_path

SAFE_AGE_SECONDS = 3600.0
_TEMPORARY = re.compile(r"\..+\.tmp")
_ROWS = re.compile(r"rows-[0-9a-f]{16}")
"""Rows that one worker read for others."""
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


def list_files(root: Path) -> list[str]:
    """What may be a leftover: paths relative to the cache. To be called before receipts are read.

    Raises:
        CacheError: the folder cannot be listed.
    """
    on_their_way = re.compile(rf"\.({re.escape(PLAN_FILE)}|rows-\w+)\..*\.tmp|{_ROWS.pattern}")
    beside = [name for name in _list(root) if on_their_way.fullmatch(name)]
    return beside + [f"{SHARD_FOLDER}/{name}" for name in _list(root / SHARD_FOLDER)]


def find_leftovers(
    root: Path, plan: Plan, listed: list[str], named: Mapping[str, str | None], *, complete: bool
) -> tuple[Leftover, ...]:
    """All listed files that the plan and the receipts do not account for, sorted.

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
        path = root / name
        kind = _kind(path, planned, named)
        if kind is None:
            continue
        try:
            status = path.lstat()
        except OSError:
            continue  # renamed or removed since it was listed
        old = time.time() - status.st_mtime >= SAFE_AGE_SECONDS
        ours = kind != "unknown" and stat.S_ISREG(status.st_mode)
        leftovers.append(
            Leftover(
                path=name, kind=kind, bytes=status.st_size, removable=ours and (complete or old)
            )
        )
    return tuple(leftovers)


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


def _list(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 names are all we need
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise CacheError(
            "the cache cannot be listed", found=error.strerror, where=str(folder.absolute())
        ) from error


def _kind(path: Path, planned: set[str], named: Mapping[str, str | None]) -> str | None:
    """What kind of leftover a file is; None where it belongs to the cache."""
    if _TEMPORARY.fullmatch(path.name) or _ROWS.fullmatch(path.name):
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
