"""The page of a study, from its records alone."""

import math
import statistics
from collections.abc import Sequence

from gaam_cache.common.markdown import pipe_table, plain
from gaam_cache.common.messages import duration
from gaam_decoder.grids.answers import DecoderAnswer, GridAnswer, answers_of
from gaam_decoder.grids.pictures import forest
from gaam_decoder.grids.recipe import Grid, GridStudy
from gaam_decoder.grids.records import DecoderRow, Records
from gaam_decoder.reports.drawing import svg_files

PAGE = "README.md"
Lines = list[str]


def make_files(
    study: GridStudy, records: Records
) -> tuple[list[str], dict[str, bytes]]:
    """The answers of all grids in words, and the content of the files by name.

    The files are the page and its pictures.
    """
    files: dict[str, bytes] = {}
    sections: Lines = []
    answer_lines: list[str] = []
    for grid in study.grids:
        answers = answers_of(grid, records)
        answer_lines += [f"{grid.title}: {answer.in_words()}" for answer in answers]
        sections += _section(grid, answers, records)
        if answers and answers[0].compared:
            files |= svg_files(f"{grid.name}-forest", forest(answers[0]))

    # the first answer of the first grid is the answer of the study
    head = [f"# {study.title}", "", study.question.strip(), ""]
    first = answer_lines[0] if answer_lines else "No cell is recorded yet"
    head += [f"**{plain(first)}.**", "", study.text.strip(), ""]
    page = [*head, *sections, *_weaknesses(study, records), *_how_to(study, records)]
    files[PAGE] = ("\n".join(page).rstrip() + "\n").encode()
    return answer_lines, files


def _section(grid: Grid, answers: Sequence[GridAnswer], records: Records) -> Lines:
    """Counts, forest plot and tables of a grid."""
    cells = list(grid.cells())
    recorded = records.cells()
    missing = [cell.title for cell in cells if cell.key not in recorded]
    lines = [f"## {grid.title}", ""]
    lines.append(f"{len(cells) - len(missing)} of {len(cells)} cells are in.")
    if missing:
        lines.append(f"Missing, and in no mean: {plain(', '.join(missing))}.")
    lines.append("")
    for number, answer in enumerate(answers):
        if number == 0 and answer.compared:
            name = f"{grid.name}-forest"
            lines += [
                '<picture><source media="(prefers-color-scheme: dark)" '
                f'srcset="{name}-dark.svg"><img alt="Differences" '
                f'src="{name}-light.svg"></picture>',
                "",
            ]
        if number > 0:
            lines += [f"{plain(answer.in_words())}.", ""]
        lines += [*_table(answer), ""]
    if answers:
        lines += [*_encoder_table(answers[0], records), ""]
    return lines


def _table(answer: GridAnswer) -> Lines:
    """One line for every decoder."""
    header = [
        f"against {answer.baseline}",
        "accuracy %",
        "difference",
        "95% CI",
        "another data set",
        "p Holm",
        "cells better / equivalent / worse / undecided",
        "verdict",
    ]
    lines = [_table_line(entry, answer) for entry in answer.decoders]
    return pipe_table(header, lines, [header[0], "verdict"])


def _table_line(entry: DecoderAnswer, answer: GridAnswer) -> list[str]:
    """The cells of the table of ``_table`` for one decoder."""
    accuracy = "" if entry.accuracy is None else f"{100 * entry.accuracy:.1f}"
    across = entry.across
    if across is None:
        return [entry.decoder, accuracy, *[""] * 6]
    p = across.p_holm if across.p_holm is not None else across.p
    counts = [entry.count(name) for name in ("better", "equivalent", "worse")]
    counts.append(len(entry.rows) - sum(counts))
    name = entry.decoder
    if across.left_out:
        name += f" (without {', '.join(across.left_out)})"
    return [
        name,
        accuracy,
        f"{100 * across.difference:+.2f}",
        _interval(across.interval),
        _interval(across.prediction),
        "" if p is None else f"{p:.3f}",
        " / ".join(map(str, counts)),
        across.verdict,
    ]


def _interval(interval: tuple[float, float] | None) -> str:
    if interval is None:
        return ""
    low, high = interval
    return f"{100 * low:+.2f} to {100 * high:+.2f}"


