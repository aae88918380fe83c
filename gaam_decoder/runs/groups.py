"""Which rows of a split belong together.

A relation is one reason for which rows belong together, such as the same speaker. It
gives every row of a split a number: rows with equal numbers belong together. Its name
is that of a kept column of the cache, ``GROUPS_FILE`` or ``EQUAL_ROWS``. A run records
the numbers of its test and validation rows, because reports read no cache.

Shapes: N rows of a split, or N test rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from gaam_cache.common.cells import is_blank
from gaam_cache.common.errors import GaamError
from gaam_cache.config import CLIP_OF
from gaam_cache.store.reader import EmbeddingCache, Split, open_cache
from gaam_decoder.recipe import Groups
from gaam_decoder.runs.folders import find_cache
from gaam_decoder.runs.result import RunResult
from gaam_decoder.stats.groups import RowGroups, join_relations, row_groups

# The names have spaces, so that no column has them.
GROUPS_FILE = "file of --groups"
EQUAL_ROWS = "equal rows"
Numbers = NDArray[np.int32]


def relations_of_split(
    cache: EmbeddingCache, split: str, groups: Groups | None
) -> dict[str, Numbers]:
    """All relations between the rows of a split, such as "same speaker", by name.

    Args:
        cache: with the split.
        split: the name of the split.
        groups: the group of every row of this split, as ``--groups`` gives it; None
            where it gives none.

    Returns:
        For each relation a number of every row, (N,). Rows with equal numbers belong
        together. There is a relation for each kept column of the cache, one for a file
        of groups, and one for rows with the same content.
    """
    relations = {name: _numbers_of_column(cache[split], name) for name in cache.columns}
    # groups from a column are among the columns already
    if groups is not None and groups.kind == "file":
        relations[GROUPS_FILE] = _number_names(groups.names)

    # each list of the plan holds the rows that are equal to one another
    lists_of_equal_rows = cache.plan.dataset.equal_rows.get(split)
    if lists_of_equal_rows:
        number_N = np.arange(len(cache[split]), dtype=np.int32)
        for rows in lists_of_equal_rows:
            number_N[rows] = rows[0]
        relations[EQUAL_ROWS] = number_N
    return relations


# Every run of a sweep records the same columns.
@lru_cache(maxsize=16)
def _numbers_of_column(split: Split, name: str) -> Numbers:
    """A number for each row of a split, equal where a kept column has equal values."""
    return _number_names(split.column(name))


def _number_names(names: object) -> Numbers:
    """A number for each row, from 0, equal where the names of the rows are equal."""
    _distinct_names, index_N = np.unique(np.asarray(names), return_inverse=True)
    numbers: Numbers = index_N.astype(np.int32)
    return numbers


def joining_relations(run: RunResult) -> list[str]:
    """Names of the relations by which every report of a run joins test rows, sorted.

    They are those of ``--groups``, of the column by which the data set was split, of
    clips of one file, and of equal rows, if the run or its cache has them. A file of
    ``--groups`` is named even if the run lacks its groups: the caller must not report
    the rows without them.
    """
    names = {EQUAL_ROWS, CLIP_OF}
    if run.cache.test_groups is not None:
        names.add(run.cache.test_groups)
    groups = run.recipe.groups
    if groups is not None and groups.kind == "column":
        names.add(groups.source)
    available = run.cache.columns.union(run.relations)
    names &= available

    # A file names the training rows, and only folds test on those.
    if groups is not None and groups.kind == "file" and run.recipe.fold:
        names.add(GROUPS_FILE)
    return sorted(names)


def relation_of_test_rows(run: RunResult, name: str) -> Numbers | None:
    """A number for each test row of a run; rows that belong together have equal ones.

    They are read from the run, or from its cache if an earlier version of gaam did not
    record them.

    Args:
        run: with the test rows.
        name: of the relation, such as the column of speakers.

    Returns:
        The numbers, (N,); None if neither the run nor its cache has them.
    """
    if name in run.relations:
        recorded: Numbers = run.relations[name]
        return recorded
    try:
        number_N = _numbers_of_column(_tested_split(run), name)
    except (GaamError, OSError):
        return None
    if run.test_rows is None:
        return number_N
    tested_N: Numbers = number_N[run.test_rows]
    return tested_N


def _tested_split(run: RunResult) -> Split:
    """The split of a run's cache that has its test rows."""
    return open_cache(find_cache(run.cache, run.path))[run.recipe.tested_split]


def count_unnamed_test_rows(run: RunResult, column: str) -> int | None:
    """Count the test rows of a run to which a kept column of its cache gives no name.

    None where the cache is gone: a run does not record the names.
    """
    try:
        names = _tested_split(run).column(column)
    except (GaamError, OSError):
        return None
    tested_N = range(len(names)) if run.test_rows is None else run.test_rows
    return sum(is_blank(names[row]) for row in tested_N)


def join_rows(
    numbers_by_name: Mapping[str, Numbers],
) -> tuple[RowGroups | None, tuple[str, ...]]:
    """Groups of rows by all relations between them, and the relations that join any.

    Args:
        numbers_by_name: name of a relation -> a number for each row.

    Returns:
        The groups, None where every row is independent; and the names of the relations
        that put rows together.
    """
    joining_numbers = {
        name: number_N
        for name, number_N in numbers_by_name.items()
        if len(np.unique(number_N)) < len(number_N)
    }
    if not joining_numbers:
        return None, ()
    joined_N = join_relations(list(joining_numbers.values()))
    return row_groups(joined_N), tuple(joining_numbers)


def groups_of_test_rows(run: RunResult) -> tuple[RowGroups | None, tuple[str, ...]]:
    """Groups of the test rows of one run, as ``join_rows`` returns them."""
    numbers_by_name: dict[str, Numbers] = {}
    for name in joining_relations(run):
        number_N = relation_of_test_rows(run, name)
        if number_N is not None:
            numbers_by_name[name] = number_N
    return join_rows(numbers_by_name)


def count_train_rows(
    runs: Sequence[RunResult], groups: RowGroups | None, joining_names: Iterable[str]
) -> float:
    """Number of training and validation rows of runs, as a claim counts them.

    If groups are the unit, few training groups limit it. Each then counts as many rows
    as a group of test rows has on average, because runs do not record the sizes of
    training groups.

    Args:
        runs: of one decoder, without folds.
        groups: of the test rows; None where rows are the unit.
        joining_names: names of the relations that make the groups.
    """
    first = runs[0]
    num_rows = min(
        [run.drawn.total for run in runs if run.drawn],
        default=first.cache.rows[first.recipe.train_split],
    )
    if groups is None:
        return num_rows

    rows_per_group = len(groups.group_N) / len(groups)
    limits: list[float] = [num_rows]
    for run in runs:
        for name in joining_names:
            # number of training groups by this relation
            num_groups = run.learned_groups.get(name)
            if num_groups is not None:
                limits.append(rows_per_group * num_groups)
    return min(limits)
