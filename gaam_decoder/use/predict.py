"""Predict with a finished run: texts, the rows of a file, or those of a cache."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from gaam_cache.errors import ConfigError, GaamError, GaamWarning
from gaam_cache.format.refusals import storage_errors
from gaam_cache.tables.chunk import Chunk
from gaam_cache.tables.open import format_of
from gaam_cache.tables.table import Counts
from gaam_cache.tables.write import Added, written
from gaam_decoder.use.files.journal import Record
from gaam_decoder.use.files.opened import predictor_of, recipe_of, results_of, table_of
from gaam_decoder.use.files.partial import Partial
from gaam_decoder.use.files.results import Results
from gaam_decoder.use.files.rows import Kept, Piece, pieces_of, predicted
from gaam_decoder.use.predict_config import PredictConfig
from gaam_decoder.use.predictor import Predictor
from gaam_decoder.use.shown import Labelled, Written

Progress = Callable[[int, int, str], None]
Write = Callable[[bytes], bool]
"""Takes a piece of what is written to stdout; False where nobody wants more."""


def predict(
    config: PredictConfig,
    *,
    stdin: BinaryIO | None = None,
    write: Write = lambda piece: True,  # noqa: ARG005
    as_list: bool = False,
    progress: Progress = lambda done, total, text: None,  # noqa: ARG005
) -> Labelled | Written:
    """Predict with a finished run.

    Args:
        config: what is to be predicted, and how.
        stdin: what ``-`` means.
        write: takes the results of a file where the configuration names no ``out``.
        as_list: they are a list of JSON, whatever is read.
        progress: called with (rows done, rows in all, what is going on).

    Returns:
        The results of texts, or what was written of a file.

    Raises:
        NotFoundError: no such run, file, cache or encoder.
        ConfigError: settings that do not go together, or another encoder than that of the run.
        DataError: rows that cannot be used, or that were changed while they were read.
        CacheError: a run or cache that is damaged.
        StorageError: the file system refused, or another process writes ``out``.

    Warns:
        GaamWarning: rows of which nothing was to be encoded, or that have changed since they were
            predicted.
    """
    if config.of_texts:
        predictor = predictor_of(config)
        results = results_of(config, predictor)
        found = predictor.predictions(config.texts, origin="the command line")
        record = results.record(found, [True] * len(config.texts), "")
        seeds, temperatures = len(predictor.seeds), predictor.temperatures
        return Labelled(config.texts, results.added(record), seeds, config.top, temperatures)
    if config.out is None:
        return _to_stdout(config, stdin, write, as_list, progress)
    return _to_file(config, config.out, stdin, progress)


def _to_file(
    config: PredictConfig, out: Path, stdin: BinaryIO | None, progress: Progress
) -> Written:
    to = format_of(out, "--out")
    with Partial(out, overwrite=config.overwrite, source=config.file) as partial:
        predictor = predictor_of(config)
        results = results_of(config, predictor)
        spooled = (
            partial.spooled(_given(stdin), config.format or "text") if config.of_stdin else None
        )
        with _said_of(spooled):
            table = table_of(config, predictor, spooled)
            counts = table.check(to, progress)
            _say_blank(counts)
            with partial.journal(recipe_of(config, predictor, table, to)) as journal:
                kept = Kept(journal)
                found = predicted(predictor, table, kept.missing(table), results)
                for piece, record in _counted(found, counts, progress, "predicting"):
                    kept.add(piece, record)
                kept.say_changed()
                every = _counted(kept.all(table), counts, progress, f"writing {out}")
                rows = _with_results(every, results)
                partial.publish(journal, written(table, to, results.columns, rows))
    _say_empty(counts)
    return _written(out, counts, kept.known, predictor)


def _to_stdout(
    config: PredictConfig, stdin: BinaryIO | None, write: Write, as_list: bool, progress: Progress
) -> Written:
    predictor = predictor_of(config)
    results = results_of(config, predictor)
    with tempfile.TemporaryDirectory(prefix="gaam-predict-") as folder:
        spooled = None
        if config.of_stdin:
            spooled = Path(folder) / f"stdin.{config.format or 'text'}"
            with storage_errors(spooled, option="TMPDIR"), spooled.open("wb") as file:
                shutil.copyfileobj(_given(stdin), file)
        with _said_of(spooled):
            table = table_of(config, predictor, spooled)
            if table.format == "parquet" and not as_list:
                raise ConfigError(
                    "Parquet is not for stdout",
                    expected="--out FILE.parquet, or a file of another format",
                    hint="--json prints the rows as JSON",
                )
            to = "jsonl" if as_list or table.format == "jsonl" else "csv"
            counts = table.check(to, progress)
            _say_blank(counts)
            found = predicted(predictor, table, pieces_of(table), results)
            rows = _with_results(_counted(found, counts, progress, "predicting"), results)
            pieces = written(table, to, results.columns, rows)
            for piece in _as_list(pieces) if as_list else pieces:
                if not write(piece):
                    break
    _say_empty(counts)
    return _written(None, counts, 0, predictor)


def _written(out: Path | None, counts: Counts, known: int, predictor: Predictor) -> Written:
    seeds, temperatures = len(predictor.seeds), predictor.temperatures
    return Written(out, counts.rows, counts.empty, known, seeds, temperatures)


def _given(stdin: BinaryIO | None) -> BinaryIO:
    if stdin is None:
        raise ConfigError("'-' means stdin", expected="an open stdin", found="none")
    return stdin


def _counted(
    rows: Iterable[tuple[Piece, Record]], counts: Counts, progress: Progress, text: str
) -> Iterator[tuple[Piece, Record]]:
    progress(0, counts.rows, text)
    for piece, record in rows:
        yield piece, record
        progress(piece.end, counts.rows, text)


def _with_results(
    rows: Iterable[tuple[Piece, Record]], results: Results
) -> Iterator[tuple[Chunk, Added]]:
    return ((piece.chunk, results.added(record)) for piece, record in rows)


def _as_list(lines: Iterable[bytes]) -> Iterator[bytes]:
    """JSON lines as one list, piece by piece."""
    before = b"[\n"
    for piece in lines:
        if piece:
            yield before + piece.rstrip(b"\n").replace(b"\n", b",\n")
            before = b",\n"
    yield b"[]\n" if before == b"[\n" else b"\n]\n"


@contextmanager
def _said_of(spooled: Path | None) -> Iterator[None]:
    """Errors in what came by stdin speak of stdin."""
    try:
        yield
    except GaamError as error:
        where = error.details.get("where")
        if spooled is not None and where is not None:
            error.details["where"] = where.replace(str(spooled), "stdin")
        raise


def _say_blank(counts: Counts) -> None:
    if counts.blank:
        lines = "1 line is" if counts.blank == 1 else f"{counts.blank:,} lines are"
        warnings.warn(
            f"{lines} blank, and no row: results behind do not stand in the lines of their rows",
            GaamWarning,
            stacklevel=3,
        )


def _say_empty(counts: Counts) -> None:
    if counts.empty:
        warnings.warn(
            f"nothing is to be encoded of {counts.empty:,} of {counts.rows:,} rows: their results "
            "are empty",
            GaamWarning,
            stacklevel=3,
        )
