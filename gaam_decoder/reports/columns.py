"""The columns of a report's table, and how each is made.

A column is one object in a list here: terminal, HTML, Markdown and LaTeX show it, and
``gaam report --explain`` and GUIDE.md say its note.
"""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gaam_cache.common import plugins
from gaam_cache.common.messages import brief
from gaam_decoder import stats
from gaam_decoder.reports.rows import SCALED, Row, score_of
from gaam_decoder.reports.table import ON_TRAINING_ROWS, Table
from gaam_decoder.stats.scores.base import Interval, percent


@dataclass(frozen=True, slots=True)
class Column:
    """A column; one that is empty in all rows is not shown."""

    name: str  # its header; {score} is the score that is compared
    short: str  # its header in a terminal; may have two lines
    value: Callable[[Row], str]  # what stands in the row, as a person reads it
    note: str  # how it is made
    pair: bool = (
        False  # whether it is of a comparison, and empty in rows that are not compared
    )
    numbers: Callable[[Row], Mapping[str, Any]] | None = None
    """The same for programs, by what stands behind the header; None: what a person reads."""

    def text(self, row: Row) -> str:
        """What stands in a row, or nothing."""
        return "" if self.pair and row.compared is None else self.value(row)

    def header(self, score: str) -> str:
        """Its name, where ``score`` is what is compared, without units."""
        return self.name.format(score=score).partition(" (")[0].removesuffix(" %")

    def cells(self, row: Row, score: str) -> dict[str, Any]:
        """What stands in a row for programs, by header: fractions, not percent; or nothing."""
        if self.pair and row.compared is None:
            return {}
        numbers = {"": self.value(row)} if self.numbers is None else self.numbers(row)
        return {f"{self.header(score)}{end}": value for end, value in numbers.items()}


@dataclass(frozen=True)
class Sheet:
    """A table as text for people: a caption, a header, and one list of cells for each line."""

    caption: str
    header: list[str]
    lines: list[list[str]]
    first: Sequence[str] = ()
    """Columns that a narrow screen shows without scrolling, beside the first; (): no such."""

    @cached_property
    def words(self) -> list[str]:
        """Columns that stand at the left: the first, and those of words."""
        columns = zip(self.header, *self.lines, strict=True)
        numbers = {
            n
            for n, *cells in columns
            if all(one[:1] in "+-<0123456789" for one in cells)
        }
        return [
            *self.header[:1],
            *(name for name in self.header if name not in numbers),
        ]


def p_value(p: float | None) -> str:
    """A p-value."""
    if p is None:
        return "-"
    return "<0.0001" if p < 1e-4 else f"{p:.4f}" if p < 0.01 else f"{p:.3f}"


def marks(row: Row) -> str:
    """What makes its number no test accuracy, an optimistic one, or one that may be too small."""
    text = f" ({ON_TRAINING_ROWS})" if row.on_training_rows else ""
    text += " (optimistic)" if row.select == "test" else ""
    return text + (" †" if row.undertrained else "")


def _bounds(interval: Interval) -> dict[str, Any]:
    low, high = interval or (None, None)
    return {" low": low, " high": high}


def _claim(row: Row) -> stats.Claim:
    assert row.compared is not None
    return row.compared.claim


def verdict(claim: stats.Claim) -> str:
    """What a claim shows."""
    return claim.verdict + " (within margin)" * bool(
        claim.significant and claim.negligible
    )


def _decide(row: Row) -> str:
    claim = _claim(row)
    if claim.verdict != "undecided" or claim.p is None:
        return claim.no_claim and f"no claim: {claim.no_claim}"
    if (seeds := claim.seeds_to_decide) is not None:
        return (
            f"about {seeds:,} seeds" if seeds > claim.num_seeds else "a few more seeds"
        )
    if (rows := claim.rows_to_decide) is not None:
        return f"about {rows:,} rows"
    if (groups := claim.groups_to_decide) is not None:
        return f"about {groups:,} groups"
    return "neither alone, or too few rows differ to say"


