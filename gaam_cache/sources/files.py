"""Rows from tables on disk: one for each split, in one file or in shards; or a single file."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from gaam_cache.common.errors import GaamWarning, NotFoundError, reading_file
from gaam_cache.common.settings import data_path
from gaam_cache.common.terminal import ReportProgress
from gaam_cache.config import DEFAULT_DATASET, ExtractConfig
from gaam_cache.sources.base import Rows, Source
from gaam_cache.sources.rows.collect import Table, choose_columns, collect
from gaam_cache.sources.rows.layout import (
    COMPRESSED,
    SUFFIXES,
    SplitFiles,
    candidates,
    check_file,
    files_of_split,
    kind_of,
    shard_of,
    tell_synonym,
)
from gaam_cache.sources.rows.readers import dataset_table, open_table, open_tables
from gaam_cache.sources.rows.text_files import byte_order_mark, reads_mark

__all__ = ["FileSource", "byte_order_mark", "kind_of", "open_table", "reads_mark"]

PATHS = (*SUFFIXES, ".txt", COMPRESSED, "/")
TEST_FRACTION = 0.2
SPLITS_FILE, DATASET_FILES = "dataset_dict.json", ("state.json", "dataset_info.json")
"""What ``datasets`` writes beside splits that it saves, and beside the shards of each."""


class FileSource(Source):
    """A folder that holds ``<split>.csv`` (.tsv, .jsonl, .json, .parquet), or one file: one split.

    Also ``<split>-00000-of-00003.parquet`` and its like, in the folder or in ``data`` below it, as
    the hub keeps them; text compressed by gzip; and what ``save_to_disk`` of ``datasets`` wrote. A
    split without labels may be a ``<split>.txt``, a text a line.

    The bundled sample is such a folder: 480 short news items, written for this project.
    """

    priority: ClassVar[int] = 2

    @classmethod
    def claims(cls, dataset: str) -> bool:
        """The bundled sample, whatever exists, and whatever is written like a path."""
        there = dataset == DEFAULT_DATASET or Path(dataset).expanduser().exists()
        return (
            there
            or dataset.startswith((".", "/", "~"))
            or dataset.lower().endswith(PATHS)
        )

    @classmethod
    def settled(cls, config: ExtractConfig) -> ExtractConfig:
        """Of one file that nobody split, a fifth of every class is held out for testing."""
        path = Path(config.dataset).expanduser()
        asked = config.test_fraction is not None or config.splits != ("train", "test")
        table = (path.is_file() and kind_of(path) in SUFFIXES) or is_saved_split(path)
        if asked or config.unlabelled or not table:
            return config
        noun = "file" if path.is_file() else "split"
        share = f"{TEST_FRACTION:.0%} of every class"
        if config.test_groups is not None:
            share = f"about {TEST_FRACTION:.0%}"
        text = f"'{path.name}' is one {noun}: {share} are held out as 'test'"
        warnings.warn(f"{text} (--test-fraction)", GaamWarning, stacklevel=3)
        return replace(config, test_fraction=TEST_FRACTION)

    def rows(self, config: ExtractConfig, split: str, report: ReportProgress) -> Rows:
        bundled = config.dataset == DEFAULT_DATASET
        if bundled:
            columns, folder = (
                config.text_columns or ("title", "description"),
                data_path(),
            )
            config = replace(
                config, dataset=f"{folder}/news_sample", text_columns=columns
            )
        path = Path(config.dataset).expanduser()
        if is_saved(path):
            table, origin, folder = _open_saved(path, config, split)
        else:
            files = _files_of(path, config, split)
            if kind_of(files.paths[0]) == ".txt":
                config = replace(config, text_columns=())
            table, folder = open_tables(files.checked(), config), files.paths[0].parent
            origin = str(folder / files.label)
        label = None if split in config.unlabelled else config.label_column
        chosen = choose_columns(table, config, label, origin)
        where: dict[str, Any] = {"origin": origin, "folder": folder, "report": report}
        rows = collect(table, chosen, config, split=split, **where)
        return (
            replace(rows, origin=f"{DEFAULT_DATASET}/{files.label}")
            if bundled
            else rows
        )


def _files_of(path: Path, config: ExtractConfig, split: str) -> SplitFiles:
    """The files of a split, in a folder or by itself; with ``test_fraction`` the only ones."""
    only = config.test_fraction is not None
    suffixes = (*SUFFIXES, ".txt") if split in config.unlabelled else SUFFIXES
    if not path.exists():
        raise NotFoundError(
            f"no file or folder at '{path}'", where=str(path.absolute())
        )
    if path.is_dir():
        return files_of_split(path, split, only=only, suffixes=suffixes)
    name, count = shard_of(path)
    if kind_of(path) not in suffixes or not (
        only or len(config.splits) == 1 or name == split
    ):
        raise NotFoundError(
            f"no data for the split '{split}' at '{path}'",
            expected=f"a file ending in {', '.join(suffixes)}, and one split of it",
            found=path.name,
            where=str(path.absolute()),
            hint="name the splits there are with --split; --test-fraction 0.2 makes 'train' and "
            "'test' of one file",
        )
    if count is not None and count > 1:
        text = (
            f"'{path.name}' is one of {count} shards: --dataset {path.parent} reads all"
        )
        warnings.warn(text, GaamWarning, stacklevel=2)
    return SplitFiles(name, (path,))


def is_saved(path: Path) -> bool:
    """Whether a folder is what ``save_to_disk`` of ``datasets`` writes."""
    return (path / SPLITS_FILE).is_file() or is_saved_split(path)


def is_saved_split(path: Path) -> bool:
    """Whether a folder is one split alone, as ``save_to_disk`` writes it."""
    return all((path / name).is_file() for name in DATASET_FILES)


def _open_saved(
    path: Path, config: ExtractConfig, split: str
) -> tuple[Table, str, Path]:
    """The table of a split that ``datasets`` saved, where it lies, and its folder."""
    import datasets

    only = config.test_fraction is not None
    for file in sorted(path.glob("**/*.arrow")):
        check_file(file)
    with reading_file(str(path)):
        data = datasets.load_from_disk(str(path))
    folder = path
    if isinstance(data, datasets.DatasetDict):
        names = list(data) if only else candidates(split, data, str)
        if len(names) != 1:
            problem = (
                f"several splits may be '{split}'" if names else f"no split '{split}'"
            )
            raise NotFoundError(
                f"{problem} at '{path}'",
                found=f"the splits {', '.join(data)}",
                where=str(path.absolute()),
                hint="name the splits there are with --split",
            )
        if not only:
            tell_synonym(split, names[0], path)
        data, folder = data[names[0]], path / names[0]
    elif not only and len(config.splits) > 1 and str(data.split) != split:
        raise NotFoundError(
            f"'{path}' is one split, and not '{split}'",
            where=str(path.absolute()),
            hint="--test-fraction 0.2 makes 'train' and 'test' of it",
        )
    return dataset_table(data, config), str(folder), folder
