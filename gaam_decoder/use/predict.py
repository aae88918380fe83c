"""Predict with a finished run: texts, the rows of a file, or those of a cache."""

import io
import json
import shlex
import tempfile
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path, PurePath
from typing import Any, BinaryIO, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow.csv import CSVWriter

from gaam_cache.common.cells import value_with_type
from gaam_cache.common.devices import check_device
from gaam_cache.common.errors import (
    CacheError,
    ConfigError,
    DataError,
    GaamWarning,
    NotFoundError,
)
from gaam_cache.common.messages import brief, counted, shortened
from gaam_cache.common.paths import shown_path
from gaam_cache.common.settings import UNCHECKED, check_at_least, parse_fields
from gaam_cache.common.terminal import ReportProgress, no_progress
from gaam_cache.config import ExtractConfig, entries_of
from gaam_cache.extraction.rows import LocatedRows
from gaam_cache.sources.files import byte_order_mark, kind_of, open_table, reads_mark
from gaam_cache.sources.rows.cells import text_of
from gaam_cache.sources.rows.collect import Columns, choose_columns
from gaam_cache.store.files import make_folder, short_digest
from gaam_cache.store.plan import (
    Plan,
    comparable_fields,
    describe_state_deviation,
    differing_fields,
)
from gaam_cache.store.reader import Split, open_cache
from gaam_decoder.runs.folders import is_run
from gaam_decoder.use.load import load
from gaam_decoder.use.predictor import (
    CHUNK_ROWS,
    AnyPredictions,
    Predictor,
)
from gaam_decoder.use.results import result_types

Records = list[dict[str, Any]]
STDIN = "-"  # the text that stands for the lines of stdin
TABLE_WRITERS = {".csv": CSVWriter, ".parquet": pq.ParquetWriter}
"""The writer of each format of results that has typed columns, by suffix."""
JSON_PUNCTUATION = {".jsonl": ("", "\n", "\n"), ".json": ("[", ", ", "]\n")}
"""Results in JSON by suffix: the text before, between and behind the records."""
SUFFIXES = (*TABLE_WRITERS, ".jsonl")
TABLE_SUFFIXES = (*SUFFIXES, ".tsv", ".json", ".txt")  # of files to predict
"""Suffixes that ``out`` may have."""
JSON_OBJECTS = (".jsonl", ".json")
"""Suffixes of files whose rows have fields of their own."""
STATE_FIELDS = (
    "kind",
    "decoders",
    "storage_dtype",
    "num_layers",
    "hidden_size",
    "first_layer",
)
"""Fields of a plan that decide the states of a row, beside its identity."""

PROBABILITY = "probability_"
"""A column of results with this prefix holds the probability of a label."""
SHOWN_LABELS = 3  # labels of a text that are shown, even if they are not predicted


def _names_table(text: str) -> bool:
    """Whether a text is the name of a table that exists."""
    try:
        return kind_of(Path(text)) in TABLE_SUFFIXES and Path(text).is_file()
    except OSError:
        # a text may be longer than names of files
        return False


def _parse_texts(value: object) -> tuple[str, ...]:
    """The texts or paths of any collection, or a single one, as a tuple.

    Raises:
        TypeError: something else, such as a missing value or a table.
    """
    texts = entries_of(value)
    for text in texts:
        if not isinstance(text, str | PurePath):
            raise TypeError(f"texts, or paths, and not {value_with_type(text)}")
    return tuple(map(str, texts))


