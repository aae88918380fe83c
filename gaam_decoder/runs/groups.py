"""Which rows of a split belong together, and what says so.

A relation has a name: that of a kept column of the cache, ``GROUPS_FILE`` or ``EQUAL_ROWS``. It
gives every row of a split a number, and rows with the same number belong together. A run records
the numbers of its test rows and of the rows that chose, for no table of accuracies reads a cache.

N rows of a split, or of those that are tested.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.errors import GaamError
from gaam_cache.config import CLIP_OF
from gaam_cache.store.reader import EmbeddingCache, Split, open_cache
from gaam_decoder.recipe import Groups
from gaam_decoder.runs.folders import find_cache
from gaam_decoder.runs.result import RunResult

GROUPS_FILE, EQUAL_ROWS = "file of --groups", "equal rows"  # no column can be called so
Numbers = NDArray[np.int32]


def relations(
    cache: EmbeddingCache, split: str, groups: Groups | None
) -> dict[str, Numbers]:
    """All that may say which rows of a split belong together, each (N,).

    Args:
        cache: the states.
        split: whose rows.
        groups: of the rows of this split; None where they have none.
    """
    numbers = {name: _numbers_of_column(cache[split], name) for name in cache.columns}
    if groups is not None and groups.kind == "file":
        numbers[GROUPS_FILE] = _numbered(groups.names)
    if copies := cache.plan.equal_rows.get(split):
        number_N = np.arange(len(cache[split]), dtype=np.int32)
        for rows in copies:
            number_N[rows] = rows[0]
        numbers[EQUAL_ROWS] = number_N
    return numbers


@lru_cache(maxsize=16)  # every run of a sweep records them
def _numbers_of_column(split: Split, name: str) -> Numbers:
    return _numbered(split.column(name))


def _numbered(names: Any) -> Numbers:
    numbers: Numbers = np.unique(np.asarray(names), return_inverse=True)[1].astype(
        np.int32
    )
    return numbers


def names_in_force(run: RunResult) -> list[str]:
    """Relations that hold for the test rows of a run, whatever a report is asked for.

    The groups that it was trained with, those by which the test split was cut off, pieces of one
    sound, and copies.
    """
    plan = run.cache.get("plan", {})
    names = {plan.get("dataset", {}).get("test_groups"), EQUAL_ROWS, CLIP_OF}
    if run.groups.get("kind") == "column":
        names.add(run.groups["source"])
    # a file names the rows of train, which folds test
    elif run.groups and run.recipe.get("fold"):
        names.add(GROUPS_FILE)
    there = {*run.same, *plan.get("columns", {})}
    if GROUPS_FILE in names:
        there.add(GROUPS_FILE)
    return sorted(names & there)


def numbers_of_tests(run: RunResult, name: str) -> Numbers | None:
    """Numbers of the test rows of a run, (N,); None where neither run nor cache has them.

    A run that was made before runs recorded them has none; its cache does, if it is there.
    """
    if name in run.same:
        return run.same[name]
    try:
        cache = open_cache(find_cache(run.cache, run.path))
        split = run.setting("train_split" if run.recipe.get("fold") else "test_split")
        numbers_N = _numbers_of_column(cache[split], name)
    except (GaamError, OSError):
        return None
    return numbers_N if run.test_rows is None else numbers_N[run.test_rows]
