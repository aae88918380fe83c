"""A refusal counts all rows that cannot be used and shows the first three; empty ones may go."""

from __future__ import annotations

import json
import re
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from gaam_cache.config import ExtractConfig
from gaam_cache.errors import ConfigError, DataError
from gaam_cache.sources._bad_rows import SHOWN
from gaam_cache.sources._base import NO_LABEL, Rows, find_source

GOOD: dict[str, Any] = {"label": "a", "text": "goal", "who": "x"}
BAD: dict[str, tuple[Any, str]] = {
    "empty": (GOOD | {"text": " "}, "a text is empty"),
    "null": (GOOD | {"text": None}, "a text is empty"),
    "number": (GOOD | {"text": 1}, "a text is no string"),
    "half": (GOOD | {"text": "\ud83d"}, "a text holds half a character"),
    "no label": (GOOD | {"label": None}, "a label is missing or unusable"),
    "blank label": (GOOD | {"label": " "}, "a label is missing or unusable"),
    "fraction": (GOOD | {"label": 0.5}, "a label is missing or unusable"),
    "truth": (GOOD | {"label": True}, "a label is missing or unusable"),
    "half a label": (GOOD | {"label": "\udc00"}, "a label holds half a character"),
    "kept null": (GOOD | {"who": None}, "the column 'who' cannot be kept"),
    "kept fraction": (GOOD | {"who": 0.5}, "the column 'who' cannot be kept"),
    "kept truth": (GOOD | {"who": False}, "the column 'who' cannot be kept"),
    "kept list": (GOOD | {"who": ["x"]}, "the column 'who' cannot be kept"),
    "kept nul": (GOOD | {"who": "a\0b"}, "the column 'who' cannot be kept"),
    "kept half": (GOOD | {"who": "\ud800"}, "a kept value holds half a character"),
    "kept long": (GOOD | {"who": "é" * 2049}, "the column 'who' cannot be kept"),
    "lacks": ({"label": "a", "text": "goal"}, "a line lacks a column"),
    "no json": ("{", "a line is not JSON"),
    "no object": ([1], "a line is no JSON object"),
    "twice": ('{"text": "a", "text": "b"}', "a key occurs twice"),
}


def read(dataset: Path, split: str = "train", **options: object) -> Rows:
    config = ExtractConfig(dataset=str(dataset), splits=(split,), **options)  # type: ignore[arg-type]
    return find_source(config.dataset).read(config, split)


def write(path: Path, values: list[Any]) -> None:
    lines = [value if isinstance(value, str) else json.dumps(value) for value in values]
    path.write_text("\n".join(lines) + "\n")


def refusal(path: Path, **options: Any) -> DataError:
    with pytest.raises(DataError) as caught:
        read(path, keep_columns=("who",), **options)
    return caught.value


