from __future__ import annotations

import csv
import json
import shlex
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gaam_cache.config import ExtractConfig
from gaam_cache.errors import ConfigError, DataError, NotFoundError, StorageError
from gaam_cache.sources._base import Rows, find_source
from gaam_cache.sources._table import Columns
from gaam_cache.sources.formats import _csv as csv_format
from gaam_cache.sources.formats import _lines
from gaam_cache.sources.formats.parquet import BATCH_ROWS, ParquetFormat

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
        assert list(zip(rows.labels, rows.inputs, strict=True)) == ROWS


# what can be seen in print, and the white space that texts have; no half characters
CHARACTERS = st.characters(codec="utf-8").filter(lambda c: c.isprintable() or c in "\t\r\n\u2028")
STRINGS = st.text(CHARACTERS, min_size=1, max_size=20).filter(lambda s: s.strip() != "")


@given(rows=st.lists(st.tuples(STRINGS, STRINGS), min_size=1, max_size=8))
@settings(max_examples=80, deadline=None)
def test_whatever_can_be_printed_reads_back_equal_in_every_format(
    rows: list[tuple[str, str]],
) -> None:
    records = [{"label": label, "text": text} for label, text in rows]
    with tempfile.TemporaryDirectory() as folder:
        files = {suffix: Path(folder) / f"train.{suffix}" for suffix in ("csv", "jsonl", "parquet")}
        with files["csv"].open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, ["label", "text"])
            writer.writeheader()
            writer.writerows(records)
        for ascii_only in (True, False):
            with files["jsonl"].open("w", encoding="utf-8", newline="") as file:
                file.writelines(json.dumps(r, ensure_ascii=ascii_only) + "\n" for r in records)
            back = read(files["jsonl"])
            assert list(zip(back.labels, back.inputs, strict=True)) == rows
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), files["parquet"])
        for suffix in ("csv", "parquet"):
            back = read(files[suffix])
            assert list(zip(back.labels, back.inputs, strict=True)) == rows


