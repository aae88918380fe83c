"""Files in and out: all that stands in a row is there afterwards, in every pair of formats."""

from __future__ import annotations

import csv
import io
import itertools
import json
import tracemalloc
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from gaam_cache.errors import ConfigError, DataError, GaamError, NotFoundError
from gaam_cache.tables.table import Table
from gaam_decoder.use.predict import predict
from gaam_decoder.use.predict_config import PredictConfig
from tests.decoder.use.stand_in import CLASSES, StandIn, stand_in
from tests.hostile_strings import HOSTILE

ADDED = ["predicted", "probability", "agreement"]
VALUES = [
    "007",
    "1e5",
    "",
    " ",
    "NULL",
    "nan",
    'a "quote"',
    '"',
    "a,b;c\td|e",
    "two\nlines",
    "two\r\nlines",
    "return\rend",
    "\ttab",
    " around ",
    "'",
    "\\",
    "\\n",
    "{}",
    "a\ufeffb",
    *(text for text in HOSTILE.values() if "\0" not in text),
]


class Taken(list[bytes]):
    """What went to stdout, all of which was wanted."""

    def __call__(self, piece: bytes) -> bool:
        self.append(piece)
        return True


def can_be_written(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


STRINGS = [text for text in VALUES if can_be_written(text)]


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[StandIn, Path]]:
    monkeypatch.setattr(Table, "chunk_rows", 7)
    return lambda **about: stand_in(monkeypatch, tmp_path / "run", **about)


def write(path: Path, rows: Sequence[dict[str, Any]], *, delimiter: str = ",") -> Path:
    """A file of strings, in the format that its end says."""
    if path.suffix == ".csv":
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter=delimiter, quoting=csv.QUOTE_ALL)
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def read(content: bytes, suffix: str, delimiter: str = ",") -> list[dict[str, Any]]:
    """By another reader than ours."""
    if suffix == ".parquet":
        table: list[dict[str, Any]] = pyarrow.parquet.read_table(io.BytesIO(content)).to_pylist()
        return table
    text = content.decode()
    if suffix == ".csv":
        lines = io.StringIO(text, newline="")
        return list(csv.DictReader(lines, delimiter=delimiter, strict=True))
    return [json.loads(line) for line in text.split("\n")[:-1]]


@pytest.mark.parametrize("to", [".csv", ".jsonl", ".ndjson", ".parquet"])
@pytest.mark.parametrize("of", [".csv", ".jsonl", ".ndjson", ".parquet"])
def test_every_value_is_there_afterwards(
    of: str, to: str, stand: Callable[..., tuple[StandIn, Path]], tmp_path: Path
) -> None:
    predictor, run = stand()
    rows = [
        {"id": value, "text": f"text {i}", 'héllo, "b"': value[::-1] if value else "x"}
        for i, value in enumerate(STRINGS)
    ]
    rows = [row for row in rows if all(can_be_written(value) for value in row.values())]
    source, out = write(tmp_path / f"in{of}", rows), tmp_path / f"out{to}"
    written = predict(PredictConfig(run=run, file=source, out=out, top=3))
    found = read(out.read_bytes(), to)
    assert written.to_dict()["rows"] == len(rows) == len(found)
    names = [*ADDED, "predicted_2", "probability_2", "predicted_3", "probability_3"]
    assert list(found[0]) == [*rows[0], *names]
    expected = predictor.predictions([row["text"] for row in rows])
    numbers_NK, likely_NK = expected.top(3)
    for i, (row, given) in enumerate(zip(found, rows, strict=True)):
        assert {name: row[name] for name in given} == given
        for place, end in enumerate(("", "_2", "_3")):
            assert row[f"predicted{end}"] == CLASSES[numbers_NK[i, place]]
            assert float(row[f"probability{end}"]) == likely_NK[i, place]
        assert float(row["agreement"]) == expected.agreement_N[i]
        assert row["predicted"] == expected.labels[i]


def test_json_lines_keep_values_as_they_are_spelled(
    stand: Callable[..., tuple[StandIn, Path]], tmp_path: Path
) -> None:
    _, run = stand()
    lines = [
        '{"text": "a", "n": 1e5, "big": 123456789012345678901234567890, "x": 1.10}',
        ' {"n":null,"text":"b\\u00e9\\ud83d", "nested": {"b": [1, 2.50, null], "a": {}} } ',
        '{"text":"c","t":true,"e":""}',
    ]
    source, out = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("\n".join([lines[0], "", lines[2]]) + "\n")
    predict(PredictConfig(run=run, file=source, out=out))
    kept = out.read_text().splitlines()
    for line, given in zip(kept, (lines[0], lines[2]), strict=True):
        assert line.startswith(given[:-1] + ', "predicted": ')
        assert list(json.loads(line))[-3:] == ADDED
    source.write_text(lines[1] + "\n")
    with pytest.raises(DataError, match="half a character"):
        predict(PredictConfig(run=run, file=source, out=out, overwrite=True))


