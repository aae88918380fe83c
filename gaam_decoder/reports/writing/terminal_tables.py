"""The tables that a terminal shows: which columns, and cells that are short enough."""

from __future__ import annotations

from gaam_cache.messages import brief
from gaam_decoder.reports.table.base import Table
from gaam_decoder.reports.table.rows import Row
from gaam_decoder.reports.writing import sheets
from gaam_decoder.reports.writing.drawn import short
from gaam_decoder.reports.writing.sheets import Sheet
from gaam_decoder.reports.writing.unit import DEFAULT

LONGEST_NAME = 20
LONGEST_PART = 60
"""Characters of each line in the column of decoders, which it may fold."""
ACCURACY = {
    "accuracy %": "acc %",
    "sd": "sd",
    "95% CI seeds": "95% CI\nseeds",
    "95% CI + rows": "95% CI\n+ rows",
    "macro-F1 %": "F1 %",
    "parameters (attn / total)": "params\nattn/all",
    "s/seed": "s per\nseed",
    "seeds": "seeds",
}
"""Columns that are shown, and headers short enough for them."""
DIFFERENCE = {
    "difference": "diff",
    "95% CI + rows": "95% CI\n+ rows",
    "95% CI on these rows": "95% CI\nthese rows",
    "p Holm": "p\nHolm",
    "verdict": "verdict",
    "p on these rows": "p these\nrows",
    "pairs": "pairs",
}


def accuracies(table: Table) -> tuple[list[str], list[list[str]]]:
    """Headers and rows of cells, the decoder not among the headers."""
    named = names(table)
    sheet = sheets.accuracies(table)
    columns = _columns(table)
    shown = columns | ({"published %": "publ.\n%"} if "published %" in sheet.header else {})
    if "published %" in shown:
        shown.pop("s/seed", None)  # what others found is of more interest than the time
    rows = []
    for place, cells in zip(table.places, sheet.dicts(), strict=True):
        row = table.rows[place]
        counts = (row.parameters["attention"], row.parameters["total"])
        cells["parameters (attn / total)"] = "/".join(map(short, counts))
        if row.failed:
            cells["seeds"] = f"{len(row.scores.seeds)}/{len(row.seeds)}"
        if "published %" in cells:
            cells["published %"] = cells["published %"].partition(" ")[0]
        rows.append([named[place], *(cells[name] for name in shown)])
    return list(shown.values()), rows


def _columns(table: Table) -> dict[str, str]:
    """Columns of the accuracies, or of the score that stands in their place."""
    if table.score == DEFAULT:
        return ACCURACY
    column = table.unit.column
    instead = {"accuracy %": (column, column.replace(" ", "\n", 1))}
    if table.score == "macro-f1":
        instead |= {"macro-F1 %": ("accuracy %", "acc %")}
    return dict(instead.get(name, (name, short)) for name, short in ACCURACY.items())


def differences(table: Table, sheet: Sheet) -> tuple[list[str], list[list[str]]]:
    """The same of differences, which ``sheet`` has in all columns."""
    named = names(table)
    labels = [named[place] for place in table.places if table.comparisons[place] is not None]
    shown = DIFFERENCE | ({"p training": "p\ntraining"} if "p training" in sheet.header else {})
    rows = []
    for label, cells in zip(labels, sheet.dicts(), strict=True):
        rows.append([label, *(cells[name] for name in shown)])
    return list(shown.values()), rows


def names(table: Table) -> list[str]:
    """Names of all rows, over several lines."""
    return [
        _label(row, table, settings)
        for row, settings in zip(table.rows, table.settings(), strict=True)
    ]


def _label(row: Row, table: Table, settings: str) -> str:
    """Name of a decoder, and below it whatever tells it from the others of the table."""
    name, _, options = row.attention.partition(":")
    below = [*options.split(","), *settings.split(", ")]
    if row.on_training_rows:
        below += ["tested on its own", "training rows"]
    if row.select == "test":
        below.append("select=test:")
        below.append("optimistic")
    elif len({r.select for r in table.rows}) > 1:
        below.append(f"select={row.select}")
    if table.shows_head(row):
        if len(f"{name} + {row.head}") <= LONGEST_NAME:
            name = f"{name} + {row.head}"
        else:
            below.insert(0, f"+ {row.head}")
    parts = [brief(part, LONGEST_PART) for part in [name, *below] if part]
    return "\n  ".join(parts)
