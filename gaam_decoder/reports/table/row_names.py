"""How the rows of a table are called: by what of them is not that of every other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from gaam_cache.messages import brief
from gaam_decoder.number_lists import DRAWN_BY
from gaam_decoder.reports.table.rows import Row

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
    keys = sorted({key for row in rows for key in row.recipe if key not in UNSPELT})
    tuned = {name for row in rows for tuning in row.tunings for name in tuning.names}
    varied = [k for k in keys if k in tuned or len(set(_values(rows, k))) > 1]
    return [
        ", ".join(
            [SHUFFLED] * row.shuffled
            + [
                brief(f"{k}={row.recipe[k]}") + (AT_EDGE if k in row.at_edge else "")
                for k in varied
                if row.recipe.get(k) is not None
            ]
        )
        for row in rows
    ]


def shows_head(row: Row, rows: Sequence[Row]) -> bool:
    """Whether a row is called by its head too: where those of others differ, or it is a fit."""
    return row.fitted or len({row.head for row in rows if not row.fitted}) > 1


def labels(rows: Sequence[Row]) -> list[str]:
    """For every row a name that no other row of the table has, as short as can be.

    The head is in it where heads differ, and always that an epoch was chosen on test, that the test
    rows are those that were learned from, or that labels were shuffled. Where names are so long
    that what tells them apart was cut, they are numbered.
    """
    heads = len({row.head for row in rows if not row.fitted}) > 1
    short = [
        brief(row.attention)
        + (f" + {brief(row.head, 60)}" if heads or row.fitted else "")
        + (f" {SHUFFLED}" if row.shuffled else "")
        for row in rows
    ]
    selects: dict[str, set[str]] = {}
    for label, row in zip(short, rows, strict=True):
        selects.setdefault(label, set()).add(row.select)
    marked = [
        f"{label} select={row.select}" if row.select == "test" or len(selects[label]) > 1 else label
        for label, row in zip(short, rows, strict=True)
    ]
    times = Counter(marked)
    told = [
        f"{label} {spelt.replace(AT_EDGE, '').removeprefix(f'{SHUFFLED}, ')}"
        if times[label] > 1 and spelt
        else label
        for label, spelt in zip(marked, settings(rows), strict=True)
    ]
    return numbered(
        [
            f"{label} test={brief(row.recipe.get('train_split', 'train'), 40)}"
            if row.on_training_rows
            else label
            for label, row in zip(told, rows, strict=True)
        ]
    )


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


def _values(rows: Sequence[Row], setting: str) -> list[str]:
    """Of a setting, in the rows in which it plays a part."""
    always = setting in DRAWN_BY
    return [
        str(r.recipe.get(setting)) for r in rows if setting in r.recipe or always or not r.fitted
    ]
