"""Files in and out: all that stands in a row is there afterwards, in every pair of formats."""

from __future__ import annotations

import csv
import io
import json
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from gaam_cache.errors import ConfigError, GaamError
from gaam_decoder.use.predict import predict
from gaam_decoder.use.predict_config import PredictConfig
from tests.decoder.use.stand_in import CLASSES, StandIn, stand_in
from tests.hostile_strings import HOSTILE

ADDED = ["predicted", "probability", "agreement"]
VALUES = ["007", "1e5", "1.10", "", " ", "NULL", 'a "quote"', "a,b;c\td|e", "two\r\nlines", "'",
          *HOSTILE.values()]  # fmt: skip


def can_be_written(text: str) -> bool:
    return not any("\ud800" <= c <= "\udfff" or c == "\0" for c in text)


STRINGS = [text for text in VALUES if can_be_written(text)]
Stand = Callable[..., tuple[StandIn, Path]]


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stand:
    monkeypatch.setattr("gaam_decoder.use.predict.CHUNK_ROWS", 7)
    return lambda **about: stand_in(monkeypatch, tmp_path / "run", **about)


def write(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """A file in the format that its end says."""
    if path.suffix == ".csv":
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), quoting=csv.QUOTE_ALL)
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    return path


def read(content: bytes, suffix: str) -> list[dict[str, Any]]:
    """By another reader than ours."""
    if suffix == ".parquet":
        table: list[dict[str, Any]] = pyarrow.parquet.read_table(io.BytesIO(content)).to_pylist()
        return table
    text = content.decode()
    if suffix == ".csv":
        return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
    return [json.loads(line) for line in text.split("\n")[:-1]]


