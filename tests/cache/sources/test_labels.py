"""Labels that are no labels: refused, asked about or warned of, and never a class in silence."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

import gaam_cache
from gaam_cache.common.errors import DataError
from gaam_cache.config import ExtractConfig
from gaam_cache.sources import Rows, find_source
from tests.conftest import Outcome

NAN = float("nan")
MARK = "\ufeff"


def lay_out(path: Path, labels: list[Any]) -> None:
    """Rows of distinct texts in a table, by its suffix."""
    texts = [f"{path.stem} {n}" for n in range(len(labels))]
    if path.suffix == ".parquet":
        pyarrow.parquet.write_table(
            pyarrow.table({"label": labels, "text": texts}), path
        )
    elif path.suffix == ".csv":
        rows = [f"{label},{text}" for label, text in zip(labels, texts, strict=True)]
        path.write_text("\n".join(["label,text", *rows]))
    else:
        records = [
            {"label": one, "text": text}
            for one, text in zip(labels, texts, strict=True)
        ]
        path.write_text("\n".join(map(json.dumps, records)))


def read(folder: Path, split: str = "train", **options: Any) -> Rows:
    config = ExtractConfig(dataset=str(folder), splits=("train", "test"), **options)
    return find_source(config.dataset).read(config, split)


UNLABELLED: dict[str, tuple[str, list[Any]]] = {
    "-1": ("jsonl", [-1] * 4),
    "-1 in csv": ("csv", ["-1"] * 4),
    "-1.0": ("parquet", [-1.0] * 4),
    "null": ("jsonl", [None] * 4),
    "null type": ("parquet", [None] * 4),
    "NaN": ("parquet", [NAN] * 4),
    "empty": ("csv", [""] * 4),
    "several": ("jsonl", [-1, None, "nan", -1]),
    "-100": ("csv", ["-100"] * 4),
}


@pytest.mark.parametrize("case", UNLABELLED)
@pytest.mark.parametrize("limit", [None, 2])
def test_a_split_of_which_no_row_has_a_label_is_told_to_be_unlabelled(
    case: str, limit: int | None, tmp_path: Path
) -> None:
    kind, labels = UNLABELLED[case]
    lay_out(tmp_path / "train.csv", ["a", "b"] * 4)
    lay_out(tmp_path / f"test.{kind}", labels)
    with pytest.raises(
        DataError, match=r"'test' has no labels(.|\n)*unlabelled=test"
    ) as caught:
        read(tmp_path, "test", limit=limit)
    assert "--split train" in caught.value.details["to do"]
    assert not read(tmp_path, "test", limit=limit, unlabelled=("test",)).labelled
    # those of the split that has the classes are a mistake about the column
    lay_out(tmp_path / f"new.{kind}", labels)
    config = ExtractConfig(dataset=str(tmp_path), splits=("new", "train"))
    (tmp_path / "train.csv").unlink()
    (tmp_path / f"new.{kind}").rename(tmp_path / f"train.{kind}")
    with pytest.raises(DataError, match=r"'train' has no labels(.|\n)*--label-column"):
        find_source(config.dataset).read(config, "train")


ODD: dict[str, tuple[str, Any, str]] = {
    "-1": ("jsonl", -1, "-1"),
    "-1 in csv": ("csv", "-1", "-1"),
    "-1.0 in csv": ("csv", "-1.0", "-1"),
    "-100": ("parquet", -100, "-100"),
    "-9": ("csv", "-9", "-9"),
    "nan": ("csv", "nan", "nan"),
    "NaN": ("jsonl", "NaN", "nan"),
    "null": ("csv", "null", "NULL"),
    "<NA>": ("csv", "<NA>", "<na>"),
}
"""A label beside others, and how it is said to be a class."""


@pytest.mark.parametrize("case", ODD)
def test_what_often_means_no_label_is_a_class_where_somebody_says_so(
    case: str, tmp_path: Path, gaam: Callable[..., Outcome]
) -> None:
    kind, odd, said = ODD[case]
    usual: list[Any] = [0, 1] if isinstance(odd, int) else ["0", "1"]
    for split in ("train", "test"):
        lay_out(tmp_path / f"{split}.{kind}", [*usual * 3, odd])
    with pytest.raises(DataError, match="--set odd-classes") as caught:
        read(tmp_path)
    assert "7" in caught.value.details["where"] or "8" in caught.value.details["where"]
    out = tmp_path / "cache"
    config = ExtractConfig(
        dataset=str(tmp_path), encoder="tfidf", out=out, odd_classes=(said,), limit=5
    )
    gaam_cache.extract(config)
    assert str(odd) in gaam_cache.open_cache(out).class_names
    # the plan says which classes there are
    assert gaam_cache.verify(out, recompute_rows=2).good


MISSING: dict[str, tuple[str, Any]] = {
    "null": ("jsonl", None),
    "NaN": ("parquet", NAN),
    "empty": ("csv", ""),
    "blank": ("jsonl", " \u200b"),
}


@pytest.mark.parametrize("case", MISSING)
def test_a_missing_label_beside_others_is_refused(case: str, tmp_path: Path) -> None:
    kind, missing = MISSING[case]
    labels: list[Any] = [0.0, 1.0] if isinstance(missing, float) else ["a", "b"]
    lay_out(tmp_path / f"train.{kind}", [*labels, missing])
    with pytest.raises(DataError, match=r"(line|row) [34]") as caught:
        read(tmp_path)
    assert "--set skip-unlabelled=true" in caught.value.details["to do"]


NUMBERS = {"task": "regression"}
SETS = {"task": "multi-label"}
SEPARATED = {**SETS, "label_separator": ";"}
PARTLY_LABELLED: dict[str, tuple[str, list[Any], dict[str, Any], list[int]]] = {
    "csv": ("csv", ["a", "", "b", " "], {}, [0, 2]),
    "json lines": ("jsonl", [None, "a", "b", ""], {}, [1, 2]),
    "parquet": ("parquet", ["a", None, "b"], {}, [0, 2]),
    "whole numbers in parquet": ("parquet", [NAN, 1.0, 0.0], {}, [1, 2]),
    "words for it": ("csv", ["NaN", "a", "null", "b", "<NA>"], {}, [1, 3]),
    "a confirmed word": (
        "csv", ["nan", "a", "", "b"], {"odd_classes": ("nan",)}, [0, 1, 3]),
    "numbers in csv": ("csv", ["", "0.5", "nan", "1e3", "null"], NUMBERS, [1, 3]),
    "numbers in parquet": ("parquet", [0.5, None, NAN, 7.0], NUMBERS, [0, 3]),
    "sets": ("jsonl", [["a"], None, [], ["b", "a"], ["a", None]], SETS, [0, 2, 3]),
    "sets with a separator": ("csv", ["a;b", "", "nan", "b"], SEPARATED, [0, 1, 3]),
    "sets that follow NaN": ("jsonl", [NAN, ["a"], [], ["b", "a"]], {}, [1, 2, 3]),
}  # fmt: skip
"""Suffix, labels and options; and the rows that have a label."""


@pytest.mark.parametrize("case", PARTLY_LABELLED)
@pytest.mark.parametrize("limit", [None, 3], ids=["all", "limit"])
def test_rows_without_a_label_are_left_out_and_counted_where_somebody_says_so(
    case: str, limit: int | None, tmp_path: Path
) -> None:
    suffix, labels, options, labelled_rows = PARTLY_LABELLED[case]
    lay_out(tmp_path / f"train.{suffix}", labels)
    with pytest.raises(DataError, match="skip-unlabelled=true"):
        read(tmp_path, **options)
    rows = read(tmp_path, skip_unlabelled=True, limit=limit, **options)
    assert list(rows.inputs) == [f"train {row}" for row in labelled_rows]
    assert rows.num_without_label == len(labels) - len(labelled_rows)
    assert rows.num_skipped == 0


def test_a_row_that_lacks_one_of_its_labels_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,a,b\nx,1,0\ny,,1\nz,0,\nw,0,0\n")
    for task in ("regression", "multi-label"):
        columns = ("a", "b")
        rows = read(tmp_path, skip_unlabelled=True, task=task, label_column=columns)
        assert list(rows.inputs) == ["x", "w"]
        assert rows.num_without_label == 2


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        pytest.param(["-1", "0", "1"], "odd-classes=-1", id="a negative number"),
        pytest.param(["", "", ""], "3 without a label", id="no label at all"),
    ],
)
@pytest.mark.parametrize("limit", [None, 2], ids=["all", "limit"])
def test_what_may_be_a_class_or_leaves_no_row_is_not_left_out(
    labels: list[str], message: str, limit: int | None, tmp_path: Path
) -> None:
    lay_out(tmp_path / "train.csv", labels)
    with pytest.raises(DataError, match=message):
        read(tmp_path, skip_unlabelled=True, limit=limit)


def test_the_output_and_the_plan_say_that_rows_without_a_label_are_left_out(
    tmp_path: Path, gaam: Callable[..., Outcome]
) -> None:
    lay_out(tmp_path / "all.csv", ["a", "b", "", "a", "b"] * 8)
    out = tmp_path / "cache"
    options = ("--encoder", "tfidf", "--dataset", tmp_path / "all.csv", "--out", out)
    outcome = gaam("extract", *options, "--set", "skip-unlabelled=true")
    assert "no label     train 8 left out" in outcome.out
    plan = gaam_cache.open_cache(out).plan
    assert sum(plan.rows.values()) == 32
    assert plan.dataset.settings["skip_unlabelled"] is True
    # the rows are read again as they were
    assert gaam_cache.verify(out, recompute_rows=5).good


@pytest.mark.parametrize(
    "name", ["None", "none", "N/A", "NA", "unknown", "?", "<UNK>", "unlabeled", "99"]
)
def test_classes_that_may_be_none_are_warned_of(
    name: str, tmp_path: Path, gaam: Callable[..., Outcome]
) -> None:
    usual = ["0", "1"] if name == "99" else ["cat", "dog"]
    for split in ("train", "test"):
        lay_out(tmp_path / f"{split}.csv", [*usual * 3, name])
    command = (
        "extract",
        "--encoder",
        "tfidf",
        "--dataset",
        tmp_path,
        "--out",
        tmp_path / "c",
    )
    said = gaam(*command)
    assert said.code == 0
    assert f"'{name}' (rows: 2)" in said.err
    assert "warning" not in gaam(*command, "--set", f"odd-classes={name}").err


def test_ordinary_classes_are_left_in_peace(
    tmp_path: Path, gaam: Callable[..., Outcome]
) -> None:
    """Numbers up to 99, and words that begin as odd ones do."""
    names = [*map(str, range(100)), "nano", "null-terminated", "Nancy", "#1", "no"]
    for split in ("train", "test"):
        lay_out(tmp_path / f"{split}.csv", names * 2)
    said = gaam(
        "extract", "--encoder", "tfidf", "--dataset", tmp_path, "--out", tmp_path / "c"
    )
    assert (said.code, "missing label" in said.err) == (0, False)


def test_numbers_beside_text_are_warned_of(tmp_path: Path) -> None:
    lay_out(tmp_path / "train.jsonl", [0, 1, "World", "Sports"])
    with pytest.warns(
        gaam_cache.common.errors.GaamWarning, match="numbers in some rows, text"
    ):
        read(tmp_path)


JOINED: dict[str, tuple[str, str, str]] = {
    "csv with marks": (
        "csv",
        f"{MARK}label,text\na,x\n{MARK}label,text\nb,y\n",
        "line 3",
    ),
    "csv with a mark, no header": ("csv", f"label,text\na,x\n{MARK}b,y\n", "line 3"),
    "csv without marks": ("csv", "label,text\na,x\nlabel,text\nb,y\n", "line 3"),
    "csv, a header in capitals": (
        "csv",
        "label,text\na,x\nLabel, Text\nb,y\n",
        "line 3",
    ),
    "csv, two marks": ("csv", f"{MARK}{MARK}label,text\na,x\n", "line 1"),
    "csv, a label": ("csv", f"text,label\nx,a\ny,{MARK}b\n", "line 3"),
    "tsv": ("tsv", f"label\ttext\na\tx\n{MARK}label\ttext\nb\ty\n", "line 3"),
    "jsonl": (
        "jsonl",
        '{"label":"a","text":"x"}\n\ufeff{"label":"b","text":"y"}\n',
        "line 2",
    ),
    "jsonl, a key twice": (
        "jsonl",
        '{"label":"a","text":"x","label":"b"}',
        "line 1.*twice|twice",
    ),
    "json, a key twice": ("json", '[{"label":"a","text":"x","label":"b"}]', "twice"),
}


@pytest.mark.parametrize("case", JOINED)
def test_what_joined_files_leave_behind_is_refused_by_line(
    case: str, tmp_path: Path
) -> None:
    kind, content, where = JOINED[case]
    (tmp_path / f"train.{kind}").write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=where):
        read(tmp_path)


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("csv", f"label,text\na,x\nb,{MARK}y\n"),
        ("jsonl", '{"label":"a","text":"x"}\n{"label":"b","text":"\\ufeffy"}'),
    ],
    ids=["csv", "jsonl"],
)
def test_a_text_may_begin_with_a_byte_order_mark(
    kind: str, content: str, tmp_path: Path
) -> None:
    """A tweet of a public data set does."""
    (tmp_path / f"train.{kind}").write_text(content, encoding="utf-8")
    assert list(read(tmp_path).inputs) == ["x", f"{MARK}y"]


def test_a_column_twice_is_refused_in_parquet_too(tmp_path: Path) -> None:
    arrays = [
        pyarrow.array(["a", "b"]),
        pyarrow.array(["x", "y"]),
        pyarrow.array(["c", "c"]),
    ]
    table = pyarrow.Table.from_arrays(arrays, names=["label", "text", "label"])
    pyarrow.parquet.write_table(table, tmp_path / "train.parquet")
    with pytest.raises(DataError, match="column"):
        read(tmp_path)


SAID: dict[str, tuple[str, str, str]] = {
    "classes that look alike": (
        "csv", "label,text\ncafe\u0301,x\ncaf\u00e9,y\n", "characters that look alike"),
    "a class with what cannot be seen": (
        "csv", "label,text\nsports,x\nsports\u200b,y\n", "characters that look alike"),
    "texts that are no text": ("csv", "label,text\na,x\nb,nan\na,NULL\n", "row 2: 'nan'"),
    "quotes that are none": ("tsv", 'label\ttext\na\t"x\nb\ty"\nb\tz\n', "without quotes"),
}  # fmt: skip


@pytest.mark.parametrize("case", SAID)
def test_what_is_read_and_may_be_wrong_is_said(
    case: str, tmp_path: Path, gaam: Callable[..., Outcome]
) -> None:
    kind, content, message = SAID[case]
    (tmp_path / f"train.{kind}").write_text(content, encoding="utf-8")
    command = (
        "extract",
        "--encoder",
        "tfidf",
        "--dataset",
        tmp_path,
        "--out",
        tmp_path / "c",
    )
    said = gaam(*command, "--split", "train")
    assert said.code == 0
    assert message in said.err


QUANTITIES: dict[str, tuple[str, list[Any], str]] = {
    "fractions": ("jsonl", [0.25, 1.5, 2.0, 3.75] * 2, "numbers with fractions"),
    "fractions in csv": (
        "csv",
        ["0.25", "1.5", "2", "-3.75"] * 2,
        "numbers with fractions",
    ),
    "fractions beside whole negative numbers": (
        "csv",
        ["0.25", "-1", "-2.0", "1.5"] * 2,
        "numbers with fractions",
    ),
    "powers of ten": ("csv", ["1e-3", "2.5E2"] * 4, "numbers with fractions"),
    "floats of parquet": (
        "parquet",
        [float(n) / 3 for n in range(9)],
        "numbers with fractions",
    ),
    "years, prices": ("csv", [str(7 * n) for n in range(60)], "nearly every row"),
    "the same of JSON": (
        "jsonl",
        [1000 + 13 * n for n in range(60)],
        "nearly every row",
    ),
}
"""Labels that are quantities."""


@pytest.mark.parametrize("case", QUANTITIES)
@pytest.mark.parametrize("limit", [None, 6])
def test_quantities_are_refused_in_words_that_say_so(
    case: str, limit: int | None, tmp_path: Path
) -> None:
    kind, labels, words = QUANTITIES[case]
    lay_out(tmp_path / f"train.{kind}", labels)
    with pytest.raises(DataError, match=f"{words}.*looks like numbers") as caught:
        read(tmp_path, limit=limit)
    assert "column 'label' of 'train'" in caught.value.details["where"]
    to_do = caught.value.details["to do"]
    assert "--task regression, or --task classification" in to_do
    assert "--label-column" in to_do


NAMES_OF_CLASSES: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "whole numbers": ("jsonl", [0, 1, 2] * 3, {}),
    "whole numbers as fractions": ("parquet", [0.0, 1.0, 2.0] * 3, {}),
    "whole numbers in csv": ("csv", ["1", "2", "3.0"] * 3, {}),
    "codes with gaps": ("csv", ["100", "2000", "30000"] * 20, {}),
    "as many classes as rows": ("csv", list(map(str, range(60))), {}),
    "numbers beside words": ("csv", ["0.5", "1.5", "high"] * 3, {}),
    "said to be classes": (
        "csv",
        ["0.5", "1.0", "1.5"] * 3,
        {"odd_classes": ("0.5", "1.5")},
    ),
}


@pytest.mark.parametrize("case", NAMES_OF_CLASSES)
def test_numbers_that_name_classes_are_classes(case: str, tmp_path: Path) -> None:
    kind, labels, options = NAMES_OF_CLASSES[case]
    lay_out(tmp_path / f"train.{kind}", labels)
    rows = read(tmp_path, **options)
    assert len(rows.labels) == len(labels)


def test_a_cache_of_classes_that_are_called_as_quantities_is_still_read_again(
    tmp_path: Path,
) -> None:
    for split in ("train", "test"):
        lay_out(tmp_path / f"{split}.csv", ["0.5", "1.5"] * 3)
    out = tmp_path / "cache"
    config = ExtractConfig(
        dataset=str(tmp_path), encoder="tfidf", out=out, odd_classes=("0.5", "1.5")
    )
    gaam_cache.extract(config)
    assert gaam_cache.verify(out, recompute_rows=2).good