@dataclass(frozen=True, kw_only=True, slots=True)
class PredictConfig:
    """Everything ``gaam predict`` can be told.

    >>> config = gaam_decoder.PredictConfig(
    ...     run=runs[0].path, texts=("a text", "another")
    ... )

    Raises:
        ConfigError: on construction: a value out of its range, or settings that do not
            go together.
    """

    run: Path
    """Folder of a finished run, of runs, or of an exported decoder."""
    texts: tuple[str, ...] = field(
        default=(), metadata={"parse": _parse_texts, UNCHECKED: True}
    )
    """Texts, or paths of sounds or pictures; '-' alone: the lines of stdin."""
    file: Path | None = None
    """A table: CSV, JSON lines, Parquet; or a text on every line (.txt)."""
    cache: Path | None = None
    """A cache whose rows are predicted; beside texts or a file: that of the run."""
    split: str | None = None
    """Split of that cache; default: 'test'."""
    out: Path | None = None
    """CSV, JSON lines or Parquet; default: stdout."""
    overwrite: bool = False
    """Replace ``out`` if it exists."""
    temperature: bool = False
    """Divide each seed's logits by the temperature that fits its validation rows."""
    top: int = 1
    """Number of the likeliest classes to name."""
    text_columns: tuple[str, ...] = ()
    """Columns that are joined by a space; default: those of the run."""
    attn: str | type | None = None
    """A mechanism of your own: its class, or FILE.py:CLASS."""
    head: str | type | None = None
    """A head of your own: its class, or FILE.py:CLASS."""
    encoding: str | None = None
    """Encoding of characters in the file; default: that of the run's rows."""
    delimiter: str | None = field(default=None, metadata={UNCHECKED: True})
    """Delimiter of a CSV file; default: that of the run's rows."""
    encoder: str | None = None
    """Folder or id of the encoder of the run, if it has moved."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:N or mps."""

    def __post_init__(self) -> None:
        """Refuse values that cannot work, before anything is read."""
        parse_fields(self)
        check_device(self.device)
        check_at_least(self, 1, "top")
        self._check_texts()
        self._check_rows()
        self._check_out()

    def _check_texts(self) -> None:
        """Check that no text means something else: a table, a run, or stdin."""
        for text in self.texts:
            # sounds and pictures are named in place of texts, and tables are not
            if _names_table(text):
                raise ConfigError(
                    "a text is the name of a table",
                    found=shortened(text),
                    hint=f"--file {shlex.quote(text)} predicts its rows",
                )
            # a shell may list several runs for a pattern
            if is_run(Path(text)):
                raise ConfigError(
                    "a text is the folder of a run",
                    expected="one run, and then texts",
                    found=shortened(text),
                )
        if len(self.texts) > 1 and STDIN in self.texts:
            raise ConfigError(
                "- stands for the lines of stdin, and not beside other texts",
                expected="- alone, or texts",
                found=f"{len(self.texts):,} texts, one of them -",
            )

    def _check_rows(self) -> None:
        """Check that one source of rows is named, and no setting of another source."""
        if self.texts and self.file is not None:
            raise ConfigError(
                "predict takes texts or a file, not both",
                found=f"{shortened(self.texts[0])!r} and --file {self.file}",
            )
        has_file_settings = self.encoding is not None or self.delimiter is not None
        if self.file is None and has_file_settings:
            raise ConfigError(
                "encoding and delimiter need a file", expected="--file FILE"
            )
        if self.split is not None and not self.predicts_cache:
            raise ConfigError(
                "--split needs --cache", expected="--cache CACHE without other rows"
            )
        # neither texts nor a file: the rows have to be those of a cache
        if not self.predicts_cache:
            return
        if self.cache is None:
            raise ConfigError(
                "nothing to predict",
                expected=(
                    "texts, - for stdin, --file FILE, or --cache CACHE --split test"
                ),
            )
        if self.encoder is not None:
            raise ConfigError(
                "--encoder needs rows to encode",
                expected="texts, - for stdin, or --file FILE beside it",
            )

    def _check_out(self) -> None:
        """Check that the results can be written to ``out``."""
        if self.out is None:
            return
        if self.has_argument_texts or self.out.suffix not in SUFFIXES:
            raise ConfigError(
                "--out cannot be written",
                expected=(
                    "rows of a file, stdin or cache, "
                    f"and a name ending in {', '.join(SUFFIXES)}"
                ),
                found=str(self.out),
            )

    @property
    def predicts_cache(self) -> bool:
        """Whether the rows are those of a cache: there are neither texts nor a file."""
        return not self.texts and self.file is None

    @property
    def has_argument_texts(self) -> bool:
        """Whether the texts are arguments of the command, not lines of stdin."""
        return bool(self.texts) and self.texts != (STDIN,)


