"""The columns of a report's table, and how each is made.

A column is one object in a list here: terminal, HTML, Markdown and LaTeX show it, and
``gaam report --explain`` and GUIDE.md say its note.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gaam_cache.messages import brief
from gaam_decoder import stats
from gaam_decoder.reports.rows import SCALED, Row
from gaam_decoder.reports.table import ON_TRAINING_ROWS, Table
from gaam_decoder.reports.unit import Unit, p_value


class Cell(NamedTuple):
    """What a column reads: one row of a table."""

    table: Table
    row: Row
    label: str
    settings: str
    compared: Any
    """Its comparison with the baseline; None where there is none."""

    @property
    def unit(self) -> Unit:
        """Of the score that is compared."""
        return self.table.unit

    @property
    def chosen(self) -> Any:
        """That score of its seeds."""
        return self.row.scores.chosen

    @property
    def claim(self) -> Any:
        """What may be said of the difference; only where it is compared."""
        return self.compared.claim


@dataclass(frozen=True, slots=True)
class Column:
    """A column; one that is empty in all rows is not shown."""

    name: str
    """Its header; ``{score}`` is the score that is compared."""
    short: str
    """Its header in a terminal; may have two lines."""
    value: Callable[[Cell], str]
    """What stands in the row, as a person reads it."""
    note: str
    """How it is made."""
    words: bool = False
    """Whether it stands at the left."""
    pair: bool = False
    """Whether it is of a comparison, and empty in rows that are not compared."""
    narrow: Callable[[Cell], str] | None = None
    """The same for a terminal, where it is to be shorter there."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table as text for people: a caption, a header, and one list of cells for each line."""

    caption: str
    header: list[str]
    lines: list[list[str]]
    words: tuple[str, ...] = ()
    """Columns that stand at the left."""


def _label(cell: Cell) -> str:
    """Its name; what makes a number no test accuracy, or weak, stands beside it."""
    mark = f" ({ON_TRAINING_ROWS})" * cell.row.on_training_rows
    return cell.label + mark + " †" * cell.row.undertrained


def _seconds(cell: Cell) -> str:
    taken = [cell.row.seconds[seed] for seed in cell.row.scores.seeds]
    return f"{np.mean(taken):.2f}" if taken else "-"


def _select(cell: Cell) -> str:
    if cell.row.select == "test":
        return "test (optimistic)"
    return brief(cell.row.select, 40) * (len({r.select for r in cell.table.rows}) > 1)


def _verdict(cell: Cell) -> str:
    small = " (within margin)" if cell.claim.significant and cell.claim.negligible else ""
    return f"{cell.claim.verdict}{small}"


def _other_training(cell: Cell) -> str:
    other = cell.compared.other_training
    shown = any(c and c.other_training for c in cell.table.comparisons)
    return p_value(other.p if other else None) if shown else ""


def _decide(cell: Cell) -> str:
    claim = cell.claim
    if claim.verdict != "undecided" or claim.p is None:
        return claim.no_claim and f"no claim: {claim.no_claim}"
    if (seeds := claim.seeds_to_decide) is not None:
        return f"about {seeds:,} seeds" if seeds > claim.num_seeds else "a few more seeds"
    if (rows := claim.rows_to_decide) is not None:
        return f"about {rows:,} rows"
    both = claim.both_to_decide
    return f"about {both[0]:,} seeds, {both[1]:,} rows" if both else "too few rows differ to say"


def _short(count: int) -> str:
    """``591360`` as ``591k``."""
    for size, letter in ((10**6, "M"), (10**3, "k")):
        if count >= size:
            return f"{count / size:.{0 if count >= 100 * size else 1}f}{letter}"
    return str(count)


