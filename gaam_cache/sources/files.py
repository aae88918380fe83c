"""Rows from files on disk, in any of the formats there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from gaam_cache import plugins
from gaam_cache.config import ExtractConfig
from gaam_cache.errors import NotFoundError
from gaam_cache.hub.fetch import hub_only
from gaam_cache.sources._base import Rows, Source
from gaam_cache.sources._collect import collect
from gaam_cache.sources._divide import Divided
from gaam_cache.sources._kinds import OneKind
from gaam_cache.sources._options import refuse_unused
from gaam_cache.sources._table import Table, choose
from gaam_cache.sources.media._collect import collect_media
from gaam_cache.sources.media._state import state_of, state_of_named
from gaam_cache.terminal import Report, silent

FORMATS = "gaam_cache.sources.formats"
SUFFIXES = tuple(f".{name}" for name in plugins.names(FORMATS))


class FileSource(Source):
    """A folder that holds ``<split>.csv`` (or of another format), or one file that is one split."""

    priority: ClassVar[int] = 2
    is_path: ClassVar[bool] = True

    @classmethod
    def claims(cls, dataset: str) -> bool:
        """Whatever exists, and whatever is written like a path."""
        return (
            Path(dataset).expanduser().exists()
            or dataset.startswith((".", "/", "~"))
            or dataset.endswith(SUFFIXES)
        )

    def __init__(self) -> None:
        self._divided = Divided()
        self._kind = OneKind()

    def read(self, config: ExtractConfig, split: str, report: Report = silent) -> Rows:
        """Read the file that holds ``split``."""
        if config.dataset_revision is not None:
            raise hub_only("dataset-revision", config.dataset_revision, config.dataset)
        path = find_file(config, split)
        if config.test_fraction is None:
            return self._read(path, config, split, report)
        return self._divided.read(config, split, lambda: self._read(path, config, split, report))

    def _read(self, path: Path, config: ExtractConfig, split: str, report: Report) -> Rows:
        table, origin = _open(path, config), str(path)
        columns = choose(table, config, split, origin)
        if columns.of_files:
            return collect_media(
                table,
                columns,
                config,
                folder=path.parent,
                origin=origin,
                kind=self._kind,
                report=report,
            )
        return collect(table, columns, config, origin=origin, kind=self._kind, report=report)

    def state(self, config: ExtractConfig) -> Any:
        """What the file system says of the files, and of those that they name."""
        found: list[Any] = []
        for split in config.splits:
            path = find_file(config, split).absolute()
            table = _open(path, config)
            columns = choose(table, config, split, str(path))
            found.append([str(path), *state_of(path)])
            if columns.of_files:
                found.append(state_of_named(table, columns, path.parent))
        return None if None in found else found


def _open(path: Path, config: ExtractConfig) -> Table:
    format = plugins.load(FORMATS, path.suffix[1:], kind="format of data files")
    refuse_unused(config, {"delimiter", "encoding"} - format.reads, str(path))
    table: Table = format().open(path, config)
    return table


def find_file(config: ExtractConfig, split: str) -> Path:
    """The file of a split: ``<split>.<suffix>`` in a folder, or a file where one split is asked.

    With ``--test-fraction`` the only file that there is.

    Raises:
        NotFoundError: saying what is there instead.
    """
    path, splits = Path(config.dataset).expanduser(), config.splits
    if path.is_file() and path.suffix not in SUFFIXES:
        raise NotFoundError(
            f"cannot read '{path}'",
            expected=f"a file ending in {', '.join(SUFFIXES)}",
            found=f"'{path.suffix}'",
        )
    if path.is_file():
        if len(splits) == 1 or path.stem == split or config.test_fraction is not None:
            return path
        siblings = [f.stem for f in path.parent.glob(f"*{path.suffix}")]
        raise NotFoundError(
            f"one file cannot hold {len(splits)} splits",
            expected=f"a folder with {', '.join(f'{s}{path.suffix}' for s in splits)}",
            found=str(path),
            hint=f"--dataset {path.parent}"
            if set(splits) <= set(siblings)
            else "let --test-fraction 0.2 make 'train' and 'test' of it, put one file per split "
            "into a folder, or ask for one: --split train",
        )
    if not path.is_dir():
        raise NotFoundError(
            f"no data set at '{path}'",
            expected="a file, or a folder with train.csv and test.csv",
            found="nothing there",
            where=str(path.absolute()),
        )
    if config.test_fraction is not None:
        return _only_file(path)
    found = [path / f"{split}{suffix}" for suffix in SUFFIXES]
    found = [file for file in found if file.is_file()]
    if len(found) != 1:
        there = sorted(f.name for f in path.iterdir() if f.suffix in SUFFIXES)
        raise NotFoundError(
            f"{'no' if not found else 'more than one'} file for split '{split}'",
            expected=" or ".join(f"{split}{suffix}" for suffix in SUFFIXES),
            found=", ".join(there) or "no data files",
            where=str(path.absolute()),
            hint="name the splits there are with --split",
        )
    return found[0]


def _only_file(folder: Path) -> Path:
    there = sorted(file for file in folder.iterdir() if file.suffix in SUFFIXES and file.is_file())
    if len(there) != 1:
        raise NotFoundError(
            "--test-fraction makes splits of a single file",
            expected="a file, or a folder with one",
            found=", ".join(file.name for file in there) or "no data files",
            where=str(folder.absolute()),
            hint="leave out --test-fraction, or name a file" if there else None,
        )
    return there[0]