@dataclass(frozen=True, kw_only=True, slots=True)
class Predicted:
    """The predictions for texts, or a summary of those that were written."""

    records: Records | None = None
    """Results of each text; None if they were written."""
    out: Path | None = None
    """The file of the results; None: they went to stdout."""
    rows: int
    """Number of rows."""
    seeds: int
    """Number of seeds that were averaged."""

    def to_dict(self) -> Any:
        """JSON values: the records of texts, or a summary of a file."""
        if self.records is not None:
            return self.records
        return {
            "out": None if self.out is None else str(self.out.absolute()),
            "rows": self.rows,
            "seeds": self.seeds,
        }

    def in_words(self) -> str:
        """Every text with a line for each of its likeliest classes, or a summary."""
        if self.records is None:
            out = "stdout" if self.out is None else shown_path(self.out)
            rows = counted(self.rows, "row")
            return f"{rows} predicted by {counted(self.seeds, 'seed')}: {out}"
        lines = []
        for row in self.records:
            lines.append(brief(row["text"], 60))
            if "probability" in row:
                lines += _classes_in_words(row, self.seeds)
            elif "predicted" in row:
                lines += _labels_in_words(row)
            else:
                numbers = [name for name in row if name != "text"]
                lines += [f"  {brief(name, 60)}  {row[name]:.4g}" for name in numbers]
        return "\n".join(lines)


def _classes_in_words(row: Mapping[str, Any], num_seeds: int) -> list[str]:
    """A line for each of the likeliest classes of a text, with its probability."""
    lines = []
    for name in row:
        if "predicted" not in name:
            continue
        # the suffix of columns: '' for the first class, '_2' for the second
        suffix = name.removeprefix("predicted")
        predicted = brief(row[f"predicted{suffix}"], 60)
        line = f"  {row[f'probability{suffix}']:7.2%}  {predicted}"
        is_likeliest = not suffix
        if is_likeliest and num_seeds > 1:
            line += f"  ({row['agreement']:.0%} of {num_seeds} seeds)"
        lines.append(line)
    return lines


def _labels_in_words(row: Mapping[str, Any]) -> list[str]:
    """A line for each predicted label of a text, and for the likeliest other ones."""
    probability_by_label = {
        name.removeprefix(PROBABILITY): value
        for name, value in row.items()
        if name.startswith(PROBABILITY)
    }
    lines = []
    labels = sorted(probability_by_label, key=lambda name: -probability_by_label[name])
    for index, label in enumerate(labels):
        is_predicted = probability_by_label[label] > 0.5
        if not is_predicted and index >= SHOWN_LABELS:
            break
        mark = "" if is_predicted else "  (not predicted)"
        lines.append(f"  {probability_by_label[label]:7.2%}  {brief(label, 60)}{mark}")
    return lines


class RowChunk(NamedTuple):
    """Some of the rows to predict."""

    records: Records
    """The rows as results repeat them: a value by column, for each row."""
    inputs: Any
    """What is predicted from: texts, ``LocatedRows``, or a slice of the states."""


class RowSource(NamedTuple):
    """The rows to predict; each call of ``chunks`` reads them from the start."""

    origin: str
    """The name of the file, cache or other source, for messages."""
    chunks: Callable[[], Iterator[RowChunk]]
    """Reads all rows from the start, some 2,048 at a time."""
    schema: pa.Schema | None = None
    """Names and types of the columns, if a file has them."""
    states: Any = None
    """States of a cache, (N, L, D); None if the rows are to be encoded."""


def predict(
    config: PredictConfig,
    *,
    stdin: BinaryIO | None = None,
    write: Callable[[bytes], object] | None = None,
    as_list: bool = False,
    progress: ReportProgress | None = None,
) -> Predicted:
    """Predict with a finished run.

    A file keeps its columns and gains predicted, probability and agreement. It is read
    once to find unusable rows, and again, some 2,048 rows at a time, to predict them.
    The results appear when they are complete.

    >>> config = gaam_decoder.PredictConfig(
    ...     run=runs[0].path, cache="cache", out="predicted.csv"
    ... )
    >>> predicted = gaam_decoder.predict(config)

    Args:
        config: rows, run and output.
        stdin: the input that ``-`` stands for.
        write: takes the bytes of the results if the configuration names no ``out``.
            Texts of the configuration need neither: their results are returned.
        as_list: without ``out``, write one JSON list, whatever the format of the rows.
        progress: called with (rows done, rows in all, what is going on).

    Raises:
        ConfigError: nothing takes the results, or ``out`` exists.
        DataError: rows cannot be used.
    """
    out = config.out
    if out is None and write is None and not config.has_argument_texts:
        raise ConfigError("nothing takes the predictions", expected="out, or write")
    if out is not None and out.exists() and not config.overwrite:
        raise ConfigError(f"'{out}' is there already", expected="another --out")
    predictor = _load_predictor(config)
    rows = _find_rows(config, predictor, stdin)
    kind = _result_kind(config, as_list)
    report = progress or no_progress
    num_seeds = len(predictor.seeds)
    try:
        # read every row once, so that an unusable row is refused before any prediction
        type_by_column = result_types(predictor.task, predictor.names, config.top)
        total, schema = _check_rows(rows, kind, set(type_by_column), report)
        results = _results(predictor, rows, config.top, total, report)
        if config.has_argument_texts:
            records = list(chain.from_iterable(results))
            return Predicted(records=records, rows=total, seeds=num_seeds)
        if schema is not None:
            schema = pa.schema([*schema, *_result_fields(type_by_column)])
        _write_results(out, write, kind, results, schema)
    except (pa.ArrowException, OverflowError, UnicodeError) as error:
        raise DataError(
            f"rows do not fit into a {kind}",
            found=" ".join(str(error).split()),
            hint="--out FILE.jsonl",
        ) from error
    return Predicted(rows=total, out=out, seeds=num_seeds)


