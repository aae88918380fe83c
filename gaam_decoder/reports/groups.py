"""Groups of the test rows of a table, and kept columns that look like groups.

Rows of one group belong together, such as the clips of one speaker. Names of arrays end
in their axes: N test rows, each once even if cross-validations are repeated; C classes;
G groups; U units, which are test rows or groups of them; V values of a column.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc

from gaam_cache.common.errors import ConfigError
from gaam_cache.common.messages import brief
from gaam_decoder.runs.groups import (
    EQUAL_ROWS,
    GROUPS_FILE,
    relation_of_test_rows,
    relations_in_force,
)
from gaam_decoder.runs.result import RunResult
from gaam_decoder.stats.groups import RowGroups, joined, row_groups

# a column that looks like groups has at least so many units a value, on average
UNITS_PER_VALUE = 5
# level of the F test of such a column
LEVEL = 0.01
# relations between rows that are no kept columns
RELATIONS_WITHOUT_COLUMN = {EQUAL_ROWS, GROUPS_FILE}
Numbers = NDArray[np.int32]
Tests = Sequence[Sequence[RunResult]]
"""For each part of the test rows (one part, or the folds), all runs that test on it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TableGroups:
    """The groups of the test rows of a table, and the columns that runs recorded."""

    # relations that put rows together; empty where rows are the unit
    relations: tuple[str, ...]
    # groups by all these relations; None where rows are the unit
    groups: RowGroups | None
    # relations that hold, but whose numbers neither run nor cache has
    unknown_relations: tuple[str, ...]
    # the kept columns that runs recorded, each (N,)
    columns: dict[str, Numbers]

    def in_words(self) -> str:
        """Such as ``12 groups of 'who'``; empty where rows are the unit."""
        if self.groups is None:
            return ""
        count = len(self.groups)
        noun = "group" if count == 1 else "groups"
        names = " and ".join(relation_in_words(name) for name in self.relations)
        return f"{count:,} {noun} of {names}"


def relation_in_words(name: str) -> str:
    """The name of a relation in a message: that of a column stands in quotes.

    A relation says which rows belong together.
    """
    return name if name in RELATIONS_WITHOUT_COLUMN else f"'{brief(name, 40)}'"


def table_groups(
    tests: Tests,
    runs_of_cache: Sequence[RunResult],
    repeats: int,
    requested_column: str | None,
) -> TableGroups:
    """Groups of the test rows of a table, by all relations between them.

    A relation puts rows together: a kept column by equal values, or equal texts, pieces
    of one sound, a file of groups. Rows that one relation puts together belong
    together, whatever another says: a finer relation never makes a test of more groups.

    Args:
        tests: the runs of every part of the test rows, in order.
        runs_of_cache: all runs on the same cache, those that filters left out too. A
            relation of any of them holds, so no filter makes a test of more groups.
        repeats: how often every row is among the test rows.
        requested_column: a kept column that the report was asked to group by.

    Raises:
        ConfigError: neither runs nor cache have the requested column.
    """
    relations = _relations(tests, runs_of_cache)
    if requested_column is not None:
        relations.add(requested_column)
    recorded = set.intersection(
        *({name for run in runs for name in run.relations} for runs in tests)
    )

    numbers, unknown = _numbers_by_name(
        tests, relations | (recorded - RELATIONS_WITHOUT_COLUMN), repeats
    )
    if requested_column is not None and requested_column in unknown:
        raise _unknown_column(requested_column, tests[0][0])

    # a relation that puts no two rows together groups nothing
    grouping = {}
    for name, number_N in numbers.items():
        puts_rows_together = len(np.unique(number_N)) < len(number_N)
        if name in relations and puts_rows_together:
            grouping[name] = number_N
    return TableGroups(
        relations=tuple(grouping),
        groups=row_groups(joined(list(grouping.values()))) if grouping else None,
        unknown_relations=tuple(sorted(unknown & relations)),
        columns={name: numbers[name] for name in numbers if name in recorded},
    )


def _numbers_by_name(
    tests: Tests, names: Iterable[str], repeats: int
) -> tuple[dict[str, Numbers], set[str]]:
    """The group numbers of the test rows by each relation, the columns first.

    A relation gives rows that belong together the same number.

    Args:
        tests: the runs of every part of the test rows, in order.
        names: of the relations.
        repeats: how often every row is among the test rows.

    Returns:
        Name of a relation -> group number of every test row, (N,); and the names of
        relations whose numbers neither runs nor cache have.
    """
    order_N = _order_without_repeats(tests, repeats)
    numbers = {}
    unknown = set()
    for name in sorted(
        names, key=lambda name: (name in RELATIONS_WITHOUT_COLUMN, name)
    ):
        number_N = _numbers(tests, name, order_N)
        if number_N is None:
            unknown.add(name)
        else:
            numbers[name] = number_N
    return numbers, unknown


def _relations(tests: Tests, runs_of_cache: Sequence[RunResult]) -> set[str]:
    """Names of the relations that say which test rows belong together.

    Those of any run on the same cache hold, so that no choice of runs makes a test of
    more groups.
    """
    relations = {name for run in runs_of_cache for name in relations_in_force(run)}
    # the file of another run may name other rows
    relations.discard(GROUPS_FILE)
    for runs in tests:
        for run in runs:
            relations.update(relations_in_force(run))
    return relations


