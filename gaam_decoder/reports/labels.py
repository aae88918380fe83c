"""What tells the rows of a table apart: their names and settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gaam_cache.messages import brief
from gaam_decoder.number_lists import DRAWN_BY
from gaam_decoder.reports.rows import Row

SHUFFLED = "labels shuffled"
AT_EDGE = " (edge)"
UNSPELT = ("select", "allow_train_as_test", "shuffle_labels")
"""Settings that rows are marked with in words of their own."""


def settings(rows: Sequence[Row]) -> list[str]:
    """For every row the settings that not all rows share, such as ``lr=0.001``.

    A setting that a row leaves at nothing (all layers, no clipping) is not spelled out; that
    labels were shuffled always is, and what was tuned, which is marked where it is the smallest
    or largest value that was tried.
    """

    def varies(name: str) -> bool:  # in the rows in which the setting plays a part
        always = name in DRAWN_BY
        playing = [row for row in rows if name in row.recipe or always or not row.fitted]
        return len({str(row.recipe.get(name)) for row in playing}) > 1

    tuned = {name for row in rows for tuning in row.tunings for name in tuning.names}
    names = sorted({name for row in rows for name in row.recipe if name not in UNSPELT})
    varied = [name for name in names if name in tuned or varies(name)]
    found = []
    for row in rows:
        told = [name for name in varied if row.recipe.get(name) is not None]
        spelt = [
            brief(f"{name}={row.recipe[name]}") + AT_EDGE * (name in row.at_edge) for name in told
        ]
        found.append(", ".join([SHUFFLED] * row.shuffled + spelt))
    return found


def shows_head(row: Row, rows: Sequence[Row]) -> bool:
    """Whether a row is called by its head too: where those of others differ, or it is a fit."""
    return row.fitted or len({row.head for row in rows if not row.fitted}) > 1


def labels(rows: Sequence[Row]) -> list[str]:
    """For every row a name that no other row of the table has, as short as can be.

    The head is in it where heads differ, and always that an epoch was chosen on test, that the test
    rows are those that were learned from, or that labels were shuffled. Where names are so long
    that what tells them apart was cut, they are numbered.
    """
    names = [
        brief(row.attention)
        + f" + {brief(row.head, 60)}" * shows_head(row, rows)
        + f" {SHUFFLED}" * row.shuffled
        for row in rows
    ]
    selects: dict[str, set[str]] = {}
    for name, row in zip(names, rows, strict=True):
        selects.setdefault(name, set()).add(row.select)
    names = [
        name + f" select={row.select}" * (row.select == "test" or len(selects[name]) > 1)
        for name, row in zip(names, rows, strict=True)
    ]
    times, told = Counter(names), []
    for name, row, spelt in zip(names, rows, settings(rows), strict=True):
        spelt = spelt.replace(AT_EDGE, "").removeprefix(f"{SHUFFLED}, ")
        split = brief(row.recipe.get("train_split", "train"), 40)
        name += f" {spelt}" if times[name] > 1 and spelt else ""
        told.append(name + f" test={split}" * row.on_training_rows)
    return numbered(told)


def numbered(names: Sequence[str]) -> list[str]:
    """The names, those that are there several times with their place behind them."""
    times = Counter(names)
    taken = {name for name, count in times.items() if count == 1}
    found = []
    for place, name in enumerate(names, 1):
        new = f"{name} #{place}" if times[name] > 1 else name
        while times[name] > 1 and new in taken:
            new += "'"
        taken.add(new)
        found.append(new)
    return found
