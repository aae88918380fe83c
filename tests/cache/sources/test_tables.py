"""Rows out of CSV, JSON lines and Parquet: the same of each, as they stand there."""

from __future__ import annotations

import csv
import json
import re
import tempfile
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaam_cache.common.errors import ConfigError, DataError, GaamError
from gaam_cache.config import ExtractConfig
from gaam_cache.sources import Rows, find_source

FORMATS = ("csv", "tsv", "jsonl", "parquet")


def read(dataset: Path | str, split: str = "train", **options: Any) -> Rows:
    config = ExtractConfig(dataset=str(dataset), splits=(split,), **options)
    return find_source(config.dataset).read(config, split)


def write(path: Path, records: list[dict[str, Any]]) -> None:
    if path.suffix in (".csv", ".tsv"):
        with path.open("w", encoding="utf-8", newline="") as file:
            mark = "\t" if path.suffix == ".tsv" else ","
            writer = csv.DictWriter(file, list(records[0]), delimiter=mark)
            writer.writeheader()
            writer.writerows(records)
    elif path.suffix == ".jsonl":
        lines = (json.dumps(record, ensure_ascii=False) for record in records)
        path.write_text("\n".join(lines), encoding="utf-8")
    else:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), path)


# what can be seen in print, and the white space that texts have; no half characters
CHARACTERS = st.characters(categories=["L", "M", "N", "P", "S", "Z"]) | st.sampled_from(
    "\t\r\n"
)
STRINGS = st.tuples(
    st.text(CHARACTERS, max_size=20), st.characters(categories=["L", "N"])
).map("".join)


LABELS = STRINGS.filter(
    lambda label: not re.fullmatch(r"\s*(-[\d.]+|-?nan|null|nat|#n/a|\\n)", label, re.I)
)


@given(rows=st.lists(st.tuples(LABELS, STRINGS), min_size=1, max_size=8))
@settings(max_examples=40, deadline=None)
def test_whatever_can_be_printed_reads_back_equal_in_every_format(
    rows: list[tuple[str, str]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for suffix in FORMATS:
            path = Path(folder) / f"train.{suffix}"
            write(path, [{"label": label, "text": text} for label, text in rows])
            for name in (path.name, f"TRAIN.{suffix.upper()}"):
                back = read(path.rename(path.with_name(name)))
                assert list(zip(back.labels, back.inputs, strict=True)) == rows
        [taken] = read(path.with_name(name), limit=1).inputs
        assert taken in [text for _, text in rows]
        assert list(read(path.with_name(name), limit=1, limit_rule="first").inputs) == [
            rows[0][1]
        ]


def test_columns_are_joined_kept_and_left_out(tmp_path: Path) -> None:
    records = [
        {"y": "b", "body": "world", "title": " hello", "who": "x"},
        {"y": "a", "body": "alone", "title": "\u200b ", "who": "y, z"},
        {"y": "a", "body": "", "title": " ", "who": "left out"},
    ]
    options: dict[str, Any] = {"text_columns": ("title", "body"), "label_column": "y"}
    for suffix in FORMATS:
        path = tmp_path / f"train.{suffix}"
        write(path, records)
        rows = read(path, keep_columns=("who",), skip_empty=True, **options)
        assert list(rows.inputs) == [" hello world", "alone"]
        assert list(rows.labels) == ["b", "a"]
        assert list(rows.kept["who"]) == ["x", "y, z"]
        assert rows.skipped == 1
        place = {"jsonl": "line 3", "parquet": "row 3"}.get(suffix, "line 4")
        with pytest.raises(DataError, match=place):
            read(path, **options)
        assert not read(path, limit=2, **options).kept


SPELLED = [
    ("01", "01"),
    (" a", " a"),
    (7, "7"),
    (3.0, "3"),
    (0.5, "0.5"),
    (True, "true"),
]


def test_labels_have_one_spelling_and_those_of_csv_that_which_is_written(
    tmp_path: Path,
) -> None:
    for path in (tmp_path / "train.jsonl", tmp_path / "train.parquet"):
        for value, label in SPELLED:
            write(path, [{"label": value, "text": "a"}])
            assert list(read(path).labels) == [label]
            assert list(read(path, strip_labels=True).labels) == [label.strip()]
    path = tmp_path / "train.csv"
    path.write_text("label,text\n01,a\n1.0,b\nNA,c\n,d\n")
    with pytest.raises(DataError, match="line 5"):
        read(path)
    assert list(read(path, limit=3, limit_rule="first").labels) == ["01", "1.0", "NA"]


def test_encodings(tmp_path: Path) -> None:
    for suffix in ("csv", "jsonl"):
        path = tmp_path / f"train.{suffix}"
        for encoding in ("utf-8-sig", "cp1252", "utf-16"):
            write(path, [{"label": "ä", "text": "über"}])
            path.write_bytes(path.read_text("utf-8").encode(encoding))
            asked = None if encoding == "utf-8-sig" else encoding
            assert list(read(path, encoding=asked).inputs) == ["über"]
            if asked is not None:
                with pytest.raises(DataError, match="UTF-8"):
                    read(path)


BAD = [
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
]


def test_rows_that_cannot_be_used_are_named_counted_and_never_left_out_as_empty(
    tmp_path: Path,
) -> None:
    for number, (name, content, where) in enumerate(BAD):
        path = tmp_path / str(number) / f"train.{name}"
        path.parent.mkdir()
        path.write_text(content)
        for skip in (False, True):
            with pytest.raises(DataError, match=where):
                read(path.parent, skip_empty=skip)
    lines = "".join(f"a,{'x' if n % 2 else ' '}\n" for n in range(20))
    (tmp_path / "train.csv").write_text(f"label,text\n{lines}")
    with pytest.raises(DataError) as caught:
        read(tmp_path)
    for word in ("10 of 20 rows", "line 2", "line 4", "line 6", "7 more"):
        assert word in str(caught.value)


def test_columns_that_are_missing_or_label_and_input_are_refused(
    tmp_path: Path,
) -> None:
    (tmp_path / "train.csv").write_text("label,text\na,b\n")
    for column in ("text_columns", "label_column", "keep_columns"):
        name: Any = "t" if column == "label_column" else ("t",)
        with pytest.raises(ConfigError, match="'t'"):
            read(tmp_path, **{column: name})
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


def test_what_parts_fields_is_asked_not_guessed(tmp_path: Path) -> None:
    for mark, character in {"semicolon": ";", "tab": "\t", "|": "|"}.items():
        (tmp_path / "train.csv").write_text(f"label{character}text\na{character}b, c\n")
        assert list(read(tmp_path, delimiter=mark).inputs) == ["b, c"]
        with pytest.raises(GaamError, match="delimiter"):
            read(tmp_path)
