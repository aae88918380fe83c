"""Rows from tables on disk: a folder with a table for each split, or a single table."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, NamedTuple

from gaam_cache.common.errors import GaamNote, GaamWarning, NotFoundError, reading_file
from gaam_cache.common.settings import data_path
from gaam_cache.common.terminal import ReportProgress
from gaam_cache.config import DEFAULT_DATASET, ExtractConfig
from gaam_cache.sources.base import Rows, Source
from gaam_cache.sources.rows.collect import Table, choose_columns, collect
from gaam_cache.sources.rows.layout import (
    COMPRESSED,
    SPLITS_HINT,
    SUFFIXES,
    SplitFiles,
    all_tables,
    check_file,
    files_of_split,
    items_named_as_split,
    kind_of,
    note_unused_validation,
    parse_table_name,
    warn_of_synonym,
)
from gaam_cache.sources.rows.readers import dataset_table, open_table, open_tables
from gaam_cache.sources.rows.text_files import byte_order_mark, reads_mark

__all__ = ["FileSource", "byte_order_mark", "kind_of", "open_table", "reads_mark"]

PATH_ENDINGS = (*SUFFIXES, ".txt", COMPRESSED, "/")
"""A data set of the hub has no such name."""
TEST_FRACTION = 0.2  # share of the rows of a single table that becomes 'test'
BUNDLED_COLUMNS = ("title", "description")
SPLITS_FILE = "dataset_dict.json"
"""What ``datasets`` writes beside the splits that it saves."""
DATASET_FILES = ("state.json", "dataset_info.json")
"""What ``datasets`` writes beside the shards of each split."""


class FileSource(Source):
    """A folder with ``<split>.csv`` (.tsv, .jsonl, .json, .parquet), or one such file.

    The folder may also hold shards, ``<split>-00000-of-00003.parquet``, by themselves
    or in ``data`` as on the hub; text compressed by gzip; or the files that
    ``save_to_disk`` of ``datasets`` wrote. A split without labels may be a
    ``<split>.txt``, one text a line.

    The bundled sample is such a folder: 480 short news items, written for this project.
    """

    priority: ClassVar[int] = 2

    @classmethod
    def claims(cls, dataset: str) -> bool:
        """Whether it is the bundled sample, an existing path, or looks like a path."""
        if dataset == DEFAULT_DATASET or Path(dataset).expanduser().exists():
            return True
        return dataset.startswith((".", "/", "~")) or dataset.lower().endswith(
            PATH_ENDINGS
        )

    @classmethod
    def with_defaults(cls, config: ExtractConfig) -> ExtractConfig:
        """Set ``test_fraction`` for data that is a single split, with a note of it.

        Returns:
            The configuration, in which a fifth of every class is held out for testing;
            the same configuration if the data has several splits, or if the user has
            said how to test.
        """
        # a user who names splits, or a fraction, has said what to test on
        if config.test_fraction is not None or config.splits != ("train", "test"):
            return config
        path = Path(config.dataset).expanduser()
        is_table = path.is_file() and kind_of(path) in SUFFIXES
        # rows without labels cannot test anything
        if config.unlabelled or not (is_table or is_saved_split(path)):
            return config

        noun = "file" if path.is_file() else "split"
        share = f"{TEST_FRACTION:.0%} of every class"
        if config.task in ("regression", "multi-label"):
            share = f"{TEST_FRACTION:.0%} of the rows"
        # whole groups are held out, so that the share is not exact
        if config.test_groups is not None:
            share = f"about {TEST_FRACTION:.0%}"
        warnings.warn(
            f"'{path.name}' is one {noun}: {share} are held out as 'test' "
            "(--test-fraction)",
            GaamNote,
            stacklevel=3,
        )
        return replace(config, test_fraction=TEST_FRACTION)

    def rows(self, config: ExtractConfig, split: str, report: ReportProgress) -> Rows:
        """Read one split: from files at a path, or from the bundled sample."""
        if config.dataset != DEFAULT_DATASET:
            return _read_split(config, split, report)

        bundled = replace(
            config,
            dataset=f"{data_path()}/news_sample",
            text_columns=config.text_columns or BUNDLED_COLUMNS,
        )
        rows = _read_split(bundled, split, report)
        # the folder of the installation says nothing about the rows
        return replace(rows, origin=f"{DEFAULT_DATASET}/{Path(rows.origin).name}")


class _OpenedSplit(NamedTuple):
    """The table of a split, whose records are not read yet."""

    table: Table
    origin: str  # for messages and provenance
    folder: Path  # paths of files in the table are relative to it


def _read_split(config: ExtractConfig, split: str, report: ReportProgress) -> Rows:
    """Read the rows of a split from the files at the path ``config.dataset``."""
    path = Path(config.dataset).expanduser()
    if is_saved_data_set(path):
        opened = _open_saved(path, config, split)
    else:
        files = _find_files(path, config, split)
        if path.is_dir():
            splits = [table.split for table in all_tables(path)]
            note_unused_validation(splits, config, split)
        # A .txt file has a single column, which gaam names. The text columns that the
        # user names are those of the other splits.
        if kind_of(files.paths[0]) == ".txt":
            config = replace(config, text_columns=())
        table = open_tables(files.complete_paths(), config)
        folder = files.paths[0].parent
        opened = _OpenedSplit(table, str(folder / files.display_name), folder)

    labels = () if split in config.unlabelled else config.label_column
    columns = choose_columns(opened.table, config, labels, opened.origin)
    return collect(
        opened.table,
        columns,
        config,
        split=split,
        origin=opened.origin,
        folder=opened.folder,
        report=report,
    )


def _find_files(path: Path, config: ExtractConfig, split: str) -> SplitFiles:
    """Find the files of a split: in a folder, or a single file.

    With a ``test_fraction``, the data set has one split, whose name does not matter.

    Raises:
        NotFoundError: the path does not exist, or has no data of this split.
    """
    takes_only_split = config.test_fraction is not None
    # a .txt holds texts only, and no labels
    suffixes = (*SUFFIXES, ".txt") if split in config.unlabelled else SUFFIXES
    if not path.exists():
        raise NotFoundError(
            f"no file or folder at '{path}'", where=str(path.absolute())
        )
    if path.is_dir():
        return files_of_split(
            path, split, takes_only_split=takes_only_split, suffixes=suffixes
        )

    # the path is a file: its name may be that of a split, or of a shard of a split
    name, num_shards = parse_table_name(path)
    is_this_split = takes_only_split or len(config.splits) == 1 or name == split
    if kind_of(path) not in suffixes or not is_this_split:
        raise NotFoundError(
            f"no data for the split '{split}' at '{path}'",
            expected=f"a file of the split, ending in {', '.join(suffixes)}",
            found=path.name,
            where=str(path.absolute()),
            hint=SPLITS_HINT,
        )
    if num_shards is not None and num_shards > 1:
        warnings.warn(
            f"'{path.name}' is one of {num_shards} shards: --dataset {path.parent} "
            "reads all of them",
            GaamWarning,
            stacklevel=2,
        )
    return SplitFiles(name, (path,))


def is_saved_data_set(path: Path) -> bool:
    """Whether a folder was written by ``save_to_disk`` of ``datasets``."""
    return (path / SPLITS_FILE).is_file() or is_saved_split(path)


def is_saved_split(path: Path) -> bool:
    """Whether ``save_to_disk`` wrote a single split into a folder."""
    return all((path / name).is_file() for name in DATASET_FILES)


def _open_saved(path: Path, config: ExtractConfig, split: str) -> _OpenedSplit:
    """Open a split that ``datasets`` saved, by itself or with others.

    Args:
        path: the folder that ``save_to_disk`` wrote.
        config: the extraction; with a ``test_fraction`` the folder must hold one split,
            whatever its name.
        split: name of the split.

    Raises:
        NotFoundError: the folder has no such split, or several that may be meant.
    """
    import datasets

    # 'train' and 'test' are divided later
    takes_only_split = config.test_fraction is not None
    # the library does not recognize pointers of Git LFS
    for file in sorted(path.glob("**/*.arrow")):
        check_file(file)
    with reading_file(str(path)):
        data = datasets.load_from_disk(str(path))

    folder = path
    if isinstance(data, datasets.DatasetDict):
        note_unused_validation(data, config, split)
        name = _find_saved_split(
            path, list(data), split, takes_only_split=takes_only_split
        )
        data = data[name]
        folder = path / name
    # a user who asks for one split means the only one there is, whatever its name
    elif not takes_only_split and len(config.splits) > 1 and str(data.split) != split:
        raise NotFoundError(
            f"'{path}' is one split, and not '{split}'",
            where=str(path.absolute()),
            hint="--test-fraction 0.2 divides it into 'train' and 'test'",
        )
    return _OpenedSplit(dataset_table(data, config), str(folder), folder)


def _find_saved_split(
    path: Path, names: list[str], split: str, *, takes_only_split: bool
) -> str:
    """Find the name under which a split was saved.

    Args:
        path: the folder of the data set.
        names: names of the saved splits.
        split: the split, whose saved name may be a synonym such as "validation".
        takes_only_split: whether the data set must have a single split, which is
            then taken whatever its name.

    Raises:
        NotFoundError: no saved split, or more than one, may be the wanted one.
    """
    if takes_only_split and len(names) != 1:
        raise NotFoundError(
            f"--test-fraction divides one split, and '{path}' has {len(names)}",
            found=f"the splits {', '.join(names)}",
            where=str(path.absolute()),
            hint="leave out --test-fraction, or save a data set with one split",
        )
    if takes_only_split:
        return names[0]

    # the name of the split or, if there is no such name, its synonyms
    eligible = items_named_as_split(split, names, str)
    if len(eligible) != 1:
        problem = (
            f"several splits may be '{split}'" if eligible else f"no split '{split}'"
        )
        raise NotFoundError(
            f"{problem} at '{path}'",
            found=f"the splits {', '.join(names)}",
            where=str(path.absolute()),
            hint="--split names the splits of the data set",
        )
    warn_of_synonym(split, eligible[0], path)
    return eligible[0]
