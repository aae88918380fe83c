"""Reads tables: files of CSV, JSON lines, JSON, Parquet or text, and ``datasets``.

A table is opened by reading the names of its columns. Its records are read later, when
they are needed.
"""

import csv
import json
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import zip_longest
from pathlib import Path
from typing import Any

from gaam_cache.common.errors import DataError, GaamWarning, reading_file
from gaam_cache.common.messages import excerpt
from gaam_cache.config import ExtractConfig, delimiter_of
from gaam_cache.sources.base import Record
from gaam_cache.sources.rows.collect import Columns, Table
from gaam_cache.sources.rows.layout import check_file, kind_of
from gaam_cache.sources.rows.text_files import read_lines, warn_if_utf8
from gaam_cache.targets.numbers import Numbers

MAX_FIELD_CHARS = 64 * 2**20  # a longer field of a CSV file has an unclosed quote
MAX_FIELDS_SHOWN = 8  # of a row, in messages
PARQUET_BATCH_ROWS = 4096  # rows of Parquet in memory at a time
PARQUET_BATCH_FILES = 16  # the same for rows that hold sounds or pictures
RECORDS_KEY = "data"  # key of the array of records in a JSON object
FEATURES_KEY = b"huggingface"
"""Key under which ``datasets`` describes the columns of a Parquet file, as JSON."""
Reader = Callable[[Path, ExtractConfig], Generator[Any]]
"""Yields the column names first, and then the records."""


def open_table(path: Path, config: ExtractConfig) -> Table:
    """Open the table in a file, reading no more than its column names.

    CSV follows RFC 4180, with a header. White space is part of names and values, and
    blank lines are not rows. A .json file holds an array of objects, an object with
    such an array under 'data', or an object a line. A .txt file has no labels, and one
    text a line, in a column 'text'.
    """
    # no reader has a good message for a broken link or a pointer of Git LFS
    check_file(path)
    kind = kind_of(path)
    if kind == ".parquet":
        table = _open_parquet(path, config)
    else:
        readers = {
            ".jsonl": _read_json_lines,
            ".json": _read_json,
            ".txt": _read_text_lines,
        }
        table = _open_text_table(path, config, readers.get(kind, _read_csv))
        warn_if_utf8(path, config)

    names = table.names
    if not names or len(set(names)) < len(names):
        subject = "the first line"
        where = f"{path}, line 1"
        if kind == ".parquet":
            subject = "the file"
            where = str(path)
        raise DataError(
            f"{subject} does not give every column a name of its own",
            expected="distinct column names",
            found=", ".join(map(excerpt, names)) or "an empty file",
            where=where,
        )
    return table


def open_tables(paths: Sequence[Path], config: ExtractConfig) -> Table:
    """Open the files of a split, in their order, as one table."""
    tables = [open_table(path, config) for path in paths]
    if len(tables) == 1:
        return tables[0]

    def records(columns: Columns) -> Iterator[Record]:
        for path, table in zip(paths, tables, strict=True):
            # ``choose_columns`` has looked at the columns of the first shard only
            missing = [name for name in columns.all if name not in table.names]
            if missing:
                raise DataError(
                    "a shard lacks a column that the first one has",
                    expected=", ".join(missing),
                    found=", ".join(map(excerpt, table.names)),
                    where=str(path),
                )
            # one list of names serves all shards; without labels nothing uses it
            if columns.labels and table.class_names != tables[0].class_names:
                raise _other_classes_error(
                    table.class_names, tables[0].class_names, path
                )
            for location, record in table.records(columns):
                yield f"{path.name}, {location}", record

    return tables[0]._replace(records=records)


def _other_classes_error(
    names: tuple[str, ...] | None, first_names: tuple[str, ...] | None, path: Path
) -> DataError:
    """The error for a shard whose classes are not those of the first shard.

    Args:
        names: the classes that the shard declares, in order; None if it declares none.
        first_names: those of the first shard, which differ.
        path: the shard.
    """
    pairs = zip_longest(first_names or (), names or ())
    number, (first_name, name) = next(
        (number, pair) for number, pair in enumerate(pairs) if pair[0] != pair[1]
    )
    return DataError(
        "a shard numbers its classes differently from the first one",
        expected=_class_with_number(first_name, number),
        found=_class_with_number(name, number),
        where=str(path),
        hint="write all shards with the same class names (ClassLabel)",
    )


def _class_with_number(name: str | None, number: int) -> str:
    """The class with a number, in words; ``name`` is None if it has no name."""
    if name is None:
        return f"no name for class {number}"
    return f"{excerpt(name)} for class {number}"


