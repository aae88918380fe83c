"""Predict with a finished run: texts, the rows of a file, or those of a cache."""

from __future__ import annotations

import shutil
import tempfile
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from gaam_cache.cache import open_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.encode import Placed
from gaam_cache.errors import CacheError, ConfigError, DataError, GaamWarning, NotFoundError
from gaam_cache.messages import brief
from gaam_cache.sources._collect import BadRows, is_blank, text_of
from gaam_cache.sources._table import Columns, choose, open_table
from gaam_cache.store.digest import short_digest
from gaam_cache.store.encoding import Encoding
from gaam_cache.store.files import make_folder, storage_errors, temporary_path
from gaam_cache.store.plan import Plan, differences
from gaam_decoder.runs.folders import is_run
from gaam_decoder.runs.result import read_run
from gaam_decoder.use.load import load
from gaam_decoder.use.predict_config import PredictConfig
from gaam_decoder.use.predictor import CHUNK_ROWS, Predictions, Predictor, result_names
from gaam_decoder.use.tables import Records, csv_lines, json_lines, listed, write_parquet

Progress = Callable[[int, int, str], None]


@dataclass(frozen=True, slots=True)
class Labelled:
    """Texts and what is said of them."""

    texts: Sequence[str]
    found: Predictions
    num_seeds: int
    """That were averaged."""
    top: int
    """Classes that are named."""
    temperatures: Sequence[float] = ()
    """Of the seeds; empty: none."""

    def to_dict(self) -> Records:
        """A JSON value: text, predicted, probability, agreement, ... of each."""
        rows = zip(self.texts, self.found.rows(self.top), strict=True)
        return [{"text": text, **row} for text, row in rows]

    def in_words(self) -> str:
        """Every text, and a line below it for every class that is named."""
        lines = []
        for row in self.to_dict():
            lines.append(brief(row["text"], 60))
            for end in ("", *(f"_{place}" for place in range(2, self.top + 1))):
                label = brief(row[f"predicted{end}"], 60)
                line = f"  {row[f'probability{end}']:7.2%}  {label}"
                if not end and self.num_seeds > 1:
                    agreeing = round(row["agreement"] * self.num_seeds)
                    line += f"  ({agreeing} of {self.num_seeds} seeds)"
                lines.append(line)
        if self.temperatures:
            lines.append(f"probabilities: {_averaged(self.num_seeds, self.temperatures)}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Written:
    """A file of results."""

    out: Path | None
    """Where it is; None: it went to stdout."""
    rows: int
    num_seeds: int
    temperatures: Sequence[float] = ()

    def to_dict(self) -> dict[str, Any]:
        """JSON values."""
        return {
            "out": None if self.out is None else str(self.out.absolute()),
            "rows": self.rows,
            "seeds": self.num_seeds,
            **({"temperatures": list(self.temperatures)} if self.temperatures else {}),
        }

    def in_words(self) -> str:
        """One line."""
        seeds = _averaged(self.num_seeds, self.temperatures)
        return f"{self.rows:,} rows predicted by {seeds}: {self.out}"


def _averaged(num_seeds: int, temperatures: Sequence[float]) -> str:
    """Whose probabilities they are."""
    text = "one seed" if num_seeds == 1 else f"the average of {num_seeds} seeds"
    if not temperatures:
        return text
    low, high = min(temperatures), max(temperatures)
    return f"{text}, logits of each divided by its temperature ({low:.3g} to {high:.3g})"


class _Chunk(NamedTuple):
    """Rows that are predicted together, and what of them is read."""

    records: Records
    inputs: Any


class _Rows(NamedTuple):
    """What is predicted."""

    names: Sequence[str]
    """Columns that there are."""
    total: int
    chunks: Callable[[], Iterator[_Chunk]]
    predictions: Callable[[Iterator[Any]], Iterator[Predictions]]
    """Of the inputs of each chunk."""
    suffix: str = ".csv"
    """Of the file."""
    schema: Any = None
    """Of Parquet."""


def predict(
    config: PredictConfig,
    *,
    stdin: BinaryIO | None = None,
    write: Callable[[bytes], bool] = lambda piece: True,  # noqa: ARG005
    as_list: bool = False,
    progress: Progress = lambda done, total, text: None,  # noqa: ARG005
) -> Labelled | Written:
    """Predict with a finished run.

    A file keeps its columns and gains predicted, probability and agreement; all of it is read once
    before any row is predicted, and the results appear when they are complete.

    Args:
        config: what is to be predicted, and how.
        stdin: what ``-`` means.
        write: takes the results of a file, piece by piece, where the configuration names no
            ``out``; False: nobody wants more.
        as_list: they are a list of JSON, whatever is read.
        progress: called with (rows done, rows in all, what is going on).

    Returns:
        The results of texts, or what was written of a file.
    """
    out = config.out
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
            rows = _of_cache(config, predictor)
        else:
            rows = _of_file(config, predictor, stack, stdin, progress)
        if taken := set(rows.names) & set(result_names(config.top)):
            where = str(config.cache if config.of_cache else config.file or "stdin")
            message = f"there is a column '{min(taken)}' already"
            raise ConfigError(message, where=where, hint="rename the column")

        def results() -> Iterator[Records]:
            """Records of chunk after chunk, each with its results."""
            done, waiting = 0, deque[Records]()

            def inputs() -> Iterator[Any]:
                for chunk in rows.chunks():
                    waiting.append(chunk.records)
                    yield chunk.inputs

            progress(0, rows.total, "predicting")
            for found in rows.predictions(inputs()):
                said = found.rows(config.top)
                yield [a | b for a, b in zip(waiting.popleft(), said, strict=True)]
                done += len(said)
                progress(done, rows.total, "predicting")

        if out is None:
            lines = json_lines if as_list or rows.suffix == ".jsonl" else csv_lines
            pieces = lines(results())
            for piece in listed(pieces) if as_list else pieces:
                if not write(piece):
                    break
        else:
            with storage_errors(out):
                make_folder(out.parent)
                part = temporary_path(out.parent, out.name)
                stack.callback(part.unlink, missing_ok=True)
                if out.suffix == ".parquet":
                    write_parquet(part, results(), rows.schema)
                else:
                    lines = json_lines if out.suffix == ".jsonl" else csv_lines
                    with part.open("wb") as file:
                        file.writelines(lines(results()))
                part.replace(out)
    return Written(out, rows.total, seeds, temperatures)


def _of_file(
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
        path = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "stdin.txt"
        with storage_errors(path, option="TMPDIR"), path.open("wb") as spooled:
            shutil.copyfileobj(stdin, spooled)
    elif not path.is_file():
        raise NotFoundError(f"no file '{path}'", found="a folder" if path.is_dir() else None)
    else:
        folder = path.absolute().parent
    origin = "stdin" if config.file is None else str(path)
    known, lines = encoding.rows, path.suffix == ".txt"
    if encoding.kind == "text":
        texts = tuple(known.get("text_columns") or ("text",))
        reading = ExtractConfig(
            text_columns=config.text_columns or (("text",) if lines else texts),
            delimiter=known.get("delimiter"),
        )
    else:
        file_column = known.get("file_column") or ("file" if lines else None)
        reading = ExtractConfig(file_column=file_column, delimiter=known.get("delimiter"))

    def chunks() -> Iterator[_Chunk]:
        table = open_table(path, reading)
        columns = choose(table, reading, None, origin)
        if path.suffix != ".jsonl":  # whose objects come whole, and may differ
            columns = columns._replace(kept=tuple(table.names))
        records, bad, count = iter(table.records(columns)), BadRows(origin), 0
        while piece := list(islice(records, CHUNK_ROWS)):
            inputs = []
            for place, record in piece:
                try:
                    inputs.append(_input(record, columns, folder))
                except DataError as error:
                    bad.add(place, error)
            count += len(piece)
            bad.refuse(count)
            yield _Chunk(
                [dict(record) for _, record in piece if not isinstance(record, DataError)],
                Placed(inputs, [place for place, _ in piece]),
            )

    total = 0
    for chunk in chunks():
        total += len(chunk.records)
        progress(total, 0, f"reading {path}")
    if not total:
        raise DataError("no rows", expected="at least one row", found="none", where=origin)
    schema = None
    if path.suffix == ".parquet":
        import pyarrow.parquet

        schema = pyarrow.parquet.read_schema(path)

    def predictions(inputs: Iterator[Placed]) -> Iterator[Predictions]:
        return predictor.stream(inputs, origin=origin)

    names = open_table(path, reading).names
    return _Rows(names, total, chunks, predictions, path.suffix, schema)


def _input(record: Mapping[str, Any] | DataError, columns: Columns, folder: Path) -> str:
    """What is encoded of a row: its text, or where its sound or picture is."""
    if isinstance(record, DataError):
        raise record
    if columns.of_files:
        cell = record[columns.inputs[0]]
        found = str(folder / cell) if isinstance(cell, str) and not is_blank(cell) else None
    else:
        found = text_of(record, columns.inputs)
    if found is None:
        expected = f"something in {' + '.join(columns.inputs)}"
        raise DataError("a row is empty", expected=expected, hint="remove such rows")
    return found


def _of_cache(config: PredictConfig, predictor: Predictor) -> _Rows:
    assert config.cache is not None
    cache = open_cache(config.cache)
    _check_alike(config.run.expanduser(), config.cache, predictor, cache.plan)
    split = cache[config.split or "test"]
    states = split.pooled(predictor.pooling)
    columns: dict[str, Any] = {"row": range(len(split))}
    columns |= {name: split.column(name) for name in cache.columns}
    if split.labelled:
        columns["label"] = [split.class_names[label] for label in split.labels]

    def chunks() -> Iterator[_Chunk]:
        for first in range(0, len(split), CHUNK_ROWS):
            rows = range(first, min(first + CHUNK_ROWS, len(split)))
            records = [{name: of[row] for name, of in columns.items()} for row in rows]
            yield _Chunk(records, states[first : first + len(rows)])

    def predictions(inputs: Iterator[Any]) -> Iterator[Predictions]:
        return map(predictor.predict_states, inputs)

    return _Rows(list(columns), len(split), chunks, predictions)


def _check_alike(run: Path, folder: Path, predictor: Predictor, plan: Plan) -> None:
    """Rows of another cache than the run's were encoded as those of the run; else CacheError."""
    if is_run(run) and plan.fingerprint == read_run(run).cache["fingerprint"]:
        return
    ours, theirs = predictor.encoding, Encoding.of(plan)
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
            where=f"{folder.absolute()}, fingerprint {short_digest(plan.fingerprint)}",
            hint="encode the rows as those of the run were: gaam predict RUN --file FILE",
        )


def _numbers(encoding: Encoding) -> dict[str, Any]:
    """What decides the numbers of rows; which poolings are there beside the run's does not."""
    known = encoding.to_dict()
    identity = {name: value for name, value in encoding.identity.items() if name != "pooling"}
    names = ("kind", "decoders", "storage_dtype", "num_layers", "hidden_size", "first_layer")
    return {"encoder": identity} | {name: known[name] for name in names}
