"""Temperatures that were fitted on the rows that chose the epoch, and what is said of them.

S finished seeds, P parts (1, or the folds of cross-validations).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gaam_cache.errors import ConfigError
from gaam_cache.messages import brief
from gaam_decoder.runs.result import RunResult, Validation
from gaam_decoder.runs.tuning import first_runs
from gaam_decoder.stats.scores._base import Answers

if TYPE_CHECKING:
    from gaam_decoder.reports.table.base import Table
    from gaam_decoder.reports.table.rows import Row

SCALED = ", temperature fitted"
"""Behind the name of a score of probabilities that were scaled."""
ENOUGH = 300
"""Rows with which a temperature is 5 to 12% off (one standard deviation over data sets): 2 to 20
classes, accuracies of 54 to 87%, simulated. With fewer a note says how rough it is."""
ROUGH = (0.9, 2.2)
"""What these shares are times the root of the number of rows, the smallest and the largest, from 30
to 1,000 rows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Temperatures:
    """One for every finished seed and part."""

    value_SP: NDArray[np.float64]  # noqa: N815 a shape suffix
    """Where none has the smallest loss: 1 if all is right, else so large that classes are alike."""
    fitted_SP: NDArray[np.bool_]  # noqa: N815 a shape suffix
    """Whether there is one: see ``fit_temperature``."""
    rows: int
    """On which each was fitted, of the part that has the fewest."""

    def to_dict(self) -> dict[str, Any]:
        """JSON values, in the order of the finished seeds."""
        return {
            "mean": float(self.value_SP.mean()),
            "lowest": float(self.value_SP.min()),
            "highest": float(self.value_SP.max()),
            "not_fitted": int((~self.fitted_SP).sum()),
            "rows": self.rows,
            "per_seed": self.value_SP.tolist(),
        }


def fitted(parts: Sequence[Sequence[RunResult]], seeds: Sequence[int]) -> Temperatures | None:
    """Temperatures of the seeds of a row; None where one of them has nothing to fit one on.

    Args:
        parts: runs that differ in their seeds alone, of every fold.
        seeds: that finished.

    Raises:
        CacheError: a run is damaged.
    """
    value_SP = np.ones((len(seeds), len(parts)))
    fitted_SP = np.zeros((len(seeds), len(parts)), bool)
    rows: list[int] = []
    for place, part in enumerate(parts):
        decides, read = first_runs(part), dict[int, Validation | None]()
        for index, seed in enumerate(seeds):
            run = decides[seed]
            if id(run) not in read:
                read = {id(run): run.validation}
            if (held := read[id(run)]) is None:
                return None
            if (found := held.temperature(run.seeds.index(seed))) is None:
                return None
            value_SP[index, place], fitted_SP[index, place] = found
            rows.append(len(held.labels))
    if not rows:
        return None
    return Temperatures(value_SP=value_SP, fitted_SP=fitted_SP, rows=min(rows))


def scaled(answers: Answers, temperature_P: NDArray[np.float64]) -> Answers:
    """The same answers, those of every part divided by its temperature; in float64.

    In float32 two logits might become equal, and another class the first of the largest.
    """
    temperature_N = np.repeat(temperature_P, answers.sizes)
    logits_NC = answers.logits.astype(np.float64) / temperature_N[:, None]
    found = Answers(logits_NC, answers.labels, answers.sizes, answers.repeats)
    assert (found.predicted_N == answers.predicted_N).all()
    return found


def same_scale(row: Row, other: Row) -> bool:
    """Whether what is compared of two rows was scaled in both, or in none."""
    alike = (row.scores.temperatures is None) == (other.scores.temperatures is None)
    return alike or not row.score.of_sizes


def check_fitted(tables: Sequence[Table]) -> None:
    """Refuse a report without any row of which a temperature could be fitted."""
    rows = [row for table in tables for row in table.rows]
    if not any(row.scores.temperatures for row in rows):
        raise ConfigError(
            "no run has what a temperature is fitted on",
            expected="runs of --select val, which keep the logits of the rows that chose",
            found=f"{len(rows)} rows of --select last or test, of shuffled labels, or of earlier "
            "versions",
            hint="leave out --temperature, or train again with --select val",
        )


def in_words(found: Temperatures) -> str:
    """Mean and range, such as ``1.31 (1.22 to 1.40)``."""
    value_SP = found.value_SP
    text = f"{value_SP.mean():.3g}"
    if value_SP.size > 1:
        text += f" ({value_SP.min():.3g} to {value_SP.max():.3g})"
    lacking = int((~found.fitted_SP).sum())
    return text + (f", {lacking} of {value_SP.size} not fitted" if lacking else "")


def how(table: Table) -> str:
    """What was done with probabilities."""
    if not table.temperature:
        return "no temperature was fitted: probabilities are those of the decoders"
    return (
        "a temperature was fitted for every seed and fold by the log loss of the rows that chose "
        "the epoch (Guo et al. 2017); log loss, Brier score, ECE and the reliability diagram are "
        "of logits divided by it, all else, AUROC too, of logits as they are"
    )


def unscaled(table: Table) -> list[str]:
    """Names of the rows whose probabilities were not scaled, where others' were."""
    if not table.temperature:
        return []
    return [
        brief(label)
        for label, row in zip(table.labels(), table.rows, strict=True)
        if row.scores.seeds and row.scores.temperatures is None
    ]


def notes(table: Table) -> Iterator[str]:
    """What stands below a table."""
    if not table.temperature:
        return
    yield how(table)
    found = [row.scores.temperatures for row in table.rows if row.scores.temperatures]
    fewest = min((one.rows for one in found), default=ENOUGH)
    if fewest < ENOUGH:
        low, high = (100 * share / fewest**0.5 for share in ROUGH)
        yield (
            f"temperatures of {fewest:,} rows that chose are rough: by chance alone {low:.0f} to "
            f"{high:.0f}% off (one standard deviation, simulated), and so are the probabilities"
        )
    if lacking := sum(int((~one.fitted_SP).sum()) for one in found):
        total = sum(one.fitted_SP.size for one in found)
        yield (
            f"{lacking} of {total} temperatures were not fitted, for none has the smallest loss: "
            "where the rows that chose are all right it is 1, and where the answers are no better "
            "than none so large that all classes are equally likely"
        )


def warnings(table: Table) -> Iterator[str]:
    """What nobody may miss: rows that stand beside others and are not what those are."""
    if names := unscaled(table):
        yield (
            f"No temperature was fitted for {', '.join(names)}, which kept no logits of rows that "
            "chose: by probabilities they are compared with no row that was scaled."
        )
