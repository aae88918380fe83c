"""A value comes out of every format exactly, or the file is refused before anything is predicted.

What is exact is said by ``decimal``, ``csv`` and ``pyarrow``, not by what writes.
"""

from __future__ import annotations

import csv
import io
import json
import os
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from gaam_cache.errors import DataError
from gaam_cache.tables.table import Table
from gaam_decoder.use.predict import predict
from gaam_decoder.use.predict_config import PredictConfig
from tests.decoder.use.stand_in import StandIn, stand_in

FORMATS = ("csv", "jsonl", "parquet")
BEFORE = 9
"""Rows in front of the nasty one, so that it stands in the second piece."""
P = {"parquet"}
J = {"jsonl"}
ALL = {*FORMATS}
JSON: dict[str, set[str]] = {
    "0": set(), "-0": set(), "-0.0": set(), "7": set(), "1e5": set(), "1E+5": set(), "1.10": set(),
    "0.1": set(), "0.10000000000000001": set(), "1.100000000000000000000000000": set(),
    "5e-324": set(), "1.7976931348623157e308": set(), "0e99": set(), "0.5e-3": set(),
    str(2**53): set(), str(2**53 + 1): set(), str(-(2**63) + 1): set(), str(2**63 - 1): set(),
    "0.1000000000000000055511151231257827021181583404541015625": set(),
    str(2**63): P, str(-(2**64)): P, "1" + "0" * 400: P, "9" * 4300: P, "1e400": P, "-1e400": P,
    "1e-400": P, "0.1000000000000000055": P, "3.14159265358979323846": P,
    "123456789.123456789": P, "1e999999999999999999999": P, "0." + "3" * 900: P,
    "9007199254740993.0": P, "1.00000000000000000000000000000001": P,
    "NaN": J, "Infinity": J, "-Infinity": J, "[NaN]": ALL, '{"a": [1, -Infinity]}': ALL,
    "9" * 4301: ALL, "-" + "9" * 6000: ALL, f"[{'8' * 6000}]": ALL,
    "[1.10, -0, 1e5, 0.1000000000000000055]": set(), f'{{"a": {2**70}, "b": [{{}}, []]}}': set(),
    '"-0"': set(), '"NaN"': set(), '"nul \\u0000"': {"csv"}, '["nul \\u0000"]': set(),
    '"half \\ud83d"': {"csv", "parquet"}, '["half \\ud83d"]': set(), "true": set(), "null": set(),
    '""': set(), '"two\\nlines \\u2028 \\" , ; \\\\"': set(), "[" * 600 + "]" * 600: {"deep"},
    "[" * 101 + "]" * 101: set(),
    "[" * 102 + "]" * 102: {"deep"},
}  # fmt: skip
"""Spellings of JSON, and in which formats they cannot be written."""
PARQUET: dict[str, tuple[pyarrow.Array, set[str]]] = {
    "-0.0": (pyarrow.array([-0.0]), set()),
    "double": (pyarrow.array([0.1]), set()),
    "small": (pyarrow.array([5e-324]), set()),
    "float": (pyarrow.array([0.1], pyarrow.float32()), set()),
    "int64": (pyarrow.array([-(2**63)]), set()),
    "uint64": (pyarrow.array([2**64 - 1], pyarrow.uint64()), set()),
    "NaN": (pyarrow.array([float("nan")]), J),
    "Infinity": (pyarrow.array([float("inf")], pyarrow.float32()), J),
    "-Infinity": (pyarrow.array([float("-inf")]), J),
    "list of NaN": (pyarrow.array([[1.0, float("nan")]]), {"csv", "jsonl"}),
    "struct of infinity": (pyarrow.array([{"a": float("inf")}]), {"csv", "jsonl"}),
    "struct": (pyarrow.array([{"a": 2**63 - 1, "b": [-0.0, None]}]), set()),
    "decimal": (pyarrow.array([Decimal("1.10")]), set()),
    "long decimal": (pyarrow.array([Decimal("12345678901234567890.1234567890")]), set()),
    "decimal in a list": (pyarrow.array([[Decimal("1.10")]]), {"csv", "jsonl"}),
    "bytes": (pyarrow.array([b"a"]), {"csv", "jsonl"}),
    "NUL": (pyarrow.array(["a\0b"]), {"csv"}),
    "NUL in a list": (pyarrow.array([["a\0b"]]), set()),
    "string": (pyarrow.array(['"NaN", \r\n-0 \u2028 東']), set()),
    "null": (pyarrow.nulls(1, pyarrow.float64()), set()),
    "truth": (pyarrow.array([True]), set()),
}
CELLS = ["-0", "NaN", "1.10", "0.1000000000000000055", "9" * 5000, "1e400", "", " x ", "null"]