def _load_predictor(config: PredictConfig) -> Predictor:
    """The predictor of the run.

    Raises:
        ConfigError: ``top`` is more than its number of classes.
    """
    predictor = load(
        config.run,
        cache=None if config.predicts_cache else config.cache,
        temperature=config.temperature,
        attn=config.attn,
        head=config.head,
        encoder=config.encoder,
        device=config.device,
    )
    num_classes = len(predictor.class_names)
    if config.top > 1 and not predictor.task.has_classes:
        reason = "a number has no likeliest classes"
        if predictor.task.has_probabilities:
            reason = "the results have the probability of every label already"
        raise ConfigError(
            f"--top names the likeliest classes: {reason}",
            expected="a run of classification, or no --top",
            found=f"--top {config.top}, and a run whose task is {predictor.task.name}",
            hint="leave --top out",
        )
    if predictor.task.has_classes and config.top > num_classes:
        raise ConfigError(
            "--top is out of range",
            expected=f"at most {num_classes:,}, the number of classes",
            found=str(config.top),
        )
    return predictor


def _find_rows(
    config: PredictConfig, predictor: Predictor, stdin: BinaryIO | None
) -> RowSource:
    """The rows that the configuration names."""
    if config.predicts_cache:
        return _rows_of_cache(config, predictor)
    if config.file is not None:
        return _rows_of_file(config, predictor, config.file)
    if config.has_argument_texts:
        return _rows_of_texts(config.texts, "the command line")
    return _rows_of_texts(_read_lines(stdin), "stdin")


def _result_kind(config: PredictConfig, as_list: bool) -> str:
    """The format of the results, as the suffix of a file name.

    Args:
        config: of the prediction; it may name a file of results.
        as_list: whether results without a file are one JSON list (``--json``).
    """
    if config.out is not None:
        return config.out.suffix
    if as_list:
        return ".json"
    if config.file is not None and kind_of(config.file) in JSON_OBJECTS:
        return ".jsonl"
    return ".csv"


def _result_fields(
    type_by_column: Mapping[str, type],
) -> list[tuple[str, pa.DataType]]:
    """Name and Arrow type of every column of results."""
    arrow_types = {str: pa.string(), float: pa.float64()}
    return [(name, arrow_types[kind]) for name, kind in type_by_column.items()]


def _check_rows(
    rows: RowSource, kind: str, added_columns: set[str], report: ReportProgress
) -> tuple[int, pa.Schema | None]:
    """Read all rows and check that they fit into the format of the results.

    Args:
        rows: to predict.
        kind: format of the results, as a suffix such as ``.csv``.
        added_columns: names of the columns of results.
        report: called with the progress.

    Returns:
        The number of rows, and the columns of a CSV or Parquet file of results.

    Raises:
        ConfigError: a column with the name of a result.
        DataError: no rows, or rows of a table with different fields.
    """
    total = 0
    first_names = None
    schema = rows.schema
    is_table = kind in TABLE_WRITERS
    for chunk in rows.chunks():
        records = chunk.records
        first_names = first_names or records[0].keys()
        columns = {name for row in records for name in row}
        clashes = columns & added_columns
        if clashes:
            raise ConfigError(
                f"there is a column '{min(clashes)}' already", where=rows.origin
            )
        if is_table and any(row.keys() != first_names for row in records):
            raise DataError(
                "rows have other fields than others",
                where=rows.origin,
                hint="--out FILE.jsonl",
            )
        # a file without types has them only when all of its chunks are known
        if is_table and rows.schema is None:
            chunk_schema = pa.Table.from_pylist(records).schema
            earlier_schema = chunk_schema if schema is None else schema
            schema = pa.unify_schemas(
                [earlier_schema, chunk_schema], promote_options="permissive"
            )
        total += len(records)
        report(total, 0, "reading")
    if not total:
        raise DataError("no rows", where=rows.origin)
    return total, schema


