"""Rows from a data set on the hub, through the ``datasets`` library."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from gaam_cache.config import ExtractConfig
from gaam_cache.errors import ConfigError, DataError, GaamError, HubError, NotFoundError
from gaam_cache.hub.errors import gated, hub_errors
from gaam_cache.hub.fetch import COMMIT, recall, remember, resolve_revision
from gaam_cache.sources._base import Rows, Source
from gaam_cache.sources._collect import collect
from gaam_cache.sources._divide import Divided
from gaam_cache.sources._kinds import OneKind
from gaam_cache.sources._options import refuse_unused
from gaam_cache.sources._table import Columns, Record, Table, choose
from gaam_cache.sources.media._collect import collect_media
from gaam_cache.terminal import Report, silent


class HubSource(Source):
    """A data set id such as ``fancyzhx/ag_news``.

    Where the hub cannot be reached, the copy that the ``datasets`` library keeps serves, if it is
    of the commit that was asked for.
    """

    priority: ClassVar[int] = 3

    def __init__(self) -> None:
        self._asked: tuple[str | None, HubError | None] | None = None
        self._divided = Divided()
        self._kind = OneKind()

    @classmethod
    def claims(cls, dataset: str) -> bool:  # noqa: ARG003 the last to be asked takes all
        """Everything that the others left."""
        return True

    def read(self, config: ExtractConfig, split: str, report: Report = silent) -> Rows:
        """Download (or take from the local copy) and read one split."""
        import datasets

        refuse_unused(config, ("delimiter", "encoding", "allow_outside"), config.dataset)
        datasets.disable_progress_bars()
        if config.test_fraction is None:
            return self._read(config, split, split, report)
        return self._divided.read(config, split, lambda: self._read(config, None, split, report))

    def _read(self, config: ExtractConfig, wanted: str | None, split: str, report: Report) -> Rows:
        """One split; where none is named, the only one."""
        name, revision = config.dataset, config.dataset_revision
        report(0, 0, f"fetching {'all' if wanted is None else repr(wanted)} of {name}")
        commit, unreachable = self._commit(name, revision)
        if unreachable is None:
            data = _load(name, commit, wanted)
        else:
            data = _load_copy(name, commit, wanted, unreachable)
        if wanted is None:
            wanted, data = _only(data, name)
        there = _commit_of(data)
        asked = commit or revision
        if asked and there != asked and (there or unreachable):
            # datasets hands out whatever copy it has when something fails
            raise HubError(
                f"the data set '{name}' could not be fetched at the revision asked for",
                expected=asked,
                found=f"a local copy of {there or 'an unknown commit'}",
                hint="run the same again when the hub answers"
                + (f", or take the copy: --set dataset-revision={there}" if there else ""),
            ) from unreachable
        if commit is not None and unreachable is None:
            remember(name, revision, commit, kind="dataset")
        origin = f"{name}@{commit or there or 'local copy'}, {wanted}"
        rows = self._collect(_table(data, config), config, split, origin, report)
        return replace(rows, revision=commit or there)

    def _collect(
        self, table: Table, config: ExtractConfig, split: str, origin: str, report: Report
    ) -> Rows:
        columns = choose(table, config, split, origin)
        if not columns.of_files:
            return collect(table, columns, config, origin=origin, kind=self._kind, report=report)
        if columns.inputs[0] not in table.stored:
            raise ConfigError(
                f"the column '{columns.inputs[0]}' holds no sounds or pictures",
                expected="one of: " + (", ".join(table.stored) or "no column does"),
                where=origin,
                hint="name another column with --file-column, or one of texts with --text-column",
            )
        return collect_media(
            table,
            columns,
            config,
            folder=Path(),
            origin=origin,
            kind=self._kind,
            anywhere=True,  # where the library has put it
            report=report,
        )

    def state(self, config: ExtractConfig) -> str | None:
        """The commit, where it is known."""
        return self._commit(config.dataset, config.dataset_revision)[0]

    def _commit(self, name: str, revision: str | None) -> tuple[str | None, HubError | None]:
        """The commit, and why the hub could not say it; asked once: all splits are of one."""
        if self._asked is None:
            try:
                self._asked = resolve_revision(name, revision, kind="dataset"), None
            except HubError as error:
                self._asked = recall(name, revision, kind="dataset"), error
        return self._asked


def _table(data: Any, config: ExtractConfig) -> Table:
    """A table of the ``datasets`` library; sounds and pictures stay the bytes that they are."""
    import datasets

    stored = []
    for column, feature in data.features.items():
        if isinstance(feature, datasets.Audio | datasets.Image):
            # decoding is ours
            data = data.cast_column(column, type(feature)(decode=False))
            stored.append(column)
    feature = data.features.get(config.label_column)
    declared = tuple(feature.names) if isinstance(feature, datasets.ClassLabel) else None

    def records(columns: Columns) -> Iterator[Record]:
        for number, record in enumerate(data.select_columns(columns.all), start=1):
            yield f"row {number}", record

    return Table(data.column_names, records, tuple(stored), declared)


def _only(splits: Any, name: str) -> tuple[str, Any]:
    """The only split there is, and its name.

    Raises:
        ConfigError: there are several, which are to be taken as they are.
    """
    if len(splits) != 1:
        raise ConfigError(
            "--test-fraction makes splits of data with a single one",
            expected="no --test-fraction",
            found=f"the splits {', '.join(splits)}",
            where=name,
            hint="name those to encode with --split",
        )
    return next(iter(splits.items()))


def _load(name: str, commit: str | None, split: str | None) -> Any:
    """One split at a commit (or all where none is named), fetched where it is not there yet.

    Raises:
        NotFoundError: no such split, or no data files.
        ConfigError: not one table per split, or a script.
        DataError: files that cannot be parsed.
        HubError: gated, or the download broke off.
    """
    import datasets
    from datasets.data_files import EmptyDatasetError
    from datasets.exceptions import DataFilesNotFoundError, DatasetNotFoundError, DatasetsError

    where = f"{name}@{commit}" if commit else name
    with hub_errors(name, kind="dataset", downloading=True):
        try:
            return datasets.load_dataset(name, revision=commit, split=split, keep_in_memory=False)
        except DatasetNotFoundError as error:
            # the hub has just named its commit: it is there, and closed
            raise gated(name, "dataset") from error
        except (DataFilesNotFoundError, EmptyDatasetError) as error:
            raise NotFoundError(
                f"the data set '{name}' holds no data files", found=_said(error), where=where
            ) from error
        except DatasetsError as error:
            raise DataError(
                f"the files of the data set '{name}' cannot be read",
                found=_said(error.__cause__ or error),
                where=where,
                hint="download and mend them, then give --dataset the folder",
            ) from error
        except (ValueError, RuntimeError) as error:
            if isinstance(error, GaamError):
                raise
            if "unknown split" in str(error).lower():
                raise NotFoundError(f"no split '{split}'", found=str(error), where=where) from error
            raise ConfigError(
                f"the data set '{name}' cannot be read as it is",
                expected="data files with one table per split, and no script",
                found=_said(error),
                where=where,
                hint="download it and give --dataset a folder with one file per split",
            ) from error


def _load_copy(name: str, commit: str | None, split: str | None, unreachable: HubError) -> Any:
    """One split from what the ``datasets`` library keeps; the hub is left alone."""
    with _without_hub():
        try:
            return _load(name, commit, split)
        except NotFoundError:
            raise
        except (ConfigError, HubError) as error:
            raise unreachable from error


@contextmanager
def _without_hub() -> Iterator[None]:
    """No call says this: the library would find its copy by itself, and take twice as long."""
    import datasets

    before = datasets.config.HF_HUB_OFFLINE
    datasets.config.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        datasets.config.HF_HUB_OFFLINE = before


def _commit_of(data: Any) -> str | None:
    """The commit that rows were made from: the folder that the library keeps them in bears it."""
    folders = {Path(file["filename"]).parent.name for file in data.cache_files}
    commits = {name for name in folders if COMMIT.fullmatch(name)}
    return commits.pop() if len(commits) == 1 else None


def _said(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
