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
from gaam_cache.common.messages import brief, counted
from gaam_decoder.runs.groups import (
    EQUAL_ROWS,
    GROUPS_FILE,
    count_unnamed_test_rows,
    join_rows,
    joining_relations,
    relation_of_test_rows,
)
from gaam_decoder.runs.result import RunResult
from gaam_decoder.stats.groups import RowGroups

# a column that looks like groups has at least so many units a value, on average
UNITS_PER_VALUE = 5
# level of the F test of such a column
LEVEL = 0.01
# relations between rows that are no kept columns
RELATIONS_WITHOUT_COLUMN = {EQUAL_ROWS, GROUPS_FILE}
Numbers = NDArray[np.int32]
"""Of each test row, (N,), a number that rows share if a relation puts them together."""
Tests = Sequence[Sequence[RunResult]]
"""For each part of the test rows (one part, or the folds), all runs that test on it."""


@dataclass(frozen=True, kw_only=True, eq=False)
class TableGroups:
    """The groups of the test rows of a table, and the columns that runs recorded."""

    # relations that put rows together; empty where rows are the unit
    relations: tuple[str, ...]
    # groups by all these relations; None where rows are the unit
    row_groups: RowGroups | None
    # relations that hold, but whose numbers neither run nor cache has
    unknown_relations: tuple[str, ...]
    # name of a kept column that every part records -> its values, as numbers
    columns: dict[str, Numbers]
    # the column that the report was asked to group by, if no training divided by it
    unknown_to_training: str | None = None

    def in_words(self) -> str:
        """Such as ``12 groups of 'who'``; empty where rows are the unit."""
        if self.row_groups is None:
            return ""
        groups = counted(len(self.row_groups), "group")
        names = " and ".join(relation_in_words(name) for name in self.relations)
        return f"{groups} of {names}"


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
    together, whatever another says: each further relation makes groups larger, and
    their number smaller.

    Args:
        tests: the runs of every part of the test rows, in order.
        runs_of_cache: all runs on the same cache, those that filters left out too. The
            relations of all of them count: filters do not change the groups.
        repeats: how often every row is among the test rows.
        requested_column: a kept column that the report was asked to group by.

    Raises:
        ConfigError: neither runs nor cache have the requested column, or it gives a
            test row no name.
    """
    relations = _relations(tests, runs_of_cache)
    if requested_column is not None:
        relations.add(requested_column)
    recorded_names = _recorded_names(tests)
    recorded_columns = recorded_names - RELATIONS_WITHOUT_COLUMN

    numbers_by_name, unknown_names = _numbers_by_name(
        tests, relations | recorded_columns, repeats
    )
    if requested_column is not None and requested_column in unknown_names:
        raise _unknown_column(requested_column, tests[0][0])
    if requested_column is not None:
        _check_all_rows_named(tests, requested_column)

    groups, joining_names = join_rows(
        {
            name: number_N
            for name, number_N in numbers_by_name.items()
            if name in relations
        }
    )
    return TableGroups(
        relations=joining_names,
        row_groups=groups,
        unknown_relations=tuple(sorted(unknown_names & relations)),
        columns={
            name: number_N
            for name, number_N in numbers_by_name.items()
            if name in recorded_names
        },
        unknown_to_training=(
            None if requested_column in _relations(tests, ()) else requested_column
        ),
    )


def _recorded_names(tests: Tests) -> set[str]:
    """Names that a run on each part recorded: relations, and other kept columns."""
    return set.intersection(
        *({name for run in runs for name in run.relations} for runs in tests)
    )


def _numbers_by_name(
    tests: Tests, names: Iterable[str], repeats: int
) -> tuple[dict[str, Numbers], set[str]]:
    """The numbers of the test rows by each relation or column, the columns first.

    Args:
        tests: the runs of every part of the test rows, in order.
        names: of the relations and columns.
        repeats: how often every row is among the test rows.

    Returns:
        Name -> the numbers of the test rows; and the names of which neither runs nor
        cache have numbers.
    """
    order_N = _order_without_repeats(tests, repeats)
    numbers_by_name = {}
    unknown_names = set()
    columns_first = sorted(
        names, key=lambda name: (name in RELATIONS_WITHOUT_COLUMN, name)
    )
    for name in columns_first:
        number_N = _numbers(tests, name, order_N)
        if number_N is None:
            unknown_names.add(name)
        else:
            numbers_by_name[name] = number_N
    return numbers_by_name, unknown_names


def _relations(tests: Tests, runs_of_cache: Sequence[RunResult]) -> set[str]:
    """Names of the relations that say which test rows belong together.

    The relations of all runs on the cache count. Else a person could choose runs that
    recorded fewer relations, and get more and smaller groups.
    """
    relations = {name for run in runs_of_cache for name in joining_relations(run)}
    # a file of groups counts for the runs that it was given to: see below
    relations.discard(GROUPS_FILE)
    for runs in tests:
        for run in runs:
            relations.update(joining_relations(run))
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
    """The numbers of the test rows by one relation or column.

    Args:
        tests: the runs of every part of the test rows, in order.
        name: of the relation or column.
        order_N: indices that take each row once; None where no row is repeated.

    Returns:
        None where neither runs nor cache have the numbers.
    """
    numbers_of_parts = []
    for runs_on_part in tests:
        # a run that recorded the numbers saves a look into the cache
        recording_runs = [run for run in runs_on_part if name in run.relations]
        run = (recording_runs or runs_on_part)[0]
        numbers = relation_of_test_rows(run, name)
        if numbers is None:
            return None
        numbers_of_parts.append(numbers)
    number_N = np.concatenate(numbers_of_parts)
    return number_N if order_N is None else number_N[order_N]


def _check_all_rows_named(tests: Tests, column: str) -> None:
    """Refuse a column without a name for some test rows: their groups are unknown."""
    for runs_on_part in tests:
        run = runs_on_part[0]
        count = count_unnamed_test_rows(run, column)
        if count:
            raise ConfigError(
                f"the column '{brief(column)}' does not say to which group each row "
                "belongs",
                expected=f"a name for each test row of '{run.recipe.tested_split}'",
                found=f"{count:,} without one",
                where=f"the run {run.path}",
                hint="name the groups in the data set, and extract it again",
            )


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
        hint="gaam extract --keep-column NAME (--set states-from=CACHE copies the "
        "states), and train again",
    )


def find_group_like_columns(
    table_groups: TableGroups, right_N: NDArray[np.float64], label_N: NDArray[np.int64]
) -> dict[str, int]:
    """Kept columns that look like groups, and how many values they have.

    Such a column has few values, with many rows each, and accuracy varies more between
    its values than within them: an F test of a one-way analysis of variance, at 1%. The
    mean of each class is taken out before, so that a column that repeats the class does
    not look like groups.

    Args:
        table_groups: groups and kept columns of the test rows.
        right_N: share of all decoders and seeds that are right on each row.
        label_N: class of each row.
    """
    rows_C = np.maximum(1, np.bincount(label_N))
    residual_N = right_N - (np.bincount(label_N, right_N) / rows_C)[label_N]
    num_classes = len(np.unique(label_N))
    groups = table_groups.row_groups
    # of each unit: a row, or a group with the mean of its rows
    residual_U = residual_N
    if groups is not None:
        residual_U = groups.totals(residual_N[None])[0] / groups.rows_G

    num_values_by_column = {}
    for name, column_N in table_groups.columns.items():
        if name in table_groups.relations:
            continue
        column_U = _column_of_units(column_N, groups)
        if column_U is None:
            continue
        distinct_values, value_U = np.unique(column_U, return_inverse=True)
        if _varies(residual_U, value_U, num_classes):
            num_values_by_column[name] = len(distinct_values)
    return num_values_by_column


def _column_of_units(column_N: Numbers, groups: RowGroups | None) -> Numbers | None:
    """The value of a column for every unit, (U,): the rows, or groups of them.

    None for a column with several values in a group: it puts no whole groups together.
    """
    if groups is None:
        return column_N
    first_row_G = np.unique(groups.group_N, return_index=True)[1]
    value_G = column_N[first_row_G]
    splits_a_group = (value_G[groups.group_N] != column_N).any()
    return None if splits_a_group else value_G


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
