"""In which order the rows of a table stand, and which of many are shown.

All rows stay in the table: statistics, warnings and what Holm corrects for are of all of them,
whatever is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from gaam_cache.errors import ConfigError
from gaam_cache.messages import did_you_mean
from gaam_decoder.reports.comparisons.against_baseline import counterpart
from gaam_decoder.reports.table.base import Table

_Key = Callable[[Table, int], Any]


def _last(value: float | None) -> float:
    return float("-inf") if value is None else value


def _score(table: Table, place: int) -> float:
    mean = table.rows[place].chosen_mean
    return float("inf") if mean is None else _sign(table) * mean


def _difference(table: Table, place: int) -> float:
    found = table.comparisons[place]
    return float("inf") if found is None else _sign(table) * found.claim.difference


def _sign(table: Table) -> int:
    """What puts the best first."""
    return -1 if table.unit.score.larger_is_better else 1


def _taken(table: Table, place: int) -> float:
    row = table.rows[place]
    taken = [row.seconds[seed] for seed in row.scores.seeds]
    return sum(taken) / len(taken) if taken else float("inf")


SORTS: dict[str, _Key] = {
    "score": _score,
    "accuracy": lambda table, place: -_last(table.rows[place].mean),
    "difference": _difference,
    "name": lambda table, place: 0,
    "parameters": lambda table, place: table.rows[place].parameters["total"],
    "seconds": _taken,
}
"""What ``--sort`` takes: the best by what is compared or by accuracy, the largest difference, the
fewest or the fastest first; what is equal, and ``name``, in the order of the names."""


def check(sort: str | None, top: int | None) -> None:
    """Whether these can be meant.

    Raises:
        ConfigError: they cannot.
    """
    if sort is not None and sort not in SORTS:
        raise ConfigError(
            f"--sort knows no '{sort}'",
            expected=f"one of: {', '.join(SORTS)}",
            found=sort,
            hint=did_you_mean(sort, SORTS),
        )
    if top is not None and (not isinstance(top, int) or isinstance(top, bool) or top < 1):
        raise ConfigError(
            "--top is out of range", expected="a number of rows from 1 on", found=str(top)
        )


def laid_out(table: Table, sort: str | None, top: int | None) -> Table:
    """The table with its rows in order, and ``shown`` where no more than ``top`` are."""
    if sort is not None and table.rows:
        table = _ordered(table, _ranked(table, sort))
    if top is None:
        return table
    return replace(table, shown=leading(table, top, sort or "score"))


def leading(table: Table, most: int, sort: str = "score") -> tuple[int, ...]:
    """Places of the first ``most`` rows, and of all that they are compared with, in order.

    The baseline of a row that is shown stays beside it.
    """
    ranked = _ranked(table, "score" if sort == "name" else sort)
    kept = ranked[:most]
    return tuple(sorted({*kept, *_baselines(table, kept)}))


def left_out(table: Table) -> str:
    """What is said of the rows that are not shown; '' where all are."""
    rest = len(table.rows) - len(table.places)
    if not rest:
        return ""
    rows = "row is" if rest == 1 else "rows are"
    return (
        f"{rest} of {len(table.rows)} {rows} not shown, but counted in all that is said; what is "
        "shown because its test score is good is better by luck too"
    )


def _ranked(table: Table, sort: str) -> list[int]:
    return sorted(range(len(table.rows)), key=lambda place: SORTS[sort](table, place))


def _baselines(table: Table, places: Sequence[int]) -> set[int]:
    """The rows of the baseline that these are compared with."""
    if table.baseline is None:
        return set()
    found = {
        id(counterpart(table.rows[place], table.rows, table.baseline))
        for place in places
        if table.comparisons[place] is not None
    }
    return {place for place, row in enumerate(table.rows) if id(row) in found}


def _ordered(table: Table, places: Sequence[int]) -> Table:
    """The table with its rows in this order, and all that is one for each row."""
    return replace(
        table,
        rows=tuple(table.rows[place] for place in places),
        comparisons=tuple(table.comparisons[place] for place in places),
        against_probe=tuple(table.against_probe[place] for place in places),
        unchosen=tuple(sorted(places.index(place) for place in table.unchosen)),
    )
