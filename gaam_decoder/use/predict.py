"""Predict with a finished run: texts, the rows of a file, or those of a cache."""

from __future__ import annotations

import json
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from gaam_cache.cache import EmbeddingCache, open_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.encode import Placed
from gaam_cache.errors import CacheError, ConfigError, DataError, GaamWarning, NotFoundError
from gaam_cache.sources._collect import BadRows, is_blank, text_of
from gaam_cache.sources._table import SUFFIXES, Columns, choose, open_table
from gaam_cache.store.digest import short_digest
from gaam_cache.store.encoding import Encoding
from gaam_cache.store.files import storage_errors, temporary_path
from gaam_cache.store.plan import differences
from gaam_decoder.runs.folders import is_run
from gaam_decoder.runs.result import read_run
from gaam_decoder.use.predict_config import PredictConfig
from gaam_decoder.use.predictor import CHUNK_ROWS, Predictions, Predictor
from gaam_decoder.use.shown import Labelled, Written, result_names, results

Progress = Callable[[int, int, str], None]
Write = Callable[[bytes], bool]
"""Takes a piece of what is written to stdout; False where nobody wants more."""


class _Chunk(NamedTuple):
    """Rows that are predicted together."""

    records: list[dict[str, Any]]
    places: list[str]
    inputs: list[str | None]
    """Of every row its text or path; None where nothing is to be encoded."""


def predict(
    config: PredictConfig,
    *,
    stdin: BinaryIO | None = None,
    write: Write = lambda piece: True,  # noqa: ARG005
    as_list: bool = False,
    progress: Progress = lambda done, total, text: None,  # noqa: ARG005
) -> Labelled | Written:
    """Predict with a finished run.

    A file keeps its columns and gains predicted, probability and agreement; all of it is read once
    before any row is predicted, and the results appear when they are complete.

    Args:
        config: what is to be predicted, and how.
        stdin: what ``-`` means.
        write: takes the results of a file where the configuration names no ``out``.
        as_list: they are a list of JSON, whatever is read.
        progress: called with (rows done, rows in all, what is going on).

    Returns:
        The results of texts, or what was written of a file.
    """
    from gaam_decoder.use.load import load

    out = config.out
    if out is not None and out.suffix not in SUFFIXES[:3]:
        expected = f"a name ending in {', '.join(SUFFIXES[:3])}"
        raise ConfigError("--out has no format", expected=expected, found=str(out))
    if out is not None and out.exists() and not config.overwrite:
        raise ConfigError(f"'{out}' is there already", expected="another --out", found="a file")
    names = ("seed", "temperature", "encoder", "device", "batch_tokens")
    given = {name: getattr(config, name) for name in names}
    predictor = load(config.run, cache=None if config.of_cache else config.cache, **given)
    if config.top > (classes := len(predictor.class_names)):
        expected = f"at most {classes:,}, as many as there are classes"
        raise ConfigError("--top is out of range", expected=expected, found=str(config.top))
    seeds, temperatures = len(predictor.seeds), predictor.temperatures
    if config.of_texts:
        found = predictor.predictions(config.texts, origin="the command line")
        return Labelled(config.texts, found, seeds, config.top, temperatures)
    with ExitStack() as stack:
        if config.of_cache:
            rows = _cached(config, predictor)
        else:
            rows = _file(config, predictor, stack, stdin, progress)
        to = out.suffix if out is not None else ".jsonl" if as_list or rows.json else ".csv"
        chunks = _with_results(rows, config, progress)
        if out is None:
            for piece in _as_list(_lines(chunks, to)) if as_list else _lines(chunks, to):
                if not write(piece):
                    break
        else:
            with storage_errors(out):
                out.parent.mkdir(parents=True, exist_ok=True)
                part = temporary_path(out.parent, out.name)
                stack.callback(part.unlink, missing_ok=True)
                if to == ".parquet":
                    _write_parquet(part, chunks, rows, config)
                else:
                    with part.open("wb") as file:
                        file.writelines(_lines(chunks, to))
                part.replace(out)
    if rows.empty:
        text = f"the results of {rows.empty:,} of {rows.total:,} rows are empty, as the rows are"
        warnings.warn(text, GaamWarning, stacklevel=2)
    return Written(out, rows.total, rows.empty, seeds, temperatures)