def _results(
    predictor: Predictor, rows: RowSource, top: int, total: int, report: ReportProgress
) -> Iterator[Records]:
    """Predict chunk by chunk.

    Args:
        predictor: the decoders, and the encoder of new rows.
        rows: to predict.
        top: number of the likeliest classes to name.
        total: number of rows.
        report: called with the progress.

    Yields:
        For each chunk the records of its rows, with their results as further fields.
    """
    # the rows are read twice at the same pace: to predict them, and to repeat them
    inputs = (chunk.inputs for chunk in rows.chunks())
    predictions: Iterator[AnyPredictions]
    if rows.states is None:
        predictions = predictor.stream(inputs, origin=rows.origin)
    else:
        predictions = (predictor.predict_states(rows.states[part]) for part in inputs)
    done = 0
    for chunk, predicted in zip(rows.chunks(), predictions, strict=True):
        pairs = zip(chunk.records, predicted.rows(top), strict=True)
        yield [row | result for row, result in pairs]
        done += len(chunk.records)
        report(done, total, "predicting")


def _write_results(
    out: Path | None,
    write: Callable[[bytes], object] | None,
    kind: str,
    results: Iterator[Records],
    schema: pa.Schema | None,
) -> None:
    """Write all results to a temporary file, then rename it or pass its bytes on.

    Args:
        out: the file of the results, or None.
        write: takes the bytes if there is no ``out``.
        kind: format of the results, as a suffix such as ``.csv``.
        results: records, chunk by chunk.
        schema: the columns of a CSV or Parquet file.
    """
    # beside the output, so that the last step is a rename within one file system
    directory = None
    if out is not None:
        directory = out.parent
        make_folder(directory)
    with tempfile.TemporaryDirectory(dir=directory, prefix=".predict-") as folder:
        path = Path(folder, "results")
        with path.open("w+b") as file:
            _write_records(file, kind, results, schema)
            file.seek(0)
            if out is None and write is not None:
                while chunk := file.read(2**20):
                    write(chunk)
        if out is not None:
            path.replace(out)


def _rows_of_texts(texts: Sequence[str], origin: str) -> RowSource:
    """Rows of texts, a record with the field ``text`` each.

    ``origin`` names in messages where the texts are from.
    """

    def chunks() -> Iterator[RowChunk]:
        for start in range(0, len(texts), CHUNK_ROWS):
            chunk_texts = texts[start : start + CHUNK_ROWS]
            records = [{"text": text} for text in chunk_texts]
            yield RowChunk(records, inputs=chunk_texts)

    return RowSource(origin, chunks)


def _read_lines(stdin: BinaryIO | None) -> Sequence[str]:
    """The lines of stdin, in UTF-8; none without stdin."""
    content = stdin.read() if stdin else b""
    try:
        text = content.decode("utf-8-sig")
        # ``splitlines`` would also break lines at form feeds and the like
        return [line.rstrip("\r\n") for line in io.StringIO(text, newline="\n")]
    except UnicodeError as error:
        raise DataError("stdin is not UTF-8", found=str(error)) from error