def exactly(text: str) -> Any:
    """A value of JSON as RFC 8259 has it, numbers as they are spelled."""

    def refuse(constant: str) -> Any:
        raise AssertionError(f"{constant} is no JSON")

    number = "number {}".format
    return json.loads(
        text, parse_int=number, parse_float=number, parse_constant=refuse, strict=True
    )


def same_number(spelled: str, found: float) -> bool:
    """Whether all digits that were written can be had back."""
    if spelled.lstrip("-") in ("NaN", "Infinity"):
        return str(found) == str(float(spelled))
    written = Decimal(spelled)
    digits = max(1, len(str(int("".join(map(str, written.as_tuple().digits)))).rstrip("0")))
    back = Context(prec=digits).create_decimal(Decimal.from_float(found))
    return back == written and str(found).startswith("-") == spelled.startswith("-")


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[StandIn, Path]:
    monkeypatch.setattr(Table, "chunk_rows", 7)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)  # else half of the time
    return stand_in(monkeypatch, tmp_path / "run")


def last(stand: tuple[StandIn, Path], source: Path, to: str, refused: bool) -> Any:
    """The last row of a file of results, by another reader; None where it is refused."""
    predictor, run = stand
    predictor.asked.clear()
    out = source.with_name(f"out.{to}")
    config = PredictConfig(run=run, file=source, out=out, overwrite=True)
    if refused:
        with pytest.raises(DataError) as caught:
            predict(config)
        said = str(caught.value)
        assert f"{'row' if source.suffix == '.parquet' else 'line'} {BEFORE + 1}" in said
        assert "to do: " in said
        assert "sys." not in said
        assert not predictor.asked
        assert not out.exists()
        return None
    predict(config)
    assert len(predictor.asked) == BEFORE + 1
    if to == "parquet":
        return pyarrow.parquet.read_table(out).slice(BEFORE)
    text = out.read_bytes().decode()
    if to == "jsonl":
        return text.split("\n")[BEFORE]
    csv.field_size_limit(2**20)
    return list(csv.DictReader(io.StringIO(text, newline="")))[BEFORE]["v"]


@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize("value", JSON, ids=lambda value: value[:24])
def test_json(value: str, to: str, stand: tuple[StandIn, Path], tmp_path: Path) -> None:
    source = tmp_path / "in.jsonl"
    rows = ['{"text": "a", "v": null}'] * BEFORE + [f'{{"text": "a", "v": {value}}}']
    source.write_text("\n".join(rows) + "\n")
    refused = to in JSON[value] or (to != "jsonl" and "deep" in JSON[value])
    found = last(stand, source, to, refused)
    if refused:
        return
    if to == "jsonl":
        assert f'"v": {value}, ' in found
        if "deep" not in JSON[value]:
            exactly(found)
        return
    if to == "parquet":
        found = found["v"].to_pylist()[0]
    if value == "null":
        assert found == (None if to == "parquet" else "")
    elif value[0] == '"':
        assert found == json.loads(value)
    elif value[0] in "[{":
        assert exactly(found) == exactly(value)
    elif to == "csv":
        assert found == value
    elif value == "true":
        assert found is True
    elif isinstance(found, int):
        assert str(found) == value
    else:
        assert same_number(value, found), found


