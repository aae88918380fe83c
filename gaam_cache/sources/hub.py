"""Rows from a data set on the hub, through the ``datasets`` library."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from gaam_cache.config import ExtractConfig
from gaam_cache.errors import ConfigError, HubError, NotFoundError
from gaam_cache.hub.fetch import COMMIT, fetch, gated, hub_errors, one_line
from gaam_cache.sources._base import Record, Rows, Source
from gaam_cache.sources._collect import Columns, Table, choose, collect
from gaam_cache.terminal import Report


class HubSource(Source):
    """A data set id such as ``fancyzhx/ag_news``.

    Where the hub cannot be reached, the copy that the ``datasets`` library keeps serves, if it is
    of the commit that was asked for.
    """

    priority: ClassVar[int] = 3
    has_revisions: ClassVar[bool] = True
    _asked: tuple[str, HubError | None] | None = None

    @classmethod
    def claims(cls, dataset: str) -> bool:  # noqa: ARG003 the last to be asked takes all
        return True

    def rows(self, config: ExtractConfig, split: str, report: Report) -> Rows:
        """Download (or take from the local copy) and read one split."""
        wanted = None if config.test_fraction is not None else split
        name = config.dataset
        report(0, 0, f"fetching {'all' if wanted is None else repr(wanted)} of {name}")
        if self._asked is None:  # once: all splits are of one commit
            folder, why = fetch(name, config.dataset_revision, ["README.md"], kind="dataset")
            self._asked = folder.name, why
        commit, unreachable = self._asked
        data = _load(name, commit, wanted, unreachable)
        if wanted is None:
            if len(data) != 1:
                what = "--test-fraction makes splits of data with a single one"
                raise ConfigError(what, found=f"the splits {', '.join(data)}", where=name)
            wanted, data = next(iter(data.items()))
        # the folder that the library keeps rows in bears the commit that they were made from, and
        # it hands out whatever copy it has when something fails
        folders = {Path(file["filename"]).parent.name for file in data.cache_files}
        commits = [name for name in folders if COMMIT.fullmatch(name)]
        if commits != [commit] and (commits or unreachable):
            raise HubError(
                f"the data set '{name}' could not be fetched at the revision asked for",
                expected=commit,
                found=f"a local copy of {', '.join(commits) or 'an unknown commit'}",
                hint="run the same again when the hub answers",
            ) from unreachable
        origin = f"{name}@{commit}, {wanted}"
        table = _table(data, config)
        label = None if split in config.unlabelled else config.label_column
        columns = choose(table, config, label, origin)
        here = replace(config, allow_outside=True)
        rows = collect(table, columns, here, origin=origin, report=report)
        return replace(rows, revision=commit)


def _table(data: Any, config: ExtractConfig) -> Table:
    """A table of the ``datasets`` library; sounds and pictures stay the bytes that they are."""
    import datasets

    stored = []
    for column, feature in data.features.items():
        if isinstance(feature, datasets.Audio | datasets.Image):
            data = data.cast_column(column, type(feature)(decode=False))  # decoding is ours
            stored.append(column)
    feature = data.features.get(config.label_column)
    declared = tuple(feature.names) if isinstance(feature, datasets.ClassLabel) else None

    def records(columns: Columns) -> Iterator[Record]:
        for number, record in enumerate(data.select_columns(columns.all), start=1):
            yield f"row {number}", record

    return Table(data.column_names, records, tuple(stored), declared)


def _load(name: str, commit: str, split: str | None, unreachable: HubError | None) -> Any:
    """One split at a commit (or all where none is named), fetched where it is not there yet."""
    import datasets
    from datasets.data_files import EmptyDatasetError
    from datasets.exceptions import DatasetNotFoundError, DatasetsError

    datasets.disable_progress_bars()
    offline = datasets.config.HF_HUB_OFFLINE
    # no argument says that the hub is to be left alone
    datasets.config.HF_HUB_OFFLINE = offline or unreachable is not None
    with hub_errors(name, kind="dataset"):
        try:
            return datasets.load_dataset(name, revision=commit, split=split, keep_in_memory=False)
        except DatasetNotFoundError as error:
            # the hub has just named its commit: it is there, and closed
            raise (unreachable or gated(name, "dataset")) from error
        except (DatasetsError, EmptyDatasetError, ValueError, RuntimeError) as error:
            no_split = "unknown split" in str(error).lower()
            refusal = (NotFoundError if no_split else ConfigError)(
                f"the data set '{name}' cannot be read as it is",
                expected="data files with one table per split, and no script",
                found=one_line(error.__cause__ or error),
                where=f"{name}@{commit}",
                hint="download it and give --dataset a folder with one file per split",
            )
            raise (refusal if no_split else unreachable or refusal) from error
        finally:
            datasets.config.HF_HUB_OFFLINE = offline