JSON_COLUMNS: dict[str, tuple[list[Any], str, list[Any], list[str]]] = {
    "truth": ([True, None, False], "bool", [True, None, False], ["true", "", "false"]),
    "whole": ([1, None, -(2**62)], "int64", [1, None, -(2**62)], ["1", "", str(-(2**62))]),
    "number": ([1, 0.5, None], "double", [1.0, 0.5, None], ["1", "0.5", ""]),
    "text": (["1", None, "x"], "string", ["1", None, "x"], ["1", "", "x"]),
    "nested": ([[1, "ä"], None, {"a": 2}], "string", ['[1, "\\u00e4"]', None, '{"a": 2}'], []),
    "nothing": ([None, None, None], "string", [None, None, None], ["", "", ""]),
}


@pytest.mark.parametrize("name", JSON_COLUMNS)
def test_kinds_of_json_have_types_of_parquet_and_a_spelling_in_csv(
    name: str, stand: Callable[..., tuple[StandIn, Path]], tmp_path: Path
) -> None:
    values, type_, stored, spelled = JSON_COLUMNS[name]
    _, run = stand()
    source = tmp_path / "in.jsonl"
    source.write_text("".join(json.dumps({"text": "a", "v": v}) + "\n" for v in values))
    predict(PredictConfig(run=run, file=source, out=tmp_path / "out.parquet"))
    table = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    assert str(table.schema.field("v").type) == type_
    assert table["v"].to_pylist() == stored
    predict(PredictConfig(run=run, file=source, out=tmp_path / "out.csv"))
    rows = read((tmp_path / "out.csv").read_bytes(), ".csv")
    assert [row["v"] for row in rows] == (spelled or [value or "" for value in stored])


@pytest.mark.parametrize(
    "values", [["1", 1], [True, 1], [[1], "a"], [2**63], [2**60, 0.5], ["1", None, 2.5]]
)
def test_what_no_type_of_parquet_has_is_refused_before_anything_is_predicted(
    values: list[Any], stand: Callable[..., tuple[StandIn, Path]], tmp_path: Path
) -> None:
    predictor, run = stand()
    source, out = tmp_path / "in.jsonl", tmp_path / "out.parquet"
    source.write_text("".join(json.dumps({"text": "a", "v": v}) + "\n" for v in values))
    with pytest.raises(DataError, match="no type of Parquet"):
        predict(PredictConfig(run=run, file=source, out=out))
    assert not predictor.asked
    assert not out.exists()


STORED = {
    "int32": pyarrow.array([1, None], pyarrow.int32()),
    "float16": pyarrow.array([0.5, None], pyarrow.float32()),
    "not a number": pyarrow.array([float("nan"), float("inf")]),
    "bool": pyarrow.array([True, None]),
    "decimal": pyarrow.array([Decimal("1.10"), None]),
    "date": pyarrow.array([1, None], pyarrow.date32()),
    "nanoseconds": pyarrow.array([1, None], pyarrow.timestamp("ns", "UTC")),
    "categories": pyarrow.array(["x", None]).dictionary_encode(),
    "large": pyarrow.array(["x", None], pyarrow.large_string()),
    "list": pyarrow.array([[1, None], None]),
    "struct": pyarrow.array([{"a": 1, "b": "é"}, None]),
    "bytes": pyarrow.array([b"\xff", None]),
    "nothing": pyarrow.nulls(2),
}


@pytest.mark.parametrize("name", STORED)
def test_parquet_keeps_its_types_and_nulls(
    name: str, stand: Callable[..., tuple[StandIn, Path]], tmp_path: Path
) -> None:
    _, run = stand()
    given = pyarrow.table({"text": ["a", "b"], "v": STORED[name]})
    given = given.replace_schema_metadata({"a": "b", "huggingface": "{}"})
    pyarrow.parquet.write_table(given, tmp_path / "in.parquet")
    given = pyarrow.parquet.read_table(tmp_path / "in.parquet")
    config = {"run": run, "file": tmp_path / "in.parquet"}
    predict(PredictConfig(**config, out=tmp_path / "out.parquet"))
    found = pyarrow.parquet.read_table(tmp_path / "out.parquet")
    assert found.schema.field("v").type == given.schema.field("v").type
    assert repr(found["v"].to_pylist()) == repr(given["v"].to_pylist()) or found["v"].equals(
        given["v"]
    )
    assert found.schema.metadata == {b"a": b"b"}
    for end in ("csv", "jsonl"):
        out = tmp_path / f"out.{end}"
        refused = {"bytes": "cannot be written as text"}
        if end == "jsonl":
            refused["not a number"] = "JSON has no NaN"
        if name in refused:
            with pytest.raises(DataError, match=refused[name]):
                predict(PredictConfig(**config, out=out))
            continue
        predict(PredictConfig(**config, out=out))
        assert len(read(out.read_bytes(), out.suffix)) == 2


