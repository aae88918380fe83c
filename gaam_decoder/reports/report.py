"""A report: the accuracy tables of runs, in any format."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from gaam_cache import plugins
from gaam_cache.errors import ConfigError
from gaam_decoder.number_lists import parse_seeds, spell_numbers
from gaam_decoder.reports.notes import selected
from gaam_decoder.reports.table import (
    Format,
    Table,
    build_tables,
    check_fitted,
    check_order,
    laid_out,
)
from gaam_decoder.reports.writing.output import check_outputs, write_report
from gaam_decoder.reports.writing.unit import DEFAULT, margin_of, score_of
from gaam_decoder.runs.filters import Selection, Texts, one_form
from gaam_decoder.runs.loading import gathered
from gaam_decoder.runs.result import RunResult
from gaam_decoder.specs import parse_attention


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Report:
    """Tables of accuracies over seeds and of differences to a baseline; ``report`` makes one."""

    tables: tuple[Table, ...]
    """One per cache and test rows."""

    def text(self, format: str = "markdown") -> str:
        """The report as text.

        Args:
            format: what ``gaam report --format`` takes.

        Raises:
            ConfigError: no such format.
        """
        stream = io.StringIO()
        report_format(format).write(self.tables, stream)
        return stream.getvalue()

    def show(self, format: str = "terminal") -> None:
        """Print the report.

        Raises:
            ConfigError: no such format.
        """
        write_report(report_format(format), self.tables, None)

    def save(self, file: str | Path, format: str) -> None:
        """Write the report to a file, which appears whole.

        Raises:
            ConfigError: no such format, or a folder that holds a run or a cache.
            StorageError: the file system refused; a file that was there is as it was.
        """
        write_report(report_format(format), self.tables, Path(file))

    def beside(self, format: str) -> list[str]:
        """What nobody may miss and that format does not say in words: what was left out.

        Raises:
            ConfigError: no such format.
        """
        return [] if report_format(format).says_selection else list(selected(self.tables[0]))

    def save_figures(self, folder: str | Path) -> list[Path]:
        """Write all pictures as PDF and PNG; returns their paths.

        Raises:
            ConfigError: no folder can be there.
            StorageError: the file system refused.
        """
        from gaam_decoder.reports.pictures.pictures import save_pictures

        check_outputs(figures=Path(folder))
        return save_pictures(self.tables, Path(folder))

    def __str__(self) -> str:
        """As the command prints it."""
        return self.text("terminal")

    def __repr__(self) -> str:
        """How much there is."""
        rows = sum(len(table.rows) for table in self.tables)
        return f"<Report: {len(self.tables)} tables, {rows} rows>"

    def _repr_markdown_(self) -> str:
        """What a notebook shows."""
        return self.text("markdown")


def report_format(name: str) -> Format:
    """The format of that name.

    Raises:
        ConfigError: there is none.
    """
    found: Format = plugins.load("gaam_decoder.reports.formats", name, kind="report format")()
    return found


def report(
    runs: str | Path | RunResult | Sequence[str | Path | RunResult] = "runs",
    *,
    attn: Texts = None,
    head: Texts = None,
    layers: Texts = None,
    lr: Texts = None,
    cache: str | Path | None = None,
    since: str | datetime | None = None,
    baseline: str | None = None,
    margin: float | None = None,
    score: str = DEFAULT,
    temperature: bool = False,
    every_candidate: bool = False,
    tune_seeds: str | Sequence[int] | None = None,
    sort: str | None = None,
    top: int | None = None,
    pairs: str | None = None,
) -> Report:
    """Accuracy tables of runs: what ``gaam report`` prints.

    Args:
        runs: folders of runs and single runs, or some of what ``train`` or ``load_runs`` returned.
        attn: mechanisms that are meant, as ``load_runs`` has them; the report says what filters
            left out. Holm corrects for what was left out too: no filter makes p smaller.
        head: the same of heads.
        layers: sets of layers that are meant.
        lr: learning rates that are meant.
        cache: the cache that is meant.
        since: when the first of the runs that are meant was published.
        baseline: mechanism that the others are compared with, seed by seed; default: ``none``
            where it is among the runs.
        margin: largest difference that does not matter, in points of the score, or in its unit
            where it is not shown in percent; default: 0.5 points, of log loss 0.01, of the Brier
            score 0.005.
        score: what is compared: what ``gaam report --score`` takes.
        temperature: fit one for every seed and fold on the rows of train that chose its epoch, by
            their log loss, and divide logits by it in log loss, Brier score and ECE.
        every_candidate: show every one of the runs that differ in learning rate or weight decay
            alone; default: the one with the best mean validation accuracy.
        tune_seeds: seeds that choose between these; default: those that were trained to choose,
            else all that every candidate has.
        sort: order of the rows: score (default), accuracy, difference, name, parameters, seconds.
        top: rows of each table that are shown, by ``sort`` or score, and the baseline of each;
            what is said, and what Holm corrects for, is of all rows.
        pairs: setting in which the rows of every pair differ, or several with commas: attn, head,
            layers, lr or any other of a recipe; default: attn.

    Raises:
        ConfigError: no run of the baseline that was asked for, a margin that is none, no such
            score, a filter that means nothing, an order that is none, pairs along what does not
            vary, or no run of which a temperature can be fitted.
        NotFoundError: no runs, or none that is meant.
        CacheError: a run is damaged.
    """
    meant = score_of(score)
    spec = str(parse_attention(baseline, "--baseline")) if baseline else None
    check_order(sort, top)
    asked = {"attn": attn, "head": head, "layers": layers, "lr": lr, "cache": cache, "since": since}
    found = gathered(runs, **asked)
    if spec is not None:
        spec = one_form(spec, {run.attention for run in found}, "--baseline")
    if found.selection is not None:
        _check_left(found.selection, spec)
    tables = build_tables(
        found,
        spec,
        selection=found.selection,
        beside=found.others,
        margin=margin_of(margin, meant),
        score=score,
        temperature=temperature,
        every_candidate=every_candidate,
        tune_seeds=None if tune_seeds is None else _seeds(tune_seeds, found, every_candidate),
        pairs=pairs,
    )
    if temperature:
        check_fitted(tables)
    return Report(tables=tuple(laid_out(table, sort, top) for table in tables))


def _check_left(selection: Selection, baseline: str | None) -> None:
    """Whether the baseline that was asked for is among what is left."""
    if baseline is not None and (by := selection.lost.get(baseline)):
        raise ConfigError(
            f"the baseline '{baseline}' is left out by {by}",
            expected="a baseline that is among the runs of the report",
            found=selection.in_words(),
            hint=f"also give --attn {baseline}" if by == "--attn" else f"leave out {by}",
        )


def _seeds(
    value: str | Sequence[int], runs: Sequence[RunResult], every_candidate: bool
) -> tuple[int, ...]:
    if every_candidate:
        raise ConfigError(
            "--tune-seeds plays no part with --all, which chooses nothing",
            expected="one of the two",
            found=f"--all --tune-seeds {value}",
        )
    try:
        seeds = parse_seeds(value if isinstance(value, str) else list(value))
    except ValueError as error:
        raise ConfigError(
            "--tune-seeds is out of range", expected=str(error), found=str(value)
        ) from None
    there = {seed for run in runs for seed in run.seeds}
    if lacking := sorted(set(seeds) - there):
        raise ConfigError(
            "--tune-seeds names seeds that no run has",
            expected=f"some of {spell_numbers(sorted(there))}",
            found=spell_numbers(lacking),
            hint="a number alone is a number of seeds: 5 is 0-4",
        )
    chose = sorted({run.tuning_seeds for run in runs if run.tuning_seeds})
    if others := [one for one in chose if set(one) != set(seeds)]:
        raise ConfigError(
            "--tune-seeds are not those that chose what was trained",
            expected=f"{' or '.join(map(spell_numbers, others))}, as gaam train had them",
            found=spell_numbers(seeds),
            hint="leave it out: the runs say which seeds chose; or --all, which chooses nothing",
        )
    return seeds
