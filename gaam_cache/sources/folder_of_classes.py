"""Sounds or pictures in folders, one folder a class: ``train/cat/1.png``."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import ClassVar

from gaam_cache.common.errors import ConfigError, DataError, NotFoundError
from gaam_cache.common.messages import excerpt
from gaam_cache.common.terminal import ReportProgress
from gaam_cache.config import AUTO, ExtractConfig
from gaam_cache.sources.base import Record, Rows, Source
from gaam_cache.sources.files import is_saved_data_set
from gaam_cache.sources.media.base import media
from gaam_cache.sources.rows.collect import Columns, Table, choose_columns, collect
from gaam_cache.sources.rows.layout import (
    holds_tables,
    items_named_as_split,
    note_unused_validation,
    warn_of_synonym,
)
from gaam_cache.targets.base import CLASSIFICATION

FILE = "file"  # the column with the path of a file in the folder of the data set
LITTER = frozenset({"thumbs.db", "desktop.ini", "__macosx"})
"""Names, in lower case, of what operating systems leave in folders."""
FOLDERS_SHOWN = 20  # most folders that a message names


class FolderOfClasses(Source):
    """A folder with a folder per split, which holds a folder per class.

    Files lie at any depth in the folder of their class, whose name is the label. Rows
    are sorted by class and then by path, bytewise. Hidden files and the litter of
    operating systems are ignored. Any other file without a suffix of sounds or pictures
    is refused.
    """

    priority: ClassVar[int] = 1

    @classmethod
    def claims(cls, dataset: str) -> bool:
        """Whether the data set is a folder of folders with sounds or pictures.

        They lie two or three levels deep, and the folder has no tables.
        """
        root = Path(dataset).expanduser()
        # beside tables, pictures in folders are what the tables name
        if not root.is_dir() or holds_tables(root) or is_saved_data_set(root):
            return False
        return any(map(_is_medium, chain(root.glob("*/*"), root.glob("*/*/*"))))

    def rows(self, config: ExtractConfig, split: str, report: ReportProgress) -> Rows:
        """Read the files of a split as a table with two columns: file and label."""
        root = Path(config.dataset).expanduser()
        folder = _find_folder(config, root, split)
        # a column of files, and one of labels: the names of their folders
        table = Table(
            names=[FILE, *config.label_column],
            records=lambda columns: _read_records(root, folder, columns),
        )
        if config.task not in (AUTO, CLASSIFICATION):
            raise ConfigError(
                "the labels of a folder of classes are classes",
                expected="--task classification; or a table with --file-column",
                found=f"--task {config.task}",
                where=str(root),
            )
        labels = () if split in config.unlabelled else config.label_column
        columns = choose_columns(table, config, labels, str(root))
        rows = collect(
            table,
            columns,
            config,
            split=split,
            origin=str(root),
            folder=root,
            report=report,
        )
        # Paths of rows are relative to the root, which errors of a single row name.
        # Later messages are about the split, and name its folder.
        return replace(rows, origin=str(folder))


def _is_visible(name: str) -> bool:
    """Whether a file or folder of this name is neither hidden nor litter."""
    return name[0] != "." and name.lower() not in LITTER


@cache
def _suffixes() -> frozenset[str]:
    """The suffixes of all kinds of sounds and pictures, in lower case with the dot."""
    return frozenset().union(*(kind.suffixes for kind in media().values()))


def _is_medium(path: Path) -> bool:
    """Whether a file is a sound or picture, by its name."""
    is_media_name = path.suffix.lower() in _suffixes() and _is_visible(path.name)
    return is_media_name and path.is_file()


def _find_folder(config: ExtractConfig, root: Path, split: str) -> Path:
    """Find the folder of a split, which holds a folder for every class.

    With a ``test_fraction``, it is the root if that holds the classes, or else the only
    folder in the root.

    Args:
        config: the extraction.
        root: the folder of the data set.
        split: name of the split; its folder may have a synonym as its name.

    Raises:
        NotFoundError: no folder, or several folders, may be that of the split.
    """
    folders = sorted(
        path for path in root.iterdir() if path.is_dir() and _is_visible(path.name)
    )
    # folders with the name of the split or, without any, with a synonym of the name
    eligible = items_named_as_split(split, folders, lambda folder: folder.name)
    if config.test_fraction is None:
        note_unused_validation([folder.name for folder in folders], config, split)
        if len(eligible) == 1:
            warn_of_synonym(split, eligible[0].name, root)
            return eligible[0]
    # sounds or pictures in the folders of the root: these folders are the classes
    elif any(map(_is_medium, root.glob("*/*"))):
        _refuse_splits(folders, root)
        return root
    elif len(folders) == 1:
        return folders[0]

    is_unclear = config.test_fraction is None and len(eligible) > 1
    problem = "several folders" if is_unclear else "no folder"
    names = [excerpt(folder.name) for folder in folders[:FOLDERS_SHOWN]]
    raise NotFoundError(
        f"{problem} for the split '{split}'",
        expected=f"'{split}', with a folder for every class",
        found=f"the folders {', '.join(names)}",
        where=str(root.absolute()),
        hint="if these are classes: --test-fraction 0.2 divides them into 'train' and "
        "'test'; if they are splits: name them with --split",
    )


def _refuse_splits(folders: Sequence[Path], root: Path) -> None:
    """Refuse folders that are to be divided, but have the names of splits.

    Their names would be classes, and a decoder would learn to tell train from test.
    """
    names = [folder.name for folder in folders]
    if {"train", "test"} <= set(names):
        raise NotFoundError(
            "the folders to be divided have the names of splits",
            expected="a folder for every class",
            found=", ".join(map(excerpt, names[:FOLDERS_SHOWN])),
            where=str(root.absolute()),
            hint="put the files of every class into a folder, such as train/cat/1.png, "
            "without --test-fraction; or name files and labels in a CSV file: "
            "--file-column",
        )


def _read_records(root: Path, folder: Path, columns: Columns) -> Iterator[Record]:
    """Yield a record for every sound or picture in the folder of a split.

    Args:
        root: the folder of the data set. Paths in records are relative to it.
        folder: the folder of the split.
        columns: the columns that are read. Without a column of labels, files need not
            lie in the folder of a class.

    Raises:
        DataError: there is a file of another kind, or one in no folder of a class.
    """
    has_labels = bool(columns.labels)
    paths = list[Path]()
    for parent, folders, names in os.walk(folder, followlinks=True):
        # os.walk enters only the folders that stay in its own list, so the list itself
        # is changed
        folders[:] = filter(_is_visible, folders)
        paths.extend(Path(parent, name) for name in names if _is_visible(name))

    # Sort by class and then by path: bytewise, as `LC_ALL=C sort` does it, so that
    # others can repeat the order.
    def sorting_key(path: Path) -> list[bytes]:
        key = [os.fsencode(path)]
        if has_labels:
            class_folder = path.relative_to(folder).parts[0]
            key.insert(0, os.fsencode(class_folder))
        return key

    for path in sorted(paths, key=sorting_key):
        parents = path.relative_to(folder).parts[:-1]
        is_in_class = bool(parents) or not has_labels
        if path.suffix.lower() not in _suffixes() or not is_in_class:
            raise DataError(
                "a file is not a sound or picture in the folder of a class",
                expected=f"files that end in {', '.join(sorted(_suffixes()))}",
                where=str(path),
                hint="move it out of the data set, or name files in a CSV file: "
                "--file-column",
            )
        location = path.relative_to(root).as_posix()
        record = {FILE: location}
        if has_labels:
            record[columns.labels[0]] = parents[0]
        yield location, record
