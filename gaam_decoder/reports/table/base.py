"""What a report says, apart from how it looks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TextIO

from gaam_cache.messages import brief
from gaam_decoder import stats
from gaam_decoder.reports.comparisons import against_baseline, literature
from gaam_decoder.reports.comparisons.against_baseline import Comparison
from gaam_decoder.reports.comparisons.layers import TableLayers
from gaam_decoder.reports.comparisons.literature import Published
from gaam_decoder.reports.comparisons.pairs import TablePairs
from gaam_decoder.reports.table import final_models, row_names
from gaam_decoder.reports.table.rows import Row
from gaam_decoder.reports.writing.unit import DEFAULT, Unit, score_of
from gaam_decoder.runs.filters import Selection

SEPARATE = "rows of different caches or test rows are not to be compared"
NOT_TESTED = "final models, which are not evaluated"
ON_TRAINING_ROWS = "tested on its own training rows"
CACHE_FIELDS = ("fingerprint", "encoder", "dataset", "layers", "first_layer", "hidden_size", "rows")


@dataclass(frozen=True, kw_only=True, slots=True)
class Table:
    """All rows of one cache and one set of test rows; rows of different ones are never compared.

    Where all that is there of a cache are final models, which test nothing, it has no rows.
    """

    cache: dict[str, Any]
    majority_accuracy: float | None = None
    where: str
    """Which rows are tested, in words."""
    num_test_rows: int = 0
    rows: tuple[Row, ...] = ()
    baseline: str | None = None
    """What differences are to; None where nothing is compared."""
    asked: bool = False
    """Whether somebody asked for this baseline."""
    incomplete: tuple[str, ...] = ()
    """What is not among the rows, because folds of it are missing."""
    comparisons: tuple[Comparison | None, ...] = ()
    """One for each row; None for the baseline, and where it has no counterpart."""
    against_probe: tuple[stats.Claim | None, ...] = ()
    """Every row minus the linear probe on the same states; None where there is none."""
    num_tests: int = 0
    """Comparisons of the whole report that make a claim: what Holm corrects for."""
    pairs: TablePairs | None = None
    """Every row against every other that differs from it in one setting alone."""
    layers: TableLayers | None = None
    """Importance of layers beside the accuracy of each alone."""
    margin: float
    """Largest difference that does not matter, a fraction; or in the unit of the score."""
    score: str = DEFAULT
    """What is compared."""
    temperature: bool = False
    """Whether one was fitted, where that could be."""
    uncounted: int = 0
    """Runs that were left out before anything was read of them; Holm corrects for none of them."""
    shown: tuple[int, ...] | None = None
    """Places of the rows that are shown; None: all. Whatever is said is said of all rows."""
    unchosen: tuple[int, ...] = ()
    """Places of the rows that are candidates between which nothing could choose."""
    selection: Selection | None = None
    """What was left out of the whole report."""
    finals: tuple[final_models.FinalModel, ...] = ()
    """Final models of the rows, and others of the cache that no row is the recipe of."""

    @property
    def places(self) -> tuple[int, ...]:
        """Places of the rows that are shown."""
        return tuple(range(len(self.rows))) if self.shown is None else self.shown

    @property
    def unit(self) -> Unit:
        """How values of the score that is compared are written."""
        return Unit(score_of(self.score))

    @property
    def published(self) -> tuple[Published | None, ...]:
        """For each row what was published for its data set and mechanism: accuracies."""
        if self.score != DEFAULT:
            return (None,) * len(self.rows)
        return tuple(literature.published(row, self.cache) for row in self.rows)

    def to_dict(self) -> dict[str, Any]:
        """JSON values, without notes; accuracies are fractions."""
        rows = []
        for row, comparison, found in zip(self.rows, self.comparisons, self.published, strict=True):
            content = row.to_dict()
            content["comparison"] = comparison.to_dict() if comparison else None
            content["published"] = found.to_dict() if found else None
            if self.temperature:
                by = row.scores.temperatures
                content["temperature"] = by.to_dict() if by else None
            rows.append(content)
        for content, claim in zip(rows, self.against_probe, strict=True):
            content["against_probe"] = against_baseline.claim_values(claim) if claim else None
        return {
            "cache": {name: self.cache[name] for name in CACHE_FIELDS if name in self.cache},
            "rows": [rows[place] for place in self.places],
            **({"rows_not_shown": len(rows) - len(self.places)} if self.shown is not None else {}),
            "majority_accuracy": self.majority_accuracy,
            "class_names": self.cache["class_names"],
            "tested_on": self.where,
            "test_rows": self.num_test_rows,
            "baseline": self.baseline,
            "comparisons_corrected_for": self.num_tests,
            "margin": self.margin,
            "score": self.score,
            **({"temperature": True} if self.temperature else {}),
            "unchosen_rows": [i for i, p in enumerate(self.places) if p in self.unchosen],
            **({"selection": self.selection.to_dict()} if self.selection else {}),
            "final_models": [final.to_dict() for final in self.finals],
        }

    def title(self) -> str:
        """One line that says what was encoded with what."""
        rows = " + ".join(f"{n:,} {brief(name, 40)}" for name, n in self.cache["rows"].items())
        zero = "" if self.cache.get("first_layer", 1) else f" (0 to {self.cache['layers'] - 1})"
        fold = "" if self.where == "test split 'test'" else f", {brief(self.where)}"
        return (
            f"{brief(self.cache['dataset'])} ({rows} rows) through {brief(self.cache['encoder'])}, "
            f"{self.cache['layers']} layers{zero} x {self.cache['hidden_size']}{fold}"
        )

    def settings(self) -> list[str]:
        """For every row the settings that not all rows share, such as ``lr=0.001``."""
        return row_names.settings(self.rows)

    def shows_head(self, row: Row) -> bool:
        """Whether a row is called by its head too."""
        return row_names.shows_head(row, self.rows)

    def labels(self) -> list[str]:
        """For every row a name that no other row of the table has, as short as can be."""
        return row_names.labels(self.rows)


class Format(ABC):
    """One way to show tables."""

    says_selection: ClassVar[bool] = True
    """Whether it says in words what was left out of the report."""

    @abstractmethod
    def write(self, tables: Sequence[Table], stream: TextIO) -> None:
        """Write all tables to ``stream``."""
