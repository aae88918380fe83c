"""Which files of a folder hold a split: one, or shards in order."""

import re
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import TypeVar

from gaam_cache.common.errors import DataError, GaamWarning, NotFoundError

T = TypeVar("T")
TEXT_SUFFIXES = (".csv", ".tsv", ".jsonl", ".json", ".txt")
SUFFIXES = (".csv", ".tsv", ".jsonl", ".json", ".parquet")
COMPRESSED = ".gz"
SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})(?:-[0-9a-f]{8,})?")
"""A shard as ``datasets`` calls it, without suffix: split, number, count; once a hash too."""
VALIDATION = ("validation", "valid", "val", "dev")
"""What people call one and the same split."""
BOOKKEEPING = frozenset(
    {"dataset_info.json", "dataset_infos.json", "dataset_dict.json"}
)
BOOKKEEPING |= {"state.json", "config.json", "metadata.json"}
"""Files beside the data that are no tables of a split."""
SHARD_FOLDER = "data"
"""Where the hub keeps shards."""
POINTER = b"version https://git-lfs.github.com/spec/v1"
"""How a file begins that stands for one which Git LFS has not fetched."""
HEAD_BYTES = 64


@dataclass(frozen=True, slots=True)
class SplitFiles:
    """All files of one split in a folder, written in one way."""

    split: str
    paths: tuple[Path, ...]  # in order
    count: int | None = None  # of shards, where the files are some

    @property
    def kind(self) -> str:
        """How they are written, as ``SUFFIXES`` has it."""
        return kind_of(self.paths[0])

    @property
    def label(self) -> str:
        """What to call them in a message."""
        if self.count is None or len(self.paths) == 1:
            return self.paths[0].name
        return f"{self.split}-*-of-{self.count:05}{self.kind}"

    def checked(self) -> tuple[Path, ...]:
        """The files; DataError where a shard is missing or is there twice."""
        if self.count is None:
            return self.paths
        numbers = [_number(path) for path in self.paths]
        expected = range(self.count)
        if numbers == list(expected):
            return self.paths
        missing = sorted(set(expected) - set(numbers))
        problem = "shards of a split do not belong together"
        if missing:
            names = [
                f"{self.split}-{number:05}-of-{self.count:05}" for number in missing
            ]
            problem = (
                f"{len(missing)} of {self.count} shards of '{self.split}' are missing: "
            )
            problem += ", ".join(names[:3]) + ", ..." * (len(names) > 3)
        raise DataError(
            problem,
            expected=f"{self.count} files, each number once",
            found=", ".join(path.name for path in self.paths),
            where=str(self.paths[0].parent),
            hint="fetch the data set again",
        )


def kind_of(path: Path) -> str:
    """How a table is written, as ``SUFFIXES`` has it: DATA.CSV and data.csv.gz are '.csv'."""
    return _plain(path).suffix.lower()


def stem_of(path: Path) -> str:
    """The name of a table without its suffixes: the split that it holds."""
    return _plain(path).stem


def _plain(path: Path) -> PurePath:
    """The name of a file without what says that it is compressed."""
    inner = PurePath(path.stem)
    compressed = (
        path.suffix.lower() == COMPRESSED and inner.suffix.lower() in TEXT_SUFFIXES
    )
    return inner if compressed else PurePath(path.name)


def shard_of(path: Path) -> tuple[str, int | None]:
    """The split that a file holds, and how many shards it has; None where it is no shard."""
    match = SHARD.fullmatch(stem_of(path))
    return (stem_of(path), None) if match is None else (match[1], int(match[3]))


def _number(path: Path) -> int:
    """Which shard a file is, from 0."""
    match = SHARD.fullmatch(stem_of(path))
    return -1 if match is None else int(match[2])


def refuse_pointer(head: bytes, where: str) -> None:
    """Refuse a file by its first bytes where it only stands for another one."""
    if head.startswith(POINTER):
        raise DataError(
            "a Git LFS pointer stands in place of the file",
            expected="the file itself",
            found=head[: len(POINTER)].decode(),
            where=where,
            hint="run git lfs pull, or fetch the data set again",
        )


