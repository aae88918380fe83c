"""What a prediction says, for people and as JSON; and what is said of every row of a file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gaam_cache.messages import brief
from gaam_decoder.use.predictor import Predictions

LONGEST = 60
"""Characters of a text, or of a label, on a line."""


def result_names(top: int, prefix: str = "") -> list[str]:
    """Names of what is said of a row: predicted, probability, agreement, predicted_2, ..."""
    more = [
        f"{name}_{place}" for place in range(2, top + 1) for name in ("predicted", "probability")
    ]
    return [prefix + name for name in ("predicted", "probability", "agreement", *more)]


def results(found: Predictions, top: int) -> list[list[Any]]:
    """What is said of every row, in the order of ``result_names``."""
    number_NK, likely_NK = found.top(top)
    rows = zip(number_NK.tolist(), likely_NK.tolist(), found.agreement_N.tolist(), strict=True)
    lines: list[list[Any]] = []
    for numbers, likely, agreement in rows:
        named = [(found.class_names[number], p) for number, p in zip(numbers, likely, strict=True)]
        lines.append([*named[0], agreement, *(value for pair in named[1:] for value in pair)])
    return lines


@dataclass(frozen=True, slots=True)
class Labelled:
    """Texts and what is said of them."""

    texts: Sequence[str]
    found: Predictions
    num_seeds: int
    """That were averaged."""
    top: int
    """Classes that are named."""
    temperatures: Sequence[float] = ()
    """Of the seeds; empty: none."""

    def to_dict(self) -> list[dict[str, Any]]:
        """A JSON value: text, predicted, probability, agreement, ... of each."""
        names = ["text", *result_names(self.top)]
        rows = zip(self.texts, results(self.found, self.top), strict=True)
        return [dict(zip(names, [text, *row], strict=True)) for text, row in rows]

    def in_words(self) -> str:
        """Every text, and a line below it for every class that is named."""
        lines = []
        for row in self.to_dict():
            lines.append(brief(row["text"], LONGEST))
            for place in range(1, self.top + 1):
                end = "" if place == 1 else f"_{place}"
                label = brief(row[f"predicted{end}"], LONGEST)
                line = f"  {row[f'probability{end}']:7.2%}  {label}"
                if place == 1 and self.num_seeds > 1:
                    agreeing = round(row["agreement"] * self.num_seeds)
                    line += f"  ({agreeing} of {self.num_seeds} seeds)"
                lines.append(line)
        if self.temperatures:
            lines.append(f"probabilities: {averaged(self.num_seeds, self.temperatures)}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Written:
    """A file of results."""

    out: Path | None
    """Where it is; None: it went to stdout."""
    rows: int
    empty: int
    """Rows of which nothing was to be encoded: their results are empty."""
    num_seeds: int
    temperatures: Sequence[float] = ()

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "out": None if self.out is None else str(self.out.absolute()),
            "rows": self.rows,
            "empty": self.empty,
            "seeds": self.num_seeds,
            **({"temperatures": list(self.temperatures)} if self.temperatures else {}),
        }

    def in_words(self) -> str:
        """One line."""
        seeds = averaged(self.num_seeds, self.temperatures)
        empty = f", {self.empty:,} of them empty" if self.empty else ""
        return f"{self.rows:,} rows predicted by {seeds}{empty}: {self.out}"


def averaged(num_seeds: int, temperatures: Sequence[float]) -> str:
    """Whose probabilities they are: ``the average of 10 seeds, each at its temperature (...)``."""
    text = "one seed" if num_seeds == 1 else f"the average of {num_seeds} seeds"
    if not temperatures:
        return text
    low, high = min(temperatures), max(temperatures)
    if num_seeds == 1:
        return f"{text}, logits divided by its temperature, {low:.3g}"
    return f"{text}, logits of each divided by its temperature, {low:.3g} to {high:.3g}"
