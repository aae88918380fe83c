"""What of a row may be an axis: every number of its recipe and of its mechanism's options."""

from __future__ import annotations

import re
from typing import Any

from gaam_decoder.number_lists import parse_layers
from gaam_decoder.reports.table.rows import Row

NO_AXES = ("split_seed", "fold", "repeats", "val_fraction", "shard_rows")
"""Numbers of a recipe that are no quantity, or decide which rows are which."""
LAYER, LAYERS = "encoder layer", "number of layers"
_OPTION = re.compile(r"([a-z_]+)=(-?[0-9.]+(?:e-?[0-9]+)?)", re.ASCII)


def usable(row: Row) -> bool:
    """Whether a row is of any axis: some seed finished, and labels were not shuffled."""
    return bool(row.scores.seeds) and not row.shuffled


def axes_of(row: Row) -> tuple[dict[str, float], tuple[Any, ...]]:
    """What of a row may be an axis, and all the rest that has to be the same.

    The rest starts with the mechanism, its options that are no numbers, and the head.
    """
    tuned = {name for tuning in row.tunings for name in tuning.names}
    numbers: dict[str, float] = {}
    rest = []
    for name, value in sorted(row.recipe.items()):
        if name == "layers" and value:
            layers = parse_layers(value)
            numbers[LAYER if len(layers) == 1 else LAYERS] = (
                layers[0] if len(layers) == 1 else len(layers)
            )
        elif name in tuned:
            continue
        elif _is_number(value) and name not in NO_AXES:
            numbers[name] = float(value)
        elif value is not None:
            rest.append((name, str(value)))
    if count := _all_rows(row):
        numbers["train_rows"] = count
    mechanism, _, options = row.attention.partition(":")
    numbers |= {f"{mechanism} {name}": float(value) for name, value in _OPTION.findall(options)}
    words = ",".join(part for part in options.split(",") if not _OPTION.fullmatch(part))
    return numbers, (mechanism, words, row.head, *rest)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _all_rows(row: Row) -> int | None:
    """How many rows one learned from that took all; None over folds."""
    if row.folds > 1 or row.recipe.get("train_rows") or row.recipe.get("shots"):
        return None
    run = row.runs[0]
    count: int | None = run.cache["rows"].get(run.recipe["train_split"])
    return count
