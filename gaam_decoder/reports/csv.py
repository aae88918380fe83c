"""One line per mechanism, for spreadsheets and data frames."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from typing import Any, TextIO

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
        """Write a header and one line per row of every table."""
        writer = csv.DictWriter(stream, FIELDS, lineterminator="\n")
        writer.writeheader()
        for table in tables:
            writer.writerows(self._lines(table))

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
                }
            )
        return lines
