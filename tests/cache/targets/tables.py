"""Tables of rows with labels, and the rows that gaam reads of them."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from gaam_cache.config import ExtractConfig
from gaam_cache.sources import Rows, find_source

WORDS = [
    "red",
    "green",
    "blue",
    "amber",
    "pink",
    "grey",
    "white",
    "black",
    "brown",
    "gold",
]


def texts_of(num_rows: int, name: str) -> list[str]:
    """Distinct texts."""
    return [f"{name} {WORDS[row % 10]} {WORDS[row // 10]}" for row in range(num_rows)]


def write_table(
    path: Path, columns: Mapping[str, Sequence[Any] | NDArray[Any]]
) -> None:
    """Write texts beside these columns, as CSV or as JSON lines."""
    num_rows = len(next(iter(columns.values())))
    records = [
        {**dict(zip(columns, values, strict=True)), "text": text}
        for *values, text in zip(
            *columns.values(), texts_of(num_rows, path.stem), strict=True
        )
    ]
    if path.suffix == ".jsonl":
        path.write_text("\n".join(map(json.dumps, records)))
        return
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [*columns, "text"])
        writer.writeheader()
        writer.writerows(records)


def read_rows(file: Path, **options: Any) -> Rows:
    """The rows of the only split in a table."""
    config = ExtractConfig(dataset=str(file), splits=("train",), **options)
    return find_source(config.dataset).read(config, "train")
