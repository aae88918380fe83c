"""One line per mechanism, for spreadsheets and data frames."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import Any, TextIO

from gaam_decoder.reports import _learned
from gaam_decoder.reports._base import Format, Table

FIELDS = [
    "fingerprint",
    "encoder",
    "dataset",
    "attention",
    "head",
    "select",
    "seeds",
    "failed_seeds",
    "accuracy_mean",
    "accuracy_std",
    "accuracy_ci95_low",
    "accuracy_ci95_high",
    "macro_f1_mean",
    "macro_f1_std",
    "parameters_attention",
    "parameters_total",
    "seconds_per_seed",
    "majority_accuracy",
    "settings",
]


class Csv(Format):
    """Accuracies are fractions; a value that does not exist is empty."""

    def write(self, tables: Sequence[Table], stream: TextIO) -> None:
        """Write a header and one line per row of every table.

        Behind the fixed columns come four for every parameter that any mechanism learns.
        """
        lines = [line for table in tables for line in self._lines(table)]
        learned = dict.fromkeys(name for line in lines for name in line if name not in FIELDS)
        writer = csv.DictWriter(stream, [*FIELDS, *learned], lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)

    def _lines(self, table: Table) -> list[dict[str, Any]]:
        lines = []
        for row, settings in zip(table.to_dict()["rows"], table.settings(), strict=True):
            low, high = row["accuracy"]["ci95"] or (None, None)
            lines.append(
                {
                    **{key: table.cache[key] for key in ("fingerprint", "encoder", "dataset")},
                    **{key: row[key] for key in ("attention", "head", "select")},
                    "seeds": len(row["seeds"]),
                    "failed_seeds": len(row["failed_seeds"]),
                    "accuracy_mean": row["accuracy"]["mean"],
                    "accuracy_std": row["accuracy"]["std"],
                    "accuracy_ci95_low": low,
                    "accuracy_ci95_high": high,
                    "macro_f1_mean": row["macro_f1"]["mean"],
                    "macro_f1_std": row["macro_f1"]["std"],
                    "parameters_attention": row["parameters"]["attention"],
                    "parameters_total": row["parameters"]["total"],
                    "seconds_per_seed": row["seconds_per_seed"],
                    "majority_accuracy": table.majority_accuracy,
                    "settings": settings,
                    **_learned.flat(row),
                }
            )
        return lines
