"""Sounds or pictures in folders, one for each class: ``train/cat/1.png``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from gaam_cache.config import ExtractConfig
from gaam_cache.errors import ConfigError, DataError, NotFoundError
from gaam_cache.hub.fetch import hub_only
from gaam_cache.messages import excerpt
from gaam_cache.sources._base import Rows, Source
from gaam_cache.sources._collect import collect
from gaam_cache.sources._divide import Divided
from gaam_cache.sources._table import SUFFIXES, Columns, Record, Table
from gaam_cache.sources.media._base import media
from gaam_cache.terminal import Report, silent

FILE = "file"
"""The column that can be kept: where a file lies in the folder of the data set."""
LITTER = {"thumbs.db", "ehthumbs.db", "desktop.ini", "__macosx", "@eadir"}
"""What operating systems leave behind, in lower case; what begins with a dot is hidden too."""


class FolderOfClasses(Source):
    """A folder with a folder per split, in which there is one for every class.

    Files lie in the folders of classes, however deep. Rows are sorted by class and then by path,
    bytewise; a class is called as its folder. Hidden files and what operating systems leave behind
    (``Thumbs.db``) do not count. Any other file that is no sound or picture by its suffix is
    refused, as is a folder of a class without files.
    """

    priority: ClassVar[int] = 1
    is_path: ClassVar[bool] = True

    def __init__(self) -> None:
        self._divided = Divided()

    @classmethod
    def claims(cls, dataset: str) -> bool:
        """A folder without tables that holds folders with sounds or pictures, two levels deep."""
        root = Path(dataset).expanduser()
        if not root.is_dir() or any(path.suffix in SUFFIXES for path in root.iterdir()):
            return False
        below = (inner for outer in _folders(root) for inner in (outer, *_folders(outer)))
        return any(_holds_files(folder) for folder in below)

    def read(self, config: ExtractConfig, split: str, report: Report = silent) -> Rows:
        """Read the files of ``split``."""
        if config.dataset_revision is not None:
            raise hub_only("dataset-revision", config.dataset_revision, config.dataset)
        for name in config.keep_columns:
            if name != FILE:
                raise ConfigError(
                    f"no column '{name}'",
                    expected=f"'{FILE}', the path in the folder of the data set",
                    found=f"--keep-column {name}",
                    hint="name files, classes and more in a CSV file: --file-column",
                )
        return self._divided.read(config, split, lambda: self._read(config, split, report))

    def _read(self, config: ExtractConfig, split: str, report: Report) -> Rows:
        root, folder = Path(config.dataset).expanduser(), _folder_of(config, split)
        label = None if split in config.unlabelled else "label"
        table = Table([FILE, "label"], lambda columns: _records(root, folder, columns))
        columns = Columns((FILE,), label, config.keep_columns, of_files=True)
        rows = collect(table, columns, config, origin=str(root), folder=root, report=report)
        return replace(rows, origin=str(folder))


def _entries(folder: Path) -> list[Path]:
    """All that is in a folder and not hidden, sorted by the bytes of the names."""
    shown = [
        path for path in folder.iterdir() if path.name[0] != "." and path.name.lower() not in LITTER
    ]
    return sorted(shown, key=os.fsencode)


def _folders(folder: Path) -> list[Path]:
    return [path for path in _entries(folder) if path.is_dir()]


def _suffixes() -> frozenset[str]:
    return frozenset().union(*(medium.suffixes for medium in media().values()))


def _holds_files(folder: Path) -> bool:
    """Whether a sound or picture is in it, by its name."""
    return any(path.suffix.lower() in _suffixes() and path.is_file() for path in _entries(folder))


def _folder_of(config: ExtractConfig, split: str) -> Path:
    """The folder of a split; with ``test_fraction`` the only one, or that of the data set."""
    root = Path(config.dataset).expanduser()
    there = _folders(root)
    if config.test_fraction is not None:
        if any(map(_holds_files, there)):
            return root
        if len(there) == 1:
            return there[0]
    elif (root / split).is_dir():
        return root / split
    raise NotFoundError(
        f"no folder for the split '{split}'",
        expected=f"'{split}', with a folder for every class",
        found=f"the folders {', '.join(excerpt(folder.name) for folder in there[:20])}",
        where=str(root.absolute()),
        hint="name the splits there are with --split; where these are the classes, let "
        "--test-fraction 0.2 make 'train' and 'test' of them",
    )


def _records(root: Path, folder: Path, columns: Columns) -> Iterator[Record]:
    """A record for every file, and one that is none for whatever does not belong there."""
    suffixes = _suffixes()

    def record(path: Path, label: str) -> Record:
        place = path.relative_to(root).as_posix()
        if path.suffix.lower() in suffixes:
            return place, {FILE: place, "label": label}
        return place, DataError(
            "a file is no sound or picture by its name",
            expected=f"a name that ends in {', '.join(sorted(suffixes))}",
            found=excerpt(path.name),
            hint="move it out of the data set, or name files in a CSV file: --file-column",
        )

    if columns.label is None:
        yield from (record(path, "") for path in _below(folder))
        return
    for path in _entries(folder):
        place = path.relative_to(root).as_posix()
        if not path.is_dir():
            yield place, DataError("a file is in no folder of a class", expected="folders alone")
            continue
        files = _below(path)
        yield from (record(file, path.name) for file in files)
        if not files:
            yield place, DataError("the folder of a class is empty", expected="a file at least")


def _below(folder: Path) -> list[Path]:
    """All files in a folder and below it, sorted by the bytes of their paths."""
    found = []
    for path in _entries(folder):
        found += _below(path) if path.is_dir() else [path]
    return sorted(found, key=os.fsencode)
