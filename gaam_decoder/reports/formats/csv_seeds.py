"""One line per mechanism and seed: for your own statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, TextIO

from gaam_decoder.reports.table.base import Format, Table
from gaam_decoder.reports.table.final_model import FinalModel
from gaam_decoder.reports.table.rows import Row
from gaam_decoder.reports.writing.spreadsheet import left_out, write_lines
from gaam_decoder.reports.writing.unit import all_scores

OTHERS = [name for name in all_scores() if name not in ("accuracy", "macro-f1")]
"""Scores that stand at the end."""
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
    "tested_on_training_rows",
    "evaluated",
    "settings",
    "seed",
    "accuracy",
    "macro_f1",
    "epoch",
    "seconds",
    "failed",
    "left_out",
    *(name.replace("-", "_") for name in OTHERS),
]


class CsvSeeds(Format):
    """Accuracies are fractions; those of a failed seed and of a final model are empty.

    Every line says how many runs were left out of the report, and by what.
    """

    says_selection: ClassVar[bool] = False

    def write(self, tables: Sequence[Table], stream: TextIO) -> None:
        """Write a header and one line per seed of every row of every table."""
        lines: list[dict[str, object]] = []
        for table in tables:
            spelt = table.settings()
            for row, settings in ((table.rows[place], spelt[place]) for place in table.places):
                shared = {key: table.cache[key] for key in ("fingerprint", "encoder", "dataset")}
                shared |= {"left_out": left_out(table)}
                shared |= {"tested_on": table.where, "test_rows": table.num_test_rows}
                shared |= {"attention": row.attention, "head": row.head, "select": row.select}
                shared |= {"optimistic": row.optimistic, "settings": settings}
                shared |= {"tested_on_training_rows": row.on_training_rows, "evaluated": True}
                lines += [shared | line for line in _seeds(row)]
                if table.temperature:
                    by = row.scores.temperatures
                    mean_S = [] if by is None else by.value_SP.mean(1).tolist()
                    mean = dict(zip(row.scores.seeds, mean_S, strict=by is not None))
                    for line, seed in zip(lines[-len(row.seeds) :], row.seeds, strict=True):
                        line["temperature"] = mean.get(seed)
            for final in table.finals:
                shared = {key: table.cache[key] for key in ("fingerprint", "encoder", "dataset")}
                shared |= {"left_out": left_out(table)}
                names = ("attention", "head", "select", "settings")
                shared |= {name: getattr(final, name) for name in names} | {"evaluated": False}
                lines += [shared | line for line in _seeds_of_final(final)]
        further = ["temperature"] if any("temperature" in line for line in lines) else []
        write_lines(stream, [*FIELDS, *further], lines)


def _seeds_of_final(final: FinalModel) -> list[dict[str, object]]:
    return [
        {
            "seed": seed,
            "epoch": final.epochs[seed],
            "seconds": final.seconds[seed],
            "failed": final.failed.get(seed),
        }
        for seed in final.seeds
    ]


def _seeds(row: Row) -> list[dict[str, object]]:
    scores = row.scores
    accuracy = dict(zip(scores.seeds, scores.accuracy.tolist(), strict=True))
    macro_f1 = dict(zip(scores.seeds, scores.macro_f1.tolist(), strict=True))
    every = {
        name: dict(zip(scores.seeds, scores.every[name].tolist(), strict=True))
        for name in OTHERS
        if name in scores.every
    }
    return [
        {
            "seed": seed,
            "accuracy": accuracy.get(seed),
            "macro_f1": macro_f1.get(seed),
            "epoch": row.epochs[seed] if row.folds == 1 else None,
            "seconds": row.seconds[seed],
            "failed": row.failed.get(seed),
            **{name.replace("-", "_"): of.get(seed) for name, of in every.items()},
        }
        for seed in row.seeds
    ]