def check_file(path: Path) -> None:
    """Refuse what cannot be read: a link that leads nowhere, or a pointer of Git LFS."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError as error:
        problem = (
            "a link leads nowhere" if path.is_symlink() else "a file cannot be read"
        )
        hint = "get the file again"
        raise DataError(
            problem, found=str(error), where=str(path), hint=hint
        ) from error
    refuse_pointer(head, str(path))


def tables_in(folder: Path, suffixes: Iterable[str] = SUFFIXES) -> list[SplitFiles]:
    """The tables of a folder by split; shards of one split, written alike, are one entry."""
    whole: list[SplitFiles] = []
    shards: dict[tuple[str, int, str], list[Path]] = {}
    for path in sorted(folder.iterdir()):
        kind, hidden = kind_of(path), path.name.startswith(".")
        if kind not in suffixes or hidden or path.name in BOOKKEEPING:
            continue
        split, count = shard_of(path)
        if count is None:
            whole.append(SplitFiles(split, (path,)))
        else:
            shards.setdefault((split, count, kind), []).append(path)
    sharded = [
        SplitFiles(split, tuple(sorted(paths, key=_number)), count)
        for (split, count, _), paths in shards.items()
    ]
    return [*whole, *sharded]


def holds_tables(folder: Path) -> bool:
    """Whether a folder is a data set of tables; a .json may also be about something else."""
    known = ("train", "test", *VALIDATION)
    tables = tables_in(folder)
    if (folder / SHARD_FOLDER).is_dir():
        tables += tables_in(folder / SHARD_FOLDER)
    return any(table.kind != ".json" or table.split in known for table in tables)


def candidates(split: str, items: Iterable[T], name: Callable[[T], str]) -> list[T]:
    """What may be the split: what is called so, else what is called as a synonym."""
    there = list(items)
    same = [item for item in there if name(item) == split]
    if same or split not in VALIDATION:
        return same
    return [item for item in there if name(item) in VALIDATION]


def tell_synonym(split: str, name: str, where: Path) -> None:
    """Say that a split is there under another name."""
    if name != split:
        text = (
            f"'{split}' is read from '{name}' of {where}, which is another word for it"
        )
        warnings.warn(text, GaamWarning, stacklevel=3)


def files_of_split(
    path: Path, split: str, *, only: bool, suffixes: Iterable[str] = SUFFIXES
) -> SplitFiles:
    """The files of a split in a folder; ``only``: those of its only one, whatever it is called.

    They lie in the folder or in its ``data``; where neither has a table, in its only subfolder
    that has.

    Raises:
        NotFoundError: there are none, or it is not clear which.
        DataError: a shard is missing.
    """
    below = path / SHARD_FOLDER
    there = tables_in(path, suffixes)
    if below.is_dir() and not (only and there):
        there += tables_in(below, suffixes)
    if not there:
        holding: dict[str, list[SplitFiles]] = {}
        for folder in sorted(path.iterdir()):
            if folder.is_dir() and not folder.name.startswith("."):
                holding[folder.name] = tables_in(folder, suffixes)
        holding = {name: tables for name, tables in holding.items() if tables}
        if len(holding) > 1:
            raise NotFoundError(
                f"no data for the split '{split}' at '{path}'",
                expected="tables in the folder, in its 'data', or in one folder below it",
                found=f"folders with tables: {', '.join(holding)}",
                where=str(path.absolute()),
                hint="--dataset names the folder of one subset; a split is one file, such as "
                "train.csv, or shards",
            )
        there = next(iter(holding.values()), [])
    chosen = there if only else candidates(split, there, lambda table: table.split)
    if len(chosen) == 1:
        if not only:
            tell_synonym(split, chosen[0].split, path)
        return chosen[0]
    name = "" if only else f"'{split}' "
    problem = f"no data for the split '{split}' at '{path}'"
    if chosen:
        problem = (
            f"several files may be {'the data' if only else repr(split)} at '{path}'"
        )
    raise NotFoundError(
        problem,
        expected=f"one table {name}ending in {', '.join(suffixes)}, or all of its shards",
        found=", ".join(table.label for table in chosen or there) or "no data files",
        where=str(path.absolute()),
        hint="name the splits there are with --split; --test-fraction 0.2 makes 'train' and 'test' "
        "of one file",
    )
