"""A report: the accuracy tables of runs, in any format.

``report`` reads runs and makes the tables; a ``Report`` prints, writes and draws them.
"""

import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict, Unpack

from gaam_cache.common import plugins
from gaam_cache.common.errors import ConfigError
from gaam_cache.common.paths import absolute_path
from gaam_cache.store.files import write_file
from gaam_decoder.reports.across.base import across_sections
from gaam_decoder.reports.columns import choose_columns
from gaam_decoder.reports.drawing import Picture, image_files, overview_pictures
from gaam_decoder.reports.encoders import encoder_sections
from gaam_decoder.reports.entries import DEFAULT_SCORE
from gaam_decoder.reports.scoring import score_name
from gaam_decoder.reports.sections.base import Section, sections
from gaam_decoder.reports.sets import parse_factors
from gaam_decoder.reports.table import (
    Format,
    Table,
    TableOptions,
    build_all_tables,
    build_tables,
    check_options,
    compares_encoders,
)
from gaam_decoder.runs.loading import Texts, load_runs, resolve_baseline
from gaam_decoder.runs.result import RunResult

Names = str | Sequence[str] | None  # of columns; None: the usual ones
FORMAT_BY_ENDING = {
    ".csv": "csv",
    ".html": "html",
    ".json": "json",
    ".md": "markdown",
    ".tex": "latex",
    ".txt": "terminal",
}
MOST_SAVED = 6  # pictures to write, each as PDF and PNG: a dozen files


