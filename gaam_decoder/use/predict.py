"""Predict with a finished run: texts, the rows of a file, or those of a cache."""

from __future__ import annotations

import json
import tempfile
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow
import pyarrow.parquet as pq
from pyarrow.csv import CSVWriter

from gaam_cache.cache import open_cache
from gaam_cache.config import ExtractConfig, parse_words
from gaam_cache.devices import check_device
from gaam_cache.encode import Placed
from gaam_cache.errors import CacheError, ConfigError, DataError, GaamWarning, NotFoundError
from gaam_cache.messages import brief, shortened
from gaam_cache.settings import UNCHECKED, check_at_least, settle
from gaam_cache.sources._collect import choose, text_of
from gaam_cache.sources.files import open_table
from gaam_cache.store.digest import short_digest
from gaam_cache.store.files import make_folder, temporary_path
from gaam_cache.store.plan import differences
from gaam_decoder.use.load import load
from gaam_decoder.use.predictor import CHUNK_ROWS, Predictions, Predictor, result_names

Records = list[dict[str, Any]]
Chunks = Callable[[], Iterator[tuple[Records, Any]]]
Rows = tuple[Sequence[str], Any, Chunks, Callable[[Iterable[Any]], Iterable[Predictions]]]
"""What is predicted: columns and their types, records by chunks, and predictions of these."""
STDIN = "-"  # the text that means those that come by stdin
TABLES = {".csv": CSVWriter, ".parquet": pq.ParquetWriter}
SUFFIXES = (*TABLES, ".jsonl")  # of files of results
JSON = {".jsonl": ("", "\n", b"\n"), ".json": ("[\n", ",\n", b"\n]\n")}
"""What stands before, between and behind the records."""
ALIKE = ("kind", "decoders", "storage_dtype", "num_layers", "hidden_size", "first_layer")


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictConfig:
    """Everything ``gaam predict`` can be told.

    Raises:
        ConfigError: on construction: a value out of its range, or settings that do not go together.
    """

    run: Path  # folder of a finished run, or of what was exported of one
    texts: tuple[str, ...] = field(default=(), metadata={"parse": parse_words, UNCHECKED: True})
    """Texts, or paths of sounds or pictures; '-' alone: one a line by stdin, to its end."""
    file: Path | None = None  # A table: CSV, JSON lines, Parquet; or a text a line (.txt)
    cache: Path | None = None
    """Without texts and file: the cache whose rows are predicted; with them: that of the run."""
    split: str | None = None  # of the cache; default: 'test'
    out: Path | None = None  # CSV, JSON lines or Parquet; default: stdout
    overwrite: bool = False  # replace ``out`` if it is there
    seed: int | None = None  # whose decoder alone is used; default: all that finished, averaged
    temperature: bool = False
    """Divide the logits of every seed by its temperature, fitted on rows that chose its epoch."""
    top: int = 1  # how many of the likeliest classes are named
    text_columns: tuple[str, ...] = ()  # columns joined by a space; default: those of the run
    encoder: str | None = None  # where the encoder of the run is, if it has moved
    device: str = "auto"  # auto, cpu, cuda, cuda:N or mps
    batch_tokens: int | None = None
    """Tokens of one batch of the encoder; default: what suits the device."""

    def __post_init__(self) -> None:
        """Refuse what cannot work before anything is read."""
        settle(self)
        check_device(self.device)
        check_at_least(self, 1, "top", "batch_tokens")
        check_at_least(self, 0, "seed")
        if self.texts and self.file is not None:
            found = f"{shortened(self.texts[0])!r} and --file {self.file}"
            raise ConfigError("rows are texts, or those of a file", found=found)
        if self.of_cache and self.cache is None:
            expected = "texts, - for stdin, --file FILE, or --cache CACHE --split test"
            raise ConfigError("nothing to predict", expected=expected)
        if self.out is not None and (self.of_texts or self.out.suffix not in SUFFIXES):
            expected = f"rows of a file, stdin or cache, and a name ending in {', '.join(SUFFIXES)}"
            raise ConfigError("--out cannot be written", expected=expected, found=str(self.out))
        if self.split is not None and not self.of_cache:
            raise ConfigError("--split is of a cache", expected="--cache CACHE without other rows")

    @property
    def of_cache(self) -> bool:
        """Whether the rows are those of a cache."""
        return not self.texts and self.file is None

    @property
    def of_texts(self) -> bool:
        """Whether they stand on the command line."""
        return bool(self.texts) and self.texts != (STDIN,)