def _order_without_repeats(tests: Tests, repeats: int) -> NDArray[np.int64] | None:
    """Indices that take each test row once, in the order of the split.

    Repeats of a cross-validation test every row several times. None without repeats.
    """
    if repeats < 2:
        return None
    row_N = np.concatenate([runs[0].test_rows for runs in tests])
    return np.argsort(row_N, kind="stable")[::repeats]


def _numbers(
    tests: Tests, name: str, order_N: NDArray[np.int64] | None
) -> Numbers | None:
    """The group number of every test row by the relation ``name``, (N,).

    ``order_N`` are the indices that take each row once, if rows are repeated. None
    where neither runs nor cache have the numbers.
    """
    parts = []
    for runs in tests:
        # a run that recorded the numbers saves a look into the cache
        run = next((run for run in runs if name in run.relations), runs[0])
        part_N = relation_of_test_rows(run, name)
        if part_N is None:
            return None
        parts.append(part_N)
    number_N = np.concatenate(parts)
    return number_N if order_N is None else number_N[order_N]


def _unknown_column(name: str, run: RunResult) -> ConfigError:
    """The error for a requested column without numbers for the test rows."""
    columns = sorted(({*run.relations} - RELATIONS_WITHOUT_COLUMN) | run.cache.columns)
    if name in columns:
        cache_path = brief(run.cache.path, 200)
        return ConfigError(
            f"the runs do not hold the column '{brief(name)}', and their cache is gone",
            expected=f"the cache of the runs, where it was: {cache_path}",
            where=f"the run {run.path}",
            hint="move the cache back, or train the runs again: "
            "they hold kept columns now",
        )
    expected = "a cache that has some"
    if columns:
        expected = f"one of: {', '.join(brief(column) for column in columns)}"
    return ConfigError(
        f"--groups '{brief(name)}' is no kept column",
        expected=expected,
        where=f"the run {run.path}",
        hint="gaam extract --keep-column NAME",
    )


def find_group_like_columns(
    table_groups: TableGroups, right_N: NDArray[np.float64], label_N: NDArray[np.int64]
) -> dict[str, int]:
    """Kept columns that look like groups, and how many values they have.

    Such a column has few values, with many rows each, and accuracy varies more between
    its values than within them: an F test of a one-way analysis of variance, at 1%. The
    mean of each class is taken out before, so that a column that repeats the class does
    not look like groups. Where groups are the unit, their means are what varies, and a
    column that splits a group cannot be a coarser group.

    Args:
        table_groups: groups and kept columns of the test rows.
        right_N: share of all decoders and seeds that are right on each row.
        label_N: class of each row.
    """
    rows_C = np.maximum(1, np.bincount(label_N))
    residual_N = right_N - (np.bincount(label_N, right_N) / rows_C)[label_N]
    num_classes = len(np.unique(label_N))
    groups = table_groups.groups

    values_by_column = {}
    for name, number_N in table_groups.columns.items():
        if name in table_groups.relations:
            continue
        residual_U = residual_N
        number_U = number_N
        if groups is not None:
            first_row_G = np.unique(groups.group_N, return_index=True)[1]
            residual_U = groups.totals(residual_N[None])[0] / groups.rows_G
            number_U = number_N[first_row_G]
            splits_a_group = (number_U[groups.group_N] != number_N).any()
            if splits_a_group:
                continue
        value_U = np.unique(number_U, return_inverse=True)[1]
        if _varies(residual_U, value_U, num_classes):
            values_by_column[name] = len(np.unique(number_U))
    return values_by_column


def _varies(
    residual_U: NDArray[np.float64], value_U: NDArray[np.int64], num_classes: int
) -> bool:
    """Whether residuals vary more between values of a column than within them.

    An F test at the level ``LEVEL``, on units: test rows, or means of groups of rows.

    Args:
        residual_U: share of right answers of every unit, less the mean of its class.
        value_U: number of the column's value of every unit, from 0 without gaps.
        num_classes: number of class means that were subtracted.
    """
    units_V = np.bincount(value_U)
    num_values = len(units_V)
    num_units = len(residual_U)
    freedom_between = num_values - 1
    # the means of the classes took degrees of freedom too
    freedom_within = num_units - num_values - num_classes + 1
    if freedom_between < 1 or freedom_within < 1:
        return False
    if num_units < UNITS_PER_VALUE * num_values:
        return False

    mean_V = np.bincount(value_U, residual_U) / units_V
    squares_within = np.sum((residual_U - mean_V[value_U]) ** 2)
    squares_between = np.sum(units_V * (mean_V - residual_U.mean()) ** 2)
    variance_within = float(squares_within) / freedom_within
    variance_between = float(squares_between) / freedom_between

    # smaller variances are what rounding leaves
    if variance_between < 1e-12:
        return False
    if variance_within < 1e-12:
        return True
    ratio = variance_between / variance_within
    return float(fdtrc(freedom_between, freedom_within, ratio)) < LEVEL