class _Rows(NamedTuple):
    """What is predicted."""

    chunks: Callable[[], Iterable[_Chunk]]
    predictions: Callable[[Iterable[_Chunk]], Iterator[Predictions]]
    """Of each chunk, those rows that have an input."""
    total: int
    empty: int
    json: bool
    schema: Any = None
    """Of Parquet."""


def _file(
    config: PredictConfig,
    predictor: Predictor,
    stack: ExitStack,
    stdin: BinaryIO | None,
    progress: Progress,
) -> _Rows:
    encoding = predictor.encoding
    if encoding is None:
        raise ConfigError(
            "nobody here can encode further rows as those of the run",
            found="states that were imported",
            hint="import the states of these rows too, then --cache CACHE --split NAME",
        )
    path, folder = config.file, Path.cwd()
    if path is None:
        if stdin is None:
            raise ConfigError("'-' means stdin", expected="an open stdin", found="none")
        ending = f".{(config.format or 'txt').replace('text', 'txt')}"
        path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / f"stdin{ending}"
        with storage_errors(path, option="TMPDIR"), path.open("wb") as spooled:
            shutil.copyfileobj(stdin, spooled)
    elif not path.is_file():
        raise NotFoundError(f"no file '{path}'", found="a folder" if path.is_dir() else None)
    else:
        folder = path.absolute().parent
    of_files = encoding.kind != "text"
    recorded = encoding.rows.get("file_column") or "file"
    reading = ExtractConfig(
        text_columns=() if of_files else config.text_columns
        or tuple(encoding.rows.get("text_columns") or ("text",)),
        file_column=(config.file_column or recorded) if of_files else None,
        delimiter=config.delimiter,
        encoding=config.encoding,
    )  # fmt: skip
    if path.suffix == ".txt":  # a text a line, in a column of the usual name
        reading = replace(reading, text_columns=() if of_files else ("text",))
    origin = "stdin" if config.file is None else str(path)
    names = open_table(path, reading).names
    _check_names(names, config, origin)

    def chunks() -> Iterator[_Chunk]:
        table = open_table(path, reading)
        columns = choose(table, reading, None, origin)
        if path.suffix != ".jsonl":  # whose objects come whole, and may differ
            columns = columns._replace(kept=tuple(table.names))
        records = iter(table.records(columns))
        bad, count = BadRows(origin), 0
        while piece := list(islice(records, CHUNK_ROWS)):
            inputs: list[str | None] = []
            for place, record in piece:
                try:
                    if isinstance(record, DataError):
                        raise record
                    if path.suffix == ".jsonl":
                        _json(record)
                    inputs.append(_input(record, columns, config, folder))
                except DataError as error:
                    bad.add(place, error)
            count += len(piece)
            bad.refuse(count)
            read = [dict(one) for _, one in piece if not isinstance(one, DataError)]
            yield _Chunk(read, [place for place, _ in piece], inputs)

    total = empty = 0
    for chunk in chunks():
        total += len(chunk.inputs)
        empty += chunk.inputs.count(None)
        progress(total, 0, f"reading {path}")
    if not total:
        raise DataError("no rows", expected="at least one row", found="none", where=origin)

    def predictions(chunks: Iterable[_Chunk]) -> Iterator[Predictions]:
        def placed() -> Iterator[Placed]:
            for chunk in chunks:
                pairs = zip(chunk.inputs, chunk.places, strict=True)
                used = [(one, place) for one, place in pairs if one is not None]
                yield Placed([one for one, _ in used], [place for _, place in used])

        return predictor.stream(placed(), origin=origin)

    schema = None
    if path.suffix == ".parquet":
        import pyarrow.parquet

        schema = pyarrow.parquet.read_schema(path)
    return _Rows(chunks, predictions, total, empty, path.suffix == ".jsonl", schema)


