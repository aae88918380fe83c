"""What a report says, apart from how it looks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TextIO

import numpy as np

from gaam_decoder import stats
from gaam_decoder.importance import Importance, importance_of
from gaam_decoder.learned import ParameterRange, learned_ranges
from gaam_decoder.reports import _learned
from gaam_decoder.runs import RunResult

SELECT_NOTES = {
    "val": "epoch chosen on a held-out part of train",
    "last": "last epoch, nothing chosen",
    "test": "epoch chosen on test: optimistic",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One mechanism under one recipe over all its seeds. Accuracies are fractions."""

    attention: str
    head: str
    select: str
    recipe: dict[str, Any]
    parameters: dict[str, int]
    accuracy: dict[int, float | None]
    """Per seed; None where the seed failed."""
    macro_f1: dict[int, float | None]
    seconds: dict[int, float]
    failed: dict[int, str]
    learned: dict[str, ParameterRange]
    """Where the learned parameters ended up, by name."""
    importance: Importance | None
    """Of every layer; None where the mechanism has no attention map."""

    @property
    def seeds(self) -> list[int]:
        """All seeds, failed ones included, sorted."""
        return sorted(self.accuracy)

    def to_dict(self) -> dict[str, Any]:
        """JSON values; statistics are over the seeds that finished."""
        accuracy = np.array([v for v in self.accuracy.values() if v is not None])
        f1 = np.array([v for v in self.macro_f1.values() if v is not None])
        finished = [self.seconds[seed] for seed in self.seeds if seed not in self.failed]
        interval = stats.t_interval(accuracy)
        return {
            "attention": self.attention,
            "head": self.head,
            "seeds": self.seeds,
            "select": self.select,
            "accuracy": {
                "mean": float(accuracy.mean()) if len(accuracy) else None,
                "std": stats.standard_deviation(accuracy),
                "ci95": list(interval) if interval else None,
                "per_seed": [self.accuracy[seed] for seed in self.seeds],
            },
            "macro_f1": {
                "mean": float(f1.mean()) if len(f1) else None,
                "std": stats.standard_deviation(f1),
            },
            "parameters": self.parameters,
            "seconds_per_seed": float(np.mean(finished)) if finished else None,
            "failed_seeds": [{"seed": s, "reason": why} for s, why in sorted(self.failed.items())],
            "learned": _learned.to_dict(self.learned),
            "importance": self.importance and self.importance.to_dict(),
            "recipe": self.recipe,
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """All rows of one cache; rows of different caches are never compared."""

    cache: dict[str, Any]
    majority_accuracy: float
    rows: tuple[Row, ...]

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        names = ("fingerprint", "encoder", "dataset", "layers", "hidden_size", "rows")
        return {
            "cache": {name: self.cache[name] for name in names},
            "rows": [row.to_dict() for row in self.rows],
            "majority_accuracy": self.majority_accuracy,
        }

    def title(self) -> str:
        """One line that says what was encoded with what."""
        rows = " + ".join(f"{n:,} {name}" for name, n in self.cache["rows"].items())
        return (
            f"{self.cache['dataset']} ({rows} rows) through {self.cache['encoder']}, "
            f"{self.cache['layers']} layers x {self.cache['hidden_size']}"
        )

    def settings(self) -> list[str]:
        """For every row the settings that not all rows share, such as ``lr=0.001``.

        A setting that a row leaves at nothing (all layers, no clipping) is not spelled out.
        """
        keys = sorted({key for row in self.rows for key in row.recipe if key != "select"})
        varied = [k for k in keys if len({str(row.recipe.get(k)) for row in self.rows}) > 1]
        return [
            ", ".join(f"{k}={row.recipe[k]}" for k in varied if row.recipe.get(k) is not None)
            for row in self.rows
        ]


def build_tables(runs: Sequence[RunResult]) -> list[Table]:
    """Group runs by cache, and runs that differ in their seeds alone into one row."""
    by_cache: dict[tuple[str, float], dict[str, list[RunResult]]] = {}
    for run in runs:
        place = (run.cache["fingerprint"], run.majority_accuracy)
        by_cache.setdefault(place, {}).setdefault(run.key, []).append(run)
    return [
        Table(
            cache=next(iter(by_key.values()))[0].cache,
            majority_accuracy=majority,
            rows=tuple(
                sorted(
                    (_row(group) for group in by_key.values()),
                    key=lambda row: (row.attention, row.head, row.select, str(row.recipe)),
                )
            ),
        )
        for (_, majority), by_key in by_cache.items()
    ]


def _row(runs: list[RunResult]) -> Row:
    accuracy: dict[int, float | None] = {}
    macro_f1: dict[int, float | None] = {}
    seconds: dict[int, float] = {}
    failed: dict[int, str] = {}
    for run in runs:
        for seed in run.seeds:
            accuracy[seed] = macro_f1[seed] = None
        accuracy |= dict(zip(run.finished, run.accuracy.tolist(), strict=True))
        macro_f1 |= dict(zip(run.finished, run.macro_f1.tolist(), strict=True))
        seconds |= run.seconds
        failed |= run.failed
    first = runs[0]
    return Row(
        attention=first.attention,
        head=first.head,
        select=first.select,
        recipe=first.recipe,
        parameters=first.parameters,
        accuracy=accuracy,
        macro_f1=macro_f1,
        seconds=seconds,
        failed=failed,
        learned=learned_ranges(runs),
        importance=importance_of(runs),
    )


class Format(ABC):
    """One way to show tables."""

    @abstractmethod
    def write(self, tables: Sequence[Table], stream: TextIO) -> None:
        """Write all tables to ``stream``."""


def columns(table: Table) -> tuple[list[str], list[list[str]]]:
    """A table as text for people: header and one list of cells per row; accuracies in percent."""
    header = ["attention", "head", "accuracy %", "sd", "95% CI", "macro-F1 %"]
    header += ["parameters (attn / total)", "s/seed", "seeds", "select"]
    lines = []
    for row in table.rows:
        d = row.to_dict()
        interval = d["accuracy"]["ci95"]
        seeds = str(len(row.seeds))
        if row.failed:
            seeds += f" ({len(row.failed)} failed)"
        lines.append(
            [
                row.attention,
                row.head,
                _percent(d["accuracy"]["mean"]),
                _percent(d["accuracy"]["std"]),
                f"{_percent(interval[0])} to {_percent(interval[1])}" if interval else "-",
                _percent(d["macro_f1"]["mean"]),
                f"{row.parameters['attention']:,} / {row.parameters['total']:,}",
                "-" if d["seconds_per_seed"] is None else f"{d['seconds_per_seed']:.2f}",
                seeds,
                row.select,
            ]
        )
    settings = table.settings()
    if any(settings):
        header.append("settings")
        for line, text in zip(lines, settings, strict=True):
            line.append(text)
    return header, lines


def notes(table: Table) -> list[str]:
    """What has to stand below a table for it to be read rightly."""
    lines = [f"majority class alone: {_percent(table.majority_accuracy)}%"]
    lines += [f"select {s}: {SELECT_NOTES[s]}" for s in sorted({r.select for r in table.rows})]
    lines.append("sd and interval (Student's t) are over seeds; the test rows are taken as given")
    for row in table.rows:
        lines += [
            f"{row.attention} seed {s} failed: {why}" for s, why in sorted(row.failed.items())
        ]
    if any(len(row.seeds) - len(row.failed) < 2 for row in table.rows):
        lines.append("a row with one seed has no interval: train more with --seeds")
    lines.append(f"cache {table.cache['fingerprint'][:12]}")
    return lines


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"
