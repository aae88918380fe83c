"""The page of a study, from its records alone."""

import html
import math
import re
import statistics
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from gaam_cache.common.markdown import escape_markdown, items, pipe_table
from gaam_cache.common.messages import duration, join_first, visible
from gaam_decoder.grids.answers import answer_against_probe, answers_of, in_words
from gaam_decoder.grids.recipe import Cell, Grid, GridStudy, rates_by_decoder
from gaam_decoder.grids.records import CellKey, DecoderRow, Records
from gaam_decoder.reports.drawing import Picture, svg_files
from gaam_decoder.reports.entries import BY_FOLD
from gaam_decoder.reports.formats.markdown import pipe
from gaam_decoder.reports.over_sets import AnswerOverSets
from gaam_decoder.reports.over_sets_pictures import forest_picture, overview_picture
from gaam_decoder.reports.over_sets_text import (
    decoders_sheet,
    notes_on_method,
    probe_sheet,
    robustness_sheet,
    sentence_against_probe,
)
from gaam_decoder.reports.wording import capitalised
from gaam_decoder.stats.across import LEAST_SETS
from gaam_decoder.stats.scores.base import Score

PAGE = "README.md"
MOST_FORESTS = 3  # decoders of a grid with a forest plot of their own
Lines = list[str]


def make_files(
    study: GridStudy, records: Records
) -> tuple[list[str], dict[str, bytes]]:
    """The answers of all grids in words, and the content of the files by name.

    The files are the page and its pictures.
    """
    sections: Lines = []
    answer_lines: list[str] = []
    pictures: list[Picture] = []
    for grid in study.grids:
        answers = answers_of(grid, records)
        # the first answer of all is that of the study, at the top of the page
        is_answered = not answer_lines
        answer_lines += [
            f"{grid.title}: {in_words(grid, answer)}" for answer in answers
        ]
        sections += _section(grid, answers, records, is_answered=is_answered)
        pictures += _pictures(grid, answers)

    head = [f"# {study.title}", "", study.question.strip(), ""]
    answer_of_study = answer_lines[0] if answer_lines else "No cell is recorded yet"
    head += [f"**{escape_markdown(answer_of_study)}.**", "", study.text.strip(), ""]
    page = [*head, *sections, *_weaknesses(study, records), *_how_to(study, records)]
    files = {PAGE: ("\n".join(page).rstrip() + "\n").encode()}
    for picture in pictures:
        files |= svg_files(picture.name, picture)
    return answer_lines, files


def _pictures(grid: Grid, answers: Sequence[AnswerOverSets]) -> list[Picture]:
    """All pictures of a grid."""
    overviews = [
        picture
        for number, answer in enumerate(answers, 1)
        for picture in _overview(grid, number, answer)
    ]
    return [*overviews, *_forests(grid, answers)]


def _overview(grid: Grid, number: int, answer: AnswerOverSets) -> list[Picture]:
    """The picture of all decoders of the answer of that number; none without any."""
    if not answer.decoders:
        return []
    return [overview_picture(f"{grid.name}-overview-{number}", answer)]


def _forests(grid: Grid, answers: Sequence[AnswerOverSets]) -> list[Picture]:
    """Forest plots of the decoders that differ most, in the first answer of a grid."""
    if not answers or len(answers[0].data_sets) < 2:
        return []
    decoders = sorted(
        answers[0].decoders, key=lambda decoder: -abs(decoder.combined.difference)
    )
    return [
        forest_picture(f"{grid.name}-forest-{number}", answers[0], decoder)
        for number, decoder in enumerate(decoders[:MOST_FORESTS], 1)
    ]


def _section(
    grid: Grid,
    answers: Sequence[AnswerOverSets],
    records: Records,
    *,
    is_answered: bool,
) -> Lines:
    """Counts, answers with their pictures and tables, and all cells of a grid.

    ``is_answered`` says that the page begins with the first answer in words.
    """
    lines = [f"## {escape_markdown(grid.title)}", "", *_count_lines(grid, records), ""]
    for number, answer in enumerate(answers, 1):
        if number > 1 or not is_answered:
            lines += [f"{escape_markdown(in_words(grid, answer))}.", ""]
        lines += _answer_lines(grid, number, answer)
    if not answers:
        return lines

    against_probe = answer_against_probe(grid, records)
    if against_probe is not None:
        lines += [f"{escape_markdown(sentence_against_probe(against_probe))}.", ""]
        lines += [pipe(probe_sheet(against_probe)), ""]
        notes = [*against_probe.left_out, "each data set counts alike in this table"]
        lines += [*items(notes), ""]

    forests = _forests(grid, answers)
    for picture in forests:
        lines += [*_picture_lines(picture), f"{escape_markdown(picture.title)}.", ""]
    if forests:
        lines += [escape_markdown(forests[0].caption), ""]
    # the answers differ in the baseline alone: the first has the remarks of all on the
    # cells that it uses
    notes = [*answers[0].all_results.remarks]
    if answers[0].decoders:
        notes = [*notes_on_method(answers), *notes]
    lines += [*items(notes), ""]
    if len(answers[0].data_sets) >= LEAST_SETS:
        sheet = robustness_sheet(answers[0])
        lines += [f"{capitalised(escape_markdown(sheet.caption))}:", ""]
        lines += [pipe(sheet), ""]
    lines += [*_cell_table(grid, answers[0], records), ""]
    return lines


