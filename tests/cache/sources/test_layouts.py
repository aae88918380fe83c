"""Folders as the hub, ``datasets`` and people lay them out: the same rows, or a refusal."""

from __future__ import annotations

import gzip
import json
import shutil
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import datasets
import pandas
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest
from PIL import Image

from gaam_cache.common.errors import (
    ConfigError,
    DataError,
    GaamError,
    GaamNote,
    GaamWarning,
    NotFoundError,
)
from gaam_cache.config import ExtractConfig
from gaam_cache.sources import Rows, find_source
from tests.tiny import write_csv

ROWS = {
    split: [{"label": "abc"[n % 3], "text": f"{split} {n}"} for n in range(count)]
    for split, count in {"train": 12, "test": 6}.items()
}
POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12\n"


def write(path: Path, records: list[dict[str, Any]]) -> None:
    """A table as its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = "\n".join(map(json.dumps, records)).encode()
    if path.name.endswith(".parquet"):
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), path)
    elif path.name.endswith(".csv"):
        pyarrow.csv.write_csv(pyarrow.Table.from_pylist(records), path)
    elif path.name.endswith(".csv.gz"):
        write(path.with_suffix(""), records)
        path.write_bytes(gzip.compress(path.with_suffix("").read_bytes()))
        path.with_suffix("").unlink()
    elif path.name.endswith(".jsonl.gz"):
        path.write_bytes(gzip.compress(lines))
    else:
        path.write_bytes(lines)


def sharded(pattern: str, count: int) -> Callable[[Path], None]:
    """Of every split so many shards."""

    def lay_out(root: Path) -> None:
        for split, rows in ROWS.items():
            size = -(-len(rows) // count)
            for number in range(count):
                name = pattern.format(split=split, number=number, count=count)
                write(root / name, rows[number * size :][:size])

    return lay_out


def as_json(
    document: Callable[[list[dict[str, Any]]], Any], **how: Any
) -> Callable[[Path], None]:
    def lay_out(root: Path) -> None:
        for split, rows in ROWS.items():
            (root / f"{split}.json").write_text(json.dumps(document(rows), **how))

    return lay_out


def saved(root: Path) -> None:
    made = {split: datasets.Dataset.from_list(rows) for split, rows in ROWS.items()}
    datasets.DatasetDict(made).save_to_disk(
        str(root), num_shards={"train": 3, "test": 1}
    )


def linked(root: Path) -> None:
    """As the hub's client keeps a snapshot: links to what is called by its hash."""
    blobs = root.parent / "blobs"
    sharded("{split}-{number:05}-of-{count:05}.parquet", 2)(blobs)
    (root / "data").mkdir()
    for path in blobs.iterdir():
        (root / "data" / path.name).symlink_to(path)


SHARD = "{split}-{number:05}-of-{count:05}"
LAYOUTS: dict[str, Callable[[Path], None]] = {
    "one file": sharded("{split}.csv", 1),
    "hub": sharded(f"data/{SHARD}.parquet", 3),
    "hub, one shard": sharded(f"{SHARD}.parquet", 1),
    "hub, with hashes": sharded(f"{SHARD}-a09b74b3ef9c3b5{{number}}.parquet", 2),
    "hub, a subset": sharded(f"plain_text/{SHARD}.parquet", 2),
    "csv shards": sharded(f"{SHARD}.csv", 3),
    "compressed shards": sharded(f"data/{SHARD}.jsonl.gz", 2),
    "csv.gz": sharded("{split}.csv.gz", 1),
    "json lines as json": sharded("{split}.json", 1),
    "array": as_json(list, indent=2),
    "array on a line": as_json(list),
    "data": as_json(lambda rows: {"version": 1, "data": rows}),
    "data, indented": as_json(lambda rows: {"data": rows}, indent=1),
    "saved": saved,
    "links": linked,
}


def read(root: Path, *splits: str, **options: Any) -> list[Rows]:
    config = ExtractConfig(
        dataset=str(root), splits=splits or ("train", "test"), **options
    )
    source = find_source(config.dataset)
    return [source.read(config, split) for split in config.splits]


