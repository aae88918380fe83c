"""Rows from a data set on the hub, through the ``datasets`` library."""

import re
import warnings
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from gaam_cache.common.download import COMMIT, fetch, gated, hub_errors, one_line
from gaam_cache.common.errors import ConfigError, GaamWarning, HubError, NotFoundError
from gaam_cache.common.messages import shortened
from gaam_cache.common.terminal import ReportProgress
from gaam_cache.config import ExtractConfig
from gaam_cache.sources.base import Rows, Source
from gaam_cache.sources.rows.collect import choose_columns, collect
from gaam_cache.sources.rows.readers import dataset_table


class HubSource(Source):
    """A data set id such as ``fancyzhx/ag_news``.

    Where the hub cannot be reached, the copy that the ``datasets`` library keeps serves, if it is
    of the commit that was asked for.
    """

    priority: ClassVar[int] = 3
    has_revisions: ClassVar[bool] = True
    _asked: tuple[Path, HubError | None] | None = None

    @classmethod
    def claims(cls, dataset: str) -> bool:  # noqa: ARG003 the last to be asked takes all
        return True

    def rows(self, config: ExtractConfig, split: str, report: ReportProgress) -> Rows:
        """Download (or take from the local copy) and read one split."""
        wanted = None if config.test_fraction is not None else split
        name = config.dataset
        report(0, 0, f"fetching {'all' if wanted is None else repr(wanted)} of {name}")
        if self._asked is None:  # once: all splits are of one commit
            self._asked = fetch(
                name, config.dataset_revision, ["README.md"], kind="dataset"
            )
        folder, unreachable = self._asked
        commit = folder.name
        data = _load(name, commit, config.subset, wanted, unreachable)
        if wanted is None:
            if len(data) != 1:
                what = "--test-fraction makes splits of data with a single one"
                raise ConfigError(
                    what, found=f"the splits {', '.join(data)}", where=name
                )
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
        if config.subset is None and split == config.splits[0]:
            _tell_subset(name, folder, str(data.info.config_name))
        subset = "" if config.subset is None else f" ({config.subset})"
        origin = f"{name}{subset}@{commit}, {wanted}"
        table = dataset_table(data, config)
        label = None if split in config.unlabelled else config.label_column
        columns = choose_columns(table, config, label, origin)
        here = replace(config, allow_outside=True)
        rows = collect(table, columns, here, split=split, origin=origin, report=report)
        return replace(rows, revision=commit)


def _load(
    name: str,
    commit: str,
    subset: str | None,
    split: str | None,
    unreachable: HubError | None,
) -> Any:
    """One split at a commit (or all where none is named), fetched where it is not there yet."""
    import datasets
    from datasets.data_files import EmptyDatasetError
    from datasets.exceptions import DatasetNotFoundError, DatasetsError

    datasets.disable_progress_bars()
    offline = datasets.config.HF_HUB_OFFLINE
    # no argument says that the hub is to be left alone
    datasets.config.HF_HUB_OFFLINE = offline or unreachable is not None
    named: dict[str, Any] = {} if subset is None else {"name": subset}
    with hub_errors(name, kind="dataset"):
        try:
            return datasets.load_dataset(
                name, revision=commit, split=split, keep_in_memory=False, **named
            )
        except DatasetNotFoundError as error:
            # the hub has just named its commit: it is there, and closed
            raise (unreachable or gated(name, "dataset")) from error
        except (DatasetsError, EmptyDatasetError, ValueError, RuntimeError) as error:
            refusal = _refusal(error, f"{name}@{commit}", name, subset)
            if isinstance(refusal, NotFoundError):
                raise refusal from error
            raise (unreachable or refusal) from error
        finally:
            datasets.config.HF_HUB_OFFLINE = offline


def _tell_subset(name: str, folder: Path, subset: str) -> None:
    """Say which of several subsets is read where nobody named one and the data set has a default.

    Which there are is said by its card, which decides nothing.
    """
    from huggingface_hub import DatasetCard

    with suppress(Exception):  # no card, or none that can be read
        configs = DatasetCard.load(folder / "README.md").data.get("configs") or []
        subsets = [str(config["config_name"]) for config in configs]
        if len(subsets) > 1:
            text = f"of the subsets {', '.join(subsets)} of '{name}' its default, '{subset}', is "
            warnings.warn(
                text + "read: --subset names another", GaamWarning, stacklevel=2
            )


def _refusal(
    error: Exception, where: str, name: str, subset: str | None
) -> ConfigError:
    """What the library says of a data set that it cannot read, as one message."""
    text = str(error)
    subsets = re.search(r"(?:available configs|Available): \[(.*?)\]", text, re.DOTALL)
    if subsets is not None:
        problem = f"the data set '{name}' has several subsets"
        if subset is not None:
            problem = f"the data set '{name}' has no subset '{shortened(subset)}'"
        names = re.findall(r"'([^']*)'|\"([^\"]*)\"", subsets[1])
        return NotFoundError(
            problem,
            expected="one of: "
            + ", ".join(single or double for single, double in names),
            found=None if subset is None else shortened(subset),
            where=where,
            hint="name one with --subset",
        )
    if "unknown split" in text.lower():
        hint = "name the splits there are with --split"
        return NotFoundError(
            f"the data set '{name}' has no such split",
            found=one_line(error),
            where=where,
            hint=hint,
        )
    return ConfigError(
        f"the data set '{name}' cannot be read as it is",
        expected="data files with one table per split, and no script",
        found=one_line(error.__cause__ or error),
        where=where,
        hint="download it and give --dataset a folder with one file per split",
    )