def _count_lines(grid: Grid, records: Records) -> Lines:
    """How many cells of a grid are recorded, and which ones are missing."""
    cells = list(grid.cells())
    recorded = records.cells()
    missing = [cell for cell in cells if cell.key not in recorded]
    num_recorded = len(cells) - len(missing)
    verb = "is" if num_recorded == 1 else "are"
    lines = [f"{num_recorded} of {len(cells)} cells {verb} in."]
    if missing:
        names = "; ".join(_cells_by_encoder(grid, missing))
        lines.append(f"Missing, and in no mean: {escape_markdown(names)}.")
    return lines


def _cells_by_encoder(grid: Grid, cells: Sequence[Cell]) -> Iterator[str]:
    """The data sets of each encoder among some cells: ``trec, subj through minilm``."""
    for encoder in grid.encoders:
        names = [cell.dataset for cell in cells if cell.encoder == encoder]
        if len(names) == len(grid.datasets) > 1:
            yield f"all data sets through {encoder}"
        elif names:
            yield f"{', '.join(names)} through {encoder}"


def _answer_lines(grid: Grid, number: int, answer: AnswerOverSets) -> Lines:
    """Picture and table of the answer of that number of a grid, and what is left out.

    Without a difference that counts there is neither picture nor table.
    """
    lines: Lines = []
    for picture in _overview(grid, number, answer):
        lines += [*_picture_lines(picture), escape_markdown(picture.caption), ""]
        lines += [pipe(decoders_sheet(answer)), ""]
    if answer.left_out:
        lines += [*items(answer.left_out), ""]
    return lines


def _picture_lines(picture: Picture) -> Lines:
    """A picture, light or dark as the page is."""
    title = html.escape(visible(picture.title))
    return [
        '<picture><source media="(prefers-color-scheme: dark)" '
        f'srcset="{picture.name}-dark.svg"><img alt="{title}" '
        f'src="{picture.name}-light.svg"></picture>',
        "",
    ]


def _cell_table(grid: Grid, answer: AnswerOverSets, records: Records) -> Lines:
    """Size, scores and differences of every cell, one line for each.

    ``answer`` has the baseline, and the order of the decoders.
    """
    baseline = answer.all_results.baseline
    rows_by_cell: dict[CellKey, dict[str, DecoderRow]] = {}
    for row in records.rows:
        if row.grid == grid.name and row.baseline == baseline:
            rows_by_cell.setdefault(row.cell, {})[row.decoder] = row
    every_row = [row for rows in rows_by_cell.values() for row in rows.values()]
    ranked = [decoder.name for decoder in answer.decoders]
    differing = [row.decoder for row in every_row if row.difference is not None]
    compared = list(dict.fromkeys([*ranked, *differing]))
    # the baseline, and a probe that is compared with nothing
    uncompared = list(
        dict.fromkeys(row.decoder for row in every_row if row.decoder not in compared)
    )
    header = ["data set", "encoder", "rows", *uncompared, *compared]
    lines = []
    for (_grid_name, dataset, encoder), rows in rows_by_cell.items():
        first = next(iter(rows.values()))
        line = [dataset, encoder, f"{first.train_rows:,} + {first.test_rows:,}"]
        line += [_score(rows.get(name), grid.score) for name in uncompared]
        line += [_difference(rows.get(name), grid.score) for name in compared]
        lines.append(line)
    title = (
        f"{grid.score.column} of {' and of '.join(uncompared)} in every cell; then "
        f"differences of the others to {baseline} with their standard errors, in "
        f"{grid.score.difference_unit}:"
    )
    return [
        capitalised(escape_markdown(title)),
        "",
        *pipe_table(header, lines, left_aligned=header[:2]),
    ]


def _score(row: DecoderRow | None, score: Score) -> str:
    """The score of a row; empty where there is none."""
    if row is None or row.score is None:
        return ""
    return score.text(row.score)


def _difference(row: DecoderRow | None, score: Score) -> str:
    """The difference of a row, with its standard error in brackets."""
    if row is None or row.difference is None:
        return ""
    std_error = "" if row.std_error is None else f" ({score.std(row.std_error)})"
    return f"{score.difference(row.difference)}{std_error}"


def _weaknesses(study: GridStudy, records: Records) -> Lines:
    """What weakens the answer: what the recipe says, and what the records show."""
    lines = ["## What weakens it", ""]
    lines += [f"- {text}" for text in study.weaknesses]
    lines += _lines_on_errors(study, records)
    # a decoder has a row for each baseline, and counts once
    first_baselines = {grid.name: grid.baselines[0] for grid in study.grids}
    rows = [row for row in records.rows if row.baseline == first_baselines[row.grid]]
    if rows:
        lines += [f"- {text}" for text in _lines_on_training(study, rows)]
    lines.append("")
    return lines