@pytest.mark.parametrize("case", LAYOUTS)
@pytest.mark.parametrize("limit", [None, 4])
def test_every_layout_gives_the_same_rows(
    case: str, limit: int | None, tmp_path: Path
) -> None:
    root, plain = tmp_path / "data set", tmp_path / "plain"
    root.mkdir()
    LAYOUTS[case](root)
    LAYOUTS["one file"](plain)
    found, expected = read(root, limit=limit), read(plain, limit=limit)
    for ours, theirs in zip(found, expected, strict=True):
        assert list(ours.inputs) == list(theirs.inputs)
        assert list(ours.labels) == list(theirs.labels)


def test_a_single_split_is_parted_however_it_is_laid_out(tmp_path: Path) -> None:
    for case in ("hub", "csv shards", "saved"):
        root = tmp_path / case
        root.mkdir()
        LAYOUTS[case](root)
        for path in [*root.rglob("test*")]:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    (tmp_path / "saved" / "dataset_dict.json").write_text('{"splits": ["train"]}')
    first, *others = [
        [part.inputs for part in read(tmp_path / case, test_fraction=0.25)]
        for case in ("hub", "csv shards", "saved", "saved/train")
    ]
    assert all(one == first for one in others)


def test_saved_classes_keep_their_names(tmp_path: Path) -> None:
    feature = datasets.ClassLabel(names=["World", "Arts"])
    features = datasets.Features({"text": datasets.Value("string"), "label": feature})
    data = datasets.Dataset.from_dict({"text": ["x", "y"], "label": [1, 0]}, features)
    data.save_to_disk(str(tmp_path))
    [rows] = read(tmp_path, "train")
    assert (rows.class_names, list(rows.labels)) == (
        ("World", "Arts"),
        ["Arts", "World"],
    )


SYNONYMS = ("validation", "valid", "val", "dev")


@pytest.mark.parametrize("asked", SYNONYMS)
def test_a_split_for_validation_has_four_names(asked: str, tmp_path: Path) -> None:
    for name in SYNONYMS:
        write_csv(tmp_path / name / "train.csv", [("a", "x")])
        write_csv(tmp_path / name / f"{name}.csv", [("b", name)])
        made = {name: datasets.Dataset.from_list([{"label": "b", "text": name}])}
        datasets.DatasetDict(made).save_to_disk(str(tmp_path / f"saved-{name}"))
        for root in (tmp_path / name, tmp_path / f"saved-{name}"):
            if name == asked:
                [rows] = read(root, asked)
            else:
                with pytest.warns(
                    GaamWarning, match=f"'{asked}' is read from '{name}'"
                ):
                    [rows] = read(root, asked)
            assert list(rows.inputs) == [name]
    others = [name for name in SYNONYMS if name != asked]
    write_csv(tmp_path / others[0] / f"{others[1]}.csv", [("b", "y")])
    with pytest.raises(NotFoundError, match=f"several files may be '{asked}'"):
        read(tmp_path / others[0], asked)
    write_csv(tmp_path / others[0] / f"{asked}.csv", [("b", "its own")])
    assert list(read(tmp_path / others[0], asked)[0].inputs) == ["its own"]


@pytest.mark.parametrize("layout", ["files", "shards in data", "saved", "folders"])
@pytest.mark.parametrize("name", SYNONYMS)
def test_a_validation_split_that_is_not_read_is_named(
    name: str, layout: str, tmp_path: Path
) -> None:
    splits = {"train": ROWS["train"], "test": ROWS["test"], name: ROWS["test"]}
    if layout == "saved":
        made = {key: datasets.Dataset.from_list(rows) for key, rows in splits.items()}
        datasets.DatasetDict(made).save_to_disk(str(tmp_path))
    for key, rows in splits.items():
        if layout == "files":
            write(tmp_path / f"{key}.jsonl", rows)
        elif layout == "shards in data":
            write(tmp_path / "data" / f"{key}-00000-of-00001.parquet", rows)
    if layout == "folders":
        for key in splits:
            for label in "ab":
                folder = tmp_path / key / label
                folder.mkdir(parents=True)
                Image.new("RGB", (8, 8), len(key)).save(folder / "1.png")
    with pytest.warns(GaamNote, match=f"^'{name}' of '{tmp_path}' is not read"):
        read(tmp_path, "train", "test")
    # a user who names splits knows which are read
    with warnings.catch_warnings():
        warnings.simplefilter("error", GaamNote)
        read(tmp_path, "train")