# fmt: off
DECODER = Column("decoder", "decoder", lambda r: r.label + marks(r), "mechanism, and what tells it from others; † is under-trained: the best epoch is the last in more seeds than by chance, or validation chose a rate or decay at the edge, as (edge) says; longer training, or another rate, may do better")
SETTINGS = Column("settings", "", lambda r: r.settings, "settings that not all rows share; what validation chose is among them, (edge) where it is the smallest or largest value that was tried, and that is not by chance: 95 of 100 draws of other validation rows choose the same; a weight decay of 0 is no edge")
VALIDATION = Column("validation %", "val %", lambda r: percent(r.validation) if r.candidate and r.validation is not None else "", "with --all: mean validation accuracy of the candidate, by which one is chosen", numbers=lambda r: {"": r.validation if r.candidate else None})
SCORE = Column("{score}", "{score}", lambda r: r.chosen.unit.text(r.chosen.mean), "mean over the seeds that finished, on the test rows", numbers=lambda r: {"": r.chosen.mean})
SD = Column("sd", "sd", lambda r: r.chosen.unit.std(r.chosen.std), "standard deviation over seeds", numbers=lambda r: {"": r.chosen.std})
SEEDS_CI = Column("95% CI seeds", "", lambda r: r.chosen.unit.span(r.chosen.interval), "confidence interval of the mean over seeds alone (Student's t), the test rows taken as given", numbers=lambda r: _bounds(r.chosen.interval))
ROWS_CI = Column("95% CI + rows", "95% CI", lambda r: r.chosen.unit.span(r.chosen.two_level), "confidence interval of the mean over seeds and test rows, or groups of them; it does not predict the accuracy on another test set, which varies more", numbers=lambda r: _bounds(r.chosen.two_level))
SEEDS = Column("seeds", "seeds", lambda r: str(len(r.seeds)) + f" ({len(r.failed)} failed)" * bool(r.failed), "how many were trained; those that failed count in no mean and drop out of pairs", numbers=lambda r: {"": len(r.seeds), " failed": len(r.failed)})
PARAMETERS = Column("parameters (attn / total)", "parameters\nattn / total", lambda r: f"{r.parameters['attention']:,} / {r.parameters['total']:,}", "of the mechanism, and with its head", numbers=lambda r: {" attn": r.parameters["attention"], " total": r.parameters["total"]})
SECONDS = Column("s/seed", "s per\nseed", lambda r: f"{np.mean([r.seconds[s] for s in r.finished]):.2f}" if r.finished else "-", "seconds of training, mean over seeds", numbers=lambda r: {"": float(np.mean([r.seconds[s] for s in r.finished])) if r.finished else None})
DIFFERENCE = Column("difference", "diff", lambda r: r.chosen.unit.difference(_claim(r).difference) + "*" * _claim(r).significant, "the row minus the baseline of the same head and recipe, paired by seed and test row; * where p Holm is below 0.05", pair=True, numbers=lambda r: {"": _claim(r).difference})
DIFFERENCE_CI = Column("95% CI of it", "95% CI", lambda r: r.chosen.unit.span(_claim(r).interval_corrected, signed=True), "confidence interval of the difference over seeds and test rows, or groups of them, corrected as p Holm is: it leaves out 0 exactly where there is a difference", pair=True, numbers=lambda r: _bounds(_claim(r).interval_corrected))
P_HOLM = Column("p Holm", "p\nHolm", lambda r: p_value(_claim(r).p_holm), "corrected for every comparison with the baseline of one table and head, also for those that filters left out of it; other caches, test rows and heads are families of their own", pair=True, numbers=lambda r: {"": _claim(r).p_holm})
VERDICT = Column("verdict", "verdict", lambda r: verdict(_claim(r)), "what is shown; (within margin): they differ, by less than --margin", pair=True)
DECIDE = Column("would decide", "", _decide, "how many seeds, or test rows or groups, would, if what was seen is so", pair=True)
P_TRAINING = Column("p training", "", lambda r: p_value(o.p) if r.compared and (o := r.compared.other_training) else "", "of a cross-validation: corrected resampled t test over folds, what another training set would give", pair=True, numbers=lambda r: {"": o.p if r.compared and (o := r.compared.other_training) else None})
# fmt: on
COLUMNS = (
    *(
        DECODER,
        VERDICT,
        SCORE,
        ROWS_CI,
        DIFFERENCE,
        DIFFERENCE_CI,
        P_HOLM,
        DECIDE,
        SD,
        SEEDS,
    ),
    *(SEEDS_CI, P_TRAINING, SETTINGS, VALIDATION, PARAMETERS, SECONDS),
)  # of a page, a paper and a card
SCREEN = (
    *(
        SCORE,
        VALIDATION,
        SD,
        ROWS_CI,
        SEEDS,
        DIFFERENCE,
        DIFFERENCE_CI,
        P_HOLM,
        VERDICT,
    ),
    *(PARAMETERS, SECONDS),
)  # of a terminal, behind the decoder
DISPENSABLE = (
    PARAMETERS,
    SECONDS,
    P_HOLM,
    SEEDS,
    SD,
)  # what goes first from a narrow screen
FIRST = (VERDICT, SCORE, DIFFERENCE, DIFFERENCE_CI)  # what answers, beside the decoder
CALLED = {
    "ci": "95% CI of it",
    "interval": "95% CI of it",
    "std": "sd",
    "lr": "settings",
    "seconds": "s/seed",
    "attention": "decoder",
    "mechanism": "decoder",
}
"""What else people call some of them."""
# of the page of a study
OF_STUDY = (DECODER, SCORE, SD, DIFFERENCE, DIFFERENCE_CI, VERDICT)
VERDICTS = {
    "better, worse": "p Holm is below 0.05, over seeds and test rows, or groups of them: the "
    "difference is not of these seeds and rows alone. Without any difference it is said in at most "
    "5 of 100 tables",
    "equivalent": "two one-sided tests of the same kind show that the difference is smaller than "
    "--margin, corrected by Holm in a family of their own",
    "undecided": f"neither, or fewer than {stats.LEAST_SEEDS} paired seeds",
    "no claim": "the score, or the data, allow none: "
    f"fewer than {stats.LEAST_GROUPS} groups of rows, for one",
}


