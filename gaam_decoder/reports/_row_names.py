"""How the rows of a table are called: by what of them is not that of every other."""

from __future__ import annotations

from collections.abc import Sequence

from gaam_cache.messages.foreign_text import brief
from gaam_decoder.number_lists import DRAWN_BY
from gaam_decoder.reports._rows import Row

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

    The head is in it where heads differ, and always that an epoch was chosen on test, that
    the test rows are those that were learned from, or that labels were shuffled.
    """
    short = [
        brief(row.attention)
        + (f" + {brief(row.head, 60)}" if shows_head(row, rows) else "")
        + (f" {SHUFFLED}" if row.shuffled else "")
        for row in rows
    ]
    marked = [
        f"{label} select={row.select}"
        if row.select == "test" or _selects(label, short, rows) > 1
        else label
        for label, row in zip(short, rows, strict=True)
    ]
    told = [
        f"{label} {varied.replace(AT_EDGE, '').removeprefix(f'{SHUFFLED}, ')}"
        if marked.count(label) > 1 and varied
        else label
        for label, varied in zip(marked, settings(rows), strict=True)
    ]
    return [
        f"{label} test={brief(row.recipe.get('train_split', 'train'), 40)}"
        if row.on_training_rows
        else label
        for label, row in zip(told, rows, strict=True)
    ]


def _values(rows: Sequence[Row], setting: str) -> list[str]:
    """Of a setting, in the rows in which it plays a part."""
    always = setting in DRAWN_BY
    return [
        str(r.recipe.get(setting)) for r in rows if setting in r.recipe or always or not r.fitted
    ]


def _selects(label: str, labels: Sequence[str], rows: Sequence[Row]) -> int:
    """Number of selection protocols among the rows of one name."""
    return len({row.select for row, other in zip(rows, labels, strict=True) if other == label})