@pytest.mark.parametrize("to", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("of", [".csv", ".jsonl", ".parquet"])
def test_every_value_is_there_afterwards(of: str, to: str, stand: Stand, tmp_path: Path) -> None:
    predictor, run = stand()
    rows = [{"id": value, "text": f"text {i}", 'é, "b"': "x"} for i, value in enumerate(STRINGS)]
    source, out = write(tmp_path / f"in{of}", rows), tmp_path / "new" / f"out{to}"
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
    assert [path.name for path in out.parent.iterdir()] == [out.name]
    with pytest.raises(ConfigError, match="there already"):
        predict(PredictConfig(run=run, file=source, out=out))


def test_types_and_nulls_of_parquet_stay(stand: Stand, tmp_path: Path) -> None:
    _, run = stand()
    columns = {
        "text": pyarrow.array(["a", "b"]),
        "small": pyarrow.array([1, None], pyarrow.int8()),
        "when": pyarrow.array([0, None], pyarrow.timestamp("us")),
        "list": pyarrow.array([[1.5], None], pyarrow.list_(pyarrow.float32())),
    }
    source, out = tmp_path / "in.parquet", tmp_path / "out.parquet"
    pyarrow.parquet.write_table(pyarrow.table(columns), source)
    predict(PredictConfig(run=run, file=source, out=out))
    assert pyarrow.parquet.read_table(out).select(list(columns)) == pyarrow.table(columns)


def test_values_of_json_lines_stay_whatever_they_are(stand: Stand, tmp_path: Path) -> None:
    _, run = stand()
    rows = [{"text": "a", "n": None, "x": [1, {"b": 2.5}]}, {"text": "b", "more": True}]
    source = write(tmp_path / "in.jsonl", rows)
    predict(PredictConfig(run=run, file=source, out=tmp_path / "out.jsonl"))
    found = read((tmp_path / "out.jsonl").read_bytes(), ".jsonl")
    assert [{k: v for k, v in row.items() if k not in ADDED} for row in found] == rows
    for to in ("csv", "parquet"):  # one column for each, of one type
        with pytest.raises(GaamError):
            predict(PredictConfig(run=run, file=source, out=tmp_path / f"out.{to}"))
        assert not (tmp_path / f"out.{to}").exists()


BAD_FILES = {
    "nothing.csv": b"",
    "header.csv": b"text\n",
    "nothing.jsonl": b"",
    "no.parquet": b"PAR1",
    "fields.csv": b"text,b\na,b\nc,d,e\n",
    "bytes.csv": b"text\na\n\xff\n",
    "bytes.jsonl": b'{"text": "a"}\n{"text": "\xff"}\n',
    "quote.csv": b'text\n"a\n',
    "empty.csv": b"text,b\na,1\n ,2\n",
    "null.jsonl": b'{"text": "a"}\n{"text": null}\n',
    "number.jsonl": b'{"text": "a"}\n{"text": 1}\n',
    "array.jsonl": b'{"text": "a"}\n["text"]\n',
    "column.csv": b"words\na\n",
    "taken.csv": b"text,predicted\na,b\n",
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_file_that_cannot_be_used_is_refused_before_anything_is_predicted(
    name: str, stand: Stand, tmp_path: Path
) -> None:
    predictor, run = stand()
    source, out = tmp_path / name, tmp_path / "out.jsonl"
    source.write_bytes(BAD_FILES[name])
    with pytest.raises(GaamError, match=name):
        predict(PredictConfig(run=run, file=source, out=out))
    assert not predictor.asked
    assert not out.exists()


def test_rows_without_text_have_empty_results_where_that_is_asked_for(
    stand: Stand, tmp_path: Path
) -> None:
    predictor, run = stand()
    rows = [{"text": text} for text in ("a", " ", "", "b", *[""] * 20, "c")]
    source, out = write(tmp_path / "in.csv", rows), tmp_path / "out.jsonl"
    with pytest.warns(match="22 of 25 rows"):
        predict(PredictConfig(run=run, file=source, out=out, skip_empty=True))
    found = read(out.read_bytes(), ".jsonl")
    assert predictor.asked == ["a", "b", "c"]
    assert [row["predicted"] is None for row in found] == [not row["text"].strip() for row in rows]


def test_results_on_stdout_are_those_of_a_file(stand: Stand, tmp_path: Path) -> None:
    _, run = stand()
    rows = [{"text": f"text {i}", "n": str(i)} for i in range(20)]
    pieces: list[bytes] = []

    def take(piece: bytes) -> bool:
        pieces.append(piece)
        return True

    for suffix in (".csv", ".jsonl"):
        source = write(tmp_path / f"in{suffix}", rows)
        out = tmp_path / f"out{suffix}"
        predict(PredictConfig(run=run, file=source, out=out))
        pieces.clear()
        predict(PredictConfig(run=run, file=source), write=take)
        assert b"".join(pieces) == out.read_bytes()
        pieces.clear()
        predict(
            PredictConfig(run=run, file=source),
            as_list=True,
            write=take,
        )
        listed = json.loads(b"".join(pieces))
        assert [row["predicted"] for row in listed] == [
            row["predicted"] for row in read(out.read_bytes(), suffix)
        ]
    lines = io.BytesIO(b"a text\n  another, with a comma\n")
    pieces.clear()
    predict(
        PredictConfig(run=run, texts=("-",)),
        stdin=lines,
        write=take,
    )
    assert [row["text"] for row in read(b"".join(pieces), ".csv")] == [
        "a text",
        "  another, with a comma",
    ]


class _Forgetful(list[str]):
    def __iadd__(self, rows: Any) -> _Forgetful:  # type: ignore[override, misc]
        return self


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_memory_does_not_grow_with_the_rows(
    suffix: str, monkeypatch: pytest.MonkeyPatch, stand: Stand, tmp_path: Path
) -> None:
    monkeypatch.setattr("gaam_decoder.use.predict.CHUNK_ROWS", 200)
    predictor, run = stand()
    monkeypatch.setattr(predictor, "asked", _Forgetful())

    def peak(rows: int) -> int:
        long = [{"text": f"text {i} " * 60} for i in range(rows)]
        source = write(tmp_path / f"{rows}{suffix}", long)
        del long
        tracemalloc.start()
        predict(PredictConfig(run=run, file=source, out=tmp_path / f"out-{rows}{suffix}"))
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    peak(400)  # what is imported at first
    small, large = peak(5_000), peak(20_000)
    assert large < small + 2_000_000, (small, large)  # the rows that are more have 8 MB