def test_text_columns_are_joined_in_the_order_given(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("y,body,title\n1,world,hello\n")
    rows = read(tmp_path, text_columns=("title", "body"), label_column="y")
    assert (rows.inputs, rows.labels) == (["hello world"], ["1"])


@pytest.mark.parametrize("texts", [("y",), ("title", "y"), ("y", "title")])
def test_labels_are_no_inputs(texts: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("title,y\na,b\nc,d\n")
    with pytest.raises(ConfigError, match="'y' as both"):
        read(tmp_path, text_columns=texts, label_column="y")
    (tmp_path / "new.csv").write_text("title,y\na,b\nc,d\n")
    config = ExtractConfig(dataset=str(tmp_path), splits=("train", "new"), unlabelled=("new",),
                           text_columns=texts, label_column="y")  # fmt: skip
    assert len(find_source(config.dataset).read(config, "new").inputs) == 2


def test_blank_columns_are_left_out_of_a_joined_text(tmp_path: Path) -> None:
    lines = ['["a", null, "x ", "y"]', '["a", " t", "", " y"]', '["a", "\\u200b", "x", null]']
    keys = ("label", "t", "u", "v")
    records = [json.dumps(dict(zip(keys, json.loads(line), strict=True))) for line in lines]
    (tmp_path / "train.jsonl").write_text("\n".join(records))
    assert read(tmp_path, text_columns=("t", "u", "v")).inputs == ["x  y", " t  y", "x"]


def test_texts_and_labels_keep_their_white_space(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("label,text\n a, b \n")
    rows = read(tmp_path)
    assert (rows.labels, rows.inputs) == ([" a"], [" b "])


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_byte_order_mark_is_no_part_of_the_first_name(suffix: str, tmp_path: Path) -> None:
    content = {"csv": "label,text\na,b c\n", "jsonl": '{"label": "a", "text": "b c"}\n'}[suffix]
    (tmp_path / f"train.{suffix}").write_bytes(b"\xef\xbb\xbf" + content.encode())
    assert read(tmp_path).inputs == ["b c"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("last", [True, False])
def test_every_kind_of_line_end_ends_a_csv_row(end: str, last: bool, tmp_path: Path) -> None:
    content = end.join(["label,text", "a,one", "b,two"]) + end * last
    (tmp_path / "train.csv").write_bytes(content.encode())
    rows = read(tmp_path)
    assert (rows.labels, rows.inputs) == (["a", "b"], ["one", "two"])


def test_spaces_around_column_names_do_not_count(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text(" label , text\na,b\n")
    assert read(tmp_path).inputs == ["b"]


def test_limit_stops_reading_before_a_later_error(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("label,text\na,one\nb,two\nc\n")
    assert read(tmp_path, limit=2).inputs == ["one", "two"]


def test_a_very_long_field_is_a_text(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text(f"label,text\na,{'x' * 200_000}\n")
    assert len(read(tmp_path).inputs[0]) == 200_000


def test_a_line_separator_inside_a_json_text_does_not_split_it(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text('{"label": "a", "text": "one\u2028two"}\n', "utf-8")
    assert read(tmp_path).inputs == ["one\u2028two"]


BAD_ROWS = [
    ("train.csv", b"label,text\na,b\na,b,c\n", r"train\.csv, line 3"),
    ("train.csv", b"label,text\na,b\n\nb\n", r"train\.csv, line 4"),
    ("train.csv", b'label,text\na,"b\nc\n', r"train\.csv, line 2"),
    # where the quoted field begins, not where the file ends; after one that spans two lines
    ("train.csv", b'label,text\na,b\n"a\n1","b\nc,d\ne,f\n', r"never closed(.|\n)*line 4, wh"),
    ("train.csv", b'label,text\na,5" disk\na,"b\nc,"d"\n', r"'d\"' after(.|\n)*line 3, where"),
    ("train.csv", b'label,text\na,"b" c\n', r"' c' after(.|\n)*train\.csv, line 2, where"),
    # quoted line breaks count, whatever ends the lines
    ("train.csv", b'label,text\na,"b\n\nc"\nd\n', r"train\.csv, line 5\n"),
    ("train.csv", b'label,text\r\na,"b\r\n\r\nc"\r\nd\r\n', r"train\.csv, line 5\n"),
    ("train.csv", b'label,text\ra,"b\r\rc"\rd\r', r"train\.csv, line 5\n"),
    ("train.csv", b'label,text\na,"b\n\nc",d\n', r"train\.csv, lines 2 to 4\n"),
    (
        "train.csv",
        b"label,text\na,b\n" * 9 + b"a,caf\xe9 x\n",
        r"0xE9(.|\n)*café x(.|\n)*line 19\n",
    ),
    ("train.csv", b"caf\xe9,text\na,b\n", r"not UTF-8(.|\n)*line 1\n"),
    ("train.csv", b"label,text\na,b\na,\xed\xa0\x80\n", r"not UTF-8(.|\n)*line 3\n"),
    ("train.csv", b"label,text\na,b\na,b\0c\n", r"NUL(.|\n)*character 4(.|\n)*line 3\n"),
    ("train.csv", "label,text\na,b".encode("utf-16"), r"not UTF-8 but UTF-16(.|\n)*iconv"),
    ("train.csv", "label,text\na,b".encode("utf-32"), r"not UTF-8 but UTF-32(.|\n)*iconv"),
    ("train.csv", "label,text\na,b".encode("utf-16-le"), r"NUL(.|\n)*UTF-16(.|\n)*iconv"),
    ("train.csv", "label,text\na,\xa0\n".encode(), r"a text is empty(.|\n)*xa0(.|\n)*line 2"),
    ("train.csv", "label,text\na,\u200b\ufeff\n".encode(), r"empty(.|\n)*u200b(.|\n)*line 2"),
    ("train.csv", "label,text\n\u2060,b\n".encode(), r"label(.|\n)*u2060(.|\n)*line 2"),
    ("train.csv", b"text, text\nx,y\n", r"header(.|\n)*'text' twice(.|\n)*line 1"),
    ("train.csv", b"\n\na,a\nx,y\n", r"header(.|\n)*line 3"),
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
    ("train.jsonl", b"", r"no rows(.|\n)*empty file"),
    ("train.jsonl", b"\n \n", r"no rows(.|\n)*empty file"),
    ("train.jsonl", b'{"label": true, "text": "b"}\n', r"label(.|\n)*True(.|\n)*truth values"),
    ("train.jsonl", b'{"label": NaN, "text": "b"}\n', r"label(.|\n)*nan(.|\n)*line 1"),
    ("train.jsonl", b'{"label": Infinity, "text": "b"}\n', r"label(.|\n)*inf(.|\n)*line 1"),
    ("train.jsonl", b'{"label": 1.0, "text": "b"}\n', r"label(.|\n)*1\.0(.|\n)*decimal point"),
    ("train.jsonl", b'{"label": ["a"], "text": "b"}\n', r"label(.|\n)*list(.|\n)*line 1"),
    ("train.jsonl", b'{"label": "a", "text": 1.50}\n', r"no string(.|\n)*1\.5 (.|\n)*line 1"),
    (
        "train.jsonl",
        b'{"label": "a", "text": {"b": 1}}\n',
        r"no string(.|\n)*dict(.|\n)*line 1",
    ),
    (
        "train.jsonl",
        b'{"label": "a", "text": "b"}\n{"text": 1, "label": 2, "text": 3}\n',
        r"key occurs twice(.|\n)*'text'(.|\n)*line 2",
    ),
    (
        "train.jsonl",
        b'{"label": "a", "text": "b", "more": {"x": 1, "x": 1}}\n',
        r"twice(.|\n)*'x'",
    ),
    (
        "train.jsonl",
        b'{"label": "a", "text": "x\\ud83d y"}\n',
        r"U\+D83D at character 2(.|\n)*line 1",
    ),
    ("train.jsonl", b'{"label": "\\udc00", "text": "x"}\n', r"U\+DC00(.|\n)*line 1"),
    (
        "train.jsonl",
        b'{"label": "a", "text": "caf\xe9"}\n',
        r"not UTF-8(.|\n)*0xE9(.|\n)*line 1",
    ),
    ("train.jsonl", '{"label": "a", "text": "b"}\n'.encode("utf-16"), r"UTF-16(.|\n)*iconv"),
    ("train.jsonl", b'{"label": "a", "text": "\0"}\n', r"NUL(.|\n)*line 1"),
    (
        "train.jsonl",
        b'\n{"label": ' + b"[" * 10**5 + b"]" * 10**5 + b"}",
        r"too deeply(.|\n)*line 2",
    ),
    ("train.jsonl", b'{"label": ' + b"1" * 5000 + b', "text": "b"}', r"too long(.|\n)*line 1"),
    ("train.jsonl", b'[{"label": "a", "text": "b"}]', r"no JSON object(.|\n)*line 1(.|\n)*jq"),
    ("train.jsonl", b'{\n  "label": "a",\n  "text": "b"\n}\n', r"one JSON object on each line"),
    ("train.parquet", b"PAR1 not really", r"Parquet"),
    ("train.parquet", b"", r"Parquet"),
]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    BAD_ROWS,
    ids=[f"{name}-{number}" for number, (name, _, _) in enumerate(BAD_ROWS)],
)
def test_bad_rows_are_refused_with_file_and_line(
    name: str, content: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        read(tmp_path)


@pytest.mark.skipif(not shutil.which("iconv"), reason="no iconv here")
@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-32"])
def test_the_conversion_that_an_error_names_mends_the_file(encoding: str, tmp_path: Path) -> None:
    bad = tmp_path / "my train.csv"
    bad.write_bytes("label,text\na,café €5\n".encode(encoding))
    with pytest.raises(DataError) as caught:
        read(bad)
    command = caught.value.details["to do"].split("convert it: ")[1].split(" (")[0]
    subprocess.run(command, shell=True, check=True, cwd=tmp_path)
    assert read(tmp_path / shlex.split(command)[-1]).inputs == ["café €5"]


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_line_without_end_is_refused_before_it_is_in_memory(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_lines, "MAX_LINE_CHARS", 1000)
    line = {"csv": "a,{}", "jsonl": '{{"label": "a", "text": "{}"}}'}[suffix]
    header = "label,text\n" * (suffix == "csv")
    path = tmp_path / f"train.{suffix}"
    path.write_text(f"{header}{line.format('x' * 900)}\n")
    assert len(read(path).inputs[0]) == 900
    path.write_text(f"{header}{line.format('x' * 1000)}\n")
    with pytest.raises(DataError, match=f"too long(.|\n)*line {2 if header else 1}\n"):
        read(path)


def test_an_unclosed_quote_in_a_large_file_is_given_up_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_format, "MAX_FIELD_CHARS", 1000)
    # the quote of line 3 is taken for closed at line 503; what follows is not to be blamed
    lines = ["label,text", 'a,"b"', 'a,"unclosed', *["a,b c"] * 500, 'a,"d', 'e"']
    (tmp_path / "train.csv").write_text("\n".join(lines))
    before = csv.field_size_limit(1000)
    try:
        with pytest.raises(DataError, match=r"too long(.|\n)*more than 1,000(.|\n)*line 3, where"):
            read(tmp_path)
    finally:
        csv.field_size_limit(before)


@pytest.mark.skipif(not Path("/proc/self/mem").is_file(), reason="needs a file that cannot be read")
@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_a_disk_that_fails_is_told(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"train.{suffix}"
    path.symlink_to("/proc/self/mem")  # its first page is mapped nowhere: an input/output error
    with pytest.raises(StorageError, match=r"cannot read(.|\n)*Input/output error"):
        read(path)


def test_a_key_that_is_not_needed_may_be_missing_or_anything(tmp_path: Path) -> None:
    lines = ['{"label": 1, "text": "a", "score": 0.5}', '{"text": "b", "label": 2, "id": NaN}']
    (tmp_path / "train.jsonl").write_text("\n".join(lines))
    rows = read(tmp_path)
    assert (rows.labels, rows.inputs) == (["1", "2"], ["a", "b"])


def write_parquet(path: Path, columns: dict[str, Any], **options: Any) -> Path:
    pyarrow.parquet.write_table(pyarrow.table(columns), path, **options)
    return path


@pytest.mark.parametrize(
    "text_type", [pyarrow.string(), pyarrow.large_string(), pyarrow.string_view()]
)
@pytest.mark.parametrize("label_type", [pyarrow.int8(), pyarrow.uint64(), pyarrow.string()])
@pytest.mark.parametrize("encoded", [True, False])
def test_parquet_strings_and_whole_numbers_of_every_kind_are_read(
    text_type: pyarrow.DataType, label_type: pyarrow.DataType, encoded: bool, tmp_path: Path
) -> None:
    labels = pyarrow.array(["1", "0", "1"]).cast(label_type)
    texts = pyarrow.array(["x", "naïve", "x"], text_type)
    if encoded:
        labels, texts = labels.dictionary_encode(), texts.cast(pyarrow.string()).dictionary_encode()
    path = write_parquet(tmp_path / "train.parquet", {"label": labels, "text": texts})
    rows = read(path)
    assert (rows.labels, rows.inputs) == (["1", "0", "1"], ["x", "naïve", "x"])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"text": [1, 2], "label": ["a", "b"]}, r"'text' cannot be a text(.|\n)*int64"),
        ({"text": [b"x"], "label": ["a"]}, r"'text' cannot be a text(.|\n)*binary"),
        ({"text": [["x"]], "label": ["a"]}, r"'text' cannot be a text(.|\n)*list<"),
        ({"text": [{"en": "x"}], "label": ["a"]}, r"'text' cannot be a text(.|\n)*struct<"),
        ({"text": ["x"], "label": [1.0]}, r"'label' cannot be a label(.|\n)*double"),
        ({"text": ["x"], "label": [True]}, r"'label' cannot be a label(.|\n)*bool"),
        ({"text": ["x"], "label": [{"id": 1}]}, r"'label' cannot be a label(.|\n)*struct<"),
        ({"text": ["x", None], "label": ["a", "a"]}, r"a text is empty(.|\n)*parquet, row 2"),
        ({"text": [None, None], "label": ["a", "a"]}, r"a text is empty(.|\n)*parquet, row 1"),
        ({"text": ["x", "y"], "label": ["a", None]}, r"a label is missing(.|\n)*parquet, row 2"),
        ({"text": ["x", "\u200b"], "label": [1, 2]}, r"a text is empty(.|\n)*parquet, row 2"),
    ],
)
def test_bad_parquet_columns_are_refused(
    columns: dict[str, Any], message: str, tmp_path: Path
) -> None:
    path = write_parquet(tmp_path / "train.parquet", columns)
    with pytest.raises(DataError, match=message):
        read(path)


def test_a_parquet_column_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    table = pyarrow.Table.from_arrays([pyarrow.array(["a"])] * 3, ["label", "text", "text"])
    pyarrow.parquet.write_table(table, tmp_path / "train.parquet")
    with pytest.raises(DataError, match="'text' is there 2 times"):
        read(tmp_path)


def test_parquet_bytes_that_are_not_utf8_are_refused_by_row(tmp_path: Path) -> None:
    offsets, data = (
        pyarrow.array([0, 1, 2], pyarrow.int32()).buffers()[1],
        pyarrow.py_buffer(b"x\xe9"),
    )
    texts = pyarrow.StringArray.from_buffers(2, offsets, data)
    path = write_parquet(tmp_path / "train.parquet", {"label": ["a", "b"], "text": texts})
    with pytest.raises(DataError, match=r"'text' is not UTF-8(.|\n)*train\.parquet, row 2"):
        read(path)


def test_parquet_rows_are_counted_across_batches(tmp_path: Path) -> None:
    texts = ["x"] * (2 * BATCH_ROWS + 7)
    texts[-3] = " "
    columns = {"text": texts, "label": ["a"] * len(texts)}
    path = write_parquet(tmp_path / "train.parquet", columns, row_group_size=BATCH_ROWS - 5)
    with pytest.raises(DataError, match=f"train.parquet, row {len(texts) - 2}\n"):
        read(path)
    assert len(read(path, limit=len(texts) - 3)) == len(texts) - 3


def test_parquet_columns_that_are_not_needed_are_not_read(tmp_path: Path) -> None:
    columns = {"before": ["y" * 100], "a.b": ["x"], "label": [3], "after": [["z"]]}
    path = write_parquet(tmp_path / "train.parquet", columns, compression="none")
    table = ParquetFormat().open(path, ExtractConfig())
    assert table.names == list(columns)
    records = table.records(Columns(("a.b",), "label"))
    assert list(records) == [("row 1", {"a.b": "x", "label": 3})]
    # nor does damage to them matter, while damage to a needed one is told
    content = path.read_bytes()
    for column, harmless in (("before", True), ("a.b", False)):
        file = pyarrow.parquet.ParquetFile(path)
        place = next(
            file.metadata.row_group(0).column(i)
            for i in range(file.metadata.num_columns)
            if file.metadata.row_group(0).column(i).path_in_schema == column
        )
        start = place.dictionary_page_offset or place.data_page_offset
        spoilt = bytearray(content)
        spoilt[start : start + place.total_compressed_size] = b"\xff" * place.total_compressed_size
        (tmp_path / "spoilt.parquet").write_bytes(spoilt)
        if harmless:
            assert read(tmp_path / "spoilt.parquet", text_columns=("a.b",)).inputs == ["x"]
        else:
            with pytest.raises(DataError, match=r"cannot read(.|\n)*row 1 or after"):
                read(tmp_path / "spoilt.parquet", text_columns=("a.b",))


def test_fields_that_no_comma_separates_are_explained(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("label;text\na;b\n")
    with pytest.raises(ConfigError, match=r"label;text(.|\n)*separated by commas"):
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
        assert all(20 <= len(text.split()) <= 60 for text in rows.inputs)
        assert not seen & set(rows.inputs)
        seen |= set(rows.inputs)
    assert len(seen) == 480
    openings = [" ".join(text.split()[:5]) for text in seen]
    assert len(set(openings)) == len(openings), "items that begin alike smell of a template"
