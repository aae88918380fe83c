"""Which rows of a split belong together.

A relation gives every row of a split a number; rows with equal numbers belong together.
Its name is that of a kept column of the cache, ``GROUPS_FILE`` or ``EQUAL_ROWS``. A run
records the numbers of its test and validation rows, because reports read no cache.

Shapes: N rows of a split, or N test rows.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.errors import GaamError
from gaam_cache.config import CLIP_OF
from gaam_cache.store.reader import EmbeddingCache, Split, open_cache
from gaam_decoder.recipe import Groups
from gaam_decoder.runs.folders import find_cache
from gaam_decoder.runs.result import RunResult

# The names have spaces, so that no column has them.
GROUPS_FILE = "file of --groups"
EQUAL_ROWS = "equal rows"
Numbers = NDArray[np.int32]


def relations(
    cache: EmbeddingCache, split: str, groups: Groups | None
) -> dict[str, Numbers]:
    """All relations between the rows of a split, each (N,), by name.

    Args:
        cache: the states.
        split: the name of the split.
        groups: of the rows of this split; None where they have none.
    """
    numbers = {name: _numbers_of_column(cache[split], name) for name in cache.columns}
    if groups is not None and groups.kind == "file":
        numbers[GROUPS_FILE] = _number_names(groups.names)

    # each entry lists the rows that are equal to one another
    equal_rows = cache.plan.dataset.equal_rows.get(split)
    if equal_rows:
        number_N = np.arange(len(cache[split]), dtype=np.int32)
        for rows in equal_rows:
            number_N[rows] = rows[0]
        numbers[EQUAL_ROWS] = number_N
    return numbers


# Every run of a sweep records the same columns.
@lru_cache(maxsize=16)
def _numbers_of_column(split: Split, name: str) -> Numbers:
    """A number for each row of a split, equal where a kept column has equal values."""
    return _number_names(split.column(name))


def _number_names(names: object) -> Numbers:
    """A number for each row, equal where the names are equal."""
    _, index_N = np.unique(np.asarray(names), return_inverse=True)
    numbers: Numbers = index_N.astype(np.int32)
    return numbers


def relations_in_force(run: RunResult) -> list[str]:
    """Names of the relations that every report of a run has to respect.

    A relation says which test rows belong together. These are the groups of its
    training, the groups that split off the test rows, the clips of one file, and equal
    rows.
    """
    names = {EQUAL_ROWS, CLIP_OF}
    if run.cache.test_groups is not None:
        names.add(run.cache.test_groups)
    groups = run.recipe.groups
    if groups is not None and groups.kind == "column":
        names.add(groups.source)
    elif groups is not None and groups.kind == "file" and run.recipe.fold:
        # A file names the training rows, and only folds test on those.
        names.add(GROUPS_FILE)

    available = run.cache.columns.union(run.relations)
    if GROUPS_FILE in names:
        available.add(GROUPS_FILE)
    return sorted(names & available)


def relation_of_test_rows(run: RunResult, name: str) -> Numbers | None:
    """Number the test rows of a run: rows that belong together have equal numbers.

    Args:
        run: with the test rows.
        name: of the relation, such as the column of speakers.

    Returns:
        The numbers, (N,); None if they are unknown. A run of an earlier version may
        not have recorded them; its cache has them, if it is still there.
    """
    if name in run.relations:
        recorded: Numbers = run.relations[name]
        return recorded
    try:
        cache = open_cache(find_cache(run.cache, run.path))
        number_N = _numbers_of_column(cache[run.recipe.tested_split], name)
    except (GaamError, OSError):
        return None
    if run.test_rows is None:
        return number_N
    tested_N: Numbers = number_N[run.test_rows]
    return tested_N
