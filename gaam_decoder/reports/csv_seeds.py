"""One line per mechanism and seed: for your own statistics."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import TextIO

from gaam_decoder.reports._base import Format, Table
from gaam_decoder.reports._rows import Row

FIELDS = [
    "fingerprint",
    "encoder",
    "dataset",
    "tested_on",
    "test_rows",
    "attention",
    "head",
    "select",
    "optimistic",
    "settings",
    "seed",
    "accuracy",
    "macro_f1",
    "epoch",
    "seconds",
    "failed",
]


class CsvSeeds(Format):
    """Accuracies are fractions; those of a failed seed are empty."""

    def write(self, tables: Sequence[Table], stream: TextIO) -> None:
        """Write a header and one line per seed of every row of every table."""
        writer = csv.DictWriter(stream, FIELDS, lineterminator="\n")
        writer.writeheader()
        for table in tables:
            for row, settings in zip(table.rows, table.settings(), strict=True):
                shared = {key: table.cache[key] for key in ("fingerprint", "encoder", "dataset")}
                shared |= {"tested_on": table.where, "test_rows": table.num_test_rows}
                shared |= {"attention": row.attention, "head": row.head, "select": row.select}
                shared |= {"optimistic": row.select == "test", "settings": settings}
                writer.writerows(shared | line for line in _seeds(row))


def _seeds(row: Row) -> list[dict[str, object]]:
    scores = row.scores
    accuracy = dict(zip(scores.seeds, scores.accuracy.tolist(), strict=True))
    macro_f1 = dict(zip(scores.seeds, scores.macro_f1.tolist(), strict=True))
    epochs: dict[int, int] = {}
    for run in reversed(row.runs):
        epochs |= run.epochs
    return [
        {
            "seed": seed,
            "accuracy": accuracy.get(seed),
            "macro_f1": macro_f1.get(seed),
            "epoch": epochs[seed] if row.folds == 1 else None,
            "seconds": row.seconds[seed],
            "failed": row.failed.get(seed),
        }
        for seed in row.seeds
    ]
