"""Files in and out: all that stands in a row is there afterwards, in every pair of formats."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
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


class StandIn:
    """What ``gaam_decoder.load`` gives, as far as files need it."""

    def __init__(self) -> None:
        self.class_names = CLASSES
        self.names = CLASSES
        self.task = CLASSIFICATION
        self.seeds = (0, 1, 2)
        self.temperatures: tuple[float, ...] = ()
        self.pooling = "mean"
        self.plan = SimpleNamespace(kind="text", dataset=SimpleNamespace(settings={}))
        self.asked: list[str] = []

    def stream(
        self, chunks: Iterable[LocatedRows], **about: Any
    ) -> Iterator[Predictions]:
        for chunk in chunks:
            yield self.predictions(chunk.rows)

    def predictions(self, rows: Sequence[str], **about: Any) -> Predictions:
        self.asked += rows
        number = len(self.class_names)
        seen_N = np.array([sum(row.encode()) for row in rows], np.float32).reshape(
            -1, 1
        )
        logits_SNC = np.stack(
            [np.sin(seen_N + seed + np.arange(number)) for seed in self.seeds]
        )
        logits_SNC = logits_SNC.astype(np.float32)
        return Predictions.from_logits(
            logits_SNC, self.class_names, temperatures=self.temperatures
        )


ADDED = ["predicted", "probability", "agreement"]
VALUES = ["007", "1e5", "1.10", "", " ", "NULL", 'a "quote"', "a,b;c\td|e", "two\r\nlines", "'",
          *HOSTILE.values()]  # fmt: skip


def can_be_written(text: str) -> bool:
    return not any("\ud800" <= c <= "\udfff" or c == "\0" for c in text)


STRINGS = [text for text in VALUES if can_be_written(text)]
Stand = Callable[..., tuple[StandIn, Path]]


@pytest.fixture
def stand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stand:
    """A run that predicts by the length of a text: no encoder, no decoder, nothing to wait for."""
    predictor = StandIn()
    monkeypatch.setattr("gaam_decoder.use.predict.CHUNK_ROWS", 7)
    monkeypatch.setattr("gaam_decoder.use.predict.load", lambda run, **about: predictor)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    return lambda: (predictor, tmp_path / "run")


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
        table: list[dict[str, Any]] = pyarrow.parquet.read_table(
            io.BytesIO(content)
        ).to_pylist()
        return table
    text = content.decode()
    if suffix == ".csv":
        return list(csv.DictReader(io.StringIO(text, newline=""), strict=True))
    return [json.loads(line) for line in text.split("\n")[:-1]]


@pytest.mark.parametrize(
    ("of", "to"), [(".csv", ".csv"), (".jsonl", ".parquet"), (".parquet", ".jsonl")]
)
def test_every_value_is_there_afterwards(
    of: str, to: str, stand: Stand, tmp_path: Path
) -> None:
    predictor, run = stand()
    rows = [
        {"id": value, "text": f"text {i}", 'é, "b"': "x"}
        for i, value in enumerate(STRINGS)
    ]
    source, out = write(tmp_path / f"in{of}", rows), tmp_path / "new" / f"out{to}"
    written = predict(PredictConfig(run=run, file=source, out=out, top=3))
    found = read(out.read_bytes(), to)
    assert written.to_dict()["rows"] == len(rows) == len(found)
    names = [*ADDED, "predicted_2", "probability_2", "predicted_3", "probability_3"]
    assert list(found[0]) == [*rows[0], *names]
    expected = predictor.predictions([row["text"] for row in rows])
    said = expected.rows(3)
    for i, (row, given) in enumerate(zip(found, rows, strict=True)):
        assert {name: row[name] for name in given} == given
        for end in ("", "_2", "_3"):
            assert row[f"predicted{end}"] == said[i][f"predicted{end}"]
            assert float(row[f"probability{end}"]) == said[i][f"probability{end}"]
        assert float(row["agreement"]) == expected.agreement_N[i]
    assert [path.name for path in out.parent.iterdir()] == [out.name]
    with pytest.raises(ConfigError, match=rf"{out.name}(.|\n)*--out"):
        predict(PredictConfig(run=run, file=source, out=out))


def test_types_stay_what_they_are(stand: Stand, tmp_path: Path) -> None:
    _, run = stand()
    rows = [{"text": "a", "n": None, "x": [1, {"b": 2.5}]}, {"text": "b", "more": True}]
    rows += [{"text": "c", "half": "\ud800"}, {"text": "d", "id": 10**19}]
    source = write(tmp_path / "in.jsonl", rows)
    predict(PredictConfig(run=run, file=source, out=tmp_path / "out.jsonl"))
    found = read((tmp_path / "out.jsonl").read_bytes(), ".jsonl")
    assert [{k: v for k, v in row.items() if k not in ADDED} for row in found] == rows
    columns = {
        "text": pyarrow.array(["a", "b"]),
        "when": pyarrow.array([0, None], pyarrow.timestamp("us")),
        "list": pyarrow.array([[1.5], None], pyarrow.list_(pyarrow.float32())),
    }
    table, out = pyarrow.table(columns), tmp_path / "new.parquet"
    pyarrow.parquet.write_table(table, tmp_path / "in.parquet")
    predict(PredictConfig(run=run, file=tmp_path / "in.parquet", out=out))
    assert pyarrow.parquet.read_table(out).select(list(columns)) == table
    for given in (rows[:2], rows[2:3], rows[3:]):
        source = write(tmp_path / "in.jsonl", given)
        for to in ("csv", "parquet"):  # one column for each, of one type that is there
            with pytest.raises(GaamError):
                predict(PredictConfig(run=run, file=source, out=tmp_path / f"out.{to}"))
            assert not (tmp_path / f"out.{to}").exists()


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


def test_a_file_that_cannot_be_used_is_refused_before_anything_is_predicted(
    stand: Stand, tmp_path: Path
) -> None:
    predictor, run = stand()
    out = tmp_path / "out.jsonl"
    for name, content in BAD_FILES.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(GaamError, match=name):
            predict(PredictConfig(run=run, file=tmp_path / name, out=out))
    assert not predictor.asked
    assert not out.exists()


def test_a_text_a_line(stand: Stand, tmp_path: Path) -> None:
    path, out = tmp_path / "new.txt", tmp_path / "out.csv"
    path.write_text("one, two\nthree\n")
    stand()[0].plan.dataset.settings["text_columns"] = ["title", "body"]
    predict(PredictConfig(run=tmp_path, file=path, out=out))
    with out.open(newline="") as file:
        assert [row["text"] for row in csv.DictReader(file)] == ["one, two", "three"]
