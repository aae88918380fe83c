"""Files in and out: all that stands in a row is there afterwards, in every format."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas
import pyarrow
import pyarrow.parquet
import pytest

from gaam_cache.common.errors import ConfigError, GaamError
from gaam_cache.extraction.rows import LocatedRows
from gaam_decoder.tasks import CLASSIFICATION
from gaam_decoder.use.predict import PredictConfig, predict
from gaam_decoder.use.predictor import Predictions
from tests.hostile_strings import HOSTILE

CLASSES = ('a, "quoted"', "two\nlines", "naïve 東京", "=1+1", "\u202ertl")
ADDED = ["predicted", "probability", "agreement"]
VALUES = [
    *("007", "1e5", "1.10", "", " ", "NULL", 'a "quote"', "a,b;c\td|e"),
    *("two\r\nlines", "'"),
    *HOSTILE.values(),
]
Row = dict[str, Any]


class StandIn:
    """Predicts by the bytes of a text: no encoder, no decoder, nothing to wait for."""

    def __init__(self) -> None:
        self.class_names = CLASSES
        self.names = CLASSES
        self.task = CLASSIFICATION
        self.seeds = (0, 1, 2)
        self.temperatures: tuple[float, ...] = ()
        self.pooling = "mean"
        self.plan = SimpleNamespace(kind="text", dataset=SimpleNamespace(settings={}))
        self.predicted_texts: list[str] = []

    def stream(
        self, chunks: Iterable[LocatedRows], **options: Any
    ) -> Iterator[Predictions]:
        for chunk in chunks:
            yield self.predictions(chunk.rows)

    def predictions(self, rows: Sequence[str], **options: Any) -> Predictions:
        self.predicted_texts += rows
        text_N1 = np.array([[sum(row.encode())] for row in rows], np.float32)
        class_C = np.arange(len(self.class_names))
        logits = [np.sin(text_N1 + seed + class_C) for seed in self.seeds]
        return Predictions.from_logits(
            np.stack(logits).astype(np.float32),
            self.class_names,
            temperatures=self.temperatures,
        )


@pytest.fixture
def predictor(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """What every run is loaded as."""
    predictor = StandIn()

    def load(run: Path, **options: Any) -> StandIn:
        return predictor

    monkeypatch.setattr("gaam_decoder.use.predict.CHUNK_ROWS", 7)
    monkeypatch.setattr("gaam_decoder.use.predict.load", load)
    return predictor


@pytest.fixture
def run(predictor: StandIn, tmp_path: Path) -> Path:
    """A folder that looks like a run."""
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "run.json").write_text("{}")
    return folder


def can_be_written(text: str) -> bool:
    is_surrogate = any("\ud800" <= character <= "\udfff" for character in text)
    return not is_surrogate and "\0" not in text


def write(path: Path, rows: Sequence[Row]) -> Path:
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


def read(path: Path) -> list[Row]:
    """By another reader than ours."""
    if path.suffix == ".parquet":
        return list(pyarrow.parquet.read_table(path).to_pylist())
    text = path.read_bytes().decode()
    if path.suffix == ".csv":
        return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
    return [json.loads(line) for line in text.split("\n")[:-1]]


@pytest.mark.parametrize(
    ("suffix", "suffix_out"),
    [(".csv", ".csv"), (".jsonl", ".parquet"), (".parquet", ".jsonl")],
)
def test_every_value_is_there_afterwards(
    suffix: str, suffix_out: str, predictor: StandIn, run: Path, tmp_path: Path
) -> None:
    values = [text for text in VALUES if can_be_written(text)]
    rows = [
        {"id": value, "text": f"text {number}", 'é, "b"': "x"}
        for number, value in enumerate(values)
    ]
    file = write(tmp_path / f"in{suffix}", rows)
    out = tmp_path / "new" / f"out{suffix_out}"
    summary = predict(PredictConfig(run=run, file=file, out=out, top=3))
    assert [path.name for path in out.parent.iterdir()] == [out.name]
    assert summary.to_dict()["rows"] == len(rows)
    check_predictions(read(out), rows, predictor)


def check_predictions(
    predicted_rows: list[Row], rows: list[Row], predictor: StandIn
) -> None:
    """Check that rows have all their values, and three predictions each."""
    further = ("predicted_2", "probability_2", "predicted_3", "probability_3")
    assert list(predicted_rows[0]) == [*rows[0], *ADDED, *further]
    predictions = predictor.predictions([row["text"] for row in rows])
    expected_rows = predictions.rows(3)
    for number, (predicted, row) in enumerate(zip(predicted_rows, rows, strict=True)):
        assert {name: predicted[name] for name in row} == row
        expected = expected_rows[number]
        for end in ("", "_2", "_3"):
            label = f"predicted{end}"
            assert predicted[label] == expected[label]
            probability = f"probability{end}"
            assert float(predicted[probability]) == expected[probability]
        assert float(predicted["agreement"]) == predictions.agreement_N[number]


def test_a_file_that_is_there_is_not_replaced(run: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "in.csv", [{"text": "a"}])
    out = tmp_path / "out.csv"
    out.write_text("mine")
    with pytest.raises(ConfigError, match=r"out.csv(.|\n)*--out"):
        predict(PredictConfig(run=run, file=file, out=out))
    assert out.read_text() == "mine"


MIXED_ROWS: list[Row] = [
    {"text": "a", "n": None, "x": [1, {"b": 2.5}]},
    {"text": "b", "more": True},
    {"text": "c", "half": "\ud800"},
    {"text": "d", "id": 10**19},
]


COLLECTIONS: dict[str, Any] = {
    "tuple": ("a", "b"),
    "column of pandas": pandas.Series(["a", "b"], index=[7, 3]),
    "array": np.array(["a", "b"]),
    "generator": (text for text in "ab"),
    "paths": [Path("a"), Path("b")],
}


@pytest.mark.parametrize("name", COLLECTIONS)
def test_every_collection_of_texts_gives_its_entries(name: str, run: Path) -> None:
    assert PredictConfig(run=run, texts=COLLECTIONS[name]).texts == ("a", "b")


@pytest.mark.parametrize(
    "texts",
    [
        pytest.param(pandas.DataFrame({"text": ["a"]}), id="a table"),
        pytest.param({"text": ["a"]}, id="a dictionary"),
        pytest.param(["a", None], id="a missing text"),
        pytest.param(pandas.Series([1, 2]), id="numbers"),
        pytest.param(b"a", id="bytes"),
        pytest.param(5, id="a number"),
    ],
)
def test_what_is_no_collection_of_texts_is_refused(texts: Any, run: Path) -> None:
    with pytest.raises(ConfigError, match="texts") as caught:
        PredictConfig(run=run, texts=texts)
    assert "text" in caught.value.details["expected"]


def test_predictions_that_nothing_takes_are_refused(
    predictor: StandIn, run: Path, tmp_path: Path
) -> None:
    (tmp_path / "rows.csv").write_text("text\na text\n")
    config = PredictConfig(run=run, file=tmp_path / "rows.csv")
    with pytest.raises(ConfigError, match="nothing takes the predictions"):
        predict(config)
    assert predictor.predicted_texts == []


def test_values_of_json_stay_what_they_are(run: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "in.jsonl", MIXED_ROWS)
    out = tmp_path / "out.jsonl"
    predict(PredictConfig(run=run, file=file, out=out))
    rows = [
        {name: value for name, value in row.items() if name not in ADDED}
        for row in read(out)
    ]
    assert rows == MIXED_ROWS


def test_types_of_parquet_stay_what_they_are(run: Path, tmp_path: Path) -> None:
    columns = {
        "text": pyarrow.array(["a", "b"]),
        "when": pyarrow.array([0, None], pyarrow.timestamp("us")),
        "list": pyarrow.array([[1.5], None], pyarrow.list_(pyarrow.float32())),
    }
    table = pyarrow.table(columns)
    file = tmp_path / "in.parquet"
    pyarrow.parquet.write_table(table, file)
    out = tmp_path / "out.parquet"
    predict(PredictConfig(run=run, file=file, out=out))
    assert pyarrow.parquet.read_table(out).select(list(columns)) == table


@pytest.mark.parametrize("suffix_out", [".csv", ".parquet"])
@pytest.mark.parametrize(
    "rows",
    [
        pytest.param(MIXED_ROWS[:2], id="other columns in each row"),
        pytest.param(MIXED_ROWS[2:3], id="no text of UTF-8"),
        pytest.param(MIXED_ROWS[3:], id="a number of more than 64 bits"),
    ],
)
def test_values_that_a_table_cannot_hold_are_refused(
    rows: list[Row], suffix_out: str, run: Path, tmp_path: Path
) -> None:
    file = write(tmp_path / "in.jsonl", rows)
    out = tmp_path / f"out{suffix_out}"
    with pytest.raises(GaamError):
        predict(PredictConfig(run=run, file=file, out=out))
    assert not out.exists()


BAD_FILES = {
    "nothing.csv": b"",
    "no.parquet": b"PAR1",
    "fields.csv": b"text,b\na,b\nc,d,e\n",
    "bytes.csv": b"text\na\n\xff\n",
    "quote.csv": b'text\n"a\n',
    "empty.csv": b"text,b\na,1\n ,2\n",
    "null.jsonl": b'{"text": "a"}\n{"text": null}\n',
    "column.csv": b"words\na\n",
    "taken.csv": b"text,predicted\na,b\n",
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_file_that_cannot_be_used_is_refused_before_anything_is_predicted(
    name: str, predictor: StandIn, run: Path, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_bytes(BAD_FILES[name])
    out = tmp_path / "out.jsonl"
    with pytest.raises(GaamError, match=name):
        predict(PredictConfig(run=run, file=file, out=out))
    assert predictor.predicted_texts == []
    assert not out.exists()


def test_a_line_of_a_text_file_is_a_text(predictor: StandIn, tmp_path: Path) -> None:
    predictor.plan.dataset.settings["text_columns"] = ["title", "body"]
    file = tmp_path / "new.txt"
    file.write_text("one, two\nthree\n")
    out = tmp_path / "out.csv"
    predict(PredictConfig(run=tmp_path, file=file, out=out))
    assert [row["text"] for row in read(out)] == ["one, two", "three"]


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        (("rows.csv",), "name of a table"),
        (("rows.csv.gz",), "name of a table"),
        (("a text", "-"), "stands for the lines of stdin"),
        (("runs/first", "a text"), "folder of a run"),
    ],
    ids=["a table", "a compressed table", "stdin beside a text", "a run"],
)
def test_texts_that_mean_something_else_are_refused(
    texts: tuple[str, ...],
    problem: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("rows.csv", "rows.csv.gz"):
        (tmp_path / name).write_text("text\na\n")
    (tmp_path / "runs/first").mkdir(parents=True)
    (tmp_path / "runs/first/run.json").touch()
    with pytest.raises(ConfigError, match=problem):
        PredictConfig(run=tmp_path, texts=texts)
    # a text may look like the name of a file that is not there
    PredictConfig(
        run=tmp_path,
        texts=("other.csv", "Is it in rows.csv", "a" * 999 + ".csv", "runs", "a\0b"),
    )