def test_numbers_of_parquet_are_numbers_of_json(
    stand: Callable[..., tuple[StandIn, Path]], tmp_path: Path
) -> None:
    _, run = stand()
    kept = {k: v for k, v in STORED.items() if k not in ("bytes", "not a number")}
    columns = {"text": ["a", "b"], **kept}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "in.parquet")
    out = tmp_path / "out.jsonl"
    predict(PredictConfig(run=run, file=tmp_path / "in.parquet", out=out))
    first, second = read(out.read_bytes(), ".jsonl")
    assert (first["int32"], first["float16"], first["bool"]) == (1, 0.5, True)
    assert (first["decimal"], first["date"]) == ("1.10", "1970-01-02")
    assert first["nanoseconds"].startswith("1970-01-01 00:00:00.000000001")
    assert (first["categories"], first["list"]) == ("x", [1, None])
    assert first["struct"] == {"a": 1, "b": "é"}
    assert all(second[name] is None for name in kept)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("delimiter", [",", ";", "tab", "pipe"])
def test_line_ends_marks_and_delimiters_of_csv(
    delimiter: str,
    mark: bytes,
    end: str,
    stand: Callable[..., tuple[StandIn, Path]],
    tmp_path: Path,
) -> None:
    _, run = stand()
    between = {"tab": "\t", "pipe": "|"}.get(delimiter, delimiter)
    rows = [[" text", "n"], ["a,b;c", "007"], ["d", ""]]
    text = end.join(between.join(f'"{f}"' for f in row) for row in rows) + end
    source, out = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_bytes(mark + text.encode())
    predict(PredictConfig(run=run, file=source, out=out, delimiter=delimiter))
    content = out.read_bytes()
    assert b"\r" not in content
    found = read(content, ".csv", between)
    assert list(found[0]) == [" text", "n", *ADDED]
    assert [(row[" text"], row["n"]) for row in found] == [("a,b;c", "007"), ("d", "")]


def test_other_encodings_become_utf_8(
    stand: Callable[..., tuple[StandIn, Path]], tmp_path: Path
) -> None:
    predictor, run = stand()
    for encoding, end in itertools.product(("cp1252", "utf-16"), ("csv", "jsonl")):
        source, out = tmp_path / f"in.{end}", tmp_path / f"{encoding}.{end}"
        row = '{"text": "naïve €"}' if end == "jsonl" else "text\nnaïve €"
        source.write_bytes(row.encode(encoding))
        predict(PredictConfig(run=run, file=source, out=out, encoding=encoding))
        assert read(out.read_bytes(), out.suffix)[0]["text"] == "naïve €"
    assert set(predictor.asked) == {"naïve €"}


def test_columns_of_the_run_are_joined_as_in_extraction(
    stand: Callable[..., tuple[StandIn, Path]], tmp_path: Path
) -> None:
    predictor, run = stand(text_columns=("title", "body"))
    source = tmp_path / "in.csv"
    source.write_text("body,title,x\nb,a,1\n,c,2\nd, ,3\n")
    predict(PredictConfig(run=run, file=source, out=tmp_path / "out.csv"))
    assert predictor.asked == ["a b", "c", "d"]
    with pytest.raises(ConfigError, match="no column 'text'"):
        predict(PredictConfig(run=run, file=source, out=tmp_path / "o.csv", text_columns=("text",)))