def _lines_on_training(study: GridStudy, rows: Sequence[DecoderRow]) -> Iterator[str]:
    """Sentences on decoders that may be trained badly, and on failed seeds.

    Args:
        study: has the learning rates of its grids.
        rows: one for each decoder of a cell.
    """
    num_cells = Counter(row.decoder for row in rows)
    undertrained = Counter(row.decoder for row in rows if row.undertrained)
    texts = [
        f"{name} in {count} of {num_cells[name]} cells"
        for name, count in undertrained.most_common()
    ]
    yield (
        f"Under-trained by their own measure: {escape_markdown(join_first(texts, 3))}."
        if texts
        else "No decoder is under-trained by its own measure."
    )

    yield from _lines_on_rates(study, rows, num_cells)
    failed = sum(row.failed for row in rows)
    yield "No seed failed." if failed == 0 else f"{failed} seeds failed."


def _lines_on_rates(
    study: GridStudy, rows: Sequence[DecoderRow], num_cells: Mapping[str, int]
) -> Iterator[str]:
    """Sentences on decoders that mostly chose the smallest or largest of their rates.

    Args:
        study: has the learning rates of its grids.
        rows: one for each decoder of a cell.
        num_cells: decoder -> number of its cells.
    """
    rates_of_grid = {grid.name: rates_by_decoder(grid) for grid in study.grids}
    at_edge: Counter[tuple[str, float, str]] = Counter()
    for row in rows:
        rates = _rates_to_choose_from(row, rates_of_grid[row.grid])
        # one rate was not chosen; with folds, a decoder has a rate for each
        if len(rates) < 2 or row.lr in ("", BY_FOLD):
            continue
        rate = float(row.lr)
        if rate == min(rates):
            at_edge[row.decoder, rate, "smallest"] += 1
        elif rate == max(rates):
            at_edge[row.decoder, rate, "largest"] += 1
    for (name, rate, edge), count in at_edge.most_common():
        if 2 * count > num_cells[name]:
            beyond = "smaller" if edge == "smallest" else "larger"
            yield (
                f"{escape_markdown(name)} chose its {edge} learning rate, {rate:g}, in "
                f"{count} of {num_cells[name]} cells: a {beyond} one may be better."
            )


def _rates_to_choose_from(
    row: DecoderRow, rates_by_decoder: Mapping[str, Sequence[float]]
) -> Sequence[float]:
    """The learning rates of a decoder in the recipe; none if it is not found there."""
    if row.decoder in rates_by_decoder:
        return rates_by_decoder[row.decoder]
    # a recipe may leave options to their defaults: gaam for gaam:heads=2
    without_options = re.sub(r":[^ ]+", "", row.decoder)
    return rates_by_decoder.get(without_options, ())


def _lines_on_errors(study: GridStudy, records: Records) -> Lines:
    """A line for each score on the standard errors of single cells; none without."""
    score_by_grid = {grid.name: grid.score for grid in study.grids}
    score_by_title = {score.title: score for score in score_by_grid.values()}
    lines: Lines = []
    for title, score in score_by_title.items():
        rows = [row for row in records.rows if score_by_grid[row.grid].title == title]
        lines += _line_on_errors(score, rows)
    return lines


def _line_on_errors(score: Score, rows: Sequence[DecoderRow]) -> Lines:
    """A line on the standard errors of the rows of one score; none without any."""
    tested = [row for row in rows if row.std_error]
    if not tested:
        return []
    median = score.std(statistics.median(row.std_error or 0.0 for row in tested))
    parts = {
        "test rows": [row.from_rows for row in tested],
        "seeds": [row.from_seeds for row in tested],
        "the choice of the rate": [row.from_tuning for row in tested],
    }
    shares = []
    for name, variances in parts.items():
        shares_of_rows = [
            (variance or 0.0) / (row.std_error or 1.0) ** 2
            for variance, row in zip(variances, tested, strict=True)
        ]
        shares.append(f"{100 * statistics.median(shares_of_rows):.0f}% from {name}")
    return [
        f"- The standard error of a difference in one cell is {median} "
        f"{score.difference_unit} in the median. Of its square come, in the median, "
        f"{shares[0]}, {shares[1]} and {shares[2]}; the rest stands for rare rows that "
        "the test rows lack, and for few training rows. Intervals of single cells come "
        "from these parts: where few rows differ, those of gaam report are wider."
    ]


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
        "not run again; `--dry-run` prints the commands of the others. To run all of "
        "them, copy grid.toml alone into a new folder, and give its path in place of "
        f"`{name}`.",
        "",
        "Without `--data` the command makes this page from the records. Differences "
        "with standard errors are in [rows.csv](rows.csv), every seed is in "
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
        noun = "cell" if len(rows) == 1 else "cells"
        name = escape_markdown(f"{grid.title}, {encoder}")
        lines.append(
            f"- {name}, {len(rows)} {noun}: extraction "
            f"{duration(extraction)}, training {duration(training)}."
        )
    return lines