def sheet(table: Table, columns: Sequence[Column] = ()) -> Sheet:
    """All rows that are shown, with the columns that are asked for.

    Without ``columns`` with all of ``COLUMNS`` that are not empty in all rows.
    """
    kept = [column for column in COLUMNS if any(map(column.text, table.shown))]
    kept = list(columns) or kept
    caption = of_score(table)
    if table.compared and any(column.pair for column in kept):
        of = f"'{brief(str(table.baseline))}' in {table.unit.of_differences}"
        caption += f", and differences to {of}"
    names = {column: column.name.format(score=table.unit.column) for column in kept}
    answering = FIRST if any(column.pair for column in kept) else (SCORE, ROWS_CI)
    first = [names[column] for column in kept[1:] if column in answering]
    lines = [[column.text(row) for column in kept] for row in table.shown]
    return Sheet(caption, [*names.values()], lines, first)


def choose(names: str | Sequence[str], score: str) -> tuple[Column, ...]:
    """The columns of those names, in their order, each once; commas part several.

    A name is a header without its unit, in large or small letters, with - or _ for a space;
    ``score`` is the score that is compared.

    Raises:
        ConfigError: there is none of that name.
    """
    title = score_of(score).title
    known = {_plain(column.header(title)): column for column in COLUMNS}
    known |= {_plain(score): SCORE, "score": SCORE}
    parts = names.split(",") if isinstance(names, str) else names
    chosen: dict[Column, None] = {}
    for part in parts:
        if (column := known.get(_plain(part))) is None:
            there = [column.header(title) for column in COLUMNS]
            raise plugins.unknown(
                "column", part.strip(), there, aliases=CALLED, where="--columns"
            )
        chosen[column] = None
    return tuple(chosen)


def _plain(name: str) -> str:
    return " ".join(name.casefold().replace("-", " ").replace("_", " ").split())


def of_score(table: Table) -> str:
    """What the values of a table are."""
    score = table.unit
    return f"test {score.title}{SCALED if table.temperature and score.of_sizes else ''}"


def explain() -> str:
    """How each column and verdict is made: what ``gaam report --explain`` prints."""
    notes = {
        one.name.format(score="accuracy %, or another --score"): one.note
        for one in COLUMNS
    }
    lines = [f"- {name}: {note}." for name, note in (notes | VERDICTS).items()]
    return "\n".join(textwrap.fill(line, 100, subsequent_indent="  ") for line in lines)