class ReportPart(TypedDict, total=False):
    """The part of a report to write; the whole report without any of these keys."""

    section: str | None
    """The section to write alone."""
    columns: Names
    """Columns of the table of accuracies, in their order."""


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Report:
    """A table of accuracies over seeds for each cache and set of test rows.

    ``text``, ``show`` and ``save`` take ``format``, and the keywords ``section`` and
    ``columns``, as ``gaam report`` takes ``--format``, ``--section`` and ``--columns``.
    They raise a ConfigError for an unknown name.

    >>> "| gaam:heads=1" in gaam_decoder.report("runs").text("markdown")
    True
    """

    tables: tuple[Table, ...]
    sections_over_sets: tuple[Section, ...] = ()
    """Sections over the data sets of all tables."""

    def text(self, format: str = "markdown", **part: Unpack[ReportPart]) -> str:
        """The report as text, or one section of it."""
        stream = io.StringIO()
        self._format(format, part).write(self.tables, stream)
        return stream.getvalue()

    def show(self, format: str = "terminal", **part: Unpack[ReportPart]) -> None:
        """Print the report, or one section of it.

        Every format but ``terminal`` is printed in UTF-8.
        """
        if format != "terminal" and isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")
        if format == "terminal" and sys.stdout.isatty():
            # the format asks the screen for its width, colours and encoding
            self._format(format, part).write(self.tables, sys.stdout)
        else:
            # a notebook shows every write by itself, so there is one
            sys.stdout.write(self.text(format, **part))

    def save(
        self, file: str | Path, format: str | None = None, **part: Unpack[ReportPart]
    ) -> None:
        """Write the report, or one section of it, to a file.

        Without ``format`` the ending of the file decides, such as .tex. Readers see the
        whole file or none.
        """
        text = self.text(format or format_of_file(file), **part)
        # a link stays, and the file behind it is replaced
        write_file(absolute_path(file).resolve(), text.encode())

    def _format(self, name: str, part: ReportPart) -> Format:
        """The format of that name, for a part of this report."""
        score = self.tables[0].score_name if self.tables else DEFAULT_SCORE
        format = format_of(name, score, **part)
        format.sections_over_sets = self.sections_over_sets
        return format

    def save_figures(self, folder: str | Path) -> list[Path]:
        """Write the first pictures of the report, and return the paths of their files.

        Each picture is written as PDF and as PNG. Of each section over data sets the
        first ``MOST_SAVED`` pictures are written. The tables share as many: a table has
        those beside its scores, and then the first of each section, at least one.
        """
        paths: list[Path] = []
        for section in self.sections_over_sets:
            for picture in section.parts.pictures[:MOST_SAVED]:
                paths += _write_picture(picture, absolute_path(folder), prefix="")
        pictures_per_table = max(1, MOST_SAVED // len(self.tables))
        for number, table in enumerate(self.tables, 1):
            prefix = f"table{number}-" if len(self.tables) > 1 else ""
            pictures = [*overview_pictures(table)]
            for section in sections(table):
                pictures += section.parts.pictures[:1]
            for picture in pictures[:pictures_per_table]:
                paths += _write_picture(picture, absolute_path(folder), prefix)
        return paths

    def __str__(self) -> str:
        """The report as the command prints it."""
        return self.text("terminal")

    def _repr_markdown_(self) -> str:
        """The report as a notebook shows it."""
        return self.text("markdown")


def _write_picture(picture: Picture, folder: Path, prefix: str) -> list[Path]:
    """Write a picture as PDF and as PNG, and return both paths.

    The names of the files are ``prefix`` and the name of the picture.
    """
    paths = []
    for suffix, content in image_files(picture).items():
        path = folder / f"{prefix}{picture.name}.{suffix}"
        write_file(path, content)
        paths.append(path)
    return paths


def format_of_file(file: str | Path) -> str:
    """The name of the format that the ending of a file stands for.

    Raises:
        ConfigError: no format has such an ending.
    """
    ending = Path(file).suffix.lower()
    if ending not in FORMAT_BY_ENDING:
        raise ConfigError(
            "the ending of the file says no format of a report",
            expected=f"{', '.join(FORMAT_BY_ENDING)}, or --format NAME",
            found=f"--out {file}",
        )
    return FORMAT_BY_ENDING[ending]


def format_of(
    name: str,
    score: str = DEFAULT_SCORE,
    *,
    section: str | None = None,
    columns: Names = None,
) -> Format:
    """The format of that name, for the whole report or one section.

    Args:
        name: what ``--format`` takes.
        score: the score that is compared, as a name or ``FILE.py:CLASS``; one of the
            columns is called so.
        section: the section to show alone.
        columns: columns of the table of accuracies.

    Raises:
        ConfigError: no such format or column, or columns of a format or section that
            takes none.
    """
    format_class: type[Format] = plugins.load(
        "gaam_decoder.reports.formats", name, kind="report format"
    )
    format = format_class()
    format.section = section
    if columns is None:
        return format
    if section is not None:
        raise ConfigError(
            "--columns choose columns of the table of accuracies, "
            "and --section leaves that table out",
            expected="one of the two",
        )
    if not format.has_columns:
        raise ConfigError(
            "--columns choose columns of a table",
            expected="another format: this one holds everything",
            found=f"--format {name}",
        )
    format.columns = choose_columns(columns, score_name(score))
    return format


def report(
    runs: str | Path | RunResult | Sequence[str | Path | RunResult] = "runs",
    *,
    attn: Texts = None,
    head: Texts = None,
    layers: Texts = None,
    lr: Texts = None,
    cache: str | Path | None = None,
    **options: Unpack[TableOptions],
) -> Report:
    """Accuracy tables of runs: what ``gaam report`` prints.

    >>> report = gaam_decoder.report("runs", baseline="none")
    >>> report.save("table.tex")

    Args:
        runs: folders of runs and single runs, or some of the runs that ``train`` or
            ``load_runs`` returned.
        attn: mechanisms to report on, as ``load_runs`` takes them. Holm corrects for
            what filters leave out too, so a filter makes no p smaller.
        head: heads to report on.
        layers: sets of layers to report on.
        lr: learning rates to report on.
        cache: the cache to report on.
        options: how to compare and what to show, such as ``baseline``, ``score``,
            ``margin``, ``pairs`` and ``groups``; ``TableOptions`` explains each.

    Raises:
        ConfigError: no such option, baseline, margin, score, filter or column, pairs
            along a setting that does not vary, a score that says nothing of so few
            classes, or no run that a temperature can be fitted to.
        NotFoundError: there are no runs, or the filters leave none.
        CacheError: a run is damaged.
    """
    check_options(options)
    factors = parse_factors(options.get("across"))
    baseline = options.get("baseline")
    score = options.get("score")
    if score is not None:
        options["score"] = score_name(score)

    loaded = load_runs(runs, attn=attn, head=head, layers=layers, lr=lr, cache=cache)
    if baseline:
        mechanisms = {run.attention for run in loaded}
        baseline = resolve_baseline(baseline, mechanisms)
    options["baseline"] = baseline or None
    tables = build_tables(loaded, **options)
    _check_number_of_classes(tables)

    entries = [entry for table in tables for entry in table.entries]
    if options.get("temperature") and not any(entry.temperature for entry in entries):
        raise ConfigError(
            "no run has validation rows to fit a temperature on",
            expected="runs of --select val, which keep the logits of these rows",
        )
    over_tables = across_sections(tables, factors)
    if compares_encoders(options.get("pairs")):
        all_tables = build_all_tables(loaded, **options)
        over_tables = [*encoder_sections(tables, all_tables), *over_tables]
    return Report(tuple(tables), tuple(over_tables))


def _check_number_of_classes(tables: Sequence[Table]) -> None:
    """Refuse a score that has no meaning for the classes of any table."""
    score = tables[0].score
    most_classes = max(len(table.cache.names) for table in tables)
    if most_classes < score.fewest_classes:
        raise ConfigError(
            f"{score.title} says nothing of so few classes",
            expected=f"{score.fewest_classes} classes or more",
            found=f"{most_classes} classes",
            hint="leave --score out, or name another score",
        )