def _open_text_table(path: Path, config: ExtractConfig, read: Reader) -> Table:
    """Open a table in a file of text.

    Args:
        path: the file. It is read from its start whenever records are needed.
        config: the extraction.
        read: reads files of this format: yields the column names, then the location and
            the values of every record.
    """
    # a reader yields the column names first: they are enough to refuse a wrong column
    with closing(read(path, config)) as names_and_records:
        names: list[str] = next(names_and_records, [])

    def records(columns: Columns) -> Iterator[Record]:
        required_columns = set(columns.all)
        with closing(read(path, config)) as names_and_records:
            next(names_and_records, None)  # skip the column names
            for location, record in names_and_records:
                missing = required_columns - record.keys()
                if missing:
                    raise DataError(
                        "a line lacks a column that the first line has",
                        expected=", ".join(sorted(missing)),
                        found=", ".join(map(excerpt, record)),
                        hint="add the column to the line, or remove the line",
                        where=f"{path}, {location}",
                    )
                yield location, record

    return Table(names, records)


def _read_text_lines(path: Path, config: ExtractConfig) -> Generator[Any]:
    """Yield the name of the only column, then the location and the text of every line.

    The text is that of a row, or the name of its file.
    """
    name = config.file_column or "text"
    yield [name]
    for number, line in enumerate(read_lines(path, config), start=1):
        yield f"line {number}", {name: line.rstrip("\r\n")}


def _read_csv(path: Path, config: ExtractConfig) -> Generator[Any]:
    """Yield the header of a CSV file, then (location, fields by column) of every row.

    A field in quotes may span several lines.
    """
    delimiter = delimiter_of(config)
    if kind_of(path) == ".tsv" and config.delimiter is None:
        delimiter = "\t"
    csv.field_size_limit(max(csv.field_size_limit(), MAX_FIELD_CHARS))
    # pyarrow.csv is faster, but takes all text after an unclosed quote for one field
    lines = read_lines(path, config, newline="")
    reader = csv.reader(lines, strict=True, delimiter=delimiter)

    checks = None
    next_line = 1
    try:
        for row in reader:
            location = f"line {next_line}"
            next_line = reader.line_num + 1
            if not row:
                continue
            if checks is None:
                checks = _CsvChecks(path, row, delimiter)
                yield row
                continue
            checks.check(row, location)
            yield location, dict(zip(checks.names, row, strict=True))
    except csv.Error as error:
        raise DataError(
            "a quoted field is damaged or never closed",
            expected='a closing quote, and double quotes inside a quoted field: ""',
            found=str(error),
            where=f"{path}, the row that begins in line {next_line}",
        ) from error


class _CsvChecks:
    """Checks the rows of a CSV file.

    Args:
        path: the file, for messages.
        names: the names of its columns.
        delimiter: the character between its fields.
    """

    def __init__(self, path: Path, names: list[str], delimiter: str) -> None:
        self.names = names
        self._path = path
        self._delimiter = delimiter
        self._normalized_names = _normalized(names)

    def check(self, row: list[str], location: str) -> None:
        """Refuse a second header or a wrong number of fields; warn of odd quotes.

        Args:
            row: the fields of a row.
            location: of the row in the file, such as 'line 7'.
        """
        if self._is_header(row):
            raise DataError(
                "the header occurs in the file again",
                expected="one header, in the first line",
                found=_first_fields(row),
                where=f"{self._path}, {location}",
                hint="files were joined: remove that line",
            )
        if len(row) != len(self.names):
            raise DataError(
                "a row has the wrong number of fields",
                expected=f"{len(self.names)} ({', '.join(self.names)})",
                found=f"{len(row)} ({_first_fields(row)})",
                where=f"{self._path}, {location}",
                hint=f"quote a field that holds {self._delimiter!r} or a line break",
            )
        # A program may write a quote as plain text. Here it opens a quoted field, which
        # takes in all rows up to the next quote.
        if self._delimiter == "\t" and any(map(_spans_rows, row)):
            warnings.warn(
                f"{self._path}, {location}: a quoted field holds tabs and line breaks; "
                "if the file is written without quotes, rows are lost: write it as CSV",
                GaamWarning,
                stacklevel=3,
            )

    def _is_header(self, row: list[str]) -> bool:
        """Whether a row of several fields repeats the column names."""
        # the first field rules out nearly every row; to normalize all fields is slow
        if len(row) < 2 or row[0].strip().casefold() != self._normalized_names[0]:
            return False
        return _normalized(row) == self._normalized_names


def _spans_rows(field: str) -> bool:
    """Whether a field of a table with tabs seems to hold several rows of the file."""
    return "\t" in field and "\n" in field


def _normalized(row: list[str]) -> list[str]:
    """The fields of a header without differences in case and outer white space."""
    return [field.strip().casefold() for field in row]


def _first_fields(row: list[str]) -> str:
    """The first fields of a row, for messages."""
    return ", ".join(map(excerpt, row[:MAX_FIELDS_SHOWN]))


