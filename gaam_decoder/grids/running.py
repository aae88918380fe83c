"""Run the cells of a study that are not recorded, and record each when it is done."""

from collections.abc import Callable
from dataclasses import dataclass

from gaam_cache.common.errors import CacheError, ConfigError, GaamError
from gaam_cache.common.paths import shown_path
from gaam_cache.common.terminal import ReportProgress
from gaam_cache.extraction.extract import extract
from gaam_cache.extraction.summary import ExtractSummary
from gaam_cache.store.files import write_file
from gaam_cache.store.reader import open_cache
from gaam_decoder.grids.page import make_files
from gaam_decoder.grids.recipe import Cell, GridStudy, Sources
from gaam_decoder.grids.records import (
    CellCost,
    Records,
    check_other_rows,
    read_records,
    records_of_cell,
    write_records,
)
from gaam_decoder.reports.report import report
from gaam_decoder.reports.table import Table
from gaam_decoder.runs.loading import load_runs
from gaam_decoder.study import Outcome, Step, estimate_step
from gaam_decoder.training.sweep import check_failures, train


def estimate_grid(study: GridStudy, sources: Sources | None) -> Outcome:
    """List the commands of the cells that are not recorded; write nothing."""
    recorded = _recorded(study).cells()
    missing = [cell for cell in study.cells() if cell.key not in recorded]
    commands: list[dict[str, str]] = []
    lines = [_count_line(study, len(missing))]
    estimated: set[str] = set()
    for cell in missing:
        if sources is None:
            lines.append(f"missing: {cell.title}")
            continue
        for step in study.steps(cell, sources):
            # An estimate loads the encoder and reads rows: one for each encoder.
            text = "like the first cell of this encoder"
            if cell.encoder not in estimated:
                text = estimate_step(step)
            commands.append({"command": step.words(), "estimate": text})
            lines += [step.words(), f"  # {text}"]
        estimated.add(cell.encoder)
    return Outcome({"missing": len(missing), "commands": commands}, lines)


def carry_out_grid(
    study: GridStudy,
    sources: Sources | None,
    *,
    record: bool = False,
    say: Callable[[str], None] = lambda text: None,
    progress: ReportProgress | None = None,
) -> Outcome:
    """Run the cells that are not recorded, and write the page.

    A recorded cell is not run again, even if its cache and runs are gone. Records and
    page are written after every cell.

    Args:
        study: a recipe that ``read_grid_study`` checked.
        sources: the data sets and encoders of this machine; None: the page alone.
        record: keep records and page beside the recipe, too.
        say: called with every command line, and with the error of a failed cell.
        progress: called with the progress of every command.

    Raises:
        GaamError: a cell failed; the other cells are run and recorded before.
    """
    run = _GridRun(study, record, say, progress)
    records = _recorded(study)
    answers = run.save(records)
    failures: list[GaamError] = []
    for cell in study.cells():
        if sources is None or cell.key in records.cells():
            continue
        try:
            new_records = run.cell(cell, study.steps(cell, sources), records)
        except GaamError as error:
            # the other cells may take hours, and do not depend on this one
            say(f"{cell.title} failed: {error}")
            failures.append(error)
            continue
        records = records.joined(new_records)
        records = records.of_cells(c.key for c in study.cells())
        answers = run.save(records)
    if failures:
        raise failures[0]

    num_missing = sum(cell.key not in records.cells() for cell in study.cells())
    lines = [*answers, _count_line(study, num_missing)]
    lines.append(f"the page is in {shown_path(study.results)}")
    values = {
        "folder": str(study.results),
        "answers": answers,
        "missing": num_missing,
    }
    return Outcome(values, lines)


def _count_line(study: GridStudy, num_missing: int) -> str:
    num_cells = len(list(study.cells()))
    return f"{num_cells - num_missing} of {num_cells} cells are recorded"


def _recorded(study: GridStudy) -> Records:
    """All records of a study, in the order of its cells.

    Records in the results folder replace those beside the recipe.
    """
    bundled = read_records(study, study.folder)
    joined = bundled.joined(read_records(study, study.results))
    records = joined.of_cells(cell.key for cell in study.cells())
    cache_by_cell = {row.cell: row.cache for row in records.rows}
    for cell in study.cells():
        if cell.key in cache_by_cell:
            check_other_rows(records, cell, cache_by_cell[cell.key])
    return records


def _check_task(cell: Cell, task: str) -> None:
    """Check that a cell has the task of its grid, whose score the page shows.

    Raises:
        ConfigError: the labels of the data set are of another task.
    """
    if task != cell.grid.task.name:
        raise ConfigError(
            f"{cell.title} has the task {task}",
            expected=f"{cell.grid.task.name}, as in all of grid '{cell.grid.name}'",
            hint=f'task = "{task}" in [grids.extract], or a grid of its own',
        )


@dataclass(frozen=True, slots=True)
class _GridRun:
    """Runs cells and saves records for one call of ``carry_out_grid``."""

    study: GridStudy
    keeps_beside_recipe: bool
    say: Callable[[str], None]
    progress: ReportProgress | None

    def save(self, records: Records) -> list[str]:
        """Write records, page and pictures; return the answers of the grids."""
        answers, files = make_files(self.study, records)
        folders = [self.study.results]
        if self.keeps_beside_recipe:
            folders.append(self.study.folder)
        for folder in folders:
            write_records(folder, records)
            for name, content in files.items():
                write_file(folder / name, content)
        return answers

    def cell(self, cell: Cell, steps: list[Step], records: Records) -> Records:
        """Run the commands of a cell, and make its records.

        Args:
            cell: the cell.
            steps: the extraction first, then every training.
            records: of other cells.
        """
        extract_step, *train_steps = steps
        self.say(extract_step.words())
        summary = extract(extract_step.config, progress=self.progress)
        check_other_rows(records, cell, summary.fingerprint)
        extract_seconds = self._extract_seconds(cell, summary)
        _check_task(cell, open_cache(extract_step.config.out).task)

        folder = train_steps[0].config.runs
        names: set[str] = set()
        for step in train_steps:
            self.say(step.words())
            trained = train(step.config, progress=self.progress)
            check_failures(trained, step.config.seeds)
            names |= {run.path.name for run in trained}

        # The folder may have runs of an earlier recipe: only those of this one count.
        runs = [run for run in load_runs(folder) if run.path.name in names]
        train_seconds = sum(sum(run.seconds.values()) for run in runs)
        tables: dict[str, Table] = {}
        margin = cell.grid.score.factor * cell.grid.margin
        for baseline in cell.grid.baselines:
            made = report(runs, baseline=baseline, margin=margin)
            if len(made.tables) != 1:
                raise CacheError(
                    f"{cell.title} has {len(made.tables)} tables of test rows",
                    expected="one: the same test rows for all decoders",
                    where=str(folder),
                )
            tables[baseline] = made.tables[0]
        return records_of_cell(cell, tables, CellCost(extract_seconds, train_seconds))

    def _extract_seconds(self, cell: Cell, summary: ExtractSummary) -> float | None:
        """Seconds of the whole extraction; None if several calls shared it.

        A file keeps the seconds. The next call may find the cache complete: it makes no
        row, and still has to record them.
        """
        path = self.study.results / "extractions" / "-".join(cell.key)
        if summary.rows_made == sum(summary.rows.values()):
            write_file(path, f"{summary.seconds:.9g}\n".encode())
        elif summary.rows_made > 0:
            # the seconds of this call alone say nothing of the whole
            path.unlink(missing_ok=True)
        return float(path.read_text("utf-8")) if path.is_file() else None
