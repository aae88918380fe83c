"""The columns of a report's table, and how each is made.

A column is one object in a list here: terminal, HTML, Markdown and LaTeX show it, and
``gaam report --explain`` and GUIDE.md print its note.
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
from gaam_decoder.reports.entries import SCALED, Entry, score_of
from gaam_decoder.reports.table import ON_TRAINING_ROWS, Table
from gaam_decoder.stats.scores.base import Interval, percent

Numbers = Callable[[Entry], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table; a report leaves out one that is empty in all entries."""

    # its header; {score} stands for the score that is compared
    name: str
    # its header in a terminal, which may have two lines
    short: str
    # the text of a cell
    value: Callable[[Entry], str]
    # how the column is made
    note: str
    # whether it shows a comparison, and is empty in entries that are not compared
    pair: bool = False
    # values for programs, by what to add to the header; None: the text of the cell
    numbers: Numbers | None = None

    def text(self, entry: Entry) -> str:
        """The text of a cell, or nothing."""
        if self.pair and entry.compared is None:
            return ""
        return self.value(entry)

    def header(self, score: str) -> str:
        """Its name without units, where ``score`` is compared."""
        return self.name.format(score=score).partition(" (")[0].removesuffix(" %")

    def cells(self, entry: Entry, score: str) -> dict[str, Any]:
        """Values for programs by header, or nothing; fractions instead of percent."""
        if self.pair and entry.compared is None:
            return {}
        header = self.header(score)
        if self.numbers is None:
            return {header: self.value(entry)}
        numbers = self.numbers(entry)
        return {f"{header}{suffix}": value for suffix, value in numbers.items()}


@dataclass(frozen=True)
class Sheet:
    """A table as text for people: a caption, a header and lines of cells."""

    caption: str
    header: list[str]
    lines: list[list[str]]
    # columns that a narrow screen shows without scrolling, beside the first column
    first: Sequence[str] = ()

    @cached_property
    def words(self) -> list[str]:
        """Columns that are aligned left: the first, and those that hold words."""
        numbers = set()
        for name, *cells in zip(self.header, *self.lines, strict=True):
            # an empty cell counts as a number
            if all(cell[:1] in "+-<0123456789" for cell in cells):
                numbers.add(name)
        words = [name for name in self.header if name not in numbers]
        return [*self.header[:1], *words]


def p_value(p: float | None) -> str:
    """A p-value with three or four digits."""
    if p is None:
        return "-"
    if p < 1e-4:
        return "<0.0001"
    return f"{p:.4f}" if p < 0.01 else f"{p:.3f}"


def marks(entry: Entry) -> str:
    """Marks of a score that is no test accuracy, optimistic, or perhaps too low."""
    text = ""
    if entry.on_training_rows:
        text += f" ({ON_TRAINING_ROWS})"
    if entry.select == "test":
        text += " (optimistic)"
    if entry.undertrained:
        text += " †"
    return text


def verdict(claim: stats.Claim) -> str:
    """The verdict of a claim; it says where the difference is within the margin."""
    if claim.significant and claim.negligible:
        return f"{claim.verdict} (within margin)"
    return claim.verdict


def _number(value: Callable[[Entry], Any]) -> Numbers:
    """One value for programs, under the header alone."""
    return lambda entry: {"": value(entry)}


def _bounds(interval_of: Callable[[Entry], Interval]) -> Numbers:
    """Both ends of an interval for programs."""

    def numbers(entry: Entry) -> dict[str, Any]:
        low, high = interval_of(entry) or (None, None)
        return {" low": low, " high": high}

    return numbers


def _claim(entry: Entry) -> stats.Claim:
    assert entry.compared is not None
    return entry.compared.claim


def _validation(entry: Entry) -> float | None:
    return entry.validation if entry.candidate else None


def _validation_text(entry: Entry) -> str:
    accuracy = _validation(entry)
    return "" if accuracy is None else percent(accuracy)


def _seeds_text(entry: Entry) -> str:
    text = str(len(entry.seeds))
    if entry.failed:
        text += f" ({len(entry.failed)} failed)"
    return text


def _parameters_text(entry: Entry) -> str:
    return f"{entry.parameters['attention']:,} / {entry.parameters['total']:,}"


def _mean_seconds(entry: Entry) -> float | None:
    if not entry.finished:
        return None
    return float(np.mean([entry.seconds[seed] for seed in entry.finished]))


def _seconds_text(entry: Entry) -> str:
    seconds = _mean_seconds(entry)
    return "-" if seconds is None else f"{seconds:.2f}"


def _difference_text(entry: Entry) -> str:
    claim = _claim(entry)
    text = entry.chosen.unit.difference(claim.difference)
    return f"{text}*" if claim.significant else text


def _p_training(entry: Entry) -> float | None:
    """The p-value of the t test over folds; None without a cross-validation."""
    if entry.compared is None or entry.compared.other_training is None:
        return None
    return entry.compared.other_training.p


