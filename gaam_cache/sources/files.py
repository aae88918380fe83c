"""Rows from files on disk, in any of the formats there are."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from gaam_cache import plugins
from gaam_cache.config import ExtractConfig
from gaam_cache.errors import NotFoundError
from gaam_cache.format.files import Identity
from gaam_cache.hub.fetch import hub_only
from gaam_cache.sources._base import Rows, Source
from gaam_cache.sources._table import collect, text_columns
from gaam_cache.terminal.progress import Report, silent

FORMATS = "gaam_cache.sources.formats"
SUFFIXES = tuple(f".{name}" for name in plugins.names(FORMATS))


class FileSource(Source):
    """A folder that holds ``<split>.csv`` (or of another format), or one file that is one split."""

    priority: ClassVar[int] = 1
    is_path: ClassVar[bool] = True

    @classmethod
    def claims(cls, dataset: str) -> bool:
        """Whatever exists, and whatever is written like a path."""
        return (
            Path(dataset).expanduser().exists()
            or dataset.startswith((".", "/", "~"))
            or dataset.endswith(SUFFIXES)
        )

    def read(self, config: ExtractConfig, split: str, report: Report = silent) -> Rows:
        """Read the file that holds ``split``."""
        if config.dataset_revision is not None:
            raise hub_only("--dataset-revision", config.dataset_revision, config.dataset)
        path = find_file(Path(config.dataset).expanduser(), split, config.splits)
        texts, label = text_columns(config), config.label_column
        format = plugins.load(FORMATS, path.suffix[1:], kind="format of data files")()
        columns, records = format.read(path, texts, label)
        return collect(records, columns, config, origin=str(path), report=report)

    def state(self, config: ExtractConfig) -> Any:
        """What the file system says of the files."""
        folder = Path(config.dataset).expanduser()
        paths = [find_file(folder, split, config.splits).absolute() for split in config.splits]
        # no device: the same file has another on another machine
        return [[str(path), *Identity.of(path.stat())[1:]] for path in paths]


def find_file(path: Path, split: str, splits: tuple[str, ...]) -> Path:
    """The file of a split: ``path/split.<suffix>``, or ``path`` itself where one split is asked.

    Raises:
        NotFoundError: saying what is there instead.
    """
    if path.is_file() and path.suffix not in SUFFIXES:
        raise NotFoundError(
            f"cannot read '{path}'",
            expected=f"a file ending in {', '.join(SUFFIXES)}",
            found=f"'{path.suffix}'",
        )
    if path.is_file():
        if len(splits) == 1 or path.stem == split:
            return path
        siblings = [f.stem for f in path.parent.glob(f"*{path.suffix}")]
        raise NotFoundError(
            f"one file cannot hold {len(splits)} splits",
            expected=f"a folder with {', '.join(f'{s}{path.suffix}' for s in splits)}",
            found=str(path),
            hint=f"--dataset {path.parent}"
            if set(splits) <= set(siblings)
            else "put one file per split into a folder, or ask for one: --split train",
        )
    if not path.is_dir():
        raise NotFoundError(
            f"no data set at '{path}'",
            expected="a file, or a folder with train.csv and test.csv",
            found="nothing there",
            where=str(path.absolute()),
        )
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