def test_each_kind_of_bad_row_is_found_wherever_it_stands(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    for (bad, message), place in product(BAD.values(), (2, 3, 7)):
        values = [GOOD] * 7
        values[place - 1] = bad
        write(path, values)
        error = refusal(path)
        assert error.message.startswith(message)
        assert error.details["where"] == f"{path}, line {place}", "as one says it"


def test_all_bad_rows_are_counted_and_three_are_shown(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    kinds = list(BAD.items())
    for count in (2, 3, 4, 10, 19):
        for shift in range(len(kinds)):
            chosen = [kinds[(shift + step) % len(kinds)] for step in range(count)]
            values, places = [GOOD], []
            for _, (bad, _) in chosen:
                values += [bad, GOOD]
                places.append(len(values) - 1)
            write(path, values)
            error = refusal(path)
            assert error.message.startswith(f"{count} of {len(values)} rows cannot be used: ")
            assert error.details["where"] == f"{path}, line {places[0]} and {count - 1} more"
            shown = error.details["found"].split("\n")
            assert [line.split(":")[0] for line in shown[:SHOWN]] == [
                f"line {place}" for place in places[:SHOWN]
            ]
            assert shown[SHOWN:] == ([f"and {count - SHOWN} more"] if count > SHOWN else [])
            reasons = {message for _, (_, message) in chosen}
            if len(reasons) > 1:
                for line, (_, (_, message)) in zip(shown, chosen[:SHOWN], strict=False):
                    assert message in line


def test_rows_that_are_bad_for_one_reason_read_like_one(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    write(path, [GOOD, *[GOOD | {"text": " "}] * 1200, GOOD])
    error = refusal(path)
    alone = tmp_path / "alone.jsonl"
    write(alone, [GOOD, GOOD | {"text": " "}])
    single = refusal(alone)
    assert error.message == f"1,200 of 1,202 rows cannot be used: {single.message}"
    for label in ("expected", "to do"):
        assert error.details[label] == single.details[label]
    found = [f"line {n}: {single.details['found']}" for n in (2, 3, 4)]
    assert error.details["found"] == "\n".join([*found, "and 1,197 more"])
    assert error.details["where"] == f"{path}, line 2 and 1,199 more"
    assert "skip-empty" in error.details["to do"]


def test_memory_does_not_grow_with_bad_rows(tmp_path: Path) -> None:
    import tracemalloc

    path = tmp_path / "train.jsonl"
    peaks = []
    for count in (500, 5000):
        write(path, [GOOD, *[GOOD | {"text": 1, "who": "x" * 900}] * count])
        tracemalloc.start()
        refusal(path)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] - peaks[0] < 4500 * 50


def test_a_limit_ends_the_count(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    for limit, count in ((1, 0), (2, 1), (4, 2), (5, 2), (6, 3)):
        bad = GOOD | {"text": " "}
        write(path, [GOOD, bad, GOOD, bad, GOOD, bad, "{"])
        if not count:
            assert len(read(path, limit=limit)) == 1
            continue
        error = refusal(path, limit=limit)
        assert count == 1 or error.message.startswith(f"{count} of {limit} rows")


def test_what_ends_the_parse_is_told_alone(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text('label,text\na,\na,b\nc,"d\n')
    with pytest.raises(DataError, match=r"never closed(.|\n)*line 4, where"):
        read(tmp_path)


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_empty_rows_are_left_out_counted_and_named(suffix: str, tmp_path: Path) -> None:
    texts = ["goal", "", "cup", " \t", "\u200b", "bank", ""]
    path = tmp_path / f"train.{suffix}"
    records = [{"label": "a", "text": t, "who": f"w{n}"} for n, t in enumerate(texts)]
    if suffix == "csv":
        lines = [f'{r["label"]},"{r["text"]}",{r["who"]}' for r in records]
        path.write_text("\n".join(["label,text,who", *lines]))
    elif suffix == "jsonl":
        write(path, [*records[:-1], records[-1] | {"text": None}])
    else:
        table = pyarrow.Table.from_pylist([*records[:-1], records[-1] | {"text": None}])
        pyarrow.parquet.write_table(table, path)
    first = {"csv": 2, "jsonl": 1, "parquet": 1}[suffix]
    word = "row" if suffix == "parquet" else "line"
    with pytest.raises(DataError, match="4 of 7 rows cannot be used: a text is empty"):
        read(path)
    rows = read(path, skip_empty=True, keep_columns=("who",))
    assert rows.inputs == ["goal", "cup", "bank"]
    assert list(rows.kept["who"]) == ["w0", "w2", "w5"]
    assert list(rows.skipped) == [f"{word} {first + n}" for n in (1, 3, 4, 6)]
    # a limit is of rows that are taken
    for limit, left_out in ((1, 0), (2, 1), (3, 3)):
        limited = read(path, skip_empty=True, limit=limit)
        assert (len(limited), len(limited.skipped)) == (limit, left_out)


def test_a_row_is_left_out_for_its_text_alone(tmp_path: Path) -> None:
    """Whatever else is wrong with it; and what has a text is refused for anything else."""
    path = tmp_path / "train.jsonl"
    for name, (bad, message) in BAD.items():
        if not isinstance(bad, dict) or name == "lacks":
            continue
        write(path, [GOOD, bad, GOOD])
        if message == "a text is empty":
            assert len(read(path, skip_empty=True, keep_columns=("who",)).inputs) == 2
            continue
        assert refusal(path, skip_empty=True).message == message
        if name not in ("number", "half"):
            write(path, [GOOD, bad | {"text": None}, GOOD])
            rows = read(path, skip_empty=True, keep_columns=("who",))
            assert (len(rows), list(rows.skipped)) == (2, ["line 2"])


def test_a_data_set_of_which_nothing_is_left_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    write(path, [GOOD | {"text": ""}] * 5)
    with pytest.raises(DataError, match=r"no rows(.|\n)*5 of which nothing"):
        read(path, skip_empty=True)


KEPT: list[tuple[Any, str]] = [("x", "x"), ("", ""), (" ", " "), (7, "7"), (-3, "-3")]
KEPT += [(10**30, str(10**30)), ("日本\u2028\n", "日本\u2028\n"), ("é" * 2048, "é" * 2048)]
KEPT += [("x" * 4096, "x" * 4096), ("\U0001f600" * 1024, "\U0001f600" * 1024)]


def test_kept_columns_are_strings_as_they_stand(tmp_path: Path) -> None:
    path = tmp_path / "train.jsonl"
    write(path, [GOOD | {"who": value, "Other_2": 1} for value, _ in KEPT])
    rows = read(path, keep_columns=("who", "Other_2"))
    assert list(rows.kept) == ["who", "Other_2"]
    assert list(rows.kept["who"]) == [text for _, text in KEPT]
    assert list(rows.kept["Other_2"]) == ["1"] * len(KEPT)
    assert rows.kept["who"][2] == " "


def test_kept_columns_of_csv_and_parquet(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("label,text,who,n\na,goal, x ,01\nb,cup,,2\n")
    rows = read(tmp_path / "train.csv", keep_columns=("n", "who"))
    assert [list(values) for values in rows.kept.values()] == [["01", "2"], [" x ", ""]]
    good = {"label": ["a"], "text": ["goal"]}
    types: list[tuple[Any, bool]] = [(["x"], True), ([1], True), ([0.5], False), ([True], False)]
    types += [([b"x"], False), ([None], False), ([["x"]], False)]
    for values, fine in types:
        path = tmp_path / "train.parquet"
        pyarrow.parquet.write_table(pyarrow.table(good | {"who": values}), path)
        if fine:
            assert list(read(path, keep_columns=("who",)).kept["who"]) == [str(values[0])]
        else:
            with pytest.raises(DataError, match=r"kept"):
                read(path, keep_columns=("who",))
    with pytest.raises(ConfigError, match=r"no column 'gone'(.|\n)*--keep-column"):
        read(path, keep_columns=("gone",))


def test_kept_values_lie_on_disk(tmp_path: Path) -> None:
    import tracemalloc

    path = tmp_path / "train.csv"
    rows = 20_000
    lines = (f"a,goal,{'x' * 200}{number}" for number in range(rows))
    path.write_text("\n".join(["label,text,who", *lines]))
    tracemalloc.start()
    kept = read(path, keep_columns=("who",))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(kept.kept["who"]) == rows
    assert peak < 40 * rows + 6 * 2**20


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "parquet"])
def test_a_split_without_labels_may_lack_the_column_or_have_anything_there(
    suffix: str, tmp_path: Path
) -> None:
    for extra in ({}, {"label": 0.5}, {"label": None}, {"label": "a"}):
        records = [{"text": text} | extra for text in ("goal", "cup")]
        path = tmp_path / f"test.{suffix}"
        if suffix == "csv":
            keys = list(records[0])
            lines = [",".join(str(r[k] or "") for k in keys) for r in records]
            path.write_text("\n".join([",".join(keys), *lines]))
        elif suffix == "jsonl":
            write(path, records)
        else:
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), path)
        config = ExtractConfig(dataset=str(tmp_path), unlabelled=("test",))
        rows = find_source(config.dataset).read(config, "test")
        assert not rows.labelled
        assert list(rows.labels) == [NO_LABEL] * 2
        assert rows.inputs == ["goal", "cup"]
    path.unlink()
    write(tmp_path / "test.jsonl", [{"text": "goal"}])
    with pytest.raises(ConfigError, match=r"no column 'label'(.|\n)*unlabelled"):
        read(tmp_path, "test")


def test_labels_lose_white_space_only_where_that_is_asked_for(tmp_path: Path) -> None:
    labels = ["a", " a", "a ", "\ta\n", "\u3000a", "a b", " a b", "7", " 7"]
    write(tmp_path / "train.jsonl", [GOOD | {"label": label} for label in labels])
    assert read(tmp_path).labels == labels
    assert read(tmp_path, strip_labels=True).labels == [label.strip() for label in labels]
    write(tmp_path / "train.jsonl", [GOOD | {"label": 7}, GOOD | {"label": " 7"}])
    assert read(tmp_path, strip_labels=True).labels == ["7", "7"]


BAD_SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"delimiter": ";;"}, "delimiter is none"),
    ({"delimiter": '"'}, "delimiter is none"),
    ({"delimiter": "\n"}, "delimiter is none"),
    ({"delimiter": "\ud800"}, "delimiter is none"),
    ({"keep_columns": ("who", "who")}, "given twice"),
    ({"keep_columns": ("clip_of",), "clip_mode": "split"}, "makes a kept column 'clip_of'"),
    ({"test_fraction": 0.0}, "out of range"),
    ({"test_fraction": 1.0}, "out of range"),
    ({"test_fraction": -0.2}, "out of range"),
    ({"test_fraction": float("nan")}, "out of range"),
    ({"test_fraction": float("inf")}, "out of range"),
    ({"test_fraction": 0.2, "splits": ("train",)}, "no --split"),
    ({"test_fraction": 0.2, "splits": ("train", "dev")}, "no --split"),
    ({"test_fraction": 0.2, "splits": ("train", "test", "dev")}, "no --split"),
    ({"test_fraction": 0.2, "unlabelled": ("test",)}, "no unlabelled"),
    ({"split_seed": 1}, "split-seed is for"),
    ({"split_seed": -1, "test_fraction": 0.2}, "split-seed is out of range"),
    ({"unlabelled": ("dev",)}, "no split that is read"),
    ({"unlabelled": ("train",)}, "'train' cannot be unlabelled"),
    ({"unlabelled": ("dev",), "splits": ("dev", "test")}, "'dev' cannot be unlabelled"),
    ({"file_column": "f", "text_columns": ("t",)}, "--text-column or --file-column"),
]
NAMES = ["", "1a", "a-b", "a b", "ä", "a" * 65, "_a", "a.b", "a/b", "a\n"]
BAD_SETTINGS += [({"keep_columns": (name,)}, "cannot be called") for name in NAMES]


@pytest.mark.parametrize(("settings", "message"), BAD_SETTINGS)
def test_settings_that_cannot_work_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        ExtractConfig(**settings)


def test_names_of_kept_columns_that_can_be(tmp_path: Path) -> None:
    for name in ("a", "Z9_", "a" * 64, "rows", "Label", "label", "embeddings", "session"):
        assert ExtractConfig(keep_columns=(name,)).keep_columns == (name,)
    for first, second in combinations(("who", "Who", "WHO"), 2):
        assert ExtractConfig(keep_columns=(first, second))
