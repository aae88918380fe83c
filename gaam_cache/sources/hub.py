"""Rows from a data set on the hub, read by the library ``datasets``."""

import re
import warnings
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from gaam_cache.common.download import COMMIT, fetch, gated_error, hub_errors, one_line
from gaam_cache.common.errors import ConfigError, GaamWarning, HubError, NotFoundError
from gaam_cache.common.messages import shortened
from gaam_cache.common.terminal import UNKNOWN_TOTAL, ReportProgress
from gaam_cache.config import ExtractConfig
from gaam_cache.sources.base import Rows, Source
from gaam_cache.sources.rows.collect import choose_columns, collect
from gaam_cache.sources.rows.layout import note_unused_validation
from gaam_cache.sources.rows.readers import dataset_table


class HubSource(Source):
    """A data set id such as ``fancyzhx/ag_news``.

    Where the hub cannot be reached, the local copy of the library ``datasets`` serves,
    if it is of the requested commit.
    """

    priority: ClassVar[int] = 3
    has_revisions: ClassVar[bool] = True
    _snapshot: tuple[Path, HubError | None] | None = None
    """The folder with the card, named as the commit; and why the hub did not answer.

    The second entry is None if the hub answered. The pair is None before a first split
    is read.
    """

    @classmethod
    def claims(cls, dataset: str) -> bool:  # noqa: ARG003 it is the last, and takes all
        return True

    def rows(self, config: ExtractConfig, split: str, report: ReportProgress) -> Rows:
        """Read one split, from the hub or from the local copy.

        With a ``test_fraction``, the data set must have a single split, which is read
        whatever its name.
        """
        name = config.dataset
        # None stands for all splits, of which there must be one
        hub_split = split if config.test_fraction is None else None
        fetched = "all" if hub_split is None else repr(hub_split)
        report(0, UNKNOWN_TOTAL, f"fetching {fetched} of {name}")

        # all splits must be of one commit, so the hub is asked once
        if self._snapshot is None:
            self._snapshot = fetch(
                name, config.dataset_revision, ["README.md"], kind="dataset"
            )
        folder, unreachable = self._snapshot
        commit = folder.name
        data = _load(name, commit, config.subset, hub_split, unreachable)
        if hub_split is None:
            hub_split, data = _take_only_split(data, name)
        _check_commit(data, name, commit, unreachable)
        # one warning is enough for all splits
        if config.subset is None and split == config.splits[0]:
            _warn_of_default_subset(name, folder, str(data.info.config_name))
        note_unused_validation(data.info.splits or (), config, split)

        # how messages and the plan name these rows
        subset = "" if config.subset is None else f" ({config.subset})"
        origin = f"{name}{subset}@{commit}, {hub_split}"

        table = dataset_table(data, config)
        labels = () if split in config.unlabelled else config.label_column
        columns = choose_columns(table, config, labels, origin)
        # paths in the data lead to the cache of the library, outside of any folder
        trusted = replace(config, allow_outside=True)
        rows = collect(
            table, columns, trusted, split=split, origin=origin, report=report
        )
        return replace(rows, revision=commit)


def _load(
    name: str,
    commit: str,
    subset: str | None,
    split: str | None,
    unreachable: HubError | None,
) -> Any:
    """Load one split at a commit, or all splits, and fetch what is not there yet.

    Args:
        name: id of the data set.
        commit: the commit.
        subset: name of the subset; None for the default one.
        split: name of the split; None for all splits.
        unreachable: why the hub did not answer. Only the local copy is used then, and
            if that is not enough this error is raised. None if the hub answered.

    Returns:
        The data of one split, or a dictionary of splits, as ``datasets`` has them.
    """
    import datasets
    from datasets.data_files import EmptyDatasetError
    from datasets.exceptions import DatasetNotFoundError, DatasetsError

    # gaam shows its own progress
    datasets.disable_progress_bars()
    # no argument of load_dataset keeps it from asking the hub, but this setting does;
    # it is put back below
    was_offline = datasets.config.HF_HUB_OFFLINE
    datasets.config.HF_HUB_OFFLINE = was_offline or unreachable is not None
    options = {} if subset is None else {"name": subset}
    with hub_errors(name, kind="dataset"):
        try:
            return datasets.load_dataset(
                name, revision=commit, split=split, keep_in_memory=False, **options
            )
        except DatasetNotFoundError as error:
            # the hub has just given its commit, so it exists and access is restricted
            raise (unreachable or gated_error(name, "dataset")) from error
        except (DatasetsError, EmptyDatasetError, ValueError, RuntimeError) as error:
            load_error = _load_error(error, f"{name}@{commit}", name, subset)
            # that a subset or split does not exist is known even without the hub
            if isinstance(load_error, NotFoundError):
                raise load_error from error
            raise (unreachable or load_error) from error
        finally:
            datasets.config.HF_HUB_OFFLINE = was_offline


