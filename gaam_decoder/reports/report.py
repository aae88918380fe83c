"""A report: the accuracy tables of runs, in any format."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gaam_cache import plugins
from gaam_cache.errors import ConfigError
from gaam_cache.store.files import check_file, check_folder, storage_errors, write_file
from gaam_cache.store.plan import PLAN_FILE, SHARD_FOLDER
from gaam_decoder.number_lists import parse_seeds, spell_numbers
from gaam_decoder.reports import columns as columns
from gaam_decoder.reports.notes import selected
from gaam_decoder.reports.table import (
    Format,
    Table,
    build_tables,
    check_fitted,
    check_order,
    laid_out,
)
from gaam_decoder.reports.unit import DEFAULT, margin_of, score_of
from gaam_decoder.runs.filters import Selection, Texts, one_form
from gaam_decoder.runs.loading import gathered
from gaam_decoder.runs.result import RUN_FILE, RunResult
from gaam_decoder.specs import parse_attention


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Report:
    """Tables of accuracies over seeds and of differences to a baseline; ``report`` makes one."""

    tables: tuple[Table, ...]
    """One per cache and test rows."""

    def text(self, format: str = "markdown", section: str | None = None) -> str:
        """The report as text.

        Args:
            format: what ``gaam report --format`` takes.
            section: of the format terminal alone: what ``gaam report --section`` takes.

        Raises:
            ConfigError: no such format or section.
        """
        stream = io.StringIO()
        _format(format, section).write(self.tables, stream)
        return stream.getvalue()

    def show(self, format: str = "terminal", section: str | None = None) -> None:
        """Print the report, or one section of it; what is not for a screen is UTF-8 always.

        Raises:
            ConfigError: no such format or section.
        """
        # the width, colour and encoding of a terminal are those of the screen
        if format != "terminal" and isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(encoding="utf-8")
        _format(format, section).write(self.tables, sys.stdout)

    def save(self, file: str | Path, format: str, section: str | None = None) -> None:
        """Write the report to a file, which appears whole, or to a pipe or device.

        Raises:
            ConfigError: no such format or section, or a folder that holds a run or a cache.
            StorageError: the file system refused; a file that was there is as it was.
        """
        _check_file(Path(file))
        _write(Path(file), self.text(format, section).encode())

    def beside(self, format: str) -> list[str]:
        """What nobody may miss and that format does not say in words: what was left out."""
        return [] if _format(format).says_selection else list(selected(self.tables[0]))

    def save_figures(self, folder: str | Path) -> list[Path]:
        """Write the first six pictures as PDF and PNG; returns their paths.

        Raises:
            ConfigError: no folder can be there.
            StorageError: the file system refused.
        """
        from gaam_decoder.reports.pictures import save_pictures

        check_folder(Path(folder), option="--figures")
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


def checked(
    format: str | None,
    *,
    as_json: bool = False,
    section: str | None = None,
    out: Path | None = None,
    figures: Path | None = None,
) -> str:
    """The name of the format that a command asks for; what cannot be written is refused.

    Raises:
        ConfigError: no such format, two of them, or a place where no report can go.
    """
    name = format or ("json" if as_json else "terminal")
    if as_json and name != "json":
        raise ConfigError("--json is --format json", expected="one format", found=name)
    _format(name, section)
    if figures is not None:
        check_folder(figures, option="--figures")
    if out is not None:
        _check_file(out)
    return name


def _format(name: str, section: str | None = None) -> Format:
    """The format of that name, which writes one section alone where one is asked for."""
    cls: Any = plugins.load("gaam_decoder.reports.formats", name, kind="report format")
    if section is not None and name != "terminal":
        raise ConfigError(
            "--section is for a terminal; other formats hold all sections",
            expected="--format terminal",
            found=name,
        )
    found: Format = cls(section) if section is not None else cls()
    return found


def _check_file(out: Path) -> None:
    """Refuse to replace what lies in a run or a cache."""
    folder = Path(os.path.realpath(out)).parent
    signs = [folder / RUN_FILE, folder / PLAN_FILE]
    signs += [folder.parent / PLAN_FILE] if folder.name == SHARD_FOLDER else []
    if kept := [sign.name for sign in signs if os.path.lexists(sign)]:
        raise ConfigError(
            f"'{out}' lies among results, which a report must not replace",
            expected="a file somewhere else",
            found=f"{kept[0]} beside it",
            where=str(out.absolute()),
            hint="choose another --out",
        )
    check_file(out, option="--out", special=True)


def _write(out: Path, content: bytes) -> None:
    with storage_errors(out):
        special = out.exists() and not out.is_file()
        if special or out.absolute().is_relative_to("/dev"):  # a pipe, a device, /dev/stdout
            # a pipe that nobody reads from is refused, not waited for
            handle = os.open(out, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)
            os.set_blocking(handle, True)
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            return
    # the file that a link means is replaced, and not the link
    write_file(Path(os.path.realpath(out)), content)


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
    tune_seeds: str | Sequence[int] | None = None,
    sort: str | None = None,
    top: int | None = None,
    pairs: str | None = None,
) -> Report:
    """Accuracy tables of runs: what ``gaam report`` prints.

    >>> report = gaam_decoder.report("runs", baseline="none")
    >>> report.save("table.tex", "latex")

    Args:
        runs: folders of runs and single runs, or some of what ``train`` or ``load_runs`` returned.
        attn: mechanisms that are meant, as ``load_runs`` has them; the report says what filters
            left out. Holm corrects for what was left out too: no filter makes p smaller.
        head: the same of heads.
        layers: sets of layers that are meant.
        lr: learning rates that are meant.
        cache: the cache that is meant.
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
    asked = {"attn": attn, "head": head, "layers": layers, "lr": lr, "cache": cache}
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
        raise ConfigError("--tune-seeds plays no part with --all, which chooses nothing")
    try:
        seeds = parse_seeds(value if isinstance(value, str) else list(value))
    except ValueError as error:
        message = "--tune-seeds is out of range"
        raise ConfigError(message, expected=str(error), found=str(value)) from None
    there = sorted({seed for run in runs for seed in run.seeds})
    if not set(seeds) <= set(there):
        raise ConfigError(
            "--tune-seeds names seeds that no run has",
            expected=f"some of {spell_numbers(there)}",
            found=spell_numbers(seeds),
            hint="a number alone is a number of seeds: 5 is 0-4",
        )
    chose = sorted({run.tuning_seeds for run in runs if run.tuning_seeds})
    if others := [one for one in chose if set(one) != set(seeds)]:
        raise ConfigError(
            "--tune-seeds are not those that chose what was trained",
            expected=f"{' or '.join(map(spell_numbers, others))}, as gaam train had them",
            found=spell_numbers(seeds),
            hint="leave it out: the runs say which seeds chose",
        )
    return seeds