@dataclass(frozen=True, kw_only=True, slots=True)
class Predicted:
    """What was predicted."""

    records: Records | None = None
    """Of each text, predicted, probability, agreement, ...; None of a file."""
    out: Path | None = None  # A file of results; None: they went to stdout
    rows: int
    seeds: int  # that were averaged

    def to_dict(self) -> Any:
        """A JSON value."""
        about = {"out": self.out and str(self.out.absolute()), "rows": self.rows}
        return about | {"seeds": self.seeds} if self.records is None else self.records

    def in_words(self) -> str:
        """Every text, and a line below it for every class that is named; or one line."""
        if self.records is None:
            return f"{self.rows:,} rows predicted by {self.seeds} seeds: {self.out}"
        lines = []
        for row in self.records:
            lines.append(brief(row["text"], 60))
            for end in [name.removeprefix("predicted") for name in row if "predicted" in name]:
                line = f"  {row[f'probability{end}']:7.2%}  {brief(row[f'predicted{end}'], 60)}"
                said = f"  ({row['agreement']:.0%} of {self.seeds} seeds)"
                lines.append(line + said * (not end and self.seeds > 1))
        return "\n".join(lines)


def predict(
    config: PredictConfig,
    *,
    stdin: BinaryIO | None = None,
    write: Callable[[bytes], object] = lambda piece: None,  # noqa: ARG005
    as_list: bool = False,
    progress: Callable[[int, int, str], None] = lambda done, total, text: None,  # noqa: ARG005
) -> Predicted:
    """Predict with a finished run.

    A file keeps its columns and gains predicted, probability and agreement; all of it is read once
    before any row is predicted, and the results appear when they are complete.

    >>> config = gaam_decoder.PredictConfig(run=runs[0].path, cache="cache", out="predicted.csv")
    >>> found = gaam_decoder.predict(config)

    Args:
        config: what is to be predicted, and how.
        stdin: what ``-`` means.
        write: takes the results of a file where the configuration names no ``out``.
        as_list: they are a list of JSON, whatever is read.
        progress: called with (rows done, rows in all, what is going on).
    """
    out, top = config.out, config.top
    if out is not None and out.exists() and not config.overwrite:
        raise ConfigError(f"'{out}' is there already", expected="another --out")
    names = ("seed", "temperature", "encoder", "device", "batch_tokens")
    given = {name: getattr(config, name) for name in names}
    predictor = load(config.run, cache=None if config.of_cache else config.cache, **given)
    if top > (classes := len(predictor.class_names)):
        expected = f"at most {classes:,}, as many as there are classes"
        raise ConfigError("--top is out of range", expected=expected, found=str(top))
    seeds = len(predictor.seeds)
    if config.of_texts:
        said = predictor.predictions(config.texts, origin="the command line").rows(top)
        records = [{"text": text, **row} for text, row in zip(config.texts, said, strict=True)]
        return Predicted(records=records, rows=len(records), seeds=seeds)
    where = str(config.file or config.cache or "stdin")
    with tempfile.TemporaryDirectory() as folder:
        if config.of_cache:
            columns, schema, chunks, predictions = _of_cache(config, predictor)
        else:
            path = config.file or Path(folder, "stdin.txt")
            if not config.file:  # it is read twice, too
                path.write_bytes(stdin.read() if stdin else b"")
            columns, schema, chunks, predictions = _of_file(config, predictor, path, where)
        if taken := set(columns) & set(result_names(top)):
            message = f"there is a column '{min(taken)}' already"
            raise ConfigError(message, where=where, hint="rename the column")
        total = 0
        for records, _ in chunks():  # what is wrong with a row is said now
            total += len(records)
            progress(total, 0, "reading")
        if not total:
            raise DataError("no rows", where=where)

        def results() -> Iterator[Records]:
            """Records of chunk after chunk, each with its results."""
            done, waiting = 0, deque[Records]()

            def rows() -> Iterator[Any]:
                for records, read in chunks():
                    waiting.append(records)
                    yield read

            for predicted in predictions(rows()):
                records = waiting.popleft()
                yield [a | b for a, b in zip(records, predicted.rows(top), strict=True)]
                done += len(records)
                progress(done, total, "predicting")

        kind = ".jsonl" if config.file and config.file.suffix == ".jsonl" else ".csv"
        written = out or Path(folder, f"results{'.json' if as_list else kind}")
        _write_file(written, results(), schema)
        if out is None:
            with written.open("rb") as file:
                while piece := file.read(2**20):
                    write(piece)
    return Predicted(rows=total, out=out, seeds=seeds)