def _rows_of_file(config: PredictConfig, predictor: Predictor, path: Path) -> RowSource:
    """Rows of a file, read as the rows of the run's cache were."""
    plan = predictor.plan
    if plan is None:
        raise ConfigError(
            "the states of this run were imported: no encoder for new rows is known",
            hint="import the states of these rows too, then --cache CACHE --split NAME",
        )
    if not path.is_file():
        raise NotFoundError(
            f"no file '{path}'", found="a folder" if path.is_dir() else None
        )
    encoding = _encoding(config, path, plan.dataset.settings.get("encoding"))
    reading = _reading_of_file(config, plan, path, encoding)
    table = open_table(path, reading)

    # rows of JSON keep all their fields, which may differ from row to row
    has_objects = kind_of(path) in JSON_OBJECTS

    def chunks() -> Iterator[RowChunk]:
        input_columns = choose_columns(table, reading, labels=(), origin=str(path))
        # results repeat all columns of a table, not only those of the input
        read_columns = input_columns
        if not has_objects:
            read_columns = input_columns._replace(kept=tuple(table.names))
        located_rows = iter(table.records(read_columns))
        while chunk := list(islice(located_rows, CHUNK_ROWS)):
            inputs = []
            records = []
            row_names = []
            for row_name, row in chunk:
                row_names.append(row_name)
                inputs.append(_input_of_row(row_name, row, input_columns, path))
                names = row if has_objects else table.names
                records.append({name: row[name] for name in names})
            yield RowChunk(records, LocatedRows(inputs, row_names))

    schema = pq.read_schema(path) if kind_of(path) == ".parquet" else None
    return RowSource(str(path), chunks, schema)


def _reading_of_file(
    config: PredictConfig, plan: Plan, path: Path, encoding: str | None
) -> ExtractConfig:
    """The settings to read a file with: those given, else those of the run's rows.

    Args:
        config: of the prediction.
        plan: of the cache that the run learned from.
        path: of the file.
        encoding: of its characters; None: by the file.
    """
    dataset = plan.dataset.settings
    delimiter = config.delimiter or dataset.get("delimiter")
    if plan.kind != "text":
        return ExtractConfig(
            encoding=encoding,
            delimiter=delimiter,
            file_column=dataset.get("file_column"),
        )
    text_columns = config.text_columns or dataset.get("text_columns") or ("text",)
    if kind_of(path) == ".txt":
        text_columns = ()
    return ExtractConfig(
        encoding=encoding, delimiter=delimiter, text_columns=tuple(text_columns)
    )


def _input_of_row(row_name: str, row: Any, columns: Columns, path: Path) -> str:
    """The text of a row, or the path of its sound or picture.

    Raises:
        DataError: nothing in the columns of the input.
    """
    try:
        text = text_of(row, columns.inputs)
        if not text:
            expected = f"something in {' + '.join(columns.inputs)}"
            raise DataError("a row is empty", expected=expected)
    except DataError as error:
        error.details["where"] = f"{path}, {row_name}"
        raise
    if columns.of_files:
        return str(path.absolute().parent / text)
    return text


def _encoding(
    config: PredictConfig, path: Path, run_encoding: str | None
) -> str | None:
    """The encoding of the characters of a file; None: found out when it is read.

    It is that of the configuration, or that of the file's byte order mark, or that of
    the run's rows, ``run_encoding``. If the rows of the run were not UTF-8, a warning
    names the encoding of the file.
    """
    # a Parquet file records its own encoding
    is_known = config.encoding is not None or kind_of(path) == ".parquet"
    if is_known or run_encoding is None:
        return config.encoding
    mark = byte_order_mark(path)
    if mark is None or reads_mark(run_encoding, mark):
        text = f"'{path.name}' is read as {run_encoding}, as the rows of the run were"
        encoding = run_encoding
    else:
        text = (
            f"'{path.name}' begins with the mark of {mark} and is read so, "
            f"though the rows of the run were {run_encoding}"
        )
        encoding = mark
    _warn(f"{text} (--set encoding=NAME)")
    return encoding


def _warn(text: str) -> None:
    """Warn the caller of ``predict``, five calls above this one."""
    warnings.warn(text, GaamWarning, stacklevel=6)


def _rows_of_cache(config: PredictConfig, predictor: Predictor) -> RowSource:
    """Rows of a cache, whose states were made as those of the run's cache."""
    assert config.cache is not None, "the configuration refuses rows from nowhere"
    cache = open_cache(config.cache)
    where = f"{config.cache.absolute()}, fingerprint {short_digest(cache.fingerprint)}"
    # encoder and settings must be equal; a cache with the fingerprint of the run's has
    # equal ones
    if cache.fingerprint != predictor.fingerprint:
        _check_plans(cache.plan, predictor, where)
    # with equal settings, other versions of libraries may still make other states
    if predictor.plan is not None:
        deviation = describe_state_deviation(cache.plan, predictor.plan)
        if deviation is not None:
            raise CacheError(
                "the states of the cache are not those that the run learned from",
                found=deviation,
                where=where,
                hint=(
                    "extract the rows again with the versions that the run's cache was "
                    "made with"
                ),
            )

    split = cache[config.split or "test"]
    result_columns = result_types(predictor.task, predictor.names, config.top)
    columns = _columns_of_split(split, cache.columns, result_columns)

    def chunks() -> Iterator[RowChunk]:
        for start in range(0, len(split), CHUNK_ROWS):
            part = slice(start, start + CHUNK_ROWS)
            rows = zip(*(values[part] for values in columns.values()), strict=True)
            records = [dict(zip(columns, row, strict=True)) for row in rows]
            yield RowChunk(records, inputs=part)

    return RowSource(str(config.cache), chunks, states=split.pooled(predictor.pooling))


