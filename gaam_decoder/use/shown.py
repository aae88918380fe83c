"""What a prediction says, for people and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gaam_cache.messages import brief
from gaam_decoder.use.temperatures import averaged

Column = Sequence[str | float | None]
LONGEST = 60
"""Characters of a text, or of a label, on a line."""


@dataclass(frozen=True, slots=True)
class Labelled:
    """Texts and what is said of them.

    Args:
        texts: as they were given.
        columns: predicted, probability, agreement and those of further classes, by name.
        num_seeds: that were averaged.
        top: classes that are named.
        temperatures: of the seeds; empty: none.
    """

    texts: Sequence[str]
    columns: Mapping[str, Column]
    num_seeds: int
    top: int
    temperatures: Sequence[float] = ()

    def to_dict(self) -> list[dict[str, Any]]:
        """A JSON value: text, predicted, probability, agreement, ... of each."""
        rows = zip(*self.columns.values(), strict=True)
        return [
            {"text": text} | dict(zip(self.columns, row, strict=True))
            for text, row in zip(self.texts, rows, strict=True)
        ]

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
    """A file of results.

    Args:
        out: where it is; None: it went to stdout.
        rows: in it.
        empty: of these, rows of which nothing was to be encoded.
        known: rows that had been predicted before an interruption.
        num_seeds: that were averaged.
        temperatures: of the seeds; empty: none.
    """

    out: Path | None
    rows: int
    empty: int
    known: int
    num_seeds: int
    temperatures: Sequence[float] = ()

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "out": None if self.out is None else str(self.out.absolute()),
            "rows": self.rows,
            "empty": self.empty,
            "resumed": self.known,
            "seeds": self.num_seeds,
            **({"temperatures": list(self.temperatures)} if self.temperatures else {}),
        }

    def in_words(self) -> str:
        """One line."""
        seeds = averaged(self.num_seeds, self.temperatures)
        before = f", {self.known:,} of them before" if self.known else ""
        return f"{self.rows:,} rows predicted by {seeds}{before}: {self.out}"