def _input(record: Any, columns: Columns, config: PredictConfig, folder: Path) -> str | None:
    if columns.of_files:
        cell = record[columns.inputs[0]]
        found = str(folder / cell) if isinstance(cell, str) and not is_blank(cell) else None
    else:
        found = text_of(record, columns.inputs)
    if found is None and not config.skip_empty:
        expected = f"something in {' + '.join(columns.inputs)}"
        hint = "remove such rows"
        raise DataError("a row is empty", expected=expected, hint=hint)
    return found


def _cached(config: PredictConfig, predictor: Predictor) -> _Rows:
    assert config.cache is not None
    cache = open_cache(config.cache)
    _check_alike(config.run.expanduser(), config.cache, predictor, cache)
    split = cache[config.split or "test"]
    states = split.pooled(predictor.pooling)
    kept = {name: split.column(name) for name in cache.columns}
    names = ["row", *kept, *(["label"] if split.labelled else [])]
    _check_names(names, config, str(config.cache))

    def chunks() -> Iterator[_Chunk]:
        for first in range(0, len(split), CHUNK_ROWS):
            numbers = range(first, min(first + CHUNK_ROWS, len(split)))
            records = [
                {"row": row}
                | {name: of[row] for name, of in kept.items()}
                | ({"label": split.class_names[split.labels[row]]} if split.labelled else {})
                for row in numbers
            ]
            yield _Chunk(records, [f"row {row}" for row in numbers], [""] * len(numbers))

    def predictions(chunks: Iterable[_Chunk]) -> Iterator[Predictions]:
        for chunk in chunks:
            first, count = chunk.records[0]["row"], len(chunk.records)
            yield predictor.predict_states(states[first : first + count])

    return _Rows(chunks, predictions, len(split), 0, json=False)


def _check_names(names: Sequence[str], config: PredictConfig, where: str) -> None:
    """Refuse rows that have a column already which is to be added."""
    if taken := set(names) & set(result_names(config.top, config.prefix)):
        message = f"there is a column '{min(taken)}' already"
        raise ConfigError(message, where=where, hint="rename the column")


def _check_alike(run: Path, folder: Path, predictor: Predictor, cache: EmbeddingCache) -> None:
    """Rows of another cache than the run's were encoded as those of the run; else CacheError."""
    if is_run(run) and cache.fingerprint == read_run(run).cache["fingerprint"]:
        return
    ours, theirs = predictor.encoding, Encoding.of(cache.plan)
    if ours is None and theirs.imported:
        text = "states of run and cache were imported: nobody here knows whether they are alike"
        warnings.warn(text, GaamWarning, stacklevel=2)
        return
    if ours is None or theirs.imported:
        found = [f"states of {'the run' if ours is None else 'the cache'} were imported"]
    else:
        pairs = differences(_numbers(ours), _numbers(theirs))
        found = [f"{name}: {mine} in the run, {other} there" for name, mine, other in pairs]
    if found:
        raise CacheError(
            "rows of the cache are not known to be encoded as those of the run",
            expected="the cache of the run, or one of the same encoder, layers and types",
            found="\n".join(found[:8]),
            where=f"{folder.absolute()}, fingerprint {short_digest(cache.fingerprint)}",
            hint="encode the rows as those of the run were: gaam predict RUN --file FILE",
        )


def _numbers(encoding: Encoding) -> dict[str, Any]:
    """What decides the numbers of rows; which poolings are there beside the run's does not."""
    known = encoding.to_dict()
    identity = {name: value for name, value in encoding.identity.items() if name != "pooling"}
    names = ("kind", "decoders", "storage_dtype", "num_layers", "hidden_size", "first_layer")
    return {"encoder": identity} | {name: known[name] for name in names}