def _p_training_text(entry: Entry) -> str:
    if entry.compared is None or entry.compared.other_training is None:
        return ""
    return p_value(entry.compared.other_training.p)


def _what_would_decide(entry: Entry) -> str:
    """How many seeds, rows or groups would decide; or why there is no claim."""
    claim = _claim(entry)
    if claim.verdict != "undecided" or claim.p is None:
        return f"no claim: {claim.no_claim}" if claim.no_claim else ""
    if claim.seeds_to_decide is not None:
        if claim.seeds_to_decide > claim.num_seeds:
            return f"about {claim.seeds_to_decide:,} seeds"
        return "a few more seeds"
    if claim.rows_to_decide is not None:
        return f"about {claim.rows_to_decide:,} rows"
    if claim.groups_to_decide is not None:
        return f"about {claim.groups_to_decide:,} groups"
    return "neither alone, or too few rows differ to say"


DECODER = Column(
    "decoder",
    "decoder",
    lambda entry: entry.label + marks(entry),
    "mechanism, and what tells it from others; † is under-trained: the best epoch is "
    "the last in more seeds than by chance, or validation chose a rate or decay at the "
    "edge, as (edge) says; longer training, or another rate, may do better",
)
SETTINGS = Column(
    "settings",
    "",
    lambda entry: entry.settings,
    "settings that not all decoders share; what validation chose is among them, (edge) "
    "where it is the smallest or largest value that was tried, and that is not by "
    "chance: 95 of 100 draws of other validation rows choose the same; a weight decay "
    "of 0 is no edge",
)
VALIDATION = Column(
    "validation %",
    "val %",
    _validation_text,
    "with --all: mean validation accuracy of the candidate, by which one is chosen",
    numbers=_number(_validation),
)
SCORE = Column(
    "{score}",
    "{score}",
    lambda entry: entry.chosen.unit.text(entry.chosen.mean),
    "mean over the seeds that finished, on the test rows",
    numbers=_number(lambda entry: entry.chosen.mean),
)
SD = Column(
    "sd",
    "sd",
    lambda entry: entry.chosen.unit.std(entry.chosen.std),
    "standard deviation over seeds",
    numbers=_number(lambda entry: entry.chosen.std),
)
SEEDS_CI = Column(
    "95% CI seeds",
    "",
    lambda entry: entry.chosen.unit.span(entry.chosen.interval),
    "confidence interval of the mean over seeds alone (Student's t), the test rows "
    "taken as given",
    numbers=_bounds(lambda entry: entry.chosen.interval),
)
ROWS_CI = Column(
    "95% CI + rows",
    "95% CI",
    lambda entry: entry.chosen.unit.span(entry.chosen.two_level),
    "confidence interval of the mean over seeds and test rows, or groups of them; it "
    "does not predict the accuracy on another test set, which varies more",
    numbers=_bounds(lambda entry: entry.chosen.two_level),
)
SEEDS = Column(
    "seeds",
    "seeds",
    _seeds_text,
    "how many were trained; those that failed count in no mean and drop out of pairs",
    numbers=lambda entry: {"": len(entry.seeds), " failed": len(entry.failed)},
)
PARAMETERS = Column(
    "parameters (attn / total)",
    "parameters\nattn / total",
    _parameters_text,
    "of the mechanism, and with its head",
    numbers=lambda entry: {
        " attn": entry.parameters["attention"],
        " total": entry.parameters["total"],
    },
)
SECONDS = Column(
    "s/seed",
    "s per\nseed",
    _seconds_text,
    "seconds of training, mean over seeds",
    numbers=_number(_mean_seconds),
)
DIFFERENCE = Column(
    "difference",
    "diff",
    _difference_text,
    "the decoder minus the baseline of the same head and recipe, paired by seed and "
    "test row; * where p Holm is below 0.05",
    pair=True,
    numbers=_number(lambda entry: _claim(entry).difference),
)
DIFFERENCE_CI = Column(
    "95% CI of it",
    "95% CI",
    lambda entry: entry.chosen.unit.span(_claim(entry).interval_corrected, signed=True),
    "confidence interval of the difference over seeds and test rows, or groups of "
    "them, corrected as p Holm is: it leaves out 0 exactly where there is a difference",
    pair=True,
    numbers=_bounds(lambda entry: _claim(entry).interval_corrected),
)
P_HOLM = Column(
    "p Holm",
    "p\nHolm",
    lambda entry: p_value(_claim(entry).p_holm),
    "corrected for every comparison with the baseline of one table and head, also for "
    "those that filters left out of it; other caches, test rows and heads are families "
    "of their own",
    pair=True,
    numbers=_number(lambda entry: _claim(entry).p_holm),
)
VERDICT = Column(
    "verdict",
    "verdict",
    lambda entry: verdict(_claim(entry)),
    "what is shown; (within margin): they differ, by less than --margin",
    pair=True,
)
DECIDE = Column(
    "would decide",
    "",
    _what_would_decide,
    "how many seeds, or test rows or groups, would, if what was seen is so",
    pair=True,
)
P_TRAINING = Column(
    "p training",
    "",
    _p_training_text,
    "of a cross-validation: corrected resampled t test over folds, what another "
    "training set would give",
    pair=True,
    numbers=_number(_p_training),
)

