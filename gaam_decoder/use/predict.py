"""Predict with a finished run: texts, the rows of a file, or those of a cache."""

import io
import json
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.csv import CSVWriter

from gaam_cache.common.devices import check_device
from gaam_cache.common.errors import (
    CacheError,
    ConfigError,
    DataError,
    GaamWarning,
    NotFoundError,
)
from gaam_cache.common.messages import brief, shortened
from gaam_cache.common.paths import shown_path
from gaam_cache.common.settings import UNCHECKED, check_at_least, settle
from gaam_cache.config import ExtractConfig, parse_words
from gaam_cache.extraction.rows import LocatedRows
from gaam_cache.sources.files import byte_order_mark, kind_of, open_table, reads_mark
from gaam_cache.sources.rows.cells import text_of
from gaam_cache.sources.rows.collect import choose_columns
from gaam_cache.store.files import make_folder, short_digest
from gaam_cache.store.plan import comparable, describe_state_deviation, differences
from gaam_cache.store.reader import open_cache
from gaam_decoder.use.load import load
from gaam_decoder.use.predictor import CHUNK_ROWS, Predictor, result_names

Records = list[dict[str, Any]]
STDIN = "-"  # the text that means those that come by stdin
TABLES = {".csv": CSVWriter, ".parquet": pq.ParquetWriter}
JSON = {
    ".jsonl": ("", "\n", "\n"),
    ".json": ("[", ", ", "]\n"),
}  # before, between, behind records
SUFFIXES = (*TABLES, ".jsonl")  # of files of results
JSON_OBJECTS = (".jsonl", ".json")  # whose rows come whole, and may differ
ALIKE = (
    "kind",
    "decoders",
    "storage_dtype",
    "num_layers",
    "hidden_size",
    "first_layer",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictConfig:
    """Everything ``gaam predict`` can be told.

    >>> config = gaam_decoder.PredictConfig(run=runs[0].path, texts=("a text", "another"))

    Raises:
        ConfigError: on construction: a value out of its range, or settings that do not go together.
    """

    run: Path  # folder of a finished run, or of what was exported of one
    texts: tuple[str, ...] = field(
        default=(), metadata={"parse": parse_words, UNCHECKED: True}
    )
    """Texts, or paths of sounds or pictures; '-' alone: one a line by stdin, to its end."""
    file: Path | None = (
        None  # A table: CSV, JSON lines, Parquet; or a text a line (.txt)
    )
    cache: Path | None = (
        None  # whose rows are predicted; with texts or a file that of the run
    )
    split: str | None = None  # of the cache; default: 'test'
    out: Path | None = None  # CSV, JSON lines or Parquet; default: stdout
    overwrite: bool = False  # replace ``out`` if it is there
    temperature: bool = (
        False  # divide each seed's logits by what fits the rows that chose
    )
    top: int = 1  # how many of the likeliest classes are named
    text_columns: tuple[
        str, ...
    ] = ()  # columns joined by a space; default: those of the run
    attn: str | type | None = (
        None  # a mechanism of one's own: its class, or FILE.py:CLASS
    )
    encoding: str | None = (
        None  # of characters in a file; default: that of the run's rows
    )
    delimiter: str | None = field(default=None, metadata={UNCHECKED: True})
    """What parts the fields of a CSV file; default: what parts those of the run's rows."""
    encoder: str | None = None  # where the encoder of the run is, if it has moved
    device: str = "auto"  # auto, cpu, cuda, cuda:N or mps

    def __post_init__(self) -> None:
        settle(self)
        check_device(self.device)
        check_at_least(self, 1, "top")
        if self.texts and self.file is not None:
            found = f"{shortened(self.texts[0])!r} and --file {self.file}"
            raise ConfigError("rows are texts, or those of a file", found=found)
        if self.file is None and (self.encoding, self.delimiter) != (None, None):
            raise ConfigError(
                "encoding and delimiter are of a file", expected="--file FILE"
            )
        if self.split is not None and not self.of_cache:
            raise ConfigError(
                "--split is of a cache", expected="--cache CACHE without other rows"
            )
        if self.encoder is not None and self.of_cache and self.cache is not None:
            expected = "texts, - for stdin, or --file FILE beside it"
            raise ConfigError(
                "--encoder is of rows that are encoded", expected=expected
            )
        if self.of_cache and self.cache is None:
            expected = "texts, - for stdin, --file FILE, or --cache CACHE --split test"
            raise ConfigError("nothing to predict", expected=expected)
        if self.out is not None and (self.of_texts or self.out.suffix not in SUFFIXES):
            expected = f"rows of a file, stdin or cache, and a name ending in {', '.join(SUFFIXES)}"
            raise ConfigError(
                "--out cannot be written", expected=expected, found=str(self.out)
            )

    @property
    def of_cache(self) -> bool:
        return not self.texts and self.file is None

    @property
    def of_texts(self) -> bool:
        """Whether they stand on the command line."""
        return bool(self.texts) and self.texts != (STDIN,)


@dataclass(frozen=True, kw_only=True, slots=True)
class Predicted:
    """What was predicted."""

    records: Records | None = (
        None  # of each text predicted, probability, agreement; None of a file
    )
    out: Path | None = None  # A file of results; None: they went to stdout
    rows: int
    seeds: int  # that were averaged

    def to_dict(self) -> Any:
        about = {"out": self.out and str(self.out.absolute()), "rows": self.rows}
        return about | {"seeds": self.seeds} if self.records is None else self.records

    def in_words(self) -> str:
        """Every text, and a line below it for every class that is named; or one line."""
        if self.records is None:
            out = "stdout" if self.out is None else shown_path(self.out)
            return f"{self.rows:,} rows predicted by {self.seeds} seeds: {out}"
        lines = []
        for row in self.records:
            lines.append(brief(row["text"], 60))
            for end in [
                name.removeprefix("predicted") for name in row if "predicted" in name
            ]:
                line = f"  {row[f'probability{end}']:7.2%}  {brief(row[f'predicted{end}'], 60)}"
                said = f"  ({row['agreement']:.0%} of {self.seeds} seeds)"
                lines.append(line + said * (not end and self.seeds > 1))
        return "\n".join(lines)


class Rows(NamedTuple):
    """What is predicted, read anew, chunk by chunk, whenever it is asked for."""

    origin: str  # what messages call it
    chunks: Callable[
        [], Iterator[tuple[Records, Any]]
    ]  # and texts, files or a slice of ``states``
    types: pa.Schema | None = None  # of its columns, where a file tells them
    states: Any = None  # of a cache


def predict(
    config: PredictConfig,
    *,
    stdin: BinaryIO | None = None,
    write: Callable[[bytes], object] | None = None,
    as_list: bool = False,
    progress: Callable[[int, int, str], None] | None = None,
) -> Predicted:
    """Predict with a finished run.

    A file keeps its columns and gains predicted, probability and agreement. It is read once to find
    rows that cannot be used, and again, some 2,048 rows at a time, to predict them; the results
    appear when they are complete.

    >>> config = gaam_decoder.PredictConfig(run=runs[0].path, cache="cache", out="predicted.csv")
    >>> found = gaam_decoder.predict(config)

    Args:
        config: what is to be predicted, and how.
        stdin: what ``-`` means.
        write: takes the results of a file where the configuration names no ``out``.
        as_list: they are a list of JSON, whatever is read.
        progress: called with (rows done, rows in all, what is going on).
    """
    out, top, report = (
        config.out,
        config.top,
        progress or (lambda done, total, text: None),
    )
    if out is not None and out.exists() and not config.overwrite:
        raise ConfigError(f"'{out}' is there already", expected="another --out")
    given = {
        name: getattr(config, name)
        for name in ("temperature", "attn", "encoder", "device")
    }
    predictor = load(
        config.run, cache=None if config.of_cache else config.cache, **given
    )
    if top > (classes := len(predictor.class_names)):
        expected = f"at most {classes:,}, as many as there are classes"
        raise ConfigError("--top is out of range", expected=expected, found=str(top))
    if config.of_cache:
        rows = _of_cache(config, predictor)
    elif config.file is not None:
        rows = _of_file(config, predictor, config.file)
    else:
        texts = config.texts if config.of_texts else _lines_of(stdin)
        several = [
            texts[at : at + CHUNK_ROWS] for at in range(0, len(texts), CHUNK_ROWS)
        ]
        origin = "the command line" if config.of_texts else "stdin"
        rows = Rows(
            origin,
            lambda: (([{"text": one} for one in some], some) for some in several),
        )
    kind = ".jsonl" if config.file and kind_of(config.file) in JSON_OBJECTS else ".csv"
    kind = out.suffix if out else ".json" if as_list else kind
    total = 0

    def results() -> Iterator[Records]:
        inputs, done = (some for _, some in rows.chunks()), 0
        if rows.states is None:
            predictions = predictor.stream(inputs, origin=rows.origin)
        else:
            predictions = (
                predictor.predict_states(rows.states[some]) for some in inputs
            )
        for (records, _), found in zip(rows.chunks(), predictions, strict=True):
            yield [
                row | result
                for row, result in zip(records, found.rows(top), strict=True)
            ]
            done += len(records)
            report(done, total, "predicting")

    try:
        names, types = None, rows.types
        for (
            records,
            _,
        ) in rows.chunks():  # what is wrong with a row is said before one is predicted
            names = names or records[0].keys()
            if taken := {name for row in records for name in row}.intersection(
                result_names(top)
            ):
                raise ConfigError(
                    f"there is a column '{min(taken)}' already", where=rows.origin
                )
            if kind in TABLES and any(row.keys() != names for row in records):
                what, hint = "rows have other fields than others", "--out FILE.jsonl"
                raise DataError(what, where=rows.origin, hint=hint)
            if kind in TABLES and rows.types is None:
                found = pa.Table.from_pylist(records).schema
                types = pa.unify_schemas(
                    [types or found, found], promote_options="permissive"
                )
            total += len(records)
            report(total, 0, "reading")
        if not total:
            raise DataError("no rows", where=rows.origin)
        seeds = len(predictor.seeds)
        if config.of_texts:
            return Predicted(
                records=[*chain.from_iterable(results())], rows=total, seeds=seeds
            )
        added = [
            (n, pa.string() if "predicted" in n else pa.float64())
            for n in result_names(top)
        ]
        if out is not None:
            make_folder(out.parent)
        with tempfile.TemporaryDirectory(
            dir=out and out.parent, prefix=".predict-"
        ) as folder:
            with Path(folder, "results").open("w+b") as file:
                _write(file, kind, results(), types and pa.schema([*types, *added]))
                file.seek(0)
                while out is None and write is not None and (piece := file.read(2**20)):
                    write(piece)
            if out is not None:
                Path(file.name).replace(out)
    except (pa.ArrowException, OverflowError, UnicodeError) as error:
        said, message = " ".join(str(error).split()), f"rows do not fit into a {kind}"
        raise DataError(message, found=said, hint="--out FILE.jsonl") from error
    return Predicted(rows=total, out=out, seeds=seeds)


def _lines_of(stdin: BinaryIO | None) -> Sequence[str]:
    try:
        text = (stdin.read() if stdin else b"").decode("utf-8-sig")
        return [line.rstrip("\r\n") for line in io.StringIO(text, newline="\n")]
    except UnicodeError as error:
        raise DataError("stdin is not UTF-8", found=str(error)) from error


def _of_file(config: PredictConfig, predictor: Predictor, path: Path) -> Rows:
    if (plan := predictor.plan) is None:
        hint = "import the states of these rows too, then --cache CACHE --split NAME"
        raise ConfigError(
            "nobody here can encode rows as those that were imported", hint=hint
        )
    if not path.is_file():
        raise NotFoundError(
            f"no file '{path}'", found="a folder" if path.is_dir() else None
        )
    known, objects = plan.dataset, kind_of(path) in JSON_OBJECTS
    settings: dict[str, Any] = {"file_column": known.get("file_column")}
    if plan.kind == "text":
        texts = config.text_columns or known.get("text_columns") or ("text",)
        settings = {"text_columns": () if kind_of(path) == ".txt" else tuple(texts)}
    settings["delimiter"] = config.delimiter or known.get("delimiter")
    reading = ExtractConfig(
        encoding=_encoding(config, path, known.get("encoding")), **settings
    )

    table = open_table(path, reading)

    def chunks() -> Iterator[tuple[Records, LocatedRows]]:
        columns = choose_columns(table, reading, None, str(path))

        def input_of(place: str, record: Any) -> str:
            try:
                if not (found := text_of(record, columns.inputs)):
                    expected = f"something in {' + '.join(columns.inputs)}"
                    raise DataError("a row is empty", expected=expected)
            except DataError as error:
                error.details["where"] = f"{path}, {place}"
                raise
            return str(path.absolute().parent / found) if columns.of_files else found

        wanted = columns if objects else columns._replace(kept=tuple(table.names))
        found = iter(table.records(wanted))
        while several := list(islice(found, CHUNK_ROWS)):
            inputs = LocatedRows(
                [input_of(*one) for one in several], [place for place, _ in several]
            )
            # objects of JSON come whole, and may differ
            yield (
                [
                    {k: r[k] for k in (r if objects else table.names)}
                    for _, r in several
                ],
                inputs,
            )

    types = pq.read_schema(path) if kind_of(path) == ".parquet" else None
    return Rows(str(path), chunks, types)


def _encoding(config: PredictConfig, path: Path, of_run: str | None) -> str | None:
    """How characters are stored in a file: as asked for, as its mark says, or as in the run's rows.

    Where the rows of the run were not UTF-8, how the file is read is said.
    """
    if config.encoding is not None or of_run is None or kind_of(path) == ".parquet":
        return config.encoding
    mark = byte_order_mark(path)
    if mark is None or reads_mark(of_run, mark):
        text = f"'{path.name}' is read as {of_run}, as the rows of the run were"
        encoding = of_run
    else:
        text = f"'{path.name}' begins with the mark of {mark} and is read so, though the rows of "
        text += f"the run were {of_run}"
        encoding = mark
    warnings.warn(f"{text} (--set encoding=NAME)", GaamWarning, stacklevel=4)
    return encoding


def _of_cache(config: PredictConfig, predictor: Predictor) -> Rows:
    assert config.cache is not None
    cache, ours = open_cache(config.cache), predictor.plan
    theirs = cache.plan
    other = cache.fingerprint != predictor.fingerprint
    if other and ours is None and theirs.imported:
        text = "states of run and cache were imported: nobody here knows whether they are alike"
        warnings.warn(text, GaamWarning, stacklevel=2)
    elif other:
        found = ["states of one of them were imported"]
        if ours is not None and not theirs.imported:
            # which poolings are there beside the run's decides no number
            both = [
                {name: getattr(plan, name) for name in ALIKE}
                | plan.identity
                | {"pooling": None}
                for plan in (theirs, ours)
            ]
            now, then = comparable(*({"encoder": identity} for identity in both))
            found = differences(now["encoder"], then["encoder"])
        if found:
            raise CacheError(
                "rows of the cache are not known to be encoded as those of the run",
                found="\n".join(found[:8]),
                where=f"{config.cache.absolute()}, fingerprint {short_digest(cache.fingerprint)}",
                hint="encode the rows as those of the run were: gaam predict RUN --file FILE",
            )
    difference = None if ours is None else describe_state_deviation(theirs, ours)
    if difference is not None:
        raise CacheError(
            "the states of the cache are not those that the run learned from",
            found=difference,
            where=f"{config.cache.absolute()}, fingerprint {short_digest(cache.fingerprint)}",
            hint="extract the rows again with the versions that the run's cache was made with",
        )
    split = cache[config.split or "test"]
    columns: dict[str, Any] = {"row": range(len(split))}
    columns |= {name: split.column(name) for name in cache.columns}
    if split.labelled:
        columns["label"] = [split.class_names[label] for label in split.labels]
    several = [slice(at, at + CHUNK_ROWS) for at in range(0, len(split), CHUNK_ROWS)]

    def chunks() -> Iterator[tuple[Records, slice]]:
        for some in several:
            rows = zip(*(of[some] for of in columns.values()), strict=True)
            yield [dict(zip(columns, row, strict=True)) for row in rows], some

    return Rows(str(config.cache), chunks, states=split.pooled(predictor.pooling))


def _write(file: BinaryIO, kind: str, chunks: Iterator[Records], types: Any) -> None:
    """CSV or Parquet, whose columns have these types; JSON lines or a list."""
    if kind in TABLES:
        with TABLES[kind](file, types) as writer:
            for records in chunks:
                writer.write(pa.Table.from_pylist(records, types))
        return
    before, between, end = JSON[kind]
    for record in chain.from_iterable(chunks):
        text = before + json.dumps(record, ensure_ascii=False, default=str)
        file.write(
            text.encode(errors="backslashreplace")
        )  # half a character as JSON writes it
        before = between
    file.write(end.encode())
