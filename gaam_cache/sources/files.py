"""Rows from tables on disk: a folder with one for each split, or a single file."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from gaam_cache.config import ExtractConfig
from gaam_cache.errors import GaamWarning, NotFoundError
from gaam_cache.sources._base import Rows, Source
from gaam_cache.sources._collect import collect
from gaam_cache.sources._table import SUFFIXES, choose, open_table
from gaam_cache.terminal import Report

TEST_FRACTION = 0.2


class FileSource(Source):
    """A folder that holds ``<split>.csv`` (or .tsv, .jsonl, .parquet), or one file: one split."""

    priority: ClassVar[int] = 2
    is_path: ClassVar[bool] = True

    @classmethod
    def claims(cls, dataset: str) -> bool:
        """Whatever exists, and whatever is written like a path."""
        there = Path(dataset).expanduser().exists()
        return there or dataset.startswith((".", "/", "~")) or dataset.endswith(SUFFIXES)

    @classmethod
    def settled(cls, config: ExtractConfig) -> ExtractConfig:
        """Of one file that nobody split, a fifth of every class is held out for testing."""
        path = Path(config.dataset).expanduser()
        said = config.test_fraction is not None or config.splits != ("train", "test")
        if said or config.unlabelled or path.suffix not in SUFFIXES or not path.is_file():
            return config
        what = f"'{path.name}' is one file: {TEST_FRACTION:.0%} of every class are held out as"
        warnings.warn(f"{what} 'test' (--test-fraction)", GaamWarning, stacklevel=3)
        return replace(config, test_fraction=TEST_FRACTION)

    def rows(self, config: ExtractConfig, split: str, report: Report) -> Rows:
        """Read the file that holds ``split``."""
        path = _file_of(config, split)
        table, origin = open_table(path, config), str(path)
        label = None if split in config.unlabelled else config.label_column
        columns = choose(table, config, label, origin)
        return collect(table, columns, config, origin=origin, folder=path.parent, report=report)


def _file_of(config: ExtractConfig, split: str) -> Path:
    """The file of a split, in a folder or by itself; with ``test_fraction`` the only one."""
    path, only, hint = Path(config.dataset).expanduser(), config.test_fraction is not None, None
    names = "one data file" if only else f"one file '{split}'"
    expected = f"{names} ending in {', '.join(SUFFIXES)}"
    if path.is_dir():
        there = sorted(p for p in path.iterdir() if p.suffix in SUFFIXES and p.is_file())
        files = [p for p in there if only or p.stem == split]
        hint = None if only else "name the splits there are with --split"
        found = ", ".join(p.name for p in there) or "no data files"
    elif path.is_file():
        there = [path] if path.suffix in SUFFIXES else []
        files = there if only or len(config.splits) == 1 or path.stem == split else []
        hint = "--test-fraction 0.2 makes 'train' and 'test' of one file" if there else None
        found = path.name
    else:
        tables = " and ".join(f"{name}.csv" for name in config.splits)
        files, found, expected = [], "nothing there", f"a file, or a folder with {tables}"
    if len(files) == 1:
        return files[0]
    message = f"no data for the split '{split}' at '{path}'"
    where = str(path.absolute())
    raise NotFoundError(message, expected=expected, found=found, where=where, hint=hint)