class _RepeatedKeyError(ValueError):
    """A JSON object has two values under one key."""


def _decode_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The values of a JSON object by key.

    Raises:
        _RepeatedKeyError: the object has a key twice; ``dict`` would drop one value.
    """
    values = dict(pairs)
    if len(values) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _RepeatedKeyError(next(key for key in keys if keys.count(key) > 1))
    return values


def _decode_json(text: str, where: str) -> Any:
    """The value of a JSON text; None if it is not JSON or nested too deeply.

    The callers expect an object, so they refuse None as they refuse ``null``.

    Args:
        text: the text.
        where: the file and the line, for messages.

    Raises:
        DataError: an object has a key twice.
    """
    try:
        return json.loads(text, object_pairs_hook=_decode_object)
    except _RepeatedKeyError as error:
        raise DataError(
            "an object has a key twice",
            expected="every key once, so that one value counts",
            found=excerpt(str(error)),
            where=where,
        ) from error
    except (ValueError, RecursionError):
        return None


def _read_json_lines(path: Path, config: ExtractConfig) -> Generator[Any]:
    """Yield the keys of the first line, then (location, object) of every JSON line."""
    has_yielded_names = False
    for number, line in enumerate(read_lines(path, config), start=1):
        if not line.strip():
            continue
        location = f"line {number}"
        where = f"{path}, {location}"
        record = _decode_json(line, where)
        if not isinstance(record, dict):
            raise DataError(
                "a line is not a JSON object",
                expected="one JSON object on each line",
                found=excerpt(line),
                where=where,
            )
        if not has_yielded_names:
            yield list(record)
            has_yielded_names = True
        yield location, record


def _read_json(path: Path, config: ExtractConfig) -> Generator[Any]:
    """Yield the keys of the first record, then (location, record) of every record.

    A .json file holds JSON lines; or an array of records; or an object with this array
    under ``RECORDS_KEY``.
    """
    if _is_json_lines(path, config):
        yield from _read_json_lines(path, config)
        return

    # JSON has no records that could be decoded one by one
    records = _decode_json("".join(read_lines(path, config)), str(path))
    if isinstance(records, dict):
        records = records.get(RECORDS_KEY)
    if not isinstance(records, list):
        raise DataError(
            "the file holds no records",
            expected="an array of objects, an object with one under "
            f"'{RECORDS_KEY}', or JSON lines",
            found="another value, or no complete JSON",
            where=str(path),
        )
    for number, record in enumerate(records, start=1):
        location = f"record {number}"
        if not isinstance(record, dict):
            raise DataError(
                "a record is not a JSON object",
                found=excerpt(record),
                where=f"{path}, {location}",
            )
        if number == 1:
            yield list(record)
        yield location, record


def _is_json_lines(path: Path, config: ExtractConfig) -> bool:
    """Whether a .json file holds JSON lines: every line is one record.

    Then its first line is a complete object. If it is the only line, it must not be an
    object with an array of records, which is a whole file on one line.
    """
    with closing(read_lines(path, config)) as lines:
        filled_lines = (line for line in lines if line.strip())
        first = next(filled_lines, "")
        second = next(filled_lines, None)
    # the text of a first line that is not JSON by itself decodes to None
    record = _decode_json(first, f"{path}, line 1")
    if not isinstance(record, dict):
        return False
    is_only_line = second is None
    holds_all_records = is_only_line and isinstance(record.get(RECORDS_KEY), list)
    return not holds_all_records


def _open_parquet(path: Path, config: ExtractConfig) -> Table:
    """Open the table in a Parquet file; its records are read in batches of rows.

    Args:
        path: the file. If ``datasets`` wrote it, it may declare class names.
        config: the extraction; its label column may have these class names.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with reading_file(str(path)):
        schema = pq.read_schema(path)
    features = {
        column: feature
        for column, feature in _stored_features(schema).items()
        if _holds_whole_numbers(schema, column)
    }
    names_by_column = _declared_names(features)
    class_names = _take_class_names(names_by_column, config)

    def records(columns: Columns) -> Iterator[Record]:
        batch_rows = PARQUET_BATCH_FILES if columns.of_files else PARQUET_BATCH_ROWS
        with reading_file(str(path)), pq.ParquetFile(path) as file:
            batches = file.iter_batches(batch_rows, columns=columns.all)
            rows = (row for batch in batches for row in batch.to_pylist())
            for number, row in enumerate(rows, start=1):
                yield f"row {number}", _with_names(row, names_by_column)

    # the library ``datasets`` stores a file as its bytes and its path
    media_columns = []
    for column in schema:
        parts = column.type if pa.types.is_struct(column.type) else ()
        if {part.name for part in parts} == {"bytes", "path"}:
            media_columns.append(column.name)
    return Table(list(schema.names), records, tuple(media_columns), class_names)


