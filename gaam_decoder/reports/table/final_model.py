"""A final model as reports show it, and what evaluated runs of its recipe let expect of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from gaam_cache.messages import brief
from gaam_decoder.number_lists import spell_numbers
from gaam_decoder.reports.writing.numbers import percent
from gaam_decoder.runs.result import RunResult

NAMED = 3
"""Evaluated rows that are named for one final model; more are counted."""
LONGEST_REASON = 300


class Expected(NamedTuple):
    """What an evaluated row of the same recipe came to."""

    where: str
    """Which rows were tested, in words."""
    seeds: tuple[int, ...]
    """That finished."""
    mean: float | None
    """Accuracy, a fraction; None if none did."""
    chosen: tuple[str, ...] = ()
    """What was tuned, where not every fold chose what the final model has: of each what it did."""

    def __str__(self) -> str:
        """For people."""
        found = "no seed finished" if self.mean is None else f"{percent(self.mean)}%"
        line = f"{found} on {brief(self.where)}"
        if self.chosen:
            line += f", each of which chose for itself ({brief('; '.join(self.chosen))}), so that "
            line += "it is of the way to choose and not of these numbers"
        return line

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        found = {"tested_on": self.where, "seeds": list(self.seeds), "accuracy_mean": self.mean}
        return found | {"chosen_by_fold": list(self.chosen)}


@dataclass(frozen=True, kw_only=True, slots=True)
class FinalModel:
    """A decoder that learned from all training rows, or all that it was given, over its seeds."""

    attention: str
    head: str
    select: str
    recipe: dict[str, Any]
    parameters: dict[str, int]
    seeds: tuple[int, ...]
    """All of them, failed ones included, sorted."""
    failed: dict[int, str]
    epochs: dict[int, int]
    seconds: dict[int, float]
    settings: str
    """What tells it from other final models, and from rows of other recipes."""
    expected: tuple[Expected, ...]
    """Empty where no run of the same recipe was evaluated."""
    runs: tuple[RunResult, ...] = field(repr=False)

    @property
    def seconds_per_seed(self) -> float | None:
        """Mean over the seeds that finished."""
        taken = [self.seconds[seed] for seed in self.seeds if seed not in self.failed]
        return float(np.mean(taken)) if taken else None

    @property
    def train_split(self) -> str:
        """Whose rows are learned from and choose."""
        return str(self.recipe.get("train_split", "train"))

    @property
    def train_rows(self) -> int:
        """How many of these it was given."""
        return sum(self.runs[0].drawn.values()) or self._all_rows

    @property
    def _all_rows(self) -> int:
        return int(self.runs[0].cache["rows"][self.train_split])

    @property
    def label(self) -> str:
        """Decoder, and what tells it from others."""
        name = f"{brief(self.attention)} + {brief(self.head, 60)}"
        return name + (f" ({self.settings})" if self.settings else "")

    def in_words(self) -> str:
        """One line."""
        count, split = f"all {self._all_rows:,} rows", f"'{brief(self.train_split, 40)}'"
        if self.runs[0].drawn:
            count = f"{self.train_rows:,} of {count}"
        rows = f"{count} of {split}"
        rows += ", a part of them held out to choose" if self.select == "val" else ""
        line = f"final model {self.label}, {_seeds(self.seeds)}: not evaluated; it learned from "
        line += f"{rows}; {self._failures() if self.failed else ''}"
        if not self.expected:
            return line + "no run of the same recipe was evaluated, so nothing says how good it is"
        found = ", ".join(map(str, self.expected[:NAMED]))
        more = len(self.expected) - NAMED
        found += f", and {more} more" if more > 0 else ""
        return line + f"evaluated runs of the same recipe have {found}"

    def _failures(self) -> str:
        why = brief(self.failed[min(self.failed)], LONGEST_REASON)
        if len(self.failed) == len(self.seeds):
            return f"all its seeds failed: {why}; "
        return f"seed {spell_numbers(sorted(self.failed))} failed: {why}; "

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "attention": self.attention,
            "head": self.head,
            "evaluated": False,
            "seeds": list(self.seeds),
            "select": self.select,
            "train_split": self.train_split,
            "train_rows": self.train_rows,
            "expected": [found.to_dict() for found in self.expected],
            "parameters": self.parameters,
            "seconds": [self.seconds[seed] for seed in self.seeds],
            "failed_seeds": [{"seed": s, "reason": why} for s, why in sorted(self.failed.items())],
            "recipe": self.recipe,
            "runs": [{"path": run.path.name, "key": run.key} for run in self.runs],
        }


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' * (len(seeds) > 1)} {spell_numbers(seeds)}"
