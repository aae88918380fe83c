"""The news sample that comes with gaam."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from gaam_cache.config import DEFAULT_DATASET, ExtractConfig
from gaam_cache.settings import data_path
from gaam_cache.sources._base import Rows
from gaam_cache.sources.files import FileSource
from gaam_cache.terminal import Report


class BundledSource(FileSource):
    """480 short news items in four classes, written for this project: a demonstration."""

    priority: ClassVar[int] = 0
    is_path: ClassVar[bool] = False

    @classmethod
    def claims(cls, dataset: str) -> bool:
        """Its name and nothing else."""
        return dataset == DEFAULT_DATASET

    def rows(self, config: ExtractConfig, split: str, report: Report) -> Rows:
        """Read the bundled CSV of ``split``: title and description joined."""
        columns = config.text_columns or ("title", "description")
        folder = str(data_path() / "news_sample")
        rows = super().rows(replace(config, dataset=folder, text_columns=columns), split, report)
        return replace(rows, origin=f"{DEFAULT_DATASET}/{split}.csv")
