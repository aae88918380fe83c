"""Which test rows of a table belong together, and which columns look as if they said so.

N test rows; of cross-validations that are repeated, every row once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import fdtrc

from gaam_cache.common.errors import ConfigError
from gaam_cache.common.messages import brief
from gaam_decoder.runs.groups import (
    EQUAL_ROWS,
    GROUPS_FILE,
    names_in_force,
    numbers_of_tests,
)
from gaam_decoder.runs.result import RunResult
from gaam_decoder.stats.groups import RowGroups, joined, row_groups

ROWS_EACH = 5  # of the values of a column that looks like groups, on average
OTHERS = {EQUAL_ROWS, GROUPS_FILE}  # relations that are no kept columns
SURE = 0.01  # level of the test that says so
Numbers = NDArray[np.int32]
Tests = Sequence[
    Sequence[RunResult]
]  # of every part of the test rows, all runs that have it


@dataclass(frozen=True, kw_only=True, eq=False)
class TableGroups:
    """What is known of groups of the test rows of a table."""

    names: tuple[
        str, ...
    ]  # relations that put rows together; empty where rows are the unit
    groups: (
        RowGroups | None
    )  # those that any of them makes; None where rows are the unit
    unknown: tuple[
        str, ...
    ]  # relations that hold, but neither run nor cache has the numbers
    columns: dict[str, Numbers]  # the recorded kept columns, each (N,)

    def in_words(self) -> str:
        """Such as ``12 groups of 'who'``; empty where rows are the unit."""
        if self.groups is None:
            return ""
        count = len(self.groups)
        names = " and ".join(map(in_words, self.names))
        return f"{count:,} group{'s' if count != 1 else ''} of {names}"


def in_words(name: str) -> str:
    """What a relation is called: a column in quotes."""
    return name if name in OTHERS else f"'{brief(name, 40)}'"


def table_groups(
    tests: Tests, of_cache: Sequence[RunResult], repeats: int, asked: str | None
) -> TableGroups:
    """Groups of the test rows of a table: of all that says that rows belong together.

    Rows that one relation puts together belong together, whatever another says: a finer one never
    makes a test of more groups.

    Args:
        tests: the runs of every part of the test rows, in order.
        of_cache: all runs on the same cache, those that filters left out too: what a column says of
            their rows holds for these, so that no filter makes a test of more groups.
        repeats: how often every row is among them.
        asked: a kept column that a report was asked to take for groups, too.

    Raises:
        ConfigError: nobody has the column that was asked for.
    """
    order_N = None
    if repeats > 1:
        row_N = np.concatenate([runs[0].test_rows for runs in tests])
        order_N = np.argsort(row_N, kind="stable")[::repeats]
    names = {name for runs in tests for run in runs for name in names_in_force(run)}
    names |= {name for run in of_cache for name in names_in_force(run)} - {GROUPS_FILE}
    names |= {asked} if asked is not None else set()
    there = [{name for run in runs for name in run.same} for runs in tests]
    recorded = set.intersection(*there)
    numbers = {
        name: _numbers(tests, name, order_N)
        for name in sorted(
            names | recorded - OTHERS, key=lambda name: (name in OTHERS, name)
        )
    }
    if asked is not None and numbers[asked] is None:
        raise _no_column(asked, tests[0][0])
    together = {
        name: number_N
        for name, number_N in numbers.items()
        if name in names
        and number_N is not None
        and len(np.unique(number_N)) < len(number_N)
    }
    known = {
        name: number_N for name, number_N in numbers.items() if number_N is not None
    }
    return TableGroups(
        names=tuple(together),
        groups=row_groups(joined([*together.values()])) if together else None,
        unknown=tuple(sorted(name for name in names if numbers[name] is None)),
        columns={name: known[name] for name in known if name in recorded},
    )


def _numbers(
    tests: Tests, name: str, order_N: NDArray[np.int64] | None
) -> Numbers | None:
    parts = []
    for runs in tests:
        run = next((run for run in runs if name in run.same), runs[0])
        number_N = numbers_of_tests(run, name)
        if number_N is None:
            return None
        parts.append(number_N)
    number_N = np.concatenate(parts)
    return number_N if order_N is None else number_N[order_N]


def _no_column(asked: str, run: RunResult) -> ConfigError:
    """Why the column that was asked for says nothing of the test rows."""
    of_cache = run.cache.get("plan", {}).get("columns", {})
    kept = sorted({*run.same} - OTHERS | {*of_cache})
    if asked in kept:
        return ConfigError(
            f"the runs do not hold the column '{brief(asked)}', and their cache is gone",
            expected=f"the cache of the runs, where it was: {brief(run.cache['path'], 200)}",
            where=f"the run {run.path}",
            hint="move the cache back, or train the runs again: they hold kept columns now",
        )
    return ConfigError(
        f"--groups '{brief(asked)}' is no kept column",
        expected=f"one of: {', '.join(map(brief, kept))}"
        if kept
        else "a cache that has some",
        where=f"the run {run.path}",
        hint="gaam extract --keep-column NAME",
    )


def columns_like_groups(
    known: TableGroups, right_N: NDArray[np.float64], label_N: NDArray[np.int64]
) -> dict[str, int]:
    """Kept columns that look like groups, and how many values they have.

    Columns of few values, with many rows each, between which accuracy varies more than within
    them: an F test of a one-way analysis of variance, at 1%. What classes differ in is taken out
    before: a column that is the class, or part of its name, says nothing of groups. Where groups
    are the unit, their means are what varies, and a column that parts one of them is none.

    Args:
        known: groups and kept columns of the test rows.
        right_N: share of all decoders and seeds that are right on each row.
        label_N: class of each row.
    """
    rows_C = np.maximum(1, np.bincount(label_N))
    left_N = right_N - (np.bincount(label_N, right_N) / rows_C)[label_N]
    classes = len(np.unique(label_N))
    groups, alike = known.groups, {}
    for name, number_N in known.columns.items():
        value_U, number_U = left_N, number_N
        if name in known.names:
            continue
        if groups is not None:
            first_G = np.unique(groups.group_N, return_index=True)[1]
            value_U = groups.totals(left_N[None])[0] / groups.rows_G
            number_U = number_N[first_G]
            if (number_U[groups.group_N] != number_N).any():
                continue
        if _varies(value_U, np.unique(number_U, return_inverse=True)[1], classes):
            alike[name] = len(np.unique(number_U))
    return alike


def _varies(
    value_U: NDArray[np.float64], group_U: NDArray[np.int64], classes: int
) -> bool:
    """Whether values vary more between groups than within them."""
    size_G = np.bincount(group_U)
    between, within = len(size_G) - 1, len(value_U) - len(size_G) - classes + 1
    if between < 1 or within < 1 or len(value_U) < ROWS_EACH * len(size_G):
        return False
    mean_G = np.bincount(group_U, value_U) / size_G
    inside = float(np.sum((value_U - mean_G[group_U]) ** 2)) / within
    outside = float(np.sum(size_G * (mean_G - value_U.mean()) ** 2)) / between
    if outside < 1e-12:  # what rounding leaves
        return False
    return inside < 1e-12 or float(fdtrc(between, within, outside / inside)) < SURE
