"""Runs as a list that knows what was left out of it, and as a table of pandas."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gaam_decoder.runs.filters import Filters
from gaam_decoder.runs.result import RunResult
from gaam_decoder.runs.selection import Selection

if TYPE_CHECKING:
    import pandas


class Runs(list[RunResult]):
    """What ``load_runs`` returns: a list.

    Args:
        runs: in order.
        selection: what was left out; None where nothing was asked for.
        others: the runs that filters left out, which a correction for many tests has to count.
    """

    def __init__(
        self,
        runs: Iterable[RunResult] = (),
        selection: Selection | None = None,
        others: Iterable[RunResult] = (),
    ) -> None:
        super().__init__(runs)
        self.selection = selection
        self.others = list(others)

    def chosen(self, filters: Filters) -> Runs:
        """Those that the filters mean.

        Raises:
            ConfigError: a filter that means nothing.
            NotFoundError: of a cache that is not there.
        """
        if not filters:
            return self
        runs, selection = filters.choose(self)
        kept = set(runs)
        others = [*self.others, *(run for run in self if run not in kept)]
        return Runs(runs, selection.after(self.selection), others)

    def to_frame(self) -> pandas.DataFrame:
        """A row per run and seed.

        Columns: see ``frame.COLUMNS``. Accuracies are fractions; of a seed that failed, and of a
        run that was not evaluated, they are NaN. Where several runs hold a seed, ``counts`` is true
        in one row: the one that reports are of.

        Raises:
            ConfigError: pandas is not installed.
            CacheError: a run is damaged.
        """
        from gaam_decoder.runs.frame import frame

        return frame(self)
