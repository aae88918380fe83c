"""Sounds or pictures in folders, one for each class: ``train/cat/1.png``."""

import os
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

from gaam_cache.common.errors import DataError, NotFoundError
from gaam_cache.common.messages import excerpt
from gaam_cache.common.terminal import ReportProgress
from gaam_cache.config import ExtractConfig
from gaam_cache.sources.base import Record, Rows, Source
from gaam_cache.sources.files import is_saved
from gaam_cache.sources.media.base import media
from gaam_cache.sources.rows.collect import Columns, Table, choose_columns, collect
from gaam_cache.sources.rows.layout import candidates, holds_tables, tell_synonym

FILE = "file"  # the column that can be kept: where a file lies in the folder of the data set
LITTER = {"thumbs.db", "desktop.ini", "__macosx"}  # what operating systems leave behind


class FolderOfClasses(Source):
    """A folder with a folder per split, in which there is one for every class.

    Files lie in the folders of classes, however deep. Rows are sorted by class and then by path,
    bytewise; a class is called as its folder. Hidden files and what operating systems leave behind
    do not count; any other file that is no sound or picture by its suffix is refused.
    """

    priority: ClassVar[int] = 1

    @classmethod
    def claims(cls, dataset: str) -> bool:
        """A folder without tables that holds folders with sounds or pictures, two levels deep."""
        root = Path(dataset).expanduser()
        if not root.is_dir() or holds_tables(root) or is_saved(root):
            return False
        return any(map(_is_medium, chain(root.glob("*/*"), root.glob("*/*/*"))))

    def rows(self, config: ExtractConfig, split: str, report: ReportProgress) -> Rows:
        root, label = Path(config.dataset).expanduser(), config.label_column
        folder = _folder_of(config, root, split)
        table = Table([FILE, label], lambda columns: _records(root, folder, columns))
        columns = choose_columns(
            table, config, None if split in config.unlabelled else label, str(root)
        )
        where: dict[str, Any] = {"origin": str(root), "folder": root, "report": report}
        rows = collect(table, columns, config, split=split, **where)
        return replace(rows, origin=str(folder))


def _shown(name: str) -> bool:
    return name[0] != "." and name.lower() not in LITTER


@cache
def _suffixes() -> frozenset[str]:
    return frozenset().union(*(kind.suffixes for kind in media().values()))


def _is_medium(path: Path) -> bool:
    """Whether it is a sound or picture, by its name."""
    return path.suffix.lower() in _suffixes() and _shown(path.name) and path.is_file()


def _folder_of(config: ExtractConfig, root: Path, split: str) -> Path:
    """The folder of a split; with ``test_fraction`` the only one, or that of the data set."""
    there = sorted(
        path for path in root.iterdir() if path.is_dir() and _shown(path.name)
    )
    serving = candidates(split, there, lambda folder: folder.name)
    if config.test_fraction is None and len(serving) == 1:
        tell_synonym(split, serving[0].name, root)
        return serving[0]
    if config.test_fraction is not None and any(map(_is_medium, root.glob("*/*"))):
        return root
    if config.test_fraction is not None and len(there) == 1:
        return there[0]
    several = config.test_fraction is None and len(serving) > 1
    raise NotFoundError(
        f"{'several folders' if several else 'no folder'} for the split '{split}'",
        expected=f"'{split}', with a folder for every class",
        found=f"the folders {', '.join(excerpt(folder.name) for folder in there[:20])}",
        where=str(root.absolute()),
        hint="if these are classes: --test-fraction 0.2 makes 'train' and 'test' of them; if they "
        "are splits: name them with --split",
    )


def _records(root: Path, folder: Path, columns: Columns) -> Iterator[Record]:
    """A record for every file; whatever does not belong there is refused."""
    labelled, found = columns.label is not None, list[Path]()
    for here, folders, names in os.walk(folder, followlinks=True):
        folders[:] = filter(_shown, folders)
        found += [Path(here, name) for name in names if _shown(name)]

    def order(path: Path) -> list[bytes]:
        classes = path.relative_to(folder).parts[:labelled]
        return [*map(os.fsencode, classes), os.fsencode(path)]

    for path in sorted(found, key=order):
        place, above = (
            path.relative_to(root).as_posix(),
            path.relative_to(folder).parts[:-1],
        )
        if path.suffix.lower() not in _suffixes() or (labelled and not above):
            raise DataError(
                "this is no sound or picture in the folder of a class",
                expected=f"files that end in {', '.join(sorted(_suffixes()))}",
                where=str(path),
                hint="move it out of the data set, or name files in a CSV file: --file-column",
            )
        yield place, {FILE: place, columns.label or "": above[0] if labelled else ""}
