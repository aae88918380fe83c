"""Rows from a data set on the hub, through the ``datasets`` library."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

from gaam_cache.config import ExtractConfig
from gaam_cache.errors import NotFoundError
from gaam_cache.hub import hub_errors, resolve_revision
from gaam_cache.sources._base import Rows, Source, collect


class HubSource(Source):
    """A data set id such as ``fancyzhx/ag_news``."""

    priority: ClassVar[int] = 2

    @classmethod
    def claims(cls, dataset: str) -> bool:  # noqa: ARG003 the last to be asked takes all
        """Everything that the others left."""
        return True

    def read(self, config: ExtractConfig, split: str) -> Rows:
        """Download (or take from the local copy) and read one split."""
        import datasets

        commit = resolve_revision(config.dataset, config.dataset_revision, kind="dataset")
        datasets.disable_progress_bars()
        with hub_errors(config.dataset, kind="dataset"):
            try:
                data = datasets.load_dataset(config.dataset, revision=commit, split=split)
            except ValueError as error:
                if "split" not in str(error).lower():
                    raise
                raise NotFoundError(
                    f"no split '{split}'", found=str(error), where=config.dataset
                ) from error
        feature = data.features.get(config.label_column)
        declared = tuple(feature.names) if isinstance(feature, datasets.ClassLabel) else None

        def records() -> Iterator[tuple[str, dict[str, Any]]]:
            for number, record in enumerate(data):
                yield f"row {number}", record

        rows = collect(
            records(),
            data.column_names,
            config,
            self,
            origin=f"{config.dataset}@{commit[:12] if commit else 'local copy'}, {split}",
            class_names=declared,
        )
        return replace(rows, revision=commit)