def _with_results(
    rows: _Rows, config: PredictConfig, progress: Progress
) -> Iterator[list[dict[str, Any]]]:
    """Records of chunk after chunk, each with its results."""
    names = result_names(config.top, config.prefix)
    waiting: list[_Chunk] = []

    def noted() -> Iterator[_Chunk]:
        for chunk in rows.chunks():
            waiting.append(chunk)
            yield chunk

    done = 0
    progress(0, rows.total, "predicting")
    for found in rows.predictions(noted()):
        chunk = waiting.pop(0)
        said = iter(results(found, config.top))
        nothing = [None] * len(names)
        yield [
            record | dict(zip(names, nothing if one is None else next(said), strict=True))
            for record, one in zip(chunk.records, chunk.inputs, strict=True)
        ]
        done += len(chunk.records)
        progress(done, rows.total, "predicting")


def _lines(chunks: Iterable[list[dict[str, Any]]], to: str) -> Iterator[bytes]:
    """CSV or JSON lines, a piece for each chunk."""
    header: list[str] | None = None
    for records in chunks:
        if to == ".jsonl":
            yield "".join(f"{_json(record)}\n" for record in records).encode()
            continue
        rows: list[Iterable[Any]] = []
        if header is None:
            header = list(records[0])
            rows.append(header)
        for record in records:
            if set(record) - set(header):
                expected, found = ", ".join(header), ", ".join(record)
                message, hint = "rows have other fields than the first", "--out FILE.jsonl"
                raise DataError(message, expected=expected, found=found, hint=hint)
            rows.append([record.get(name) for name in header])
        yield "".join(f"{','.join(map(_field, row))}\n" for row in rows).encode()


def _json(value: Any) -> str:
    """JSON; DataError for what it cannot say."""
    try:
        return json.dumps(value, ensure_ascii=False, default=str, allow_nan=False)
    except ValueError as error:
        text, hint = "a number that JSON cannot write", "remove it, or write null"
        raise DataError(text, expected="finite numbers", found=str(error), hint=hint) from error


def _field(value: Any) -> str:
    """A field of CSV. The module csv of Python 3.11 quotes no carriage return."""
    if isinstance(value, dict | list | bool):
        value = _json(value)
    text = "" if value is None else str(value)
    if any(character in text for character in ',"\r\n'):
        return '"' + text.replace('"', '""') + '"'
    return text


def _as_list(lines: Iterable[bytes]) -> Iterator[bytes]:
    """JSON lines as one list, piece by piece."""
    before = b"[\n"
    for piece in lines:
        if piece:
            yield before + piece.rstrip(b"\n").replace(b"\n", b",\n")
            before = b",\n"
    yield b"[]\n" if before == b"[\n" else b"\n]\n"


def _write_parquet(
    path: Path, chunks: Iterable[list[dict[str, Any]]], rows: _Rows, config: PredictConfig
) -> None:
    """Columns keep their types; of JSON lines those of the first rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    added = [
        (name, pa.string() if "predicted" in name else pa.float64())
        for name in result_names(config.top, config.prefix)
    ]
    writer = None
    try:
        for records in chunks:
            if writer is None:
                names = [name for name in records[0] if name not in dict(added)]
                schema = (
                    rows.schema
                    or pa.Table.from_pylist(
                        [{name: record.get(name) for name in names} for record in records]
                    ).schema
                )
                schema = pa.schema([*schema, *(pa.field(*one) for one in added)])
                writer = pq.ParquetWriter(path, schema)
            writer.write_table(pa.Table.from_pylist(records, schema=schema))
    except pa.ArrowException as error:
        found, message = " ".join(str(error).split()), "rows do not fit into columns of Parquet"
        raise DataError(message, found=found, hint="--out FILE.jsonl") from error
    finally:
        if writer is not None:
            writer.close()
