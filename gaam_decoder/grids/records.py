"""The records of a study: a line for every decoder, and one for every seed.

Caches and runs may be lost: the page follows from these files alone. ``seeds.csv`` is
written before ``rows.csv``, so that a cell with rows has its seeds, too.
"""

import csv
import io
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

from gaam_cache.common.errors import CacheError
from gaam_cache.store.files import write_file
from gaam_decoder.grids.recipe import (
    Cell,
    GridStudy,
    decoder_name,
    refuse_one_name_for_several,
)
from gaam_decoder.reports.entries import Entry
from gaam_decoder.reports.table import Table
from gaam_decoder.stats.across import difference_of_claim
from gaam_decoder.stats.claims import Claim
from gaam_decoder.stats.crossed import Crossed

ROWS = "rows.csv"
SEEDS = "seeds.csv"
FINGERPRINT_DIGITS = 12  # of a cache's fingerprint in ``rows.csv``
CellKey = tuple[str, str, str]
"""Names of grid, data set and encoder."""
ScoresBySeed = dict[tuple[CellKey, str], dict[int, float]]
"""Cell and decoder -> the score of every finished seed."""
NEW_NAMES = {"accuracy": "score"}
"""Column of an earlier version -> its name now."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderRow:
    """A decoder in one cell, compared with one baseline.

    Scores are fractions, not percent; R2 has its own unit.
    """

    grid: str
    dataset: str
    encoder: str
    settings: str
    """Digest of the settings of the cell."""
    cache: str
    """Start of the fingerprint of the states."""
    train_rows: int
    test_rows: int
    test_groups: int | None
    classes: int
    """Or the numbers or labels of another task."""
    extract_seconds: float | None
    """Of the extraction; None if it was interrupted, or was there without the study."""
    train_seconds: float
    """Of all runs of the cell, tuning included, on the threads of the machine."""
    decoder: str
    attention: str
    head: str
    parameters: int
    lr: str
    seeds: int
    failed: int
    undertrained: bool
    score: float | None
    """Mean over seeds of the score of the grid, such as accuracy."""
    sd: float | None
    baseline: str
    difference: float | None
    """To the baseline, over the seeds that both finished."""
    std_error: float | None
    """Of the difference, as it counts in a mean over data sets: from seeds, rows and
    tuning, and from rare rows that the test rows lack. None: the claim has no test."""
    from_seeds: float | None
    """Part of the squared standard error."""
    from_rows: float | None
    from_tuning: float | None
    p: float | None
    """Of the cell alone, without a correction."""
    p_equivalent: float | None
    verdict: str
    """In the cell, corrected (Holm) for all decoders of the cell."""

    @property
    def cell(self) -> CellKey:
        return self.grid, self.dataset, self.encoder


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedRow:
    """The score of a decoder with one seed, over all test rows of the cell."""

    grid: str
    dataset: str
    encoder: str
    decoder: str
    seed: int
    score: float | None
    """None: the seed failed."""

    @property
    def cell(self) -> CellKey:
        return self.grid, self.dataset, self.encoder


@dataclass(frozen=True, slots=True)
class Records:
    """All recorded rows of a study."""

    rows: tuple[DecoderRow, ...] = ()
    seeds: tuple[SeedRow, ...] = ()

    def cells(self) -> set[CellKey]:
        return {row.cell for row in self.rows}

    def of_cells(self, cells: Iterable[CellKey]) -> "Records":
        """The records of some cells, sorted as the cells are."""
        rows: list[DecoderRow] = []
        seeds: list[SeedRow] = []
        for cell in cells:
            rows += [row for row in self.rows if row.cell == cell]
            seeds += [row for row in self.seeds if row.cell == cell]
        return Records(tuple(rows), tuple(seeds))

    def joined(self, newer: "Records") -> "Records":
        """These records, with the cells of the newer ones in place of their own."""
        older = self.of_cells(sorted(self.cells() - newer.cells()))
        return Records(older.rows + newer.rows, older.seeds + newer.seeds)


Row = TypeVar("Row", DecoderRow, SeedRow)


def read_records(study: GridStudy, folder: Path) -> Records:
    """Read the records of the cells of a study from a folder.

    A cell that was run with other settings than the recipe has now is left out.

    Raises:
        CacheError: a file is damaged, or seeds and rows disagree.
    """
    if not (folder / ROWS).is_file():
        return Records()
    all_rows = _read(folder / ROWS, DecoderRow)
    all_seeds = _read(folder / SEEDS, SeedRow)
    scores = _scores_by_seed(all_seeds)
    _check_means(folder, all_rows, scores)
    _check_differences(folder, all_rows, scores)
    digests = {cell.key: cell.grid.settings_digest for cell in study.cells()}
    rows = [row for row in all_rows if digests.get(row.cell) == row.settings]
    cells = {row.cell for row in rows}
    order = [cell.key for cell in study.cells() if cell.key in cells]
    return Records(tuple(rows), tuple(all_seeds)).of_cells(order)


def check_other_rows(records: Records, cell: Cell, fingerprint: str) -> None:
    """Refuse a data set that has the rows of another one: it would count twice.

    Args:
        records: of the cells that are recorded.
        cell: another cell, or one of them.
        fingerprint: of the cell's cache, or its beginning.

    Raises:
        CacheError: the cache of another data set has the same fingerprint.
    """
    for row in records.rows:
        is_another = row.grid == cell.grid.name and row.dataset != cell.dataset
        if is_another and row.cache == fingerprint[:FINGERPRINT_DIGITS]:
            raise CacheError(
                f"{cell.dataset} has the rows and labels of {row.dataset}",
                expected="data sets of different rows: one counts once",
                found=f"fingerprint {row.cache} for both, through {row.encoder}",
            )


def write_records(folder: Path, records: Records) -> None:
    """Write both files, ``rows.csv`` last: a cell is recorded when it has rows.

    Cells that the files have and the records lack stay, such as those of a recipe that
    was changed since: they count nowhere, and a person may change the recipe back.
    """
    if (folder / ROWS).is_file():
        cells = records.cells()
        other_rows = [
            row for row in _read(folder / ROWS, DecoderRow) if row.cell not in cells
        ]
        other_seeds = [
            row for row in _read(folder / SEEDS, SeedRow) if row.cell not in cells
        ]
        records = Records((*records.rows, *other_rows), (*records.seeds, *other_seeds))
    write_file(folder / SEEDS, _spell(SeedRow, records.seeds))
    write_file(folder / ROWS, _spell(DecoderRow, records.rows))


def _spell(row_class: type[Row], rows: Sequence[Row]) -> bytes:
    stream = io.StringIO()
    names = [field.name for field in fields(row_class)]
    writer = csv.DictWriter(stream, names, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        values = asdict(row)
        writer.writerow({name: _spelled(value) for name, value in values.items()})
    return stream.getvalue().encode()


def _spelled(value: object) -> object:
    """Nine digits are enough for every number of the page."""
    return f"{value:.9g}" if isinstance(value, float) else value


def _read(path: Path, row_class: type[Row]) -> list[Row]:
    """The rows of a file.

    Raises:
        CacheError: the file is missing, or is not what ``write_records`` wrote.
    """
    types = get_type_hints(row_class)
    try:
        reader = csv.DictReader(path.read_text("utf-8").splitlines())
        reader.fieldnames = [NEW_NAMES.get(n, n) for n in reader.fieldnames or ()]
        return [
            row_class(**{name: _parse(line[name], types[name]) for name in types})
            for line in reader
        ]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CacheError(
            f"'{path.name}' is damaged, or of another version",
            found=f"{type(error).__name__}: {error}",
            where=str(path),
            hint="restore the file, or remove it together with its neighbour",
        ) from error


def _parse(text: str, kind: Any) -> Any:
    """A value of a column; empty is None where the column may lack a value."""
    if kind is str:
        return text
    if text == "" and kind in (float | None, int | None):
        return None
    if kind is bool:
        return {"True": True, "False": False}[text]
    if kind in (int, int | None):
        return int(text)
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no finite number")
    return number


def _scores_by_seed(seeds: Sequence[SeedRow]) -> ScoresBySeed:
    """The scores of all finished seeds."""
    scores: ScoresBySeed = {}
    for seed in seeds:
        if seed.score is not None:
            scores.setdefault((seed.cell, seed.decoder), {})[seed.seed] = seed.score
    return scores


def _check_means(
    folder: Path, rows: Sequence[DecoderRow], scores: ScoresBySeed
) -> None:
    """Check that the score of every row is the mean of its seeds."""
    for row in rows:
        values = scores.get((row.cell, row.decoder), {}).values()
        mean = math.fsum(values) / len(values) if values else None
        # both are None where no seed finished
        has_all_seeds = len(values) == row.seeds - row.failed
        if not has_all_seeds or not _agree(mean, row.score):
            raise _disagreement(
                folder,
                row,
                expected=f"score {row.score} of {row.decoder}",
                found=f"{mean} over {len(values)} seeds",
            )


def _check_differences(
    folder: Path, rows: Sequence[DecoderRow], scores: ScoresBySeed
) -> None:
    """Check that every difference is the mean difference to a recorded baseline."""
    baselines = {(row.cell, row.attention, row.head): row.decoder for row in rows}
    for row in rows:
        if row.difference is None:
            continue
        baseline = baselines.get((row.cell, row.baseline, row.head))
        if baseline is None:
            raise CacheError(
                f"{ROWS} has no line of a baseline",
                expected=f"{row.baseline} with the head {row.head}",
                where=f"{folder}: {', '.join(row.cell)}",
                hint="restore the line, or remove all lines of this cell",
            )
        mean = _mean_difference(
            scores.get((row.cell, row.decoder), {}),
            scores.get((row.cell, baseline), {}),
        )
        if not _agree(mean, row.difference):
            raise _disagreement(
                folder,
                row,
                expected=f"difference {row.difference} of {row.decoder} to {baseline}",
                found=f"{mean} over their common seeds",
            )


def _mean_difference(
    scores: Mapping[int, float], baseline_scores: Mapping[int, float]
) -> float | None:
    """The mean difference over the seeds that both have; None without any.

    Args:
        scores: of a decoder, by seed.
        baseline_scores: of its baseline, by seed.
    """
    common_seeds = scores.keys() & baseline_scores.keys()
    if not common_seeds:
        return None
    differences = [scores[seed] - baseline_scores[seed] for seed in common_seeds]
    return math.fsum(differences) / len(differences)


def _agree(computed: float | None, recorded: float | None) -> bool:
    """Whether a number is the recorded one, which has nine digits, or both are None."""
    if computed is None or recorded is None:
        return computed is recorded
    return math.isclose(computed, recorded, rel_tol=1e-6, abs_tol=1e-6)


def _disagreement(
    folder: Path, row: DecoderRow, *, expected: str, found: str
) -> CacheError:
    """The error for a row that says another thing than the seeds of its cell."""
    return CacheError(
        f"{ROWS} and {SEEDS} disagree",
        expected=expected,
        found=found,
        where=f"{folder}: {', '.join(row.cell)}",
        hint="restore both files, or remove the lines of this cell",
    )


@dataclass(frozen=True, slots=True)
class CellCost:
    """Seconds of the parts of a cell."""

    extract_seconds: float | None
    train_seconds: float


def records_of_cell(cell: Cell, tables: Mapping[str, Table], cost: CellCost) -> Records:
    """The records of a cell from its reports.

    Args:
        cell: the cell.
        tables: baseline -> the table of all decoders.
        cost: seconds of its parts.
    """
    rows = [
        _row_of_entry(cell, table, entry, baseline, cost)
        for baseline, table in tables.items()
        for entry in table.entries
    ]
    first_table = next(iter(tables.values()))
    counts = Counter(map(_name_of, first_table.entries))
    refuse_one_name_for_several(cell.title, counts)
    seeds = [row for entry in first_table.entries for row in _seed_rows(cell, entry)]
    return Records(tuple(rows), tuple(seeds))


def _seed_rows(cell: Cell, entry: Entry) -> list[SeedRow]:
    """A line for every seed of an entry, in the order of the seeds."""
    values = entry.default_score.scored.values.tolist()
    score_by_seed = dict(zip(entry.finished, values, strict=True))
    return [
        SeedRow(
            grid=cell.grid.name,
            dataset=cell.dataset,
            encoder=cell.encoder,
            decoder=_name_of(entry),
            seed=seed,
            score=score_by_seed.get(seed),
        )
        for seed in entry.seeds
    ]


def _row_of_entry(
    cell: Cell, table: Table, entry: Entry, baseline: str, cost: CellCost
) -> DecoderRow:
    """The record of a decoder (``entry``) compared with a baseline in one cell."""
    claim = entry.comparison.claim if entry.comparison else None
    difference = None if claim is None else difference_of_claim(cell.dataset, claim)
    # the analysis of variance says which part of the variance comes from where
    anova = None if claim is None else _anova_of(claim)
    return DecoderRow(
        grid=cell.grid.name,
        dataset=cell.dataset,
        encoder=cell.encoder,
        settings=cell.grid.settings_digest,
        cache=table.cache.fingerprint[:FINGERPRINT_DIGITS],
        train_rows=table.cache.rows["train"],
        test_rows=table.num_test_rows,
        test_groups=table.num_groups,
        classes=len(table.cache.names),
        extract_seconds=cost.extract_seconds,
        train_seconds=cost.train_seconds,
        decoder=_name_of(entry),
        attention=entry.attention,
        head=entry.head,
        parameters=entry.parameters["total"],
        lr=str(entry.recipe.get("lr", "")),
        seeds=len(entry.seeds),
        failed=len(entry.failed),
        undertrained=entry.is_undertrained,
        score=entry.default_score.mean,
        sd=entry.default_score.std,
        baseline=baseline,
        difference=None if claim is None else claim.difference,
        std_error=None if difference is None else math.sqrt(difference.variance),
        from_seeds=None if anova is None else anova.variance_from_seeds,
        from_rows=None if anova is None else anova.variance_from_rows,
        from_tuning=None if anova is None else anova.tuning_variance,
        p=None if claim is None else claim.p,
        p_equivalent=None if claim is None else claim.p_equivalent,
        verdict="" if claim is None else claim.verdict,
    )


def _anova_of(claim: Claim) -> Crossed | None:
    """The analysis of variance of a claim; None without a test over rows."""
    if claim.test_over_rows is None:
        return None
    return claim.test_over_rows.anova


def _name_of(entry: Entry) -> str:
    return decoder_name(entry.attention, entry.head)
