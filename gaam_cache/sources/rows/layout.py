"""Which files of a folder hold a split: one file, or shards in order."""

import re
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TypeVar

from gaam_cache.common.errors import DataError, GaamNote, GaamWarning, NotFoundError
from gaam_cache.common.messages import join_first
from gaam_cache.config import VALIDATION_NAMES, ExtractConfig
from gaam_cache.store.files import find_pointer

T = TypeVar("T")
TEXT_SUFFIXES = (".csv", ".tsv", ".jsonl", ".json", ".txt")
SUFFIXES = (".csv", ".tsv", ".jsonl", ".json", ".parquet")
COMPRESSED = ".gz"
SHARD_NAME = re.compile(r"(.+)-(\d{5})-of-(\d{5})(?:-[0-9a-f]{8,})?")
"""A shard of ``datasets`` without suffix: split, number, count; maybe a hash."""
BOOKKEEPING_FILES = frozenset(
    {
        "dataset_info.json",
        "dataset_infos.json",
        "dataset_dict.json",
        "state.json",
        "config.json",
        "metadata.json",
    }
)
"""Files that libraries write beside the data; they are not tables of a split."""
SHARD_FOLDER = "data"  # where the hub keeps shards
HEAD_BYTES = 64
MAX_MISSING_SHOWN = 3  # missing shards that an error names
SPLITS_HINT = (
    "--split names the splits of the data set; --test-fraction 0.2 divides one file "
    "into 'train' and 'test'"
)


@dataclass(frozen=True, slots=True)
class SplitFiles:
    """All files of one split in a folder, of one format."""

    split: str
    paths: tuple[Path, ...]  # in order
    num_shards: int | None = None
    """Number of shards that the names of the files say; None for a single file."""

    @property
    def kind(self) -> str:
        """The format of the files, as in ``SUFFIXES``."""
        return kind_of(self.paths[0])

    @property
    def display_name(self) -> str:
        """One name for all files, for messages: 'train-*-of-00003.csv'."""
        if self.num_shards is None or len(self.paths) == 1:
            return self.paths[0].name
        return f"{self.split}-*-of-{self.num_shards:05}{self.kind}"

    def complete_paths(self) -> tuple[Path, ...]:
        """The paths of all files, in order.

        Raises:
            DataError: a shard is missing, or its number occurs twice.
        """
        if self.num_shards is None:
            return self.paths
        numbers = [_shard_number(path) for path in self.paths]
        if numbers == list(range(self.num_shards)):
            return self.paths
        raise DataError(
            self._shard_problem(self.num_shards, numbers),
            expected=f"{self.num_shards} files, each number once",
            found=", ".join(path.name for path in self.paths),
            where=str(self.paths[0].parent),
            hint="fetch the data set again",
        )

    def _shard_problem(self, num_shards: int, numbers: list[int]) -> str:
        """Say which shards are missing, or that some number occurs twice.

        Args:
            num_shards: the number of shards that there should be.
            numbers: the numbers of the shards that exist, from 0.
        """
        missing = sorted(set(range(num_shards)) - set(numbers))
        if not missing:
            return "shards of a split do not belong together"
        names = [f"{self.split}-{number:05}-of-{num_shards:05}" for number in missing]
        return (
            f"{len(missing)} of {num_shards} shards of '{self.split}' are missing: "
            f"{join_first(names, MAX_MISSING_SHOWN)}"
        )


def kind_of(path: Path) -> str:
    """The format of a table as in ``SUFFIXES``: DATA.CSV and data.csv.gz are '.csv'."""
    return _uncompressed_name(path).suffix.lower()


def stem_of(path: Path) -> str:
    """The name of a table without its suffixes, which is the split that it holds."""
    return _uncompressed_name(path).stem


def _uncompressed_name(path: Path) -> PurePath:
    """The name of a file without the suffix of compressed text."""
    inner = PurePath(path.stem)
    if path.suffix.lower() == COMPRESSED and inner.suffix.lower() in TEXT_SUFFIXES:
        return inner
    return PurePath(path.name)


