"""What is said of every row: its class, how likely it is, and how many seeds agree.

N rows, C classes, K of them named.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from gaam_cache.tables.write import Column
from gaam_decoder.use.files.journal import Record

if TYPE_CHECKING:
    from gaam_decoder.use.predictions import Predictions


@dataclass(frozen=True, slots=True)
class Results:
    """How results become columns.

    Args:
        class_names: of the run.
        top: K.
        prefix: of every name.
    """

    class_names: Sequence[str]
    top: int
    prefix: str

    @property
    def columns(self) -> list[Column]:
        """predicted, probability, agreement, predicted_2, probability_2, ..."""
        found = [Column("predicted", True), Column("probability", False)]
        found.append(Column("agreement", False))
        for place in range(2, self.top + 1):
            found += [Column(f"predicted_{place}", True), Column(f"probability_{place}", False)]
        return [Column(self.prefix + name, is_text) for name, is_text in found]

    def added(self, record: Record) -> dict[str, list[str | float | None]]:
        """The columns of a piece of rows."""
        columns: list[list[str | float | None]] = []
        for place in range(self.top):
            numbers = [None if of_row is None else of_row[place] for of_row in record.classes]
            columns.append([None if n is None else self.class_names[n] for n in numbers])
            likely = record.probabilities
            columns.append([None if of_row is None else of_row[place] for of_row in likely])
            if place == 0:
                columns.append(list(record.agreement))
        return {column.name: values for column, values in zip(self.columns, columns, strict=True)}

    def record(self, found: Predictions | None, used: Sequence[bool], sha256: str) -> Record:
        """What is kept of a piece of rows.

        Args:
            found: of the rows that are used; None where none is.
            used: whether something of a row was encoded, for every one.
            sha256: of the rows.
        """
        classes: list[list[int] | None] = [None] * len(used)
        probabilities: list[list[float] | None] = [None] * len(used)
        agreement: list[float | None] = [None] * len(used)
        if found is not None:
            likeliest_NK, likely_NK = found.top(self.top)
            for place, row in enumerate(np.flatnonzero(used).tolist()):
                classes[row] = likeliest_NK[place].tolist()
                probabilities[row] = likely_NK[place].tolist()
                agreement[row] = float(found.agreement_N[place])
        return Record(len(used), sha256, classes, probabilities, agreement)
