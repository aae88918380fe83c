"""A report: the accuracy tables of runs, in any format."""

import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gaam_cache.common import plugins
from gaam_cache.common.errors import ConfigError
from gaam_cache.common.paths import absolute_path
from gaam_cache.store.files import write_file
from gaam_decoder.reports import columns as columns
from gaam_decoder.reports.drawing import image_files, overviews
from gaam_decoder.reports.rows import DEFAULT
from gaam_decoder.reports.sections.base import sections
from gaam_decoder.reports.table import Format, Table, build_tables
from gaam_decoder.runs.loading import Texts, load_runs, one_form
from gaam_decoder.runs.result import RunResult
from gaam_decoder.specs import parse_attention

Names = str | Sequence[str] | None  # of columns; None: the usual
MOST_SAVED = 6  # pictures that are written, each as PDF and PNG: a dozen files


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Report:
    """Tables of accuracies over seeds and differences to a baseline, one per cache and test rows.

    ``format`` is what ``gaam report --format`` takes, ``section`` what ``--section`` and
    ``columns`` what ``--columns`` takes. A ConfigError says that there is none of that name.

    >>> "| gaam:heads=1" in gaam_decoder.report("runs").text("markdown")
    True
    """

    tables: tuple[Table, ...]

    def text(
        self,
        format: str = "markdown",
        section: str | None = None,
        columns: Names = None,
    ) -> str:
        """The report as text, or one section of it."""
        stream = io.StringIO()
        self._format(format, section, columns).write(self.tables, stream)
        return stream.getvalue()

    def show(
        self,
        format: str = "terminal",
        section: str | None = None,
        columns: Names = None,
    ) -> None:
        """Print the report, or one section of it; what is not for a screen is UTF-8 always."""
        # the width, colour and encoding of a terminal are those of the screen
        if format != "terminal" and isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")
        if format == "terminal" and sys.stdout.isatty():
            self._format(format, section, columns).write(self.tables, sys.stdout)
        else:  # at once: a notebook shows every write by itself
            sys.stdout.write(self.text(format, section, columns))

    def save(
        self,
        file: str | Path,
        format: str,
        section: str | None = None,
        columns: Names = None,
    ) -> None:
        """Write the report, or one section of it, to a file, which appears whole."""
        text = self.text(format, section, columns)
        # the file that a link means is replaced, and not the link
        write_file(absolute_path(file).resolve(), text.encode())

    def _format(self, name: str, section: str | None, columns: Names) -> Format:
        score = self.tables[0].score if self.tables else DEFAULT
        return format_of(name, section, columns, score)

    def save_figures(self, folder: str | Path) -> list[Path]:
        """Write the first six pictures, of a section one, as PDF and PNG; returns their paths."""
        paths: list[Path] = []
        most = max(1, MOST_SAVED // len(self.tables))
        for number, table in enumerate(self.tables, 1):
            prefix = f"table{number}-" if len(self.tables) > 1 else ""
            of_sections = [
                one for section in sections(table) for one in section.parts[1][:1]
            ]
            for picture in [*overviews(table), *of_sections][:most]:
                for suffix, content in image_files(picture).items():
                    paths.append(
                        absolute_path(folder) / f"{prefix}{picture.name}.{suffix}"
                    )
                    write_file(paths[-1], content)
        return paths

    def __str__(self) -> str:
        """As the command prints it."""
        return self.text("terminal")

    def _repr_markdown_(self) -> str:
        """What a notebook shows."""
        return self.text("markdown")


def format_of(
    name: str, section: str | None = None, names: Names = None, score: str = DEFAULT
) -> Format:
    """The format of that name, which writes one section alone where one is asked for.

    ``names`` are columns of the table of accuracies, whose values are of ``score``.

    Raises:
        ConfigError: no such format or column, or columns of what has none.
    """
    format: Format = plugins.load(
        "gaam_decoder.reports.formats", name, kind="report format"
    )()
    format.section = section
    if names is None:
        return format
    if section is not None:
        message = "--columns are of the table of accuracies, and --section is shown without it"
        raise ConfigError(message, expected="one of the two")
    if not format.has_columns:
        expected = "another format: this one holds everything"
        raise ConfigError(
            "--columns are of a table", expected=expected, found=f"--format {name}"
        )
    format.columns = columns.choose(names, score)
    return format


def report(
    runs: str | Path | RunResult | Sequence[str | Path | RunResult] = "runs",
    *,
    attn: Texts = None,
    head: Texts = None,
    layers: Texts = None,
    lr: Texts = None,
    cache: str | Path | None = None,
    baseline: str | None = None,
    margin: float | None = None,
    score: str = DEFAULT,
    temperature: bool = False,
    every_candidate: bool = False,
    top: int | None = None,
    pairs: str | None = None,
    groups: str | None = None,
) -> Report:
    """Accuracy tables of runs: what ``gaam report`` prints.

    >>> report = gaam_decoder.report("runs", baseline="none")
    >>> report.save("table.tex", "latex")

    Args:
        runs: folders of runs and single runs, or some of what ``train`` or ``load_runs`` returned.
        attn: mechanisms that are meant, as ``load_runs`` has them. Holm corrects for what filters
            left out too: none makes p smaller.
        head: the same of heads.
        layers: sets of layers that are meant.
        lr: learning rates that are meant.
        cache: the cache that is meant.
        baseline: mechanism that the others are compared with; default: ``none`` if it is there.
        margin: largest difference that does not matter, in points of the score, or in its unit;
            default: 0.5 points, of log loss 0.01, of the Brier score 0.005.
        score: what is compared: what ``gaam report --score`` takes.
        temperature: fit one for every seed and fold on the rows of train that chose its epoch, by
            their log loss, and divide logits by it in log loss, Brier score and ECE.
        every_candidate: show every learning rate and weight decay; default: what validation chose.
        top: rows of each table that are shown, the best, and their baselines; all are counted.
        pairs: setting in which the rows of every pair differ, such as layers: which is best stands
            first in the report; default: attn, in a section.
        groups: kept column whose value says which rows belong together, such as who speaks: the
            group is then the unit of intervals and verdicts. So are, without being asked for, the
            groups of the training, pieces of one sound, and copies.

    Raises:
        ConfigError: no such baseline, margin, score, filter or column, pairs along what does not
            vary, or no run of which a temperature can be fitted.
        NotFoundError: no runs, or none that is meant.
        CacheError: a run is damaged.
    """
    spec = str(parse_attention(baseline, option="--baseline")) if baseline else None
    if top is not None and not top >= 1:
        raise ConfigError(
            "--top is out of range", expected="a number from 1 on", found=str(top)
        )
    found = load_runs(runs, attn=attn, head=head, layers=layers, lr=lr, cache=cache)
    if spec is not None:
        spec = one_form(spec, {run.attention for run in found}, "--baseline")
    about: dict[str, Any] = {
        "margin": margin,
        "score": score,
        "temperature": temperature,
    }
    about |= {
        "every_candidate": every_candidate,
        "top": top,
        "pairs": pairs,
        "groups": groups,
    }
    tables = build_tables(found, spec, **about)
    if temperature and not any(
        row.temperature for table in tables for row in table.rows
    ):
        expected = "runs of --select val, which keep the logits of the rows that chose"
        raise ConfigError(
            "no run has what a temperature is fitted on", expected=expected
        )
    return Report(tuple(tables))
