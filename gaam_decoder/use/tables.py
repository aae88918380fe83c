"""Rows with what was predicted of them -> CSV, JSON lines or Parquet, chunk by chunk."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from gaam_cache.errors import DataError
from gaam_cache.store.files import make_folder, storage_errors, temporary_path

Records = list[dict[str, Any]]


def pieces(chunks: Iterable[Records], suffix: str, *, as_list: bool = False) -> Iterator[bytes]:
    """The bytes of a file of CSV or JSON lines, or of one list of JSON, a piece for each chunk."""
    if as_list:
        before = b"[\n"
        for records in chunks:
            yield before + ",\n".join(map(_json, records)).encode()
            before = b",\n"
        yield b"\n]\n"
    elif suffix == ".jsonl":
        for records in chunks:
            yield "".join(f"{_json(record)}\n" for record in records).encode()
    else:
        for number, records in enumerate(_alike(chunks)):
            rows = [*([] if number else [list(records[0])]), *(one.values() for one in records)]
            yield "".join(f"{','.join(map(_field, row))}\n" for row in rows).encode()


def write_table(out: Path, chunks: Iterable[Records], schema: Any) -> None:
    """Make a file of them that appears when it is complete; ``schema`` is that of known columns."""
    with storage_errors(out):
        make_folder(out.parent)
        part = temporary_path(out.parent, out.name)
        try:
            if out.suffix == ".parquet":
                _write_parquet(part, chunks, schema)
            else:
                with part.open("wb") as file:
                    file.writelines(pieces(chunks, out.suffix))
            part.replace(out)
        finally:
            part.unlink(missing_ok=True)


def _alike(chunks: Iterable[Records]) -> Iterator[Records]:
    """The same, whose rows have the fields of the first, as those of a table have."""
    names: dict[str, None] = {}
    for records in chunks:
        names = names or dict.fromkeys(records[0])
        for record in records:
            if record.keys() - names.keys():
                expected, found = ", ".join(names), ", ".join(record)
                message, hint = "rows have other fields than the first", "--out FILE.jsonl"
                raise DataError(message, expected=expected, found=found, hint=hint)
        yield [dict.fromkeys(names) | record for record in records]


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
    return '"' + text.replace('"', '""') + '"' if set(text) & set(',"\r\n') else text


def _write_parquet(path: Path, chunks: Iterable[Records], schema: Any) -> None:
    """Columns of Parquet keep their types; of others they are those of the first rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer = None
    try:
        for records in _alike(chunks):
            if writer is None:
                found, known = pa.Table.from_pylist(records).schema, schema or []
                writer = pq.ParquetWriter(path, pa.schema([*known, *list(found)[len(known) :]]))
            writer.write_table(pa.Table.from_pylist(records, schema=writer.schema))
    except pa.ArrowException as error:
        said, message = " ".join(str(error).split()), "rows do not fit into columns of Parquet"
        raise DataError(message, found=said, hint="--out FILE.jsonl") from error
    finally:
        if writer is not None:
            writer.close()