# fmt: off
DECODER = Column("decoder", "", _label, "mechanism, and what tells it from others; † is under-trained: longer training, or another rate, may do better", words=True)
SETTINGS = Column("settings", "", lambda c: c.settings, "settings that not all rows share; what validation chose is among them, (edge) where it is the smallest or largest value that was tried", words=True)
SCORE = Column("{score}", "{score}", lambda c: c.unit.value(c.chosen.mean), "mean over the seeds that finished, on the test rows")
SD = Column("sd", "sd", lambda c: c.unit.std(c.chosen.std), "standard deviation over seeds")
SEEDS_CI = Column("95% CI seeds", "", lambda c: c.unit.span(c.chosen.interval), "Student's t over seeds, the test rows taken as given")
ROWS_CI = Column("95% CI + rows", "95% CI", lambda c: c.unit.span(c.chosen.two_level), "over seeds and test rows: what other seeds on another test set of this kind might give")
SEEDS = Column("seeds", "seeds", lambda c: str(len(c.row.seeds)) + f" ({len(c.row.failed)} failed)" * bool(c.row.failed), "how many were trained; those that failed count in no mean and drop out of pairs", narrow=lambda c: f"{len(c.row.scores.seeds)}/" * bool(c.row.failed) + str(len(c.row.seeds)))
SELECT = Column("select", "", _select, "what chose the epoch, where not all rows have the same", words=True)
PARAMETERS = Column("parameters (attn / total)", "params\nattn/all", lambda c: f"{c.row.parameters['attention']:,} / {c.row.parameters['total']:,}", "of the mechanism, and with its head", narrow=lambda c: f"{_short(c.row.parameters['attention'])}/{_short(c.row.parameters['total'])}")
SECONDS = Column("s/seed", "s per\nseed", _seconds, "seconds of training, mean over seeds")
DIFFERENCE = Column("difference", "diff", lambda c: c.unit.difference(c.claim.difference) + "*" * c.claim.significant, "the row minus the baseline of the same head and recipe, paired by seed and test row; * where p Holm is below 0.05", pair=True)
DIFFERENCE_CI = Column("95% CI of it", "95% CI", lambda c: c.unit.span(c.claim.interval_corrected, signed=True), "over seeds and test rows, corrected as p Holm is: it leaves out 0 exactly where there is a difference", pair=True)
P_HOLM = Column("p Holm", "p\nHolm", lambda c: p_value(c.claim.p_holm), "corrected for every comparison of the report, also for those that filters left out", pair=True)
VERDICT = Column("verdict", "verdict", _verdict, "what is shown; (within margin): they differ, by less than --margin", words=True, pair=True)
DECIDE = Column("would decide", "", _decide, "how many seeds or test rows would, if what was seen is so", words=True, pair=True)
P_TRAINING = Column("p training", "", _other_training, "of a cross-validation: corrected resampled t test over folds, what another training set would give", pair=True)
# fmt: on
COLUMNS = (
    *(DECODER, VERDICT, SCORE, ROWS_CI, DIFFERENCE, DIFFERENCE_CI, P_HOLM, DECIDE, SD, SEEDS),
    *(SEEDS_CI, P_TRAINING, SELECT, SETTINGS, PARAMETERS, SECONDS),
)
"""Of a page, a paper and a card."""
SCREEN = (
    *(SCORE, SD, ROWS_CI, SEEDS, DIFFERENCE, DIFFERENCE_CI, P_HOLM, VERDICT, PARAMETERS, SECONDS),
)
"""Of a terminal, behind the decoder."""
DISPENSABLE = (SECONDS, PARAMETERS, P_HOLM, SEEDS, SD)
"""What goes first where the screen is too narrow."""
OF_STUDY = (DECODER, SCORE, ROWS_CI, SD, SEEDS, DIFFERENCE, DIFFERENCE_CI, VERDICT)
"""Of the page of a study."""
VERDICTS = {
    "better, worse": "p Holm is below 0.05, over seeds and test rows: other seeds on other rows of "
    "the kind would show it too. Without any difference it is said in at most 5 of 100 reports",
    "equivalent": "two one-sided tests of the same kind show that the difference is smaller than "
    "--margin, corrected by Holm in a family of their own",
    "undecided": f"neither, or fewer than {stats.LEAST_SEEDS} paired seeds",
    "no claim": "the score, or the data, allow none",
}


def cells_of(table: Table) -> list[Cell]:
    """A cell for every row that is shown."""
    columns = table.rows, table.labels(), table.settings(), table.comparisons
    every = list(zip(*columns, strict=True))
    return [Cell(table, *every[place]) for place in table.places]


def shown(columns: Sequence[Column], cells: Sequence[Cell], *, narrow: bool = False) -> Any:
    """The columns that are not empty, and of every row its texts in these, by column."""

    def text(one: Column, cell: Cell) -> str:
        if one.pair and cell.compared is None:
            return ""
        return ((one.narrow if narrow else None) or one.value)(cell)

    lines = [{one: text(one, cell) for one in columns} for cell in cells]
    return [one for one in columns if one is DECODER or any(line[one] for line in lines)], lines


def sheet(table: Table, columns: Sequence[Column] = ()) -> Sheet:
    """All rows that are shown, with these columns; default: ``COLUMNS``."""
    kept, lines = shown(columns or COLUMNS, cells_of(table))
    caption = of_score(table)
    if any(table.comparisons):
        of = f"'{brief(str(table.baseline))}' in {table.unit.of_differences}"
        caption += f", and differences to {of}"
    return Sheet(
        caption=caption,
        header=[column.name.format(score=table.unit.column) for column in kept],
        lines=[[line[column] for column in kept] for line in lines],
        words=tuple(column.name for column in kept if column.words),
    )


def of_score(table: Table) -> str:
    """What the values of a table are."""
    score = table.unit.score
    return f"test {score.title}{SCALED if table.temperature and score.of_sizes else ''}"


def explain() -> str:
    """How each column and verdict is made: what ``gaam report --explain`` prints."""
    names = {"score": "accuracy %, or another --score"}
    notes = {one.name.format(**names): one.note for one in COLUMNS} | VERDICTS
    lines = [f"- {name}: {note}." for name, note in notes.items()]
    return "\n".join(textwrap.fill(line, 100, subsequent_indent="  ") for line in lines)
