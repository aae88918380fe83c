from __future__ import annotations

import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from gaam_cache.config import ExtractConfig
from gaam_cache.errors import ConfigError, DataError, NotFoundError
from gaam_cache.sources._base import Rows, find_source

ROWS = [("World", "a court"), ("Sports", 'a "cup", twice\nover'), ("World", "naïve 東京")]


def read(dataset: Path | str, split: str = "train", **options: object) -> Rows:
    config = ExtractConfig(dataset=str(dataset), splits=(split,), **options)  # type: ignore[arg-type]
    return find_source(config.dataset).read(config, split)


@pytest.mark.parametrize("suffix", [".csv", ".jsonl", ".parquet"])
def test_all_formats_give_the_same_rows(suffix: str, tmp_path: Path) -> None:
    records = [{"label": label, "text": text} for label, text in ROWS]
    path = tmp_path / f"train{suffix}"
    if suffix == ".csv":
        quoted = ('"{}"'.format(text.replace('"', '""')) for _, text in ROWS)
        lines = [f"{label},{text}" for (label, _), text in zip(ROWS, quoted, strict=True)]
        path.write_text("\n".join(["label,text", *lines]), encoding="utf-8")
    elif suffix == ".jsonl":
        lines = [json.dumps(record, ensure_ascii=False) for record in records]
        path.write_text("\n\n".join(lines), encoding="utf-8")
    else:
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), path)
    for place in (tmp_path, path):
        rows = read(place)
        assert list(zip(rows.labels, rows.texts, strict=True)) == ROWS


def test_text_columns_are_joined_in_the_order_given(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("y,body,title\n1,world,hello\n")
    rows = read(tmp_path, text_columns=("title", "body"), label_column="y")
    assert (rows.texts, rows.labels) == (["hello world"], ["1"])


def test_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_bytes("\ufefflabel,text\r\na,b c\r\n".encode())
    assert read(tmp_path).texts == ["b c"]


def test_limit_stops_reading_before_a_later_error(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("label,text\na,one\nb,two\nc\n")
    assert read(tmp_path, limit=2).texts == ["one", "two"]


def test_a_very_long_field_is_a_text(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text(f"label,text\na,{'x' * 200_000}\n")
    assert len(read(tmp_path).texts[0]) == 200_000


def test_a_line_separator_inside_a_json_text_does_not_split_it(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"label": "a", "text": "one\u2028two"}\n', "utf-8")
    assert read(tmp_path).texts == ["one\u2028two"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train.csv", b"label,text\na,b\na,b,c\n", r"train\.csv, line 3"),
        ("train.csv", b"label,text\na,b\n\nb\n", r"train\.csv, line 4"),
        ("train.csv", b'label,text\na,"b\nc\n', r"train\.csv, line 2"),
        ("train.csv", b"label,text\na,caf\xe9\n", r"UTF-8"),
        ("train.csv", b"label,text\na,  \n", r"a text is empty(.|\n)*line 2"),
        ("train.csv", b"label,text\n,b\n", r"label(.|\n)*line 2"),
        ("train.csv", b"label,text\n", r"no rows"),
        ("train.csv", b"", r"header"),
        ("train.csv", b"a,a\nx,y\n", r"header"),
        ("train.jsonl", b'{"label": "a", "text": "b"}\n{"label": \n', r"train\.jsonl, line 2"),
        ("train.jsonl", b'{"label": "a", "text": "b"}\n[1]\n', r"no JSON object(.|\n)*line 2"),
        ("train.jsonl", b'{"label": "a", "text": "b"}\n{"text": "b"}\n', r"lacks(.|\n)*line 2"),
        ("train.jsonl", b'{"label": "a", "text": null}\n', r"a text is empty(.|\n)*line 1"),
        ("train.jsonl", b'{"label": 0.5, "text": "b"}\n', r"label(.|\n)*0\.5(.|\n)*line 1"),
        ("train.parquet", b"PAR1 not really", r"Parquet"),
    ],
)
def test_bad_rows_are_refused_with_file_and_line(
    name: str, content: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read(tmp_path)


def test_missing_columns_are_named_with_those_there_are(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("y,body\na,b\n")
    with pytest.raises(ConfigError, match=r"no column 'text'(.|\n)*y, body(.|\n)*--text-column"):
        read(tmp_path)
    with pytest.raises(ConfigError, match=r"no column 'label'(.|\n)*--label-column"):
        read(tmp_path, text_columns=("body",))


def test_missing_files_say_what_is_there(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match="nothing there"):
        read(tmp_path / "absent.csv")
    (tmp_path / "train.csv").write_text("label,text\na,b\n")
    with pytest.raises(NotFoundError, match=r"split 'dev'(.|\n)*train\.csv"):
        read(tmp_path, "dev")
    (tmp_path / "train.jsonl").write_text("")
    with pytest.raises(NotFoundError, match="more than one"):
        read(tmp_path)
    config = ExtractConfig(dataset=str(tmp_path / "train.csv"))
    with pytest.raises(NotFoundError, match="one file cannot hold 2 splits"):
        find_source(config.dataset).read(config, "test")


def test_the_news_sample_is_what_its_note_says() -> None:
    seen: set[str] = set()
    for split, per_class in (("train", 90), ("test", 30)):
        rows = read("news-sample", split)
        for label in ("World", "Sports", "Business", "Sci/Tech"):
            assert rows.labels.count(label) >= per_class
        assert all(20 <= len(text.split()) <= 60 for text in rows.texts)
        assert not seen & set(rows.texts)
        seen |= set(rows.texts)
    assert len(seen) == 480
    openings = [" ".join(text.split()[:5]) for text in seen]
    assert len(set(openings)) == len(openings), "items that begin alike smell of a template"