def _encoder_table(answer: GridAnswer, records: Records) -> Lines:
    """Size, accuracy and differences of every cell, one line for each."""
    names = [entry.decoder for entry in answer.compared]
    header = ["data set", "encoder", "rows", answer.baseline, *names]
    lines = []
    rows_by_cell: dict[tuple[str, str, str], dict[str, DecoderRow]] = {}
    for row in records.rows:
        if row.grid == answer.grid.name and row.baseline == answer.baseline:
            rows_by_cell.setdefault(row.cell, {})[row.decoder] = row
    for (_, dataset, encoder), by_decoder in rows_by_cell.items():
        first = next(iter(by_decoder.values()))
        line = [dataset, encoder, f"{first.train_rows:,} + {first.test_rows:,}"]
        line.append(_percent(by_decoder.get(answer.baseline)))
        line += [_difference(by_decoder.get(name)) for name in names]
        lines.append(line)
    if not lines:
        return []
    title = (
        "Accuracy of the baseline and differences to it in every cell, with their "
        "standard errors, in points:"
    )
    return [title, "", *pipe_table(header, lines, header[:2])]


def _percent(row: DecoderRow | None) -> str:
    if row is None or row.accuracy is None:
        return ""
    return f"{100 * row.accuracy:.1f}"


def _difference(row: DecoderRow | None) -> str:
    if row is None or row.difference is None:
        return ""
    std_error = "" if row.std_error is None else f" ({100 * row.std_error:.2f})"
    return f"{100 * row.difference:+.2f}{std_error}"


def _weaknesses(study: GridStudy, records: Records) -> Lines:
    """What weakens the answer: what the records show, and what the recipe says."""
    lines = ["## What weakens it", ""]
    lines += [f"- {text}" for text in study.weaknesses]
    tested = [row for row in records.rows if row.std_error is not None]
    undertrained = sorted(
        {(*row.cell, row.decoder) for row in records.rows if row.undertrained}
    )
    decoders = {(*row.cell, row.decoder) for row in records.rows}
    failed = sum(
        row.failed
        for row in records.rows
        if row.baseline == _first_baseline(study, row.grid)
    )
    if tested:
        median = 100 * statistics.median(row.std_error or 0.0 for row in tested)
        shares = [_share_of_rows(row) for row in tested]
        lines.append(
            f"- The standard error of a difference in one cell is {median:.2f} points "
            f"in the median; {100 * statistics.median(shares):.0f}% of its square "
            "comes from the test rows, the rest from seeds and tuning."
        )
    if decoders:
        lines.append(
            f"- {len(undertrained)} of {len(decoders)} decoders in cells are "
            f"under-trained by their own measure, and {failed} seeds failed."
        )
    lines.append("")
    return lines


def _first_baseline(study: GridStudy, grid_name: str) -> str:
    """The baseline of a grid whose comparisons answer the question of the study."""
    return next(g.baselines[0] for g in study.grids if g.name == grid_name)


def _share_of_rows(row: DecoderRow) -> float:
    """Share of the variance of a difference that comes from the test rows."""
    variance = (row.std_error or 0.0) ** 2
    return (row.from_rows or 0.0) / variance if variance > 0 else 0.0


def _how_to(study: GridStudy, records: Records) -> Lines:
    """How to run the study again, and what its cells cost."""
    name = study.folder.name
    costs = [line for grid in study.grids for line in cost_lines(grid, records)]
    if costs:
        costs = ["", "What the recorded cells took on their machine:", "", *costs]
    return [
        "## Run it again",
        "",
        f"    gaam study {name} --data DATA --encoders ENCODERS",
        "",
        "`DATA` has a folder for every data set, `ENCODERS` one for every encoder; "
        "[grid.toml](grid.toml) says where to get them. Cells that are recorded are "
        "not run again; `--dry-run` prints the commands of the others. Without "
        "`--data` the command makes this page from the records. Differences with "
        "standard errors are in [rows.csv](rows.csv), every seed is in "
        "[seeds.csv](seeds.csv).",
        *costs,
    ]


def cost_lines(grid: Grid, records: Records) -> Lines:
    """Hours of the recorded cells, by encoder."""
    lines = []
    for encoder in grid.encoders:
        cells = {row.cell: row for row in records.rows if row.encoder == encoder}
        rows = [row for row in cells.values() if row.grid == grid.name]
        if not rows:
            continue
        extraction = math.fsum(row.extract_seconds or 0.0 for row in rows)
        training = math.fsum(row.train_seconds for row in rows)
        lines.append(
            f"- {plain(encoder)}: {len(rows)} cells, extraction "
            f"{duration(extraction)}, training {duration(training)}."
        )
    return lines