def parse_table_name(path: Path) -> tuple[str, int | None]:
    """Read the split and the number of shards in the name of a table.

    Returns:
        The split, and the number of its shards; None for a file that is not a shard.
        'train-00000-of-00003.csv' gives ('train', 3), and 'train.csv' ('train', None).
    """
    match = SHARD_NAME.fullmatch(stem_of(path))
    if match is None:
        return stem_of(path), None
    return match[1], int(match[3])


def _shard_number(path: Path) -> int:
    """The number of a shard, from 0; -1 for a file that is not a shard."""
    match = SHARD_NAME.fullmatch(stem_of(path))
    return -1 if match is None else int(match[2])


def refuse_pointer(head: bytes, where: str) -> None:
    """Refuse a file whose first bytes say that its content was not fetched."""
    pointer = find_pointer(head)
    if pointer is not None:
        program, command = pointer
        raise DataError(
            f"a {program} pointer stands in place of the file",
            expected="the file itself",
            where=where,
            hint=f"run {command}, or fetch the data set again",
        )


def check_file(path: Path) -> None:
    """Refuse what cannot be read: a broken link, or a pointer."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        is_link = path.is_symlink()
        raise DataError(
            "a link leads nowhere" if is_link else "a file cannot be read",
            found=str(error),
            where=str(path),
            hint="get the file again",
        ) from error
    refuse_pointer(head, str(path))


def tables_in(folder: Path, suffixes: Iterable[str] = SUFFIXES) -> list[SplitFiles]:
    """The tables of a folder: single files, and shards joined by split and format."""
    single_files: list[SplitFiles] = []
    # (split, number of its shards, format) -> shards
    shards: dict[tuple[str, int, str], list[Path]] = {}
    for path in sorted(folder.iterdir()):
        kind = kind_of(path)
        is_hidden = path.name.startswith(".")
        if kind not in suffixes or is_hidden or path.name in BOOKKEEPING_FILES:
            continue
        split, num_shards = parse_table_name(path)
        if num_shards is None:
            single_files.append(SplitFiles(split, (path,)))
        else:
            shards.setdefault((split, num_shards, kind), []).append(path)

    sharded_tables = [
        SplitFiles(split, tuple(sorted(paths, key=_shard_number)), num_shards)
        for (split, num_shards, _), paths in shards.items()
    ]
    return [*single_files, *sharded_tables]


def all_tables(folder: Path) -> list[SplitFiles]:
    """The tables of a folder, and those in its ``data``."""
    tables = tables_in(folder)
    if (folder / SHARD_FOLDER).is_dir():
        tables += tables_in(folder / SHARD_FOLDER)
    return tables


def holds_tables(folder: Path) -> bool:
    """Whether a folder is a data set of tables.

    A .json file counts as a table only if its name is that of a split. Other
    .json files may hold anything.
    """
    usual_splits = ("train", "test", *VALIDATION_NAMES)
    return any(
        table.kind != ".json" or table.split in usual_splits
        for table in all_tables(folder)
    )


def items_named_as_split(
    split: str, items: Iterable[T], split_of: Callable[[T], str]
) -> list[T]:
    """The items that belong to a split.

    The validation split has several names, such as 'validation', 'valid' and 'dev'. If
    no item has the name that is asked for, items with another of these names count.

    Args:
        split: name of the split.
        items: such as the tables of a folder.
        split_of: the name of the split to which an item belongs.
    """
    all_items = list(items)
    same_name = [item for item in all_items if split_of(item) == split]
    if same_name or split not in VALIDATION_NAMES:
        return same_name
    return [item for item in all_items if split_of(item) in VALIDATION_NAMES]


def warn_of_synonym(split: str, name: str, where: Path) -> None:
    """Warn if a split is read from a table or folder of another name."""
    if name != split:
        warnings.warn(
            f"'{split}' is read from '{name}' of {where}, another name of that split",
            GaamWarning,
            stacklevel=3,
        )


def note_unused_validation(
    splits: Iterable[str], config: ExtractConfig, split: str
) -> None:
    """Say that a validation split beside train and test is not read.

    It is said once, with the first split, and not to a user who names splits.

    Args:
        splits: names of all splits of the data set.
        config: the extraction.
        split: name of the split that is read now.
    """
    if config.splits != ("train", "test") or split != "train":
        return
    names = set(splits)
    for unused in sorted(names & set(VALIDATION_NAMES)):
        to_do = (
            f"to let its rows choose: --split train --split test --split {unused}, "
            f"then gaam train --set val-split={unused}"
        )
        if "test" not in names:
            to_do = (
                f"to test on it: --split train --split {unused}, then gaam train --set "
                f"test-split={unused}"
            )
        warnings.warn(
            f"'{unused}' of '{config.dataset}' is not read: rows held out of 'train' "
            f"choose epochs and rates ({to_do})",
            GaamNote,
            stacklevel=4,
        )


def files_of_split(
    path: Path,
    split: str,
    *,
    takes_only_split: bool,
    suffixes: Iterable[str] = SUFFIXES,
) -> SplitFiles:
    """The files of a split in a folder.

    They lie in the folder or in its ``data``. Where neither has a table, they lie in
    the only subfolder with tables.

    Args:
        path: the folder.
        split: name of the split.
        takes_only_split: whether to take the only split of the folder, whatever its
            name.
        suffixes: formats of the tables that count.

    Raises:
        NotFoundError: there are none, or it is not clear which.
        DataError: a shard is missing.
    """
    tables = tables_in(path, suffixes)
    shard_folder = path / SHARD_FOLDER
    # If a table lies in the folder itself, it is the only split. A folder called data
    # beside it may hold anything.
    if shard_folder.is_dir() and not (takes_only_split and tables):
        tables += tables_in(shard_folder, suffixes)
    if not tables:
        tables = _tables_below(path, split, suffixes)

    chosen = tables
    if not takes_only_split:
        chosen = items_named_as_split(split, tables, lambda table: table.split)
    if len(chosen) == 1:
        if not takes_only_split:
            warn_of_synonym(split, chosen[0].split, path)
        return chosen[0]

    subject = "the data" if takes_only_split else f"'{split}'"
    problem = f"no data for the split '{split}' at '{path}'"
    if chosen:
        problem = f"several files may be {subject} at '{path}'"
    shown_tables = [table.display_name for table in chosen or tables]
    raise NotFoundError(
        problem,
        expected=f"one table for {subject} ending in {', '.join(suffixes)}, or all of "
        "its shards",
        found=", ".join(shown_tables) or "no data files",
        where=str(path.absolute()),
        hint=SPLITS_HINT,
    )


def _tables_below(path: Path, split: str, suffixes: Iterable[str]) -> list[SplitFiles]:
    """The tables of the only subfolder with tables; none if no subfolder has any.

    Args:
        path: the folder.
        split: name of the split, for the message.
        suffixes: formats of the tables that count.

    Raises:
        NotFoundError: several subfolders have tables.
    """
    tables_by_folder: dict[str, list[SplitFiles]] = {}
    for folder in sorted(path.iterdir()):
        if folder.is_dir() and not folder.name.startswith("."):
            tables = tables_in(folder, suffixes)
            if tables:
                tables_by_folder[folder.name] = tables
    if len(tables_by_folder) > 1:
        raise NotFoundError(
            f"no data for the split '{split}' at '{path}'",
            expected="tables in the folder, in its 'data', or in one folder below it",
            found=f"folders with tables: {', '.join(tables_by_folder)}",
            where=str(path.absolute()),
            hint="--dataset names the folder of one subset; a split is one file, such "
            "as train.csv, or shards",
        )
    return next(iter(tables_by_folder.values()), [])
