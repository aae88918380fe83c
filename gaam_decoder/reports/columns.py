"""The columns of a report's table, and what each shows.

A column is one object here, with all its properties, and ``COLUMNS`` lists each once:
terminal, HTML, Markdown and LaTeX show it, ``--columns`` knows its name, and
``gaam report --explain`` and docs/reference/report-columns.md print its note.
"""

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from gaam_cache.common import plugins
from gaam_cache.common.messages import brief
from gaam_decoder import stats
from gaam_decoder.reports.cells import (
    ValuesForPrograms,
    claim_of,
    decide_text,
    difference_interval_text,
    difference_text,
    interval_bounds,
    marks,
    mean_seconds,
    p_value,
    parameters_text,
    seconds_text,
    seeds_text,
    single_value,
    training_p,
    training_p_text,
    validation_accuracy,
    validation_text,
    verdict_text,
)
from gaam_decoder.reports.entries import SCALED_SUFFIX, Entry
from gaam_decoder.reports.scoring import score_of
from gaam_decoder.reports.table import Table


@dataclass(frozen=True, slots=True)
class ScreenColumn:
    """How a terminal shows a column."""

    # its header, which may have two lines
    header: str
    # columns stand in this order, behind the decoder
    position: int
    # a narrow terminal leaves out the lowest number first; None: never
    drop_order: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of the table; a report leaves out one that is empty in all entries."""

    # its header; {score} stands for the score that is compared
    header: str
    # the text of the cell of an entry
    cell: Callable[[Entry], str]
    # how the column is made
    note: str
    # whether it shows a comparison, and is empty in entries that are not compared
    is_comparison: bool = False
    # makes the values for programs; None: they are the text of the cell
    values_for_programs: ValuesForPrograms | None = None
    # other names that people use for it
    aliases: tuple[str, ...] = ()
    # None: a terminal does not show it
    screen: ScreenColumn | None = None
    # whether a narrow page or screen shows it without scrolling
    is_key: bool = False
    # the same, but only in a table without comparisons
    is_key_without_comparisons: bool = False

    def text(self, entry: Entry) -> str:
        """The text of the cell of an entry; empty where it is not compared."""
        if self.is_comparison and entry.comparison is None:
            return ""
        return self.cell(entry)

    def name(self, score: str) -> str:
        """Its header without units, where ``score`` is compared."""
        return self.header.format(score=score).partition(" (")[0].removesuffix(" %")

    def values(self, entry: Entry, score: str) -> dict[str, object]:
        """Names and values of the cell for programs; fractions instead of percent.

        Empty where the column shows a comparison and the entry is not compared.
        """
        if self.is_comparison and entry.comparison is None:
            return {}
        name = self.name(score)
        if self.values_for_programs is None:
            return {name: self.cell(entry)}
        numbers = self.values_for_programs(entry)
        return {f"{name}{suffix}": value for suffix, value in numbers.items()}


@dataclass(frozen=True)
class Sheet:
    """A table of a report as text: a caption, a header and lines of cells."""

    caption: str
    header: list[str]
    lines: list[list[str]]
    # columns that a narrow screen shows without scrolling, beside the first column
    key_headers: Sequence[str] = ()

    @cached_property
    def text_headers(self) -> list[str]:
        """Headers of the columns to align left: the first, and those with words."""
        numbers = set()
        for name, *cells in zip(self.header, *self.lines, strict=True):
            # an empty cell counts as a number
            if all(cell[:1] in "+-<0123456789" for cell in cells):
                numbers.add(name)
        words = [name for name in self.header if name not in numbers]
        return [*self.header[:1], *words]


DECODER = Column(
    header="decoder",
    cell=lambda entry: entry.label + marks(entry),
    note=(
        "mechanism, and the settings that distinguish it. † marks a decoder that may "
        "be under-trained: the best epoch is the last in more seeds than chance "
        "explains (more epochs may help), or its learning rate or weight decay has "
        "the mark (edge): a value beyond it may help"
    ),
    aliases=("attention", "mechanism"),
)
VERDICT = Column(
    header="verdict",
    cell=verdict_text,
    note=(
        "what the test shows; (within margin): the decoders differ, but by less than "
        "--margin"
    ),
    is_comparison=True,
    screen=ScreenColumn("verdict", position=9),
    is_key=True,
)
SCORE = Column(
    header="{score}",
    cell=lambda entry: entry.compared_score.score.text(entry.compared_score.mean),
    note="mean over the finished seeds, on the test rows",
    values_for_programs=single_value(lambda entry: entry.compared_score.mean),
    screen=ScreenColumn("{score}", position=1),
    is_key=True,
)
ROWS_CI = Column(
    header="95% CI + rows",
    cell=lambda entry: entry.compared_score.score.span(
        entry.compared_score.seeds_rows_interval
    ),
    note=(
        "confidence interval of the mean over seeds and test rows, or groups of "
        "rows. It includes other choices of a rate, and few training rows. It is about "
        "the expected accuracy: that on one more test set varies more"
    ),
    values_for_programs=interval_bounds(
        lambda entry: entry.compared_score.seeds_rows_interval
    ),
    screen=ScreenColumn("95% CI", position=4),
    is_key_without_comparisons=True,
)
DIFFERENCE = Column(
    header="difference",
    cell=difference_text,
    note=(
        "the decoder minus the baseline with the same head and recipe, paired by "
        "seed and test row. Only tuned settings, such as the learning rate, may "
        "differ. * means that p Holm is below 0.05"
    ),
    is_comparison=True,
    values_for_programs=single_value(lambda entry: claim_of(entry).difference),
    screen=ScreenColumn("diff", position=6),
    is_key=True,
)
DIFFERENCE_CI = Column(
    header="95% CI of it",
    cell=difference_interval_text,
    note=(
        "confidence interval of the difference over seeds and test rows, or groups "
        "of rows, corrected as p Holm is: it excludes 0 exactly where a difference "
        "is shown"
    ),
    is_comparison=True,
    values_for_programs=interval_bounds(
        lambda entry: claim_of(entry).interval_corrected
    ),
    aliases=("ci", "interval"),
    screen=ScreenColumn("95% CI of it", position=7),
    is_key=True,
)
P_HOLM = Column(
    header="p Holm",
    cell=lambda entry: p_value(claim_of(entry).p_holm),
    note=(
        "p-value, corrected by Holm for all comparisons with the baseline in this "
        "table and with this head, also for those that a filter hides. Other tables "
        "and heads are corrected separately"
    ),
    is_comparison=True,
    values_for_programs=single_value(lambda entry: claim_of(entry).p_holm),
    screen=ScreenColumn("p\nHolm", position=8, drop_order=3),
)
DECIDE = Column(
    header="would decide",
    cell=decide_text,
    note=(
        "for an undecided comparison: what would give an even chance to decide it, if "
        "the observed difference is the true one. If neither more seeds alone nor more "
        "test rows (groups) alone can decide, it gives the factor by which both have "
        "to grow; if tuning or the training rows are the limit, it says more training "
        "rows"
    ),
    is_comparison=True,
)
SD = Column(
    header="sd",
    cell=lambda entry: entry.compared_score.score.std(entry.compared_score.std),
    note="standard deviation over seeds",
    values_for_programs=single_value(lambda entry: entry.compared_score.std),
    aliases=("std",),
    screen=ScreenColumn("sd", position=3, drop_order=5),
)
SEEDS = Column(
    header="seeds",
    cell=seeds_text,
    note="number of trained seeds; failed seeds count in no mean and in no pair",
    values_for_programs=lambda entry: {
        "": len(entry.seeds),
        " failed": len(entry.failed),
    },
    screen=ScreenColumn("seeds", position=5, drop_order=4),
)
SEEDS_CI = Column(
    header="95% CI seeds",
    cell=lambda entry: entry.compared_score.score.span(
        entry.compared_score.seeds_interval
    ),
    note=(
        "confidence interval of the mean over seeds alone (Student's t), for these "
        "test rows"
    ),
    values_for_programs=interval_bounds(
        lambda entry: entry.compared_score.seeds_interval
    ),
)
P_TRAINING = Column(
    header="p training",
    cell=training_p_text,
    note=(
        "of a cross-validation: p-value of the corrected resampled t test over "
        "folds, for another training set"
    ),
    is_comparison=True,
    values_for_programs=single_value(training_p),
)
SETTINGS = Column(
    header="settings",
    cell=lambda entry: entry.settings,
    note=(
        "settings that differ between decoders, and those that validation chose. "
        "(edge): validation chose the smallest or largest candidate, and at least 95 "
        "of 100 simulated choices on other validation rows are the same. A weight "
        "decay of 0 is not an edge"
    ),
    aliases=("lr",),
)
VALIDATION = Column(
    header="validation",
    cell=validation_text,
    note="with --all: mean validation score of the candidate; tuning chose by the mean "
    "over its tuning seeds",
    values_for_programs=single_value(validation_accuracy),
    screen=ScreenColumn("validation", position=2),
)
PARAMETERS = Column(
    header="parameters (attn / total)",
    cell=parameters_text,
    note=("number of parameters of the mechanism, and of mechanism and head together"),
    values_for_programs=lambda entry: {
        " attn": entry.parameters["attention"],
        " total": entry.parameters["total"],
    },
    screen=ScreenColumn("parameters\nattn / total", position=10, drop_order=1),
)
SECONDS = Column(
    header="s/seed",
    cell=seconds_text,
    note=(
        "seconds of training, mean over seeds; of a cross-validation, those of all "
        "folds of a seed together"
    ),
    values_for_programs=single_value(mean_seconds),
    aliases=("seconds",),
    screen=ScreenColumn("s per\nseed", position=11, drop_order=2),
)
# all columns, in the order of a page, a paper and a model card
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
VERDICTS = {
    "better, worse": "p Holm is below 0.05, over seeds and test rows, or groups of "
    "rows: the difference does not depend on these seeds and rows alone. Where nothing "
    "differs, at most 5 of 100 tables of one head have such a verdict",
    "equivalent": "two one-sided tests of the same kind show that the difference is "
    "smaller than --margin. Holm corrects them apart from the other p-values",
    "undecided": "neither of these, or a decoder has seeds and fewer than "
    f"{stats.LEAST_SEEDS} of them are paired",
    "no claim": "the score or the data allow no claim, for example fewer than "
    f"{stats.LEAST_GROUPS} groups of rows",
}


def entries_sheet(table: Table, columns: Sequence[Column] = ()) -> Sheet:
    """The main table of a report as text: a line for every entry that is shown.

    Without ``columns`` it has those of ``COLUMNS`` that are not empty in all entries.
    """
    shown_columns = list(columns)
    if not shown_columns:
        shown_columns = [
            column
            for column in COLUMNS
            if any(column.text(entry) for entry in table.shown_entries)
        ]

    caption = score_caption(table)
    has_comparisons = any(column.is_comparison for column in shown_columns)
    if table.compared_entries and has_comparisons:
        baseline = brief(str(table.baseline))
        difference_unit = table.score.difference_unit
        caption += f", and differences to '{baseline}' in {difference_unit}"

    header = [
        column.header.format(score=table.score.column) for column in shown_columns
    ]
    # a narrow page always shows the first column, and these
    key_headers = [
        name
        for column, name in zip(shown_columns[1:], header[1:], strict=True)
        if column.is_key or (column.is_key_without_comparisons and not has_comparisons)
    ]
    return Sheet(
        caption=caption,
        header=header,
        lines=[
            [column.text(entry) for column in shown_columns]
            for entry in table.shown_entries
        ],
        key_headers=key_headers,
    )


def screen_columns() -> list[tuple[Column, ScreenColumn]]:
    """The columns that a terminal shows, in their order there."""
    shown = [(column, column.screen) for column in COLUMNS if column.screen]
    return sorted(shown, key=lambda pair: pair[1].position)


def choose_columns(names: str | Sequence[str], score: str) -> tuple[Column, ...]:
    """The columns of these names, in their order, each once.

    Args:
        names: a list, or a text with commas. A name is a header without its unit, in
            large or small letters, with - or _ for a space.
        score: the score that is compared.

    Raises:
        ConfigError: no column has such a name.
    """
    title = score_of(score).title
    column_by_name = {
        _normalised(screen.header): column for column, screen in screen_columns()
    }
    column_by_name |= {_normalised(column.name(title)): column for column in COLUMNS}
    column_by_name[_normalised(score)] = SCORE
    column_by_name["score"] = SCORE

    # a dictionary keeps the order, and each column once
    chosen: dict[Column, None] = {}
    for name in names.split(",") if isinstance(names, str) else names:
        column = column_by_name.get(_normalised(name))
        if column is None:
            raise plugins.unknown(
                "column",
                name.strip(),
                [column.name(title) for column in COLUMNS],
                aliases=_names_by_alias(title),
                where="--columns",
            )
        chosen[column] = None
    return tuple(chosen)


def _names_by_alias(score: str) -> dict[str, str]:
    """Other name of a column -> its name, where a score with this title is compared."""
    return {alias: column.name(score) for column in COLUMNS for alias in column.aliases}


def _normalised(name: str) -> str:
    """A name in small letters, with single spaces in place of ``-`` and ``_``."""
    return " ".join(name.casefold().replace("-", " ").replace("_", " ").split())


def score_caption(table: Table) -> str:
    """What the values of a table are, such as ``test accuracy``, for its caption."""
    score = table.score
    scaled = SCALED_SUFFIX if table.temperature and score.uses_temperature else ""
    return f"test {score.title}{scaled}"


def explain_columns() -> str:
    """How each column and verdict is made: what ``gaam report --explain`` prints."""
    notes = {}
    for column in COLUMNS:
        header = column.header.format(score="accuracy %, or another --score")
        notes[header] = column.note
    notes |= VERDICTS
    lines = [f"- {name}: {note}." for name, note in notes.items()]
    wrapper = textwrap.TextWrapper(100, subsequent_indent="  ", break_on_hyphens=False)
    return "\n".join(wrapper.fill(line) for line in lines)