def without(layout: str, *names: str) -> Callable[[Path], None]:
    def lay_out(root: Path) -> None:
        LAYOUTS[layout](root)
        for name in names:
            next(root.rglob(name)).unlink()

    return lay_out


def replaced(layout: str, name: str, content: bytes) -> Callable[[Path], None]:
    def lay_out(root: Path) -> None:
        LAYOUTS[layout](root)
        next(root.rglob(name)).write_bytes(content)

    return lay_out


def both(*layouts: str) -> Callable[[Path], None]:
    def lay_out(root: Path) -> None:
        for layout in layouts:
            LAYOUTS[layout](root)

    return lay_out


def two_subsets(root: Path) -> None:
    for name in ("cola", "sst2"):
        sharded(f"{name}/{SHARD}.parquet", 1)(root)


def of_json(content: str) -> Callable[[Path], None]:
    def lay_out(root: Path) -> None:
        for split in ROWS:
            (root / f"{split}.json").write_text(content)

    return lay_out


def broken_link(root: Path) -> None:
    linked(root)
    for path in (root.parent / "blobs").glob("train-00001*"):
        path.unlink()


def other_columns(root: Path) -> None:
    LAYOUTS["csv shards"](root)
    write_csv(root / "train-00002-of-00003.csv", [("a", "x")], header="kind,text")


