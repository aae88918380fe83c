"""Rows out of CSV, JSON lines and Parquet: the same of each, as they stand there."""

from __future__ import annotations

import csv
import json
import re
import tempfile
import warnings
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaam_cache.common.errors import ConfigError, DataError, GaamError, GaamWarning
from gaam_cache.config import ExtractConfig
from gaam_cache.sources import Rows, find_source

FORMATS = ("csv", "tsv", "jsonl", "parquet")


def read(dataset: Path | str, split: str = "train", **options: Any) -> Rows:
    config = ExtractConfig(dataset=str(dataset), splits=(split,), **options)
    return find_source(config.dataset).read(config, split)


def write(path: Path, records: list[dict[str, Any]]) -> None:
    """A file in the format that its end says."""
    if path.suffix in (".csv", ".tsv"):
        with path.open("w", encoding="utf-8", newline="") as file:
            delimiter = "\t" if path.suffix == ".tsv" else ","
            writer = csv.DictWriter(file, list(records[0]), delimiter=delimiter)
            writer.writeheader()
            writer.writerows(records)
    elif path.suffix == ".jsonl":
        lines = (json.dumps(record, ensure_ascii=False) for record in records)
        path.write_text("\n".join(lines), encoding="utf-8")
    else:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), path)


def is_a_label(text: str) -> bool:
    """Whether a text is no negative number and no spelling of a missing value."""
    return not re.fullmatch(r"\s*(-[\d.]+|-?nan|null|nat|#n/a|\\n)", text, re.I)


# what can be seen in print, and the white space that texts have; no half characters
PRINTABLE = st.characters(categories=["L", "M", "N", "P", "S", "Z"])
CHARACTERS = PRINTABLE | st.sampled_from("\t\r\n")
LETTERS = st.characters(categories=["L", "N"])
STRINGS = st.tuples(st.text(CHARACTERS, max_size=20), LETTERS).map("".join)
LABELS = STRINGS.filter(is_a_label)


@given(rows=st.lists(st.tuples(LABELS, STRINGS), min_size=1, max_size=8))
@settings(max_examples=40, deadline=None)
def test_whatever_can_be_printed_reads_back_equal_in_every_format(
    rows: list[tuple[str, str]],
) -> None:
    records = [{"label": label, "text": text} for label, text in rows]
    texts = [text for _, text in rows]
    with tempfile.TemporaryDirectory() as folder:
        for suffix in FORMATS:
            path = Path(folder) / f"train.{suffix}"
            write(path, records)
            check_rows(read(path), rows)
            path = path.rename(path.with_name(f"TRAIN.{suffix.upper()}"))
            check_rows(read(path), rows)
        assert read(path, limit=1).inputs[0] in texts
        first = read(path, limit=1, limit_rule="first").inputs
        assert list(first) == texts[:1]


def check_rows(rows: Rows, expected: list[tuple[str, str]]) -> None:
    assert list(zip(rows.labels, rows.inputs, strict=True)) == expected


PLACES = {"csv": "line 4", "tsv": "line 4", "jsonl": "line 3", "parquet": "row 3"}
"""Where the third record stands in a file."""


@pytest.mark.parametrize("suffix", FORMATS)
def test_columns_are_joined_kept_and_left_out(suffix: str, tmp_path: Path) -> None:
    records = [
        {"y": "b", "body": "world", "title": " hello", "who": "x"},
        {"y": "a", "body": "alone", "title": "\u200b ", "who": "y, z"},
        {"y": "a", "body": "", "title": " ", "who": "left out"},
    ]
    options: dict[str, Any] = {"text_columns": ("title", "body"), "label_column": "y"}
    path = tmp_path / f"train.{suffix}"
    write(path, records)
    rows = read(path, keep_columns=("who",), skip_empty=True, **options)
    assert list(rows.inputs) == [" hello world", "alone"]
    assert list(rows.labels) == ["b", "a"]
    assert list(rows.kept_columns["who"]) == ["x", "y, z"]
    assert rows.num_skipped == 1
    with pytest.raises(DataError, match=PLACES[suffix]):
        read(path, **options)
    assert not read(path, limit=2, **options).kept_columns


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize(
    ("value", "label"),
    [("01", "01"), (" a", " a"), (7, "7"), (3.0, "3"), (0.5, "0.5"), (True, "true")],
)
def test_labels_have_one_spelling(
    value: Any, label: str, suffix: str, tmp_path: Path
) -> None:
    path = tmp_path / f"train.{suffix}"
    write(path, [{"label": value, "text": "a"}])
    assert list(read(path).labels) == [label]
    assert list(read(path, strip_labels=True).labels) == [label.strip()]