def _declared_names(features: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """Column -> the class names that it declares, in order; no columns without any.

    Args:
        features: column -> its description, as ``datasets`` writes it in JSON.
    """
    names_by_column: dict[str, tuple[str, ...]] = {}
    for column, feature in features.items():
        names = _declared_classes(feature)
        if names is not None:
            names_by_column[column] = names
    return names_by_column


def _take_class_names(
    names_by_column: dict[str, tuple[str, ...]], config: ExtractConfig
) -> tuple[str, ...] | None:
    """Remove the names of the label column, and return them, if it holds classes.

    The reader of labels needs these names to know all classes and their order. Whole
    numbers in any other column are replaced by their names.

    Args:
        names_by_column: the names that columns declare, in order; changed.
        config: the extraction.
    """
    holds_classes = len(config.label_column) == 1 and config.task != Numbers.task
    if not holds_classes:
        return None
    return names_by_column.pop(config.label_column[0], None)


def _with_names(
    record: Mapping[str, Any], names_by_column: Mapping[str, tuple[str, ...]]
) -> Mapping[str, Any]:
    """A record with the declared names in place of their numbers."""
    changed = {
        column: _name_of_number(record[column], names)
        for column, names in names_by_column.items()
        if column in record
    }
    return {**record, **changed} if changed else record


def _name_of_number(value: Any, names: Sequence[str]) -> Any:
    """The name that a number stands for; None for one without a name, such as -1."""
    if isinstance(value, list):
        return [_name_of_number(entry, names) for entry in value]
    if not isinstance(value, int):
        return value
    return names[value] if 0 <= value < len(names) else None


def _holds_whole_numbers(schema: Any, name: str) -> bool:
    """Whether a column of Parquet holds whole numbers, or lists of them.

    Class names apply to such columns alone. Other programs may change a column and
    leave its description as it was.
    """
    import pyarrow as pa

    index = schema.get_field_index(name)
    if index < 0:
        return False
    column_type = schema.field(index).type
    entry_type = getattr(column_type, "value_type", column_type)
    return bool(pa.types.is_integer(entry_type))


def _stored_features(schema: Any) -> Mapping[str, Any]:
    """What ``datasets`` wrote about the columns of a Parquet file: column -> feature.

    Nothing, if it did not write the file, or if the description is damaged.
    """
    # to import ``datasets`` takes seconds, and most files have no such description
    content = (schema.metadata or {}).get(FEATURES_KEY, b"null")
    try:
        description = json.loads(content)
    except (ValueError, RecursionError):
        return {}
    info = description.get("info") if isinstance(description, dict) else None
    features = info.get("features") if isinstance(info, dict) else None
    return features if isinstance(features, dict) else {}


def _declared_classes(feature: Any) -> tuple[str, ...] | None:
    """The class names that a column declares, in order; None if it declares none.

    Args:
        feature: the description of the column, as ``datasets`` writes it in JSON.
    """
    # a column of lists has the class names in the feature of its entries, which early
    # versions of ``datasets`` put into a list
    if isinstance(feature, list) and len(feature) == 1:
        [feature] = feature
    elif isinstance(feature, dict):
        feature = feature.get("feature", feature)
    if not isinstance(feature, dict) or feature.get("_type") != "ClassLabel":
        return None

    entries = feature.get("names")
    if not isinstance(entries, list) or not entries:
        return None
    if not all(isinstance(entry, str | int) for entry in entries):
        return None
    # a name may be written as a number; ``datasets`` refuses a name that occurs twice
    names = tuple(map(str, entries))
    return names if len(set(names)) == len(names) else None


def dataset_table(dataset: Any, config: ExtractConfig) -> Table:
    """The table of a ``Dataset`` of the library ``datasets``.

    Args:
        dataset: one split. Its sounds and pictures stay encoded bytes.
        config: the extraction; its label column may declare class names.
    """
    import datasets

    # a saved data set may remember a format, such as arrays or fewer columns
    dataset = dataset.with_format(None)
    media_columns = []
    for column, feature in dataset.features.items():
        if isinstance(feature, datasets.Audio | datasets.Image):
            # gaam decodes files itself, so that the fingerprint covers their bytes
            dataset = dataset.cast_column(column, type(feature)(decode=False))
            media_columns.append(column)

    names_by_column = _declared_names(dataset.features.to_dict())
    class_names = _take_class_names(names_by_column, config)

    def records(columns: Columns) -> Iterator[Record]:
        for number, record in enumerate(dataset.select_columns(columns.all), start=1):
            yield f"row {number}", _with_names(record, names_by_column)

    return Table(dataset.column_names, records, tuple(media_columns), class_names)