REFUSED: dict[str, tuple[Callable[[Path], None], type[GaamError], str]] = {
    "a shard is missing": (
        without("hub", "train-00001*"), DataError, r"train-00001-of-00003(.|\n)*fetch"),
    "the last shard is missing": (
        without("csv shards", "train-00002*"), DataError, "train-00002-of-00003"),
    "shards twice": (both("hub", "csv shards"), NotFoundError, "several files"),
    "shards of two sizes": (
        both("csv shards", "compressed shards"), NotFoundError, "several files"),
    "a file and shards": (both("one file", "hub"), NotFoundError, "several files"),
    "compressed and not": (both("csv.gz", "one file"), NotFoundError, "several files"),
    "several subsets": (two_subsets, NotFoundError, r"cola, sst2(.|\n)*--dataset"),
    "other columns": (other_columns, DataError, "train-00002-of-00003.csv"),
    "a pointer, csv": (replaced("one file", "train.csv", POINTER), DataError, "git lfs pull"),
    "a pointer, parquet": (
        replaced("hub", "train-00001*", POINTER), DataError, "Git LFS pointer(.|\n)*git lfs pull"),
    "a pointer, saved": (replaced("saved", "*.arrow", POINTER), DataError, "git lfs pull"),
    "a link that leads nowhere": (broken_link, DataError, "leads nowhere"),
    "a saved shard is missing": (without("saved", "*-00001-of-*.arrow"), DataError, "00001"),
    "cut": (
        replaced("csv.gz", "train.csv.gz", gzip.compress(b"label,text\na,b\n")[:-9]),
        DataError, "get the file again"),
    "not compressed": (
        replaced("csv.gz", "train.csv.gz", b"label,text\na,b\n"), DataError, "gzip"),
    "compressed, and not called so": (
        replaced("one file", "train.csv", gzip.compress(b"label,text\na,b\n")),
        DataError, "train.csv.gz"),
    "columns of json": (of_json('{"label": ["a"], "text": ["x"]}'), DataError, "not a string"),
    "records of another key": (of_json('{"rows": [{"label": "a"}]}'), ConfigError, "rows"),
    "one object on lines": (of_json('{\n"label": "a",\n"text": "x"}'), DataError, "no records"),
    "two arrays": (of_json('[{"label": "a"}]\n[{"label": "b"}]'), DataError, "no records"),
    "no objects": (of_json('[["a", "x"]]'), DataError, "record 1"),
    "no json": (of_json("label,text"), DataError, "no records"),
    "nothing": (of_json(""), DataError, "no records"),
    "fewer keys": (
        of_json('[{"label": "a", "text": "x"}, {"label": "b"}]'), DataError, "record 2"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_whole_or_not_one_is_refused(case: str, tmp_path: Path) -> None:
    lay_out, kind, message = REFUSED[case]
    root = tmp_path / "data set"
    root.mkdir()
    lay_out(root)
    with pytest.raises(kind, match=message):
        read(root)


def test_one_shard_of_several_is_told(tmp_path: Path) -> None:
    LAYOUTS["hub"](tmp_path)
    with pytest.warns(GaamWarning, match=r"one of 3 shards(.|\n)*--dataset"):
        read(tmp_path / "data" / "train-00001-of-00003.parquet", "train")


def links(root: Path, names: Iterable[str], to: Path) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).symlink_to(to)


def test_folders_of_links_to_sounds_are_read(tmp_path: Path) -> None:
    """Links are the folder's own; a path in a table that leads out needs leave."""
    import numpy as np
    import soundfile

    blob = tmp_path / "blobs" / "00"
    blob.parent.mkdir()
    x_T = np.random.default_rng(0).uniform(-0.5, 0.5, 4000)
    soundfile.write(blob, x_T, 16000, format="WAV")
    names = [f"train/{label}/{n}.wav" for label in "ab" for n in range(2)]
    links(tmp_path / "classes", names, blob)
    links(tmp_path / "table", names, blob)
    write_csv(
        tmp_path / "table" / "train.csv",
        [(name, name[6]) for name in names],
        "file,label",
    )
    for name in ("classes", "table"):
        [rows] = read(tmp_path / name, "train")
        assert list(rows.labels) == [*"aabb"]
    pointer = tmp_path / "classes" / "train" / "a" / "0.wav"
    pointer.unlink()
    pointer.write_bytes(POINTER)
    with pytest.raises(DataError, match="git lfs pull"):
        read(tmp_path / "classes", "train")


COLUMNS: dict[str, list[Any]] = {
    "text": [f"text {row}" for row in range(20)],
    "label": [0, 1] * 10,
}
IN_MEMORY: dict[str, tuple[Any, str]] = {
    "pandas": (pandas.DataFrame(COLUMNS), "a DataFrame of pandas"),
    "Arrow": (pyarrow.table(COLUMNS), "a Table of pyarrow"),
    "datasets": (datasets.Dataset.from_dict(COLUMNS), "a Dataset of datasets"),
    "splits of datasets": (
        datasets.DatasetDict(train=datasets.Dataset.from_dict(COLUMNS)),
        "a DatasetDict of datasets",
    ),
    "list of rows": (
        pandas.DataFrame(COLUMNS).to_dict("records"),
        "rows or columns in a list",
    ),
    "dictionary of columns": (COLUMNS, "rows or columns in a dict"),
}
"""Tables in memory, and what they are called."""


@pytest.mark.parametrize("library", IN_MEMORY)
def test_a_table_in_memory_is_answered_with_how_to_write_it(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, found = IN_MEMORY[library]
    with pytest.raises(ConfigError, match="no table") as caught:
        ExtractConfig(dataset=table)
    assert caught.value.details["found"] == found
    # what the message says to do gives a data set that can be read
    monkeypatch.chdir(tmp_path)
    hint = caught.value.details["to do"]
    if hasattr(table, "save_to_disk"):
        assert 'dataset.save_to_disk("rows")' in hint
        table.save_to_disk("rows")
        dataset = "rows"
    else:
        assert 'df.to_parquet("rows.parquet")' in hint
        assert ("DataFrame(rows)" in hint) == isinstance(table, list | dict)
        pandas.DataFrame(COLUMNS).to_parquet("rows.parquet")
        dataset = "rows.parquet"
    config = ExtractConfig(dataset=dataset, splits=("train",))
    assert list(find_source(dataset).read(config, "train").inputs) == COLUMNS["text"]