def _take_only_split(data: Any, name: str) -> tuple[str, Any]:
    """Take the only split of a data set, its name and data; refuse several splits.

    ``data`` holds the splits by name, and ``name`` is that of the data set.
    """
    if len(data) != 1:
        raise ConfigError(
            "--test-fraction divides a data set with a single split",
            found=f"the splits {', '.join(data)}",
            where=name,
        )
    split: str = next(iter(data))
    return split, data[split]


def _check_commit(
    data: Any, name: str, commit: str, unreachable: HubError | None
) -> None:
    """Refuse a local copy of another commit.

    If the hub does not answer, the library ``datasets`` returns whatever copy it has.
    It keeps rows in a folder with the name of their commit. Rows in a folder whose name
    is no commit are refused only if the hub did not answer.

    Args:
        data: rows as ``datasets`` loaded them.
        name: id of the data set, for the message.
        commit: the commit that must have been loaded.
        unreachable: why the hub did not answer; None if it answered.
    """
    folders = {Path(file["filename"]).parent.name for file in data.cache_files}
    commits = [folder for folder in folders if COMMIT.fullmatch(folder)]
    is_other_commit = bool(commits) and commits != [commit]
    is_unknown_commit = not commits and unreachable is not None
    if is_other_commit or is_unknown_commit:
        raise HubError(
            f"the data set '{name}' could not be fetched at the requested revision",
            expected=commit,
            found=f"a local copy of {', '.join(commits) or 'an unknown commit'}",
            hint="run the same again when the hub answers",
        ) from unreachable


def _warn_of_default_subset(name: str, folder: Path, subset: str) -> None:
    """Warn if the data set has several subsets and its default is read.

    The subsets are listed in the data set's card, README.md on the hub.

    Args:
        name: id of the data set.
        folder: the folder with the card.
        subset: name of the subset that is read.
    """
    from huggingface_hub import DatasetCard

    # without a readable card there is no warning, and nothing else depends on it
    with suppress(Exception):
        configs = DatasetCard.load(folder / "README.md").data.get("configs") or []
        subsets = [str(config["config_name"]) for config in configs]
        if len(subsets) > 1:
            warnings.warn(
                f"'{name}' has the subsets {', '.join(subsets)}; its default, "
                f"'{subset}', is read: --subset names another",
                GaamWarning,
                stacklevel=2,
            )


def _load_error(
    error: Exception, where: str, name: str, subset: str | None
) -> ConfigError:
    """Turn an error of the library ``datasets`` into one with advice for the user.

    Args:
        error: the error of the library.
        where: the data set and its commit, for the message.
        name: id of the data set.
        subset: the requested subset; None for the default one.

    Returns:
        A ``NotFoundError`` if the subset or the split does not exist; otherwise a
        ``ConfigError`` that says that the data set cannot be read.
    """
    text = str(error)
    # the library lists the subsets in its messages only
    subsets = re.search(r"(?:available configs|Available): \[(.*?)\]", text, re.DOTALL)
    if subsets is not None:
        return _no_such_subset(subsets[1], where, name, subset)
    if "unknown split" in text.lower():
        return NotFoundError(
            f"the data set '{name}' has no such split",
            found=one_line(error),
            where=where,
            hint="--split names the splits of the data set",
        )
    return ConfigError(
        f"the data set '{name}' cannot be read as it is",
        expected="data files with one table per split, and no script",
        found=one_line(error.__cause__ or error),
        where=where,
        hint="download it and give --dataset a folder with one file per split",
    )


def _no_such_subset(
    listed: str, where: str, name: str, subset: str | None
) -> NotFoundError:
    """Build the error for a data set without the requested or without a default subset.

    Args:
        listed: all subsets, as Python prints a list of texts, without the brackets.
        where: the data set and its commit, for the message.
        name: id of the data set.
        subset: the requested subset; None if the user named none.
    """
    problem = f"the data set '{name}' has several subsets"
    if subset is not None:
        subset = shortened(subset)
        problem = f"the data set '{name}' has no subset '{subset}'"
    # Python puts a text into single quotes, or into double ones if it holds a single
    # one: of the two groups of each match, one is empty
    quoted = re.findall(r"'([^']*)'|\"([^\"]*)\"", listed)
    names = [single or double for single, double in quoted]
    return NotFoundError(
        problem,
        expected=f"one of: {', '.join(names)}",
        found=subset,
        where=where,
        hint="name one with --subset",
    )
