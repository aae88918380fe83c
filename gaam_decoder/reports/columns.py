"""The columns of a report's table, and how each is made.

A column is one object in a list here: terminal, HTML, Markdown and LaTeX show it, and
``gaam report --explain`` and GUIDE.md say its note.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gaam_cache.messages import brief
from gaam_decoder import stats
from gaam_decoder.reports.rows import SCALED, Row
from gaam_decoder.reports.table import ON_TRAINING_ROWS, Table
from gaam_decoder.reports.unit import p_value


@dataclass(frozen=True, slots=True)
class Column:
    """A column; one that is empty in all rows is not shown."""

    name: str
    """Its header; ``{score}`` is the score that is compared."""
    short: str
    """Its header in a terminal; may have two lines."""
    value: Callable[[Row], str]
    """What stands in the row, as a person reads it."""
    note: str
    """How it is made."""
    words: bool = False
    """Whether it stands at the left."""
    pair: bool = False
    """Whether it is of a comparison, and empty in rows that are not compared."""
    varied: bool = False
    """Whether it is not shown where all rows have the same."""
    narrow: Callable[[Row], str] | None = None
    """The same for a terminal, where it is to be shorter there."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table as text for people: a caption, a header, and one list of cells for each line."""

    caption: str
    header: list[str]
    lines: list[list[str]]
    words: tuple[str, ...] = ()
    """Columns that stand at the left."""


def _label(row: Row) -> str:
    """Its name; what makes a number no test accuracy, or weak, stands beside it."""
    mark = f" ({ON_TRAINING_ROWS})" * row.on_training_rows
    return row.label + mark + " †" * row.undertrained


def _seconds(row: Row) -> str:
    taken = [row.seconds[seed] for seed in row.scores.seeds]
    return f"{np.mean(taken):.2f}" if taken else "-"


def _claim(row: Row) -> stats.Claim:
    assert row.compared is not None
    return row.compared.claim


def _verdict(row: Row) -> str:
    claim = _claim(row)
    return claim.verdict + " (within margin)" * bool(claim.significant and claim.negligible)


def _other_training(row: Row) -> str:
    other = row.compared and row.compared.other_training
    return p_value(other.p) if other else ""


def _decide(row: Row) -> str:
    claim = _claim(row)
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
SETTINGS = Column("settings", "", lambda r: r.settings, "settings that not all rows share; what validation chose is among them, (edge) where it is the smallest or largest value that was tried", words=True)
SCORE = Column("{score}", "{score}", lambda r: r.unit.value(r.scores.chosen.mean), "mean over the seeds that finished, on the test rows")
SD = Column("sd", "sd", lambda r: r.unit.std(r.scores.chosen.std), "standard deviation over seeds")
SEEDS_CI = Column("95% CI seeds", "", lambda r: r.unit.span(r.scores.chosen.interval), "Student's t over seeds, the test rows taken as given")
ROWS_CI = Column("95% CI + rows", "95% CI", lambda r: r.unit.span(r.scores.chosen.two_level), "over seeds and test rows: what other seeds on another test set of this kind might give")
SEEDS = Column("seeds", "seeds", lambda r: str(len(r.seeds)) + f" ({len(r.failed)} failed)" * bool(r.failed), "how many were trained; those that failed count in no mean and drop out of pairs", narrow=lambda r: f"{len(r.scores.seeds)}/" * bool(r.failed) + str(len(r.seeds)))
SELECT = Column("select", "", lambda r: "test (optimistic)" if r.select == "test" else brief(r.select, 40), "what chose the epoch, where not all rows have the same", words=True, varied=True)
PARAMETERS = Column("parameters (attn / total)", "params\nattn/all", lambda r: f"{r.parameters['attention']:,} / {r.parameters['total']:,}", "of the mechanism, and with its head", narrow=lambda r: f"{_short(r.parameters['attention'])}/{_short(r.parameters['total'])}")
SECONDS = Column("s/seed", "s per\nseed", _seconds, "seconds of training, mean over seeds")
DIFFERENCE = Column("difference", "diff", lambda r: r.unit.difference(_claim(r).difference) + "*" * _claim(r).significant, "the row minus the baseline of the same head and recipe, paired by seed and test row; * where p Holm is below 0.05", pair=True)
DIFFERENCE_CI = Column("95% CI of it", "95% CI", lambda r: r.unit.span(_claim(r).interval_corrected, signed=True), "over seeds and test rows, corrected as p Holm is: it leaves out 0 exactly where there is a difference", pair=True)
P_HOLM = Column("p Holm", "p\nHolm", lambda r: p_value(_claim(r).p_holm), "corrected for every comparison of the report, also for those that filters left out", pair=True)
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


def shown(table: Table, columns: Sequence[Column], *, narrow: bool = False) -> Any:
    """The columns that are not empty, and of every row that is shown its texts, by column."""

    def text(one: Column, row: Row) -> str:
        if one.pair and row.compared is None:
            return ""
        return ((one.narrow if narrow else None) or one.value)(row)

    lines = [{one: text(one, row) for one in columns} for row in table.shown]
    texts = {one: {line[one] for line in lines} for one in columns}
    kept = [one for one in columns if texts[one] - {""} and len(texts[one]) > one.varied]
    return kept, lines


def sheet(table: Table, columns: Sequence[Column] = ()) -> Sheet:
    """All rows that are shown, with these columns; default: ``COLUMNS``."""
    kept, lines = shown(table, columns or COLUMNS)
    caption = of_score(table)
    if table.compared:
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
