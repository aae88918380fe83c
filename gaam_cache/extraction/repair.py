"""What to do about a shard that is there and not what it must be."""

from __future__ import annotations

import shlex
import stat
from contextlib import suppress
from pathlib import Path

from gaam_cache.errors import CacheError
from gaam_cache.extraction.recorded import command_again
from gaam_cache.import_config import maker_of
from gaam_cache.store.files import identity, link, storage_errors, temporary_path
from gaam_cache.store.plan import Plan, ShardSpec
from gaam_cache.store.shard import missing_shards, planned_receipt, receipt_path


def repair_command(root: Path, name: str, again: str) -> str:
    """The command line that makes the shard called ``name`` anew; ``extract_again`` its end."""
    path = receipt_path(root, name)
    remove = "rm -r" if path.is_dir() and not path.is_symlink() else "rm"
    return f"{remove} {shlex.quote(str(path))} && {again}"


def extract_again(root: Path, plan: Plan) -> str:
    """The command line that makes what is missing."""
    try:
        return command_again(plan, root)
    except CacheError:
        return f"the {maker_of(plan.encoder)} that made the cache"


def discard_broken(root: Path, plan: Plan) -> dict[str, str]:
    """Take away the receipts that make no shard exist, so that it is made again.

    That is a receipt that cannot be read or that does not fit the plan, and one whose file is
    gone, of another size or no regular file. It is first moved aside, which only one of several
    extractors can do, and looked at once more: where another one has put its own receipt there in
    between, that goes back. The file of a shard is never touched; no byte of it is read.

    Returns:
        Name of the shard -> what was wrong with it.

    Raises:
        StorageError: the file system refused.
        CacheError: something lies in the place of a receipt that is no file.
    """
    broken = {}
    missing = set(missing_shards(root, plan))
    for shard in plan.shards():
        if shard.name in missing:
            continue
        path = receipt_path(root, shard.name)
        with storage_errors(path), suppress(FileNotFoundError):  # another one was quicker
            before = identity(path)
            fault = _fault(root, plan, shard)
            if fault is not None and _discard(path, before):
                broken[shard.name] = fault
    return broken


def _fault(root: Path, plan: Plan, shard: ShardSpec) -> str | None:
    try:
        planned_receipt(root, plan, shard)
    except CacheError as error:
        return error.reason
    return None


def _discard(path: Path, before: tuple[int, ...]) -> bool:
    """Remove the receipt that was this file, and no other."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise CacheError(
            f"'{path.name}' is not a regular file",
            expected="the receipt of a shard",
            where=str(path.parent.absolute()),
            hint=f"move {path} away and run gaam extract again",
        )
    aside = temporary_path(path.parent, path.name)
    path.rename(aside)
    try:
        if identity(aside)[:4] == before[:4]:  # a rename is a change too
            return True
        with suppress(FileExistsError):
            link(aside, path)
        return False
    finally:
        aside.unlink()