# of a page, a paper and a model card
COLUMNS = (
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
    SEEDS_CI,
    P_TRAINING,
    SETTINGS,
    VALIDATION,
    PARAMETERS,
    SECONDS,
)
# of a terminal, behind the decoder
SCREEN = (
    SCORE,
    VALIDATION,
    SD,
    ROWS_CI,
    SEEDS,
    DIFFERENCE,
    DIFFERENCE_CI,
    P_HOLM,
    VERDICT,
    PARAMETERS,
    SECONDS,
)
# a narrow terminal leaves these out, in this order
DISPENSABLE = (PARAMETERS, SECONDS, P_HOLM, SEEDS, SD)
# a narrow page shows these beside the decoder
KEY_COLUMNS = (VERDICT, SCORE, DIFFERENCE, DIFFERENCE_CI)
KEY_COLUMNS_WITHOUT_PAIRS = (SCORE, ROWS_CI)
# of the page of a study
OF_STUDY = (DECODER, SCORE, SD, DIFFERENCE, DIFFERENCE_CI, VERDICT)
# other names that people use for columns
ALIASES = {
    "ci": "95% CI of it",
    "interval": "95% CI of it",
    "std": "sd",
    "lr": "settings",
    "seconds": "s/seed",
    "attention": "decoder",
    "mechanism": "decoder",
}
VERDICTS = {
    "better, worse": "p Holm is below 0.05, over seeds and test rows, or groups of "
    "them: the difference is not of these seeds and rows alone. Without any difference "
    "it is said in at most 5 of 100 tables",
    "equivalent": "two one-sided tests of the same kind show that the difference is "
    "smaller than --margin, corrected by Holm in a family of their own",
    "undecided": f"neither, or fewer than {stats.LEAST_SEEDS} paired seeds",
    "no claim": "the score, or the data, allow none: "
    f"fewer than {stats.LEAST_GROUPS} groups of rows, for one",
}


def sheet(table: Table, columns: Sequence[Column] = ()) -> Sheet:
    """The shown entries of a table, as text.

    Without ``columns`` it has those of ``COLUMNS`` that are not empty in all entries.
    """
    shown = list(columns)
    if not shown:
        shown = [
            column
            for column in COLUMNS
            if any(column.text(entry) for entry in table.shown)
        ]

    caption = of_score(table)
    has_pairs = any(column.pair for column in shown)
    if table.compared and has_pairs:
        baseline = brief(str(table.baseline))
        unit = table.unit.of_differences
        caption += f", and differences to '{baseline}' in {unit}"

    names = {column: column.name.format(score=table.unit.column) for column in shown}
    key_columns = KEY_COLUMNS if has_pairs else KEY_COLUMNS_WITHOUT_PAIRS
    return Sheet(
        caption=caption,
        header=list(names.values()),
        lines=[[column.text(entry) for column in shown] for entry in table.shown],
        first=[names[column] for column in shown[1:] if column in key_columns],
    )


def choose(names: str | Sequence[str], score: str) -> tuple[Column, ...]:
    """The columns of these names, in their order, each once.

    Args:
        names: a list, or a text with commas. A name is a header without its unit, in
            large or small letters, with - or _ for a space.
        score: the score that is compared.

    Raises:
        ConfigError: no column has such a name.
    """
    title = score_of(score).title
    column_by_name = {_plain(column.header(title)): column for column in COLUMNS}
    column_by_name[_plain(score)] = SCORE
    column_by_name["score"] = SCORE

    # a dictionary keeps the order, and each column once
    chosen: dict[Column, None] = {}
    for name in names.split(",") if isinstance(names, str) else names:
        column = column_by_name.get(_plain(name))
        if column is None:
            headers = [known.header(title) for known in COLUMNS]
            raise plugins.unknown(
                "column", name.strip(), headers, aliases=ALIASES, where="--columns"
            )
        chosen[column] = None
    return tuple(chosen)


def _plain(name: str) -> str:
    return " ".join(name.casefold().replace("-", " ").replace("_", " ").split())


def of_score(table: Table) -> str:
    """The name of the values in a table, such as ``test accuracy``."""
    score = table.unit
    scaled = SCALED if table.temperature and score.of_sizes else ""
    return f"test {score.title}{scaled}"


def explain() -> str:
    """How each column and verdict is made: what ``gaam report --explain`` prints."""
    notes = {}
    for column in COLUMNS:
        notes[column.name.format(score="accuracy %, or another --score")] = column.note
    notes |= VERDICTS
    lines = [f"- {name}: {note}." for name, note in notes.items()]
    return "\n".join(textwrap.fill(line, 100, subsequent_indent="  ") for line in lines)
