"""Which rows differ in one setting alone, or in several that are asked for together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gaam_cache.errors import ConfigError
from gaam_decoder.reports.table.rows import Row
from gaam_decoder.runs.tuning import TUNED

DEFAULT = "attn"
ALL = ("layers", "train_rows", "shots")
"""Settings that mean all of them where a recipe has none."""
Same = tuple[tuple[str, str], ...]


def axis_of(asked: str | None) -> str:
    """The settings as recipes call them, with commas between them; None: the mechanism."""
    names = [name.strip().lower().replace("-", "_") for name in (asked or DEFAULT).split(",")]
    return ",".join(dict.fromkeys(filter(None, names))) or DEFAULT


def value_of(row: Row, axis: str) -> str:
    """What a row has of the settings; of what its recipe does not name, the default."""
    return ", ".join(str(_one(row, name)) for name in axis.split(","))


def _one(row: Row, name: str) -> Any:
    if name == "attn":
        return row.attention
    if name == "head":
        return row.head
    value = row.recipe.get(name, row.runs[0].setting(name))
    return "all" if value is None and name in ALL else value


def together(rows: Sequence[Row], axis: str) -> dict[Same, list[Row]]:
    """Rows by all that they share; those of one row alone are not there.

    What was tuned of rows may differ. Rows of a fit, of shuffled labels and without a finished seed
    are of none.
    """
    names = set(axis.split(","))
    found: dict[Same, list[Row]] = {}
    for row in rows:
        if row.fitted or row.shuffled or row.chosen_mean is None:
            continue
        if row.tunings and names & set(TUNED):
            continue
        apart = {*names, *(TUNED if row.tunings else ())}
        scaled = row.score.of_sizes and row.scores.temperatures is not None
        same = {"attn": row.attention, "head": row.head, "tuned": bool(row.tunings)} | row.recipe
        same["scaled logits"] = scaled  # see ``same_scale``
        key = tuple(
            sorted((k, str(v)) for k, v in same.items() if k not in apart and v is not None)
        )
        found.setdefault(key, []).append(row)
    return {key: of for key, of in found.items() if len({value_of(row, axis) for row in of}) > 1}


def unvaried(row_lists: Sequence[Sequence[Row]], axis: str) -> ConfigError:
    """The error of an axis along which no two rows differ."""
    names = {"attn", "head"}.union(*(row.recipe for rows in row_lists for row in rows))
    there = sorted(name for name in names if any(together(rows, name) for rows in row_lists))
    every = [row for rows in row_lists for row in rows]
    if every and all(row.chosen_mean is None for row in every):
        return ConfigError(
            "no row has the score that is to be compared",
            expected="finished seeds, and a score that these classes have",
            found=f"none of {len(every)} rows",
            hint="--score names another score; gaam report without --pairs says what failed",
        )
    tuned = any(row.tunings for row in every)
    option = any(f"{axis}=" in row.attention for row in every)
    return ConfigError(
        f"no two rows differ in '{axis}' alone",
        expected=f"one of: {', '.join(name.replace('_', '-') for name in there)}"
        if there
        else "rows that differ in one setting alone",
        found=f"--pairs {axis}",
        hint="it is an option of mechanisms, whose forms --pairs attn compares"
        if option
        else "what validation chose does not vary; --all shows every candidate"
        if tuned
        else None,
    )