BAD_FILES = {
    "nothing.csv": (b"", "no header"),
    "nothing.jsonl": (b"", "no rows"),
    "no.parquet": (b"PAR1", "cannot read"),
    "fields.csv": (b"text,b\na,b\nc,d,e\n", "wrong number of fields"),
    "bytes.csv": (b"text\na\n\xff\n", "not UTF-8"),
    "bytes.jsonl": (b'{"text": "a"}\n{"text": "\xff"}\n', "not UTF-8"),
    "quote.csv": (b'text\n"a\n', "never closed"),
    "empty.csv": (b"text,b\na,1\n ,2\n", "a text is empty"),
    "null.jsonl": (b'{"text": "a"}\n{"text": null}\n', "a text is empty"),
    "lacking.jsonl": (b'{"text": "a"}\n{"b": 1}\n', "lacks a column"),
    "number.jsonl": (b'{"text": "a"}\n{"text": 1}\n', "no string"),
    "array.jsonl": (b'{"text": "a"}\n["text"]\n', "no JSON object"),
    "column.csv": (b"words\na\n", "no column 'text'"),
    "taken.csv": (b"text,predicted\na,b\n", "--prefix"),
    "taken.jsonl": (b'{"text": "a"}\n{"text": "b", "agreement": 1}\n', "--prefix"),
    "twice.csv": (b"text,text\na,b\n", "twice"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_file_that_cannot_be_used_is_refused_before_anything_is_predicted(
    name: str, stand: Callable[..., tuple[StandIn, Path]], tmp_path: Path
) -> None:
    content, words = BAD_FILES[name]
    predictor, run = stand()
    source = tmp_path / name
    source.write_bytes(content)
    out = tmp_path / "out.jsonl"
    with pytest.raises(GaamError) as caught:
        predict(PredictConfig(run=run, file=source, out=out))
    assert words in str(caught.value)
    assert name in str(caught.value)
    assert not predictor.asked
    assert not out.exists()


def test_rows_without_text_have_empty_results_where_that_is_asked_for(
    stand: Callable[..., tuple[StandIn, Path]], tmp_path: Path
) -> None:
    predictor, run = stand()
    rows = [{"text": "" if i % 3 else f"text {i}", "n": str(i)} for i in range(25)]
    rows[7:14] = [{"text": " ", "n": str(i)} for i in range(7, 14)]  # a whole piece
    for of, to in itertools.product((".csv", ".jsonl", ".parquet"), repeat=2):
        source, out = write(tmp_path / f"in{of}", rows), tmp_path / f"{of[1:]}{to}"
        with pytest.warns(match="18 of 25 rows"):
            found = predict(PredictConfig(run=run, file=source, out=out, skip_empty=True))
        assert found.to_dict()["empty"] == 18
        nothing = "" if to == ".csv" else None
        for row, given in zip(read(out.read_bytes(), to), rows, strict=True):
            is_empty = all(row[name] == nothing for name in ADDED)
            assert is_empty == (not given["text"].strip())
            assert {name: row[name] for name in given} == given
    assert all(text.strip() for text in predictor.asked)


def test_a_header_alone_and_a_single_row(
    stand: Callable[..., tuple[StandIn, Path]], tmp_path: Path
) -> None:
    predictor, run = stand()
    source = tmp_path / "in.csv"
    source.write_text("text,n\n")
    for to in (".csv", ".jsonl", ".parquet"):
        out = tmp_path / f"none{to}"
        assert predict(PredictConfig(run=run, file=source, out=out)).to_dict()["rows"] == 0
        assert read(out.read_bytes(), to) == []
    assert not predictor.pieces
    source.write_text("text,n\na,1")
    predict(PredictConfig(run=run, file=source, out=tmp_path / "one.csv"))
    assert len(read((tmp_path / "one.csv").read_bytes(), ".csv")) == 1


def test_ten_thousand_classes(stand: Callable[..., tuple[StandIn, Path]], tmp_path: Path) -> None:
    _, run = stand(class_names=[f"class {i:05}" for i in range(10_000)])
    source = write(tmp_path / "in.csv", [{"text": f"text {i}"} for i in range(20)])
    out = tmp_path / "out.parquet"
    predict(PredictConfig(run=run, file=source, out=out, top=3))
    rows = read(out.read_bytes(), ".parquet")
    for row in rows:
        assert len({row["predicted"], row["predicted_2"], row["predicted_3"]}) == 3
        assert row["probability"] >= row["probability_2"] >= row["probability_3"]
    with pytest.raises(ConfigError, match="--top"):
        predict(PredictConfig(run=run, file=source, out=out, top=10_001, overwrite=True))


def test_results_on_stdout_are_those_of_a_file(
    stand: Callable[..., tuple[StandIn, Path]], tmp_path: Path
) -> None:
    _, run = stand()
    rows = [{"text": f"text {i}", "n": str(i)} for i in range(40)]
    for end in (".csv", ".jsonl"):
        source, out = write(tmp_path / f"in{end}", rows), tmp_path / f"out{end}"
        predict(PredictConfig(run=run, file=source, out=out))
        pieces = Taken()
        predict(PredictConfig(run=run, file=source), write=pieces)
        assert b"".join(pieces) == out.read_bytes()
        assert len(pieces) > 5
        with source.open("rb") as stdin:
            came = Taken()
            config = PredictConfig(run=run, texts=("-",), format=end[1:])
            predict(config, stdin=stdin, write=came)
        assert came == pieces
        listed = Taken()
        predict(PredictConfig(run=run, file=source), write=listed, as_list=True)
        as_rows = json.loads(b"".join(listed))
        assert [row["n"] for row in as_rows] == [row["n"] for row in rows]


def test_whoever_reads_no_further_stops_the_work(
    stand: Callable[..., tuple[StandIn, Path]], tmp_path: Path
) -> None:
    predictor, run = stand()
    source = write(tmp_path / "in.csv", [{"text": f"text {i}"} for i in range(700)])
    pieces: list[bytes] = []

    def write_some(piece: bytes) -> bool:
        pieces.append(piece)
        return len(pieces) < 3

    predict(PredictConfig(run=run, file=source), write=write_some)
    assert len(pieces) == 3
    assert predictor.pieces < 5


def test_parquet_is_not_for_stdout_unless_as_json(
    stand: Callable[..., tuple[StandIn, Path]], tmp_path: Path
) -> None:
    _, run = stand()
    source = write(tmp_path / "in.parquet", [{"text": "a"}])
    with pytest.raises(ConfigError, match="not for stdout"):
        predict(PredictConfig(run=run, file=source))
    pieces = Taken()
    predict(PredictConfig(run=run, file=source), write=pieces, as_list=True)
    assert json.loads(b"".join(pieces))[0]["text"] == "a"


@pytest.mark.parametrize("to", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("of", ["csv", "jsonl", "parquet"])
def test_memory_does_not_grow_with_the_rows(
    of: str,
    to: str,
    monkeypatch: pytest.MonkeyPatch,
    stand: Callable[..., tuple[StandIn, Path]],
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(Table, "chunk_rows", 200)
    monkeypatch.setattr("gaam_cache.tables.write.GROUP_BYTES", 50_000)
    predictor, run = stand()
    monkeypatch.setattr(predictor, "asked", _Forgetful())

    def peak(rows: int) -> int:
        source = write(
            tmp_path / f"{rows}.{of}", [{"text": f"text {i} " * 60} for i in range(rows)]
        )
        tracemalloc.start()
        predict(PredictConfig(run=run, file=source, out=tmp_path / f"out-{rows}.{to}"))
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(400)  # what is imported at first
    small, large = peak(1_000), peak(10_000)
    assert large < small + 1_000_000, (small, large)  # the rows that are more have 5 MB


class _Forgetful(list[str]):
    def __iadd__(self, rows: Any) -> _Forgetful:  # type: ignore[override, misc]
        return self


def test_what_does_not_go_together_is_refused(tmp_path: Path) -> None:
    run = tmp_path
    wrong: list[dict[str, Any]] = [
        {},
        {"texts": ("a",), "file": Path("in.csv")},
        {"texts": ("a", "-")},
        {"texts": ("a",), "out": Path("o.csv")},
        {"texts": ("a",), "split": "test"},
        {"file": Path("in.csv"), "format": "csv"},
        {"texts": ("-",), "format": "parquet"},
        {"texts": ("-",), "delimiter": ";"},
        {"cache": Path("c"), "encoder": "e"},
        {"cache": Path("c"), "skip_empty": True},
        {"cache": Path("c"), "text_columns": ("a",)},
        {"texts": ("a",), "top": 0},
        {"texts": ("a",), "seed": -1},
        {"texts": ("a",), "overwrite": True},
        {"texts": ("a",), "device": "abacus"},
    ]
    for given in wrong:
        with pytest.raises(ConfigError):
            PredictConfig(run=run, **given)


def test_files_that_are_not_there_or_of_no_format(
    stand: Callable[..., tuple[StandIn, Path]], tmp_path: Path
) -> None:
    _, run = stand()
    with pytest.raises(NotFoundError):
        predict(PredictConfig(run=run, file=tmp_path / "no.csv", out=tmp_path / "o.csv"))
    for out in ("o.txt", "o", "o.CSV"):
        with pytest.raises(ConfigError, match=r"a file without an end|no format ends"):
            predict(PredictConfig(run=run, file=tmp_path / "no.csv", out=tmp_path / out))
    assert not list(tmp_path.glob("*.partial/journal"))
