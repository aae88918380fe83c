"""Runs are moved whole, or not at all: to another file system by a copy that is checked first."""

from __future__ import annotations

import errno
import os
import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gaam_cache.errors import CacheError, ConfigError
from gaam_cache.format.digest import chunks
from gaam_cache.format.files import (
    make_folder,
    open_regular,
    sync_folder,
    temporary_path,
    write_synced,
)
from gaam_cache.format.plan import PLAN_FILE
from gaam_cache.format.refusals import storage_errors
from gaam_cache.format.targets import check_folder
from gaam_cache.messages import brief, visible
from gaam_decoder.runs.filters import Filters
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.run_folders import is_run
from gaam_decoder.runs.run_name import ending_of
from gaam_decoder.runs.run_reader import RUN_FILE, read_run
from gaam_decoder.tidying.free import check_free
from gaam_decoder.tidying.named import Meant, meant
from gaam_decoder.tidying.removing import take_away
from gaam_decoder.tidying.sizes import bytes_of, in_words


@dataclass(frozen=True, kw_only=True, slots=True)
class Move:
    """Runs that are to be moved."""

    folders: tuple[Path, ...]
    to: Path
    """A folder of runs, which is made if need be."""
    bytes: int
    unjudged: tuple[str, ...] = ()
    """Damaged runs of which filters can say nothing: they stay."""
    there: tuple[str, ...] = ()
    """Named runs that are there and no longer here: of the same move, which was cut off."""

    def in_words(self) -> str:
        """Lines for people, what goes first."""
        lines = [f"  {visible(str(folder))}" for folder in self.folders]
        lines += [f"  is there already: {visible(name)}" for name in self.there]
        lines += [f"  stays, because it is damaged: {name}" for name in self.unjudged]
        return "\n".join([f"to be moved: {self._counted()}", *lines])

    def done_in_words(self) -> str:
        """A line for people, afterwards."""
        return f"moved: {self._counted()}"

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "moved": [str(folder) for folder in self.folders],
            "to": str(self.to),
            "bytes": self.bytes,
            "damaged_and_kept": list(self.unjudged),
            "there_already": list(self.there),
        }

    def _counted(self) -> str:
        count = len(self.folders)
        return visible(f"{count:,} run{'s' * (count != 1)}, {in_words(self.bytes)}, to {self.to}")

    def carry_out(self) -> None:
        """Move all of them, one after the other.

        Raises:
            ConfigError: somebody is at work on one of them by now.
            CacheError: a run is damaged, which a copy shows.
            StorageError: the file system refused; every run is whole, here or there or in both.
        """
        check_free(self.folders)
        for folder in self.folders:
            _move(folder, self.to)


def moving(words: Sequence[str | Path], filters: Filters, runs: Path, to: str | Path) -> Move:
    """What is to be moved; nothing is moved yet.

    Args:
        words: folders or names of runs; without them filters choose from ``runs``.
        filters: see ``meant``.
        runs: a folder of runs.
        to: the folder of runs that gets them.

    Raises:
        ConfigError: a run that must stay, a target where they cannot lie, or a name that is taken.
        NotFoundError: no such run.
        CacheError: a run is damaged.
    """
    target = Path(to).expanduser().absolute()
    target = target.resolve() if target.is_dir() else target
    there = [word for word in words if _is_there(Path(word), runs, target)]
    left = [word for word in words if word not in there]
    found = Meant(folders=()) if there and not left else meant(left, filters, runs)
    check_free(found.folders)
    _check_target(target, found.folders)
    for folder in found.folders:
        run, final = read_run(folder), target / folder.name
        if os.path.lexists(final) and not _same(run, final):
            raise _taken(final)
    size = sum(map(bytes_of, found.folders))
    return Move(
        folders=found.folders,
        to=target,
        bytes=size,
        unjudged=found.unjudged,
        there=tuple(Path(word).name for word in there),
    )


def _is_there(word: Path, runs: Path, target: Path) -> bool:
    """Whether a run that is not here any more lies where it is to go."""
    here = (word.expanduser(), runs.expanduser() / word)
    named = bool(ending_of(word.name)) and word.name not in ("", "..")
    return named and not any(map(os.path.lexists, here)) and is_run(target / word.name)


def _check_target(target: Path, folders: Sequence[Path]) -> None:
    check_folder(target, option="FOLDER")
    why = None
    if target.is_dir() and is_run(target):
        why = "it is a run"
    elif (target / PLAN_FILE).exists():
        why = "it is a cache"
    elif any(target.is_relative_to(folder) for folder in folders):
        why = "it lies in a run that is to be moved"
    elif there := [folder for folder in folders if folder.parent == target]:
        why = f"'{there[0].name}' lies there already"
    elif twice := [name for name, n in Counter(f.name for f in folders).items() if n > 1]:
        why = f"two of the runs are called '{twice[0]}'"
    if why:
        raise ConfigError(
            f"runs cannot be moved to '{brief(target.name)}'",
            expected="a folder of runs, or one that is not there yet",
            found=visible(why),
            where=visible(str(target)),
        )


def _taken(final: Path) -> ConfigError:
    return ConfigError(
        f"there is a '{brief(final.name)}' already",
        expected="a folder in which no other run has that name",
        found=visible(str(final)),
        hint="rename one of them with 'gaam runs rename'",
    )


def _move(folder: Path, to: Path) -> None:
    final = to / folder.name
    if os.path.lexists(final):  # of a move that was cut off when all was there
        if not _same(read_run(folder), final):
            raise _taken(final)
        take_away(folder)
        return
    with storage_errors(final, option="FOLDER"):
        make_folder(to)
        try:
            folder.rename(final)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
        else:
            with suppress(OSError):  # at worst a power cut leaves it where it was
                sync_folder(to)
                sync_folder(folder.parent)
            return
        _copy(folder, final)
    take_away(folder)


def _copy(folder: Path, final: Path) -> None:
    """A copy on another file system, which appears when every byte of it was read back."""
    temporary = temporary_path(final.parent, f"moved{ending_of(folder.name)}")
    temporary.mkdir()
    try:
        for name in (*read_run(folder).files, RUN_FILE):
            with open_regular(folder / name) as file:
                write_synced(temporary / name, chunks(file))
                status = os.fstat(file.fileno())
            os.utime(temporary / name, ns=(status.st_atime_ns, status.st_mtime_ns))
        sync_folder(temporary)
        run = read_run(folder)
        if not _same(run, temporary):
            raise CacheError(
                f"the copy of '{brief(folder.name)}' is not what was copied",
                expected="the bytes that gaam train wrote",
                found="others, in the run or in its copy",
                where=visible(str(folder)),
                hint="gaam verify says whether the run is damaged",
            )
        temporary.rename(final)
        sync_folder(final.parent)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _same(run: RunResult, other: Path) -> bool:
    """Whether a run lies there whole, every byte as in this one."""
    try:
        there = read_run(other)
        for name in there.files:
            there.check_digest(name)
        here = (run.path / RUN_FILE).read_bytes()
        return there.files == run.files and here == (other / RUN_FILE).read_bytes()
    except CacheError:
        return False