def _columns_of_split(
    split: Split, kept_names: Collection[str], result_names: Collection[str]
) -> dict[str, Any]:
    """The columns that results repeat of the rows of a split, by name.

    They are the number of the row, the kept columns and the label. A kept column that
    has the name of another column of the output stands under ``kept NAME``.

    Args:
        split: of the cache.
        kept_names: names of the kept columns.
        result_names: names of the columns of results.
    """
    own_names = {"row", *result_names}
    if split.labelled:
        own_names.add("label")
    columns: dict[str, Any] = {"row": range(len(split))}
    for name in kept_names:
        # no kept column has a space in its name
        shown_name = f"kept {name}" if name in own_names else name
        columns[shown_name] = split.column(name)
    if split.labelled:
        columns["label"] = split.target.decode(split.labels)
    return columns


def _check_plans(cache_plan: Plan, predictor: Predictor, where: str) -> None:
    """Check that another cache encoded its rows as the run's cache did.

    States that were imported have no plan by which to encode further rows. If both
    caches were imported, a warning says that nobody knows whether they are alike, or
    that their encoders have different names.

    Args:
        cache_plan: of the other cache.
        predictor: of the run.
        where: the other cache, for messages.

    Raises:
        CacheError: encoders or settings differ, or only one of the two was imported.
    """
    run_plan = predictor.plan
    if run_plan is None and cache_plan.imported:
        doubt = "whether they are alike is not known"
        names = (predictor.encoder_label, cache_plan.encoder_label)
        if names[0] != names[1]:
            doubt = "their encoders have different names, '{}' and '{}'".format(*names)
        _warn(f"states of run and cache were imported: {doubt}")
        return
    if run_plan is None or cache_plan.imported:
        deviations = ["states of one of them were imported"]
    else:
        cache_encoding, run_encoding = comparable_fields(
            {"encoder": _encoding_of_rows(cache_plan)},
            {"encoder": _encoding_of_rows(run_plan)},
        )
        deviations = differing_fields(
            cache_encoding["encoder"], run_encoding["encoder"]
        )
    if deviations:
        raise CacheError(
            "rows of the cache are not known to be encoded as those of the run",
            found="\n".join(deviations[:8]),
            where=where,
            hint=(
                "encode the rows as those of the run were: gaam predict RUN --file FILE"
            ),
        )


def _encoding_of_rows(plan: Plan) -> dict[str, object]:
    """Everything of the plan of a cache that decides the states of a row, by name."""
    state_fields = {name: getattr(plan, name) for name in STATE_FIELDS}
    # further poolings beside that of the run decide no number
    return state_fields | plan.identity | {"pooling": None}


def _write_records(
    file: BinaryIO, kind: str, chunks: Iterator[Records], schema: pa.Schema | None
) -> None:
    """Write the records of all chunks: CSV, Parquet, JSON lines or a JSON list.

    Args:
        file: to write to.
        kind: the format, as a suffix such as ``.csv``.
        chunks: of records.
        schema: the columns of CSV or Parquet.
    """
    if kind in TABLE_WRITERS:
        with TABLE_WRITERS[kind](file, schema) as writer:
            for records in chunks:
                writer.write(pa.Table.from_pylist(records, schema))
        return
    opening, between, end = JSON_PUNCTUATION[kind]
    # there is a first record to follow the opening: no rows were refused before
    separator = opening
    for record in chain.from_iterable(chunks):
        text = separator + json.dumps(record, ensure_ascii=False, default=str)
        # half of a surrogate pair has no encoding: write JSON's escape for it, \udXXX
        file.write(text.encode(errors="backslashreplace"))
        separator = between
    file.write(end.encode())