def _of_file(config: PredictConfig, predictor: Predictor, path: Path, origin: str) -> Rows:
    if (plan := predictor.plan) is None:
        hint = "import the states of these rows too, then --cache CACHE --split NAME"
        raise ConfigError("nobody here can encode rows as those that were imported", hint=hint)
    if not path.is_file():
        raise NotFoundError(f"no file '{path}'", found="a folder" if path.is_dir() else None)
    folder = path.absolute().parent if config.file else Path.cwd()
    known, lines, objects = plan.dataset, path.suffix == ".txt", path.suffix == ".jsonl"
    settings: dict[str, Any] = {"delimiter": known.get("delimiter")}
    if plan.kind == "text":
        texts = ("text",) if lines else tuple(known.get("text_columns") or ("text",))
        settings["text_columns"] = config.text_columns or texts
    else:
        settings["file_column"] = known.get("file_column") or ("file" if lines else None)
    reading = ExtractConfig(**settings)

    def chunks() -> Iterator[tuple[Records, Placed]]:
        table = open_table(path, reading)
        columns = choose(table, reading, None, origin)
        wanted = columns if objects else columns._replace(kept=tuple(table.names))

        def read(place: str, record: Any) -> str:
            """What is encoded of a row: its text, or where its sound or picture is."""
            try:
                if not (found := text_of(record, columns.inputs)):
                    expected = f"something in {' + '.join(columns.inputs)}"
                    raise DataError("a row is empty", expected=expected)
            except DataError as error:
                error.details["where"] = f"{origin}, {place}"
                raise
            return str(folder / found) if columns.of_files else found

        records = iter(table.records(wanted))
        while several := list(islice(records, CHUNK_ROWS)):
            inputs = [read(place, record) for place, record in several]
            # objects of JSON come whole, and may differ
            kept = [{k: r[k] for k in (r if objects else table.names)} for _, r in several]
            yield kept, Placed(inputs, [place for place, _ in several])

    names, predictions = open_table(path, reading).names, partial(predictor.stream, origin=origin)
    schema = pq.read_schema(path) if path.suffix == ".parquet" else ()
    return names, schema, chunks, predictions


def _of_cache(config: PredictConfig, predictor: Predictor) -> Rows:
    assert config.cache is not None
    cache, ours = open_cache(config.cache), predictor.plan
    other, theirs = cache.fingerprint != predictor.fingerprint, cache.plan
    if other and ours is None and theirs.imported:
        text = "states of run and cache were imported: nobody here knows whether they are alike"
        warnings.warn(text, GaamWarning, stacklevel=2)
    elif other:
        found = ["states of one of them were imported"]
        if ours is not None and not theirs.imported:
            # which poolings are there beside the run's decides no number
            both = [
                {name: getattr(plan, name) for name in ALIKE} | plan.identity | {"pooling": None}
                for plan in (theirs, ours)
            ]
            found = differences(*both)
        if found:
            raise CacheError(
                "rows of the cache are not known to be encoded as those of the run",
                found="\n".join(found[:8]),
                where=f"{config.cache.absolute()}, fingerprint {short_digest(cache.fingerprint)}",
                hint="encode the rows as those of the run were: gaam predict RUN --file FILE",
            )
    split = cache[config.split or "test"]
    states = split.pooled(predictor.pooling)
    columns: dict[str, Any] = {"row": range(len(split))}
    columns |= {name: split.column(name) for name in cache.columns}
    if split.labelled:
        columns["label"] = [split.class_names[label] for label in split.labels]

    def chunks() -> Iterator[tuple[Records, Any]]:
        for first in range(0, len(split), CHUNK_ROWS):
            rows = range(first, min(first + CHUNK_ROWS, len(split)))
            yield [{name: of[row] for name, of in columns.items()} for row in rows], rows

    def predicted(rows: range) -> Predictions:
        return predictor.predict_states(states[rows.start : rows.stop])

    return list(columns), (), chunks, partial(map, predicted)


def _write_file(out: Path, results: Iterable[Records], schema: Any) -> None:
    """CSV, Parquet, JSON lines or a list of JSON, which appears when it is complete.

    Columns of CSV and Parquet have the types in ``schema``, others those of their first rows.
    """
    make_folder(out.parent)
    part = temporary_path(out.parent, out.name)
    try:
        with part.open("wb") as file:
            if out.suffix in TABLES:
                _write_table(file, results, TABLES[out.suffix], schema)
            else:
                before, between, end = JSON[out.suffix]
                for record in chain.from_iterable(results):
                    text = json.dumps(record, ensure_ascii=False, default=str)
                    file.write((before + text).encode())
                    before = between
                file.write(end)
        part.replace(out)
    except pyarrow.ArrowException as error:
        said, message = " ".join(str(error).split()), f"rows do not fit into a {out.suffix}"
        raise DataError(message, found=said, hint="--out FILE.jsonl") from error
    finally:
        part.unlink(missing_ok=True)


def _write_table(file: BinaryIO, results: Iterable[Records], writer_of: Any, schema: Any) -> None:
    writer: Any = None
    for records in results:
        if writer is None:
            new = list(pyarrow.Table.from_pylist(records).schema)[len(schema) :]
            schema = pyarrow.schema([*schema, *new])
            writer = writer_of(file, schema)
        if other := {name for record in records for name in record} - {*schema.names}:
            found, hint = ", ".join(sorted(other)), "--out FILE.jsonl"
            raise DataError("rows have other fields than the first", found=found, hint=hint)
        writer.write(pyarrow.Table.from_pylist(records, schema=schema))
    writer.close()