def test_labels_of_csv_have_the_spelling_that_is_written(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    path.write_text("label,text\n01,a\n1.0,b\nNA,c\n,d\n")
    with pytest.raises(DataError, match="line 5"):
        read(path)
    rows = read(path, limit=3, limit_rule="first")
    assert list(rows.labels) == ["01", "1.0", "NA"]


def write_encoded(path: Path, encoding: str) -> None:
    write(path, [{"label": "ä", "text": "über"}])
    path.write_bytes(path.read_text("utf-8").encode(encoding))


def test_quotes_of_windows_are_no_control_characters(tmp_path: Path) -> None:
    """Latin-1 reads them without an error, as characters that tokenizers drop."""
    path = tmp_path / "train.csv"
    path.write_bytes("text,label\nsaid “yes”,a\nno,b\n".encode("cp1252"))
    with pytest.warns(GaamWarning, match="encoding=cp1252"):
        read(path, encoding="latin-1")
    path.write_bytes("text,label\nüber,a\nno,b\n".encode("latin-1"))
    with warnings.catch_warnings():
        warnings.simplefilter("error", GaamWarning)
        read(path, encoding="latin-1")


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
@pytest.mark.parametrize("encoding", ["cp1252", "utf-16"])
def test_an_encoding_is_taken_as_it_is_named(
    encoding: str, suffix: str, tmp_path: Path
) -> None:
    path = tmp_path / f"train.{suffix}"
    write_encoded(path, encoding)
    assert list(read(path, encoding=encoding).inputs) == ["über"]
    with pytest.raises(DataError, match="UTF-8"):
        read(path)


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_mark_of_utf_8_is_no_text(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"train.{suffix}"
    write_encoded(path, "utf-8-sig")
    assert list(read(path).inputs) == ["über"]


@pytest.mark.parametrize("skip_empty", [False, True])
@pytest.mark.parametrize(
    ("suffix", "content", "place"),
    [
        ("csv", 'label,text\na,x\na,"b\nc,d\n', "line 3"),
        ("csv", 'label,text\na,"b"c\n', "line 2"),
        ("csv", "label,text\na,b,c\n", "line 2"),
        ("csv", "label,label\na,b\n", "line 1"),
        ("csv", "", "line 1"),
        ("csv", "label,text\n", "train.csv"),
        ("jsonl", '{"label": "a", "text": "b"}\n{"label": "a"}\n', "line 2"),
        ("jsonl", '{"label": "a", "text": "b"}\n{"label"\n', "line 2"),
        ("jsonl", '{"label": "a", "text": 7}\n', "line 1"),
        ("jsonl", '{"label": null, "text": "b"}\n', "line 1"),
        ("jsonl", '{"label": "a", "text": "\\ud800"}\n', "line 1"),
        ("jsonl", "", "line 1"),
        ("parquet", "PAR1 and no more", "train.parquet"),
    ],
)
def test_rows_that_cannot_be_used_are_named_and_never_left_out_as_empty(
    suffix: str, content: str, place: str, skip_empty: bool, tmp_path: Path
) -> None:
    (tmp_path / f"train.{suffix}").write_text(content)
    with pytest.raises(DataError, match=place):
        read(tmp_path, skip_empty=skip_empty)


def test_rows_that_cannot_be_used_are_counted(tmp_path: Path) -> None:
    lines = [f"a,{'x' if row % 2 else ' '}\n" for row in range(20)]
    (tmp_path / "train.csv").write_text("label,text\n" + "".join(lines))
    with pytest.raises(DataError) as caught:
        read(tmp_path)
    message = str(caught.value)
    for part in ("10 of 20 rows", "line 2", "line 4", "line 6", "7 more"):
        assert part in message


@pytest.mark.parametrize(
    "options",
    [{"text_columns": ("t",)}, {"label_column": "t"}, {"keep_columns": ("t",)}],
    ids=["of texts", "of labels", "to keep"],
)
def test_a_column_that_is_missing_is_refused(
    options: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "train.csv").write_text("label,text\na,b\n")
    with pytest.raises(ConfigError, match="'t'"):
        read(tmp_path, **options)


def test_a_column_of_texts_and_of_labels_is_refused(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("label,text\na,b\n")
    with pytest.raises(ConfigError):
        read(tmp_path, text_columns=("text", "label"))


def test_white_space_is_part_of_names_and_values_of_csv(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("label, text\na, b\n")
    with pytest.raises(ConfigError, match="label, ' text'"):
        read(tmp_path)
    assert list(read(tmp_path, text_columns=(" text",)).inputs) == [" b"]


def test_a_split_without_labels_is_read_without_them(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("label,text\na,b\n")
    (tmp_path / "new.csv").write_text("text\nb\nd\n")
    config = ExtractConfig(
        dataset=str(tmp_path), splits=("train", "new"), unlabelled=("new",)
    )
    rows = find_source(config.dataset).read(config, "new")
    assert not rows.labelled
    assert list(rows.inputs) == ["b", "d"]


@pytest.mark.parametrize(
    ("delimiter", "character"), [("semicolon", ";"), ("tab", "\t"), ("|", "|")]
)
def test_a_delimiter_is_named_and_never_guessed(
    delimiter: str, character: str, tmp_path: Path
) -> None:
    (tmp_path / "train.csv").write_text(f"label{character}text\na{character}b, c\n")
    assert list(read(tmp_path, delimiter=delimiter).inputs) == ["b, c"]
    with pytest.raises(GaamError, match="delimiter"):
        read(tmp_path)
