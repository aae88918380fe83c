"""A folder that appears whole, by one rename, or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from gaam_cache.errors import ConfigError
from gaam_cache.format.files import make_folder, sync_folder, temporary_path
from gaam_cache.format.refusals import storage_errors


def check_free(out: Path, ours: Callable[[Path], bool], *, overwrite: bool) -> None:
    """Refuse a folder that must not be made or replaced.

    Args:
        out: the folder.
        ours: whether a folder is one of those that are made here.
        overwrite: replace it if it is; an empty one is free.

    Raises:
        ConfigError: something is there.
        StorageError: it cannot be looked at.
    """
    with storage_errors(out, option="DIR"):
        if not out.is_symlink() and not out.exists():
            return
        if out.is_dir() and not out.is_symlink() and not any(out.iterdir()):
            return
        replaceable = out.is_dir() and not out.is_symlink() and ours(out)
    if overwrite and replaceable:
        return
    raise ConfigError(
        f"'{out}' is there already; nothing was changed",
        expected="a folder that is new or empty",
        found="an earlier export" if replaceable else "something that no export made",
        where=str(out.absolute()),
        hint="--overwrite replaces it" if replaceable else "name another folder",
    )


@contextmanager
def whole_folder(
    out: Path, ours: Callable[[Path], bool], *, overwrite: bool = False
) -> Iterator[Path]:
    """A new folder beside ``out`` that takes its place when all went well, and else is removed.

    Args:
        out: see ``check_free``, which is asked before and after the work.
        ours: as there.
        overwrite: as there. What is replaced is moved aside first: between two renames there is
            no ``out``.

    Raises:
        ConfigError: something is in the way.
        StorageError: the file system refused.
    """
    check_free(out, ours, overwrite=overwrite)
    with storage_errors(out, option="DIR"):
        make_folder(out.absolute().parent)
        temporary, aside = (temporary_path(out.absolute().parent, out.name) for _ in range(2))
        try:
            temporary.mkdir()
            yield temporary
            for folder in [path for path in temporary.rglob("*") if path.is_dir()]:
                sync_folder(folder)
            sync_folder(temporary)
            check_free(out, ours, overwrite=overwrite)
            if out.is_dir():
                out.rename(aside)
            try:
                temporary.rename(out)
            except OSError:
                if aside.is_dir():
                    aside.rename(out)
                raise
            sync_folder(out.absolute().parent)
            shutil.rmtree(aside, ignore_errors=True)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
