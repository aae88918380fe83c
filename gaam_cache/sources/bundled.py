"""The news sample that comes with gaam."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from gaam_cache.bundle import data_path
from gaam_cache.config import DEFAULT_DATASET, ExtractConfig
from gaam_cache.sources._base import Rows, Source
from gaam_cache.sources.files import FileSource
from gaam_cache.terminal import Report, silent


class BundledSource(Source):
    """480 short news items in four classes, written for this project: a demonstration."""

    priority: ClassVar[int] = 0

    @classmethod
    def claims(cls, dataset: str) -> bool:
        """Its name and nothing else."""
        return dataset == DEFAULT_DATASET

    def read(self, config: ExtractConfig, split: str, report: Report = silent) -> Rows:
        """Read the bundled CSV of ``split``: title and description joined."""
        files = replace(
            config,
            dataset=str(data_path() / "news_sample"),
            text_columns=config.text_columns or ("title", "description"),
        )
        rows = FileSource().read(files, split, report)
        return replace(rows, origin=f"{DEFAULT_DATASET}/{split}.csv")
