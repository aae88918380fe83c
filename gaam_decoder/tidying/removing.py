"""Runs and unfinished work are removed whole, or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gaam_cache.errors import ConfigError, StorageError
from gaam_cache.format.files import sync_folder, temporary_path
from gaam_cache.messages import brief, visible
from gaam_decoder.runs.filters import Filters
from gaam_decoder.runs.run_name import ending_of, unfinished_name, work_of
from gaam_decoder.tidying.free import check_free
from gaam_decoder.tidying.leftovers import REMOVED, stale
from gaam_decoder.tidying.named import check_there, meant
from gaam_decoder.tidying.sizes import bytes_of, in_words


@dataclass(frozen=True, kw_only=True, slots=True)
class Removal:
    """What is to be removed."""

    folders: tuple[Path, ...]
    bytes: int
    unjudged: tuple[str, ...] = ()
    """Damaged runs of which filters can say nothing: they stay."""
    at_work: tuple[str, ...] = ()
    """Unfinished work that somebody is at: it stays."""

    def in_words(self) -> str:
        """Lines for people, what goes first."""
        lines = [f"  {visible(str(folder))}" for folder in self.folders]
        lines += [f"  stays, because it is damaged: {name}" for name in self.unjudged]
        lines += [f"  stays: {name}" for name in self.at_work]
        return "\n".join([f"to be removed: {self._counted()}", *lines])

    def done_in_words(self) -> str:
        """A line for people, afterwards."""
        return f"removed: {self._counted()}"

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "removed": [str(folder) for folder in self.folders],
            "bytes": self.bytes,
            "damaged_and_kept": list(self.unjudged),
            "at_work_and_kept": list(self.at_work),
        }

    def _counted(self) -> str:
        count = len(self.folders)
        return f"{count:,} folder{'s' * (count != 1)}, {in_words(self.bytes)}"

    def carry_out(self) -> None:
        """Remove all of it, one after the other.

        Raises:
            ConfigError: somebody is at work on one of them by now.
            StorageError: the file system refused; what is gone is gone whole.
        """
        finished = [folder for folder in self.folders if not folder.name.startswith(".")]
        check_free(finished)
        for folder in self.folders:
            take_away(folder)


def removal(words: Sequence[str | Path], filters: Filters, runs: Path) -> Removal:
    """What is to be removed of runs; nothing is removed yet.

    Args:
        words: folders or names of runs; without them filters choose from ``runs``.
        filters: see ``meant``.
        runs: a folder of runs.

    Raises:
        ConfigError: a run that must stay, or words that mean none.
        NotFoundError: no such run.
    """
    found = meant(words, filters, runs)
    check_free(found.folders)
    size = sum(map(bytes_of, found.folders))
    return Removal(folders=found.folders, bytes=size, unjudged=found.unjudged)


def removal_of_unfinished(words: Sequence[str | Path], filters: Filters, runs: Path) -> Removal:
    """What is to be removed of work that nobody is at: seeds and epochs of it are lost.

    Args:
        words: names as ``gaam runs`` lists them; without them all that nobody is at work on.
        filters: must be empty: unfinished work does not say enough.
        runs: a folder of runs.

    Raises:
        NotFoundError: no such folder.
        ConfigError: nothing is there, somebody is at work on what was named, or a filter.
    """
    if filters:
        raise ConfigError(
            "filters say nothing of unfinished work",
            expected="--unfinished alone, or with names",
            found=" ".join(filters.in_words()),
        )
    check_there(runs)
    found = stale(runs.expanduser())
    if words:
        names = {unfinished_name(work_of(str(word))) for word in words}
        kept = {name: why for name, why in found.at_work.items() if name in names}
        there = {path.name: path for path in found.folders}
        if lacking := sorted(names - there.keys()):
            why = kept.get(lacking[0], "no such unfinished work")
            raise ConfigError(
                f"'{brief(lacking[0])}' cannot be removed",
                expected="unfinished work that nobody is at",
                found=visible(why),
                where=visible(str(runs.absolute())),
                hint="'gaam runs' lists it",
            )
        folders = [there[name] for name in sorted(names)]
        return Removal(folders=tuple(folders), bytes=sum(map(bytes_of, folders)))
    if not found.folders:
        raise ConfigError(
            "nothing that is unfinished can be removed",
            expected="unfinished work that nobody is at",
            found=visible("; ".join(f"{n}: {why}" for n, why in found.at_work.items()) or "none"),
            where=visible(str(runs.absolute())),
        )
    return Removal(
        folders=found.folders,
        bytes=sum(map(bytes_of, found.folders)),
        at_work=tuple(visible(f"{name}: {why}") for name, why in found.at_work.items()),
    )


def take_away(folder: Path) -> None:
    """Remove a folder: it is gone under its name at once, or nothing of it is.

    Raises:
        StorageError: the file system refused.
    """
    parent = folder.parent
    hidden = temporary_path(parent, f"{REMOVED}{ending_of(folder.name)}")
    try:
        folder.rename(hidden)
    except OSError as error:
        raise StorageError(
            f"cannot remove '{brief(folder.name)}'",
            found=error.strerror or str(error),
            where=visible(str(parent)),
            hint="get the right to write there; nothing of it was removed",
        ) from error
    with suppress(OSError):  # at worst a power cut brings it back, whole
        sync_folder(parent)
    try:
        shutil.rmtree(hidden)
    except OSError as error:
        raise StorageError(
            f"'{brief(folder.name)}' is no run any more, but not all of it could be removed",
            found=error.strerror or str(error),
            where=visible(str(hidden)),
            hint="get the right to write there; 'gaam runs remove --unfinished' removes the rest",
        ) from error