@pytest.mark.parametrize("to", FORMATS)
@pytest.mark.parametrize("name", PARQUET)
def test_parquet(name: str, to: str, stand: tuple[StandIn, Path], tmp_path: Path) -> None:
    array, formats = PARQUET[name]
    table = pyarrow.table({"text": ["a"] * (BEFORE + 1), "v": _behind_nulls(array)})
    pyarrow.parquet.write_table(table, tmp_path / "in.parquet")
    found = last(stand, tmp_path / "in.parquet", to, to in formats)
    if to in formats:
        return
    [value] = array.to_pylist()
    if to == "parquet":
        assert found["v"].type == array.type
        assert repr(found["v"].to_pylist()) == repr([value])
    elif isinstance(value, Decimal):
        spelled = json.loads(found)["v"] if to == "jsonl" else found
        assert Decimal(spelled).as_tuple() == value.as_tuple()
    elif to == "jsonl":
        exactly(found)
        assert repr(json.loads(found)["v"]) == repr(value)
    elif isinstance(value, str) or value is None:
        assert found == (value or "")
    else:
        assert repr(json.loads(found)) == repr(value)  # Python reads NaN and infinities


def _behind_nulls(array: pyarrow.Array) -> pyarrow.Array:
    return pyarrow.concat_arrays([pyarrow.nulls(BEFORE, array.type), array])


@pytest.mark.parametrize("to", FORMATS)
def test_cells_of_csv_are_strings(to: str, stand: tuple[StandIn, Path], tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    for value in CELLS:
        source.write_text("text,v\n" + "a,x\n" * BEFORE + f'a,"{value}"\n')
        found = last(stand, source, to, refused=False)
        if to == "parquet":
            found = found["v"].to_pylist()[0]
        assert (json.loads(found)["v"] if to == "jsonl" else found) == value


@pytest.mark.parametrize("to", ["csv", "parquet"])
def test_names_that_a_format_does_not_have(
    to: str, stand: tuple[StandIn, Path], tmp_path: Path
) -> None:
    predictor, run = stand
    names = {"half \\ud83d": {"csv", "parquet"}, "nul \\u0000": {"csv"}, "two\\nlines": set()}
    for name, refused in names.items():
        source, out = tmp_path / "in.jsonl", tmp_path / f"out.{to}"
        source.write_text(f'{{"text": "a", "{name}": 1}}\n')
        config = PredictConfig(run=run, file=source, out=out, overwrite=True)
        if to in refused:
            with pytest.raises(DataError, match="names of the columns"):
                predict(config)
            assert not predictor.asked
        else:
            predict(config)


def test_nothing_goes_to_stdout_before_the_first_prediction(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(number: int) -> None:
        raise DataError("no encoder")

    _, run = stand_in(monkeypatch, tmp_path / "run", meanwhile=refuse)
    (tmp_path / "in.csv").write_text("text\na\n")
    (tmp_path / "in.jsonl").write_text('{"text": "a"}\n')
    pyarrow.parquet.write_table(pyarrow.table({"text": ["a"]}), tmp_path / "in.parquet")
    for end, as_list in (*((end, True) for end in FORMATS), ("csv", False), ("jsonl", False)):
        pieces: list[bytes] = []
        with pytest.raises(DataError, match="no encoder"):
            predict(
                PredictConfig(run=run, file=tmp_path / f"in.{end}"),
                write=lambda piece, to=pieces: to.append(piece) or True,
                as_list=as_list,
            )
        assert pieces == []
    (tmp_path / "in.csv").write_text("text\n")
    predict(
        PredictConfig(run=run, file=tmp_path / "in.csv"), write=lambda p: pieces.append(p) or True
    )
    assert pieces == [b"text,predicted,probability,agreement\n"]
