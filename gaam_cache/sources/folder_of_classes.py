"""Sounds or pictures in folders, one for each class: ``train/cat/1.png``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from gaam_cache.config import ExtractConfig
from gaam_cache.errors import ConfigError, DataError, NotFoundError, StorageError
from gaam_cache.hub.fetch import hub_only
from gaam_cache.messages import excerpt
from gaam_cache.sources._base import Rows, Source
from gaam_cache.sources._divide import Divided
from gaam_cache.sources._kinds import OneKind
from gaam_cache.sources._options import refuse_unused
from gaam_cache.sources._table import Columns, Record, Table
from gaam_cache.sources.files import SUFFIXES
from gaam_cache.sources.media._collect import collect_media
from gaam_cache.sources.media._look import media
from gaam_cache.sources.media._state import state_of_all
from gaam_cache.sources.media._walk import entries_of, files_below, folders_of
from gaam_cache.terminal import Report, silent

FILE = "file"
"""The column that can be kept: where a file lies in the folder of the data set."""
OF_TABLES = ("text_columns", "label_column", "file_column", "delimiter", "encoding", "skip_empty")


class FolderOfClasses(Source):
    """A folder with a folder per split, in which there is one for every class.

    Files lie in the folders of classes, however deep. Rows are sorted by class and then by path,
    bytewise; a class is called as its folder. Hidden files and what operating systems leave behind
    (``Thumbs.db``) do not count. Any other file that is no sound or picture by its suffix is
    refused, as is a folder of a class without files. Links are followed; what lies outside of the
    data set's folder is taken with ``allow-outside`` alone.
    """

    priority: ClassVar[int] = 1
    is_path: ClassVar[bool] = True

    def __init__(self) -> None:
        self._divided = Divided()
        self._kind = OneKind()

    @classmethod
    def claims(cls, dataset: str) -> bool:
        """A folder without tables that holds folders with sounds or pictures, two levels deep."""
        root = Path(dataset).expanduser()
        if not root.is_dir():
            return False
        try:
            if any(path.suffix in SUFFIXES for path, _ in entries_of(root)):
                return False
            suffixes = _suffixes()
            below = (inner for outer in folders_of(root) for inner in (outer, *folders_of(outer)))
            return any(_holds(folder, suffixes) for folder in below)
        except StorageError:  # whoever reads it says so
            return False

    def read(self, config: ExtractConfig, split: str, report: Report = silent) -> Rows:
        """Read the files of ``split``."""
        if config.dataset_revision is not None:
            raise hub_only("dataset-revision", config.dataset_revision, config.dataset)
        refuse_unused(config, OF_TABLES, config.dataset)
        if config.test_fraction is None:
            return self._read(config, split, report)
        return self._divided.read(config, split, lambda: self._read(config, split, report))

    def _read(self, config: ExtractConfig, split: str, report: Report) -> Rows:
        root, folder = Path(config.dataset).expanduser(), _folder_of(config, split)
        label = None if split in config.unlabelled else "label"
        table = Table([FILE, "label"], lambda columns: _records(root, folder, columns, config))
        for name in config.keep_columns:
            if name != FILE:
                raise ConfigError(
                    f"no column '{name}'",
                    expected=f"'{FILE}', the path in the folder of the data set",
                    found=f"--keep-column {name}",
                    where=str(root),
                    hint="name files, classes and more in a CSV file: --file-column",
                )
        columns = Columns((FILE,), label, config.keep_columns, of_files=True)
        rows = collect_media(
            table,
            columns,
            config,
            folder=root,
            origin=str(root),
            kind=self._kind,
            listed=True,
            report=report,
        )
        return rows if folder == root else replace(rows, origin=str(folder))

    def state(self, config: ExtractConfig) -> Any:
        """What the file system says of every file."""
        root = Path(config.dataset).expanduser().absolute()
        found = []
        for split in config.splits if config.test_fraction is None else ("train",):
            label = None if split in config.unlabelled else "label"
            records = _records(root, _folder_of(config, split), Columns((FILE,), label), config)
            found.append(state_of_all((place for place, _ in records), root))
        return [str(root), found]


def _suffixes() -> frozenset[str]:
    return frozenset().union(*(medium.suffixes for medium in media().values()))


def _holds(folder: Path, suffixes: frozenset[str]) -> bool:
    """Whether a sound or picture is in it, by its name."""
    return any(
        path.suffix.lower() in suffixes for path, is_folder in entries_of(folder) if not is_folder
    )


def _folder_of(config: ExtractConfig, split: str) -> Path:
    """The folder of a split; with ``--test-fraction`` the only one, or that of the data set.

    Raises:
        NotFoundError: there is none; says what is there instead.
        ConfigError: there are several.
    """
    root = Path(config.dataset).expanduser()
    there = folders_of(root)
    if config.test_fraction is not None:
        suffixes = _suffixes()
        if any(_holds(folder, suffixes) for folder in there):
            return root
        if len(there) == 1:
            return there[0]
        raise ConfigError(
            "--test-fraction makes splits of data with a single one",
            expected=f"a folder per class, or only one folder, in '{root}'",
            found=f"the folders {', '.join(folder.name for folder in there)}",
            where=str(root.absolute()),
            hint="name those to encode with --split",
        )
    if (root / split).is_dir():
        return root / split
    raise NotFoundError(
        f"no folder for split '{split}'",
        expected=f"'{split}', with a folder for every class",
        found=f"the folders {', '.join(excerpt(folder.name) for folder in there[:20])}",
        where=str(root.absolute()),
        hint="name the splits there are with --split; where these are the classes, let "
        "--test-fraction 0.2 make 'train' and 'test' of them",
    )


def _records(root: Path, folder: Path, columns: Columns, config: ExtractConfig) -> Iterator[Record]:
    """A record for every file, and one that is none for whatever does not belong there."""
    suffixes = _suffixes()
    if columns.label is None:
        for path, problem in files_below(folder, root, outside=config.allow_outside):
            yield _record(path, problem, "", root, suffixes)
        return
    loose = [path for path, is_folder in entries_of(folder) if not is_folder]
    for path in sorted(loose, key=os.fsencode):
        problem = DataError(
            "a file is in no folder of a class",
            expected="folders alone, one for each class",
            found="a file beside them",
            hint="move it into the folder of its class, or out of the data set",
        )
        yield path.relative_to(root).as_posix(), problem
    for of_class in folders_of(folder):
        empty = True
        for path, problem in files_below(of_class, root, outside=config.allow_outside):
            empty = False
            yield _record(path, problem, of_class.name, root, suffixes)
        if empty:
            yield (
                f"{of_class.relative_to(root).as_posix()}/",
                DataError(
                    "the folder of a class is empty",
                    expected="a file at least",
                    found="no files",
                    hint="remove it, or put the files of its class there",
                ),
            )


def _record(
    path: Path, problem: DataError | None, label: str, root: Path, suffixes: frozenset[str]
) -> Record:
    place = path.relative_to(root).as_posix()
    if problem is None and path.suffix.lower() not in suffixes:
        problem = DataError(
            "a file is no sound or picture by its name",
            expected=f"a name that ends in {', '.join(sorted(suffixes))}",
            found=f"'{path.suffix}'" if path.suffix else "no suffix",
            hint="move it out of the data set, or name files in a CSV file: --file-column",
        )
    return place, problem or {FILE: place, "label": label}
