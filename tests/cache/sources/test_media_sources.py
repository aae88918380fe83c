"""Every source of files: folders of classes, tables that name files, tables that hold them."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

import gaam_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.errors import CacheError, ConfigError, DataError, GaamError, NotFoundError
from gaam_cache.extraction import workers
from gaam_cache.extraction.job import read_rows
from gaam_cache.sources._base import NO_LABEL, Rows, find_source
from gaam_cache.sources._handed_over import hand_over, take_over
from gaam_cache.sources.folder_of_classes import FolderOfClasses
from gaam_cache.sources.hub import HubSource
from tests.cache.sources.data_sets import FILES, SOURCES, STORED, of_hub, write_table

pytestmark = pytest.mark.usefixtures("fake_media")


def config_of(dataset: str, **options: Any) -> ExtractConfig:
    return ExtractConfig(dataset=dataset, **options)


def read(dataset: str, **options: Any) -> dict[str, Rows]:
    config = config_of(dataset, **options)
    source = find_source(config.dataset)
    return {split: source.read(config, split) for split in config.splits}


def content_of(rows: Rows) -> list[bytes]:
    return [item.blob.read() for item in rows.inputs]


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_gives_the_same_rows(source: str, make: Callable[..., str]) -> None:
    rows = read(make(source))
    for split, files in FILES.items():
        part = rows[split]
        assert part.kind == "tone"
        assert content_of(part) == list(files.values())
        assert list(part.labels) == [name.split("/")[0] for name in files]
        assert [item.samples() for item in part.inputs[:2]] == [c[4:] for c in files.values()][:2]
        assert part.inputs[-1].blob.read() == list(files.values())[-1]
        assert list(part.contents()) == [item.identity for item in part.inputs]
        for row, name in enumerate(files):
            assert ("row" if source == "hub" or " " in source else name) in part.excerpt(row)


@pytest.mark.parametrize("source", SOURCES)
def test_every_kind_is_told_by_content_whatever_a_file_is_called(
    source: str, make: Callable[..., str]
) -> None:
    files = {s: {n: b"BLOT" + c for n, c in of.items()} for s, of in FILES.items()}
    rows = read(make(source, files))
    assert {part.kind for part in rows.values()} == {"blot"}
    with pytest.raises(ConfigError, match="clip-seconds plays no part"):
        read(make(source, files), clip_seconds=1.0)


@pytest.mark.parametrize("source", SOURCES)
def test_all_bad_files_are_counted_and_three_are_shown(
    source: str, make: Callable[..., str]
) -> None:
    bad = {"damaged": b"TONE\xff", "empty": b"", "no kind": b"JUNK", "other": b"BLOTx"}
    said = {
        "damaged": "a tone is damaged",
        "empty": "a file is empty",
        "no kind": "a file is of no kind",
        "other": "a row is of another kind",
    }
    for name, content in bad.items():
        train = {"a/0.tone": b"TONEx", "a/1.tone": content, "a/2.tone": b"TONEy"}
        with pytest.raises(DataError) as caught:
            read(make(source, FILES | {"train": train}))
        assert caught.value.message.startswith(said[name])
        assert "2" in caught.value.details["where"] or "1.tone" in caught.value.details["where"]
    train = {f"a/{n}.tone": b"TONE" + (b"\xff" if n % 2 else b"x") for n in range(9)}
    with pytest.raises(DataError, match="4 of 9 rows cannot be used: a tone is damaged") as caught:
        read(make(source, FILES | {"train": train}))
    assert caught.value.details["found"].endswith("and 1 more")
    if source in ("folder", "csv"):
        assert "3.tone" in caught.value.details["found"]
    # of another kind than the other split
    with pytest.raises(DataError, match=r"another kind(.|\n)*tone(.|\n)*blot"):
        read(make(source, FILES | {"test": {"cat/1.tone": b"BLOT"}}))


@pytest.mark.parametrize("source", SOURCES)
def test_pieces_of_a_sound_are_rows_that_know_what_they_are_of(
    source: str, make: Callable[..., str]
) -> None:
    train = {"cat/long.tone": b"TONE" + bytes(range(25)), "dog/short.tone": b"TONEabc"}
    files = {"train": train, "test": {"cat/t.tone": b"TONEz"}}
    rows = read(make(source, files), clip_seconds=1.0, clip_mode="split")["train"]
    assert [len(item.samples()) for item in rows.inputs] == [10, 10, 5, 3]
    assert list(rows.labels) == ["cat", "cat", "cat", "dog"]
    clips = list(rows.kept["clip_of"])
    assert clips[0] == clips[1] == clips[2] != clips[3]
    assert len(set(rows.contents())) == 4
    assert list(rows.units()) == [0, 0, 0, 1]
    cut = read(make(source, files), clip_seconds=1.0)["train"]
    assert [len(item.samples()) for item in cut.inputs] == [10, 3]
    assert "clip_of" not in cut.kept
    limited = read(make(source, files), clip_seconds=1.0, clip_mode="split", limit=2)["train"]
    assert len(limited) == len(limited.labels) == len(limited.kept["clip_of"]) == 2


@pytest.mark.parametrize("source", SOURCES)
def test_kept_columns_of_every_source(source: str, make: Callable[..., str]) -> None:
    place = make(source)
    if source == "folder":
        rows = read(place, keep_columns=("file",))
        for split, files in FILES.items():
            assert list(rows[split].kept["file"]) == [f"{split}/{name}" for name in files]
        with pytest.raises(ConfigError, match=r"no column 'who'(.|\n)*'file'"):
            read(place, keep_columns=("who",))
        return
    rows = read(place, keep_columns=("who",))
    assert list(rows["train"].kept["who"]) == [name[-6] for name in FILES["train"]]
    if source in ("csv", "jsonl", "parquet"):
        kept = read(place, keep_columns=("file",))["test"].kept["file"]
        assert list(kept) == [f"media/test/{name}" for name in FILES["test"]]
    elif source != "hub":
        with pytest.raises(DataError, match=r"cannot be (kept|a kept column)"):
            read(place, keep_columns=("file",))


@pytest.mark.parametrize("source", SOURCES)
def test_splits_without_labels(source: str, make: Callable[..., str], tmp_path: Path) -> None:
    rows = read(make(source), unlabelled=("test",))["test"]
    assert list(rows.labels) == [NO_LABEL] * 2
    assert not rows.labelled
    if source == "folder":
        (tmp_path / "folder/test/loose.tone").write_bytes(b"TONEl")
        names = ["cat/2.tone", "dog/deep/er/b.TONE", "loose.tone"]
        rows = read(str(tmp_path / "folder"), unlabelled=("test",), keep_columns=("file",))["test"]
        assert list(rows.kept["file"]) == [f"test/{name}" for name in names]


@pytest.mark.parametrize("source", SOURCES)
def test_rows_are_handed_over_where_others_can_read_them(
    source: str, make: Callable[..., str], tmp_path: Path
) -> None:
    config = config_of(make(source), clip_seconds=0.2, clip_mode="split", out=tmp_path / "out")
    checked = read_rows(config)
    config.out.mkdir()
    own = source in ("folder", "csv", "jsonl", "parquet")
    assert hand_over(checked, config.out, "k" * 32) == own
    found = take_over(config.out, "k" * 32)
    assert (found is not None) == own
    if found is not None:
        for split, part in checked.rows.items():
            other = found.rows[split]
            assert type(other) is type(part)
            assert list(other.contents()) == list(part.contents())
            assert content_of(other) == content_of(part)
            assert list(other.kept["clip_of"]) == list(part.kept["clip_of"])
            assert [item.samples() for item in other.inputs] == [
                item.samples() for item in part.inputs
            ]


def test_a_state_is_that_of_all_files(make: Callable[..., str], tmp_path: Path) -> None:
    for source in ("folder", "csv", "jsonl", "parquet"):
        place = make(source)
        config = ExtractConfig(dataset=place)
        keys = [workers._key(config)]
        assert workers._key(config) == keys[0]
        path = next(Path(place).rglob("2.tone"))
        os.utime(path, ns=(0, 10**18))
        keys.append(workers._key(config))
        path.write_bytes(b"TONEqq")
        keys.append(workers._key(config))
        assert None not in keys
        assert len(set(keys)) == 3, source
        if source == "folder":
            (path.parent / "3.tone").write_bytes(b"TONE3")
            assert workers._key(config) not in keys
    for source in ("parquet struct", "parquet bytes"):
        config = config_of(make(source))
        assert workers._key(config) is None


def test_what_is_changed_later_is_seen(make: Callable[..., str]) -> None:
    for source in ("folder", "csv"):
        place = make(source)
        rows = read(place)["test"]
        path = next(Path(place).rglob("2.tone"))
        path.write_bytes(b"TONEr")
        with pytest.raises(DataError, match=r"was changed(.|\n)*2\.tone"):
            rows.inputs[0].samples()
        path.unlink()
        with pytest.raises(DataError, match=r"cannot be read(.|\n)*2\.tone"):
            rows.inputs[0].samples()


def test_a_single_table_or_folder_is_divided_and_no_sound_is_in_both(
    make: Callable[..., str],
) -> None:
    train = {f"{'ab'[n % 2]}/{n:02}.tone": b"TONE" + bytes([n] * (10 + n)) for n in range(20)}
    for source in ("folder", "csv", "parquet struct"):
        place = make(source, {"train": train})
        config = config_of(
            place, test_fraction=0.3, clip_seconds=0.5, clip_mode="split", limit=None
        )
        checked = read_rows(config)
        clips = [set(checked.rows[split].kept["clip_of"]) for split in ("train", "test")]
        assert not clips[0] & clips[1]
        assert (len(clips[0]), len(clips[1])) == (14, 6)
        whole = [item.samples() for part in checked.rows.values() for item in part.inputs]
        assert sum(map(len, whole)) == sum(len(c) - 4 for c in train.values())
        for part in checked.rows.values():
            assert len(part) == len(part.labels) == len(part.kept["clip_of"])
    # the folders of classes themselves
    root = Path(make("folder", {"train": train})) / "train"
    again = read_rows(config_of(str(root), test_fraction=0.3, clip_seconds=0.5, clip_mode="split"))
    assert len(set(again.rows["test"].kept["clip_of"])) == 6
    with pytest.raises(NotFoundError, match="--test-fraction"):
        read(str(root))
    with pytest.raises(ConfigError, match=r"single one(.|\n)*test, train"):
        read(make("folder"), test_fraction=0.5)


def test_what_does_not_belong_into_a_folder_of_classes(
    make: Callable[..., str],
) -> None:
    bad = {
        "cat/notes.txt": "no sound or picture by its name",
        "cat/README": "no sound or picture by its name",
        "loose.tone": "in no folder of a class",
        "metadata.csv": "in no folder of a class",
    }
    for name, message in bad.items():
        place = Path(make("folder"))
        (place / "train" / name).write_bytes(b"TONEx")
        with pytest.raises(DataError, match=message) as caught:
            read(str(place))
        assert f"train/{name}" in caught.value.details["where"]
    place = Path(make("folder"))
    (place / "train" / "empty").mkdir()
    with pytest.raises(DataError, match=r"class is empty(.|\n)*train/empty/"):
        read(str(place))
    place = Path(make("folder"))
    litter = ["Thumbs.db", "desktop.ini", ".DS_Store", "._1.tone", ".hidden.tone", "THUMBS.DB"]
    for folder, name in product(("train", "train/cat", "test/dog/deep"), litter):
        (place / folder / name).write_bytes(b"JUNK")
    for name in ("__MACOSX", ".git", "@eaDir"):
        (place / "train" / name).mkdir()
        (place / "train" / name / "x.tone").write_bytes(b"JUNK")
    assert [len(part) for part in read(str(place)).values()] == [3, 2]


def test_rows_of_folders_are_sorted_by_bytes(make: Callable[..., str]) -> None:
    names = ["a/é.tone", "a/z.tone", "a/Z.tone", "a/b/1.tone", "a/b-1.tone", "a/b.tone"]
    names += ["a/10.tone", "a/9.tone", "B/1.tone", "b/1.tone", "ä/1.tone", "a b/1.tone"]
    files = {name: b"TONEx" + name.encode() for name in names}
    place = make("folder", {"train": files, "test": files})
    rows = read(place, keep_columns=("file",))["train"]
    key = lambda name: (name.split("/")[0].encode(), name.encode())  # noqa: E731
    assert list(rows.kept["file"]) == [f"train/{name}" for name in sorted(names, key=key)]


def test_class_folders_that_cannot_be_names_are_refused(make: Callable[..., str]) -> None:
    for name, message in ((b" ", "label is missing"), (b"caf\xe9", "half a character")):
        place = Path(make("folder"))
        folder = place / "train" / os.fsdecode(name)
        folder.mkdir()
        (folder / "x.tone").write_bytes(b"TONEx")
        with pytest.raises(DataError, match=message):
            read(str(place))
    place = Path(make("folder"))
    (place / "train/cat").rename(place / "train/ cat")
    (place / "test/cat").rename(place / "test/cat ")
    assert read(str(place), strip_labels=True)["train"].labels[0] == "cat"
    # a file may be called in any way
    odd = os.fsencode(place / "train/dog") + b"/caf\xe9.tone"
    Path(os.fsdecode(odd)).write_bytes(b"TONEx")
    rows = read(str(place))["train"]
    assert content_of(rows)[-1] == b"TONEx"
    with pytest.raises(DataError, match="half a character"):
        read(str(place), keep_columns=("file",))


OUTSIDE = ("absolute", "up", "up and down", "link", "link of a folder")
NOWHERE: dict[str, str] = {
    "missing.tone": "a file cannot be read",
    "media": "a path is that of no file",
    ".": "a path is that of no file",
    "media/train/cat/1.tone/x": "a file cannot be read",
    "x" * 300: "a file cannot be read",
    "https://host/1.tone": "its address on a network",
    "s3://bucket/1.tone": "its address on a network",
    "file:///etc/hosts": "its address on a network",
    "data:audio/wav;base64,AA": "its address on a network",
    "C:\\clips\\1.tone": "none of this machine",
    "C:/clips/1.tone": "none of this machine",
    "\\\\server\\clips\\1.tone": "none of this machine",
    "media\\train\\cat\\1.tone": "a file cannot be read",
    "pipe.tone": "a path is that of no file",
    "loop.tone": "a file cannot be read",
    "dangling.tone": "a file cannot be read",
    "": "no file is named",
    " ": "no file is named",
    "nul\0.tone": "none of this machine",
    "half\ud83d.tone": "half a character",
}


def test_paths_that_are_no_files_of_the_data_set(make: Callable[..., str], tmp_path: Path) -> None:
    place = Path(make("jsonl"))
    os.mkfifo(place / "pipe.tone")
    (place / "loop.tone").symlink_to("loop.tone")
    (place / "dangling.tone").symlink_to("nowhere")
    good = {"file": "media/train/cat/1.tone", "label": "a"}
    for named, message in NOWHERE.items():
        for outside in (False, True):
            write_table(place / "train.jsonl", [good, good | {"file": named}, good])
            with pytest.raises(DataError, match=message) as caught:
                read(str(place), allow_outside=outside)
            assert f"{place}/train.jsonl, line 2" in caught.value.details["where"]
    for cell in (1, 0.5, True, ["x"], {"path": None}):
        write_table(place / "train.jsonl", [good, good | {"file": cell}])
        with pytest.raises(DataError, match="no file"):
            read(str(place))
    write_table(place / "train.jsonl", [good, good | {"file": None}, good | {"file": " "}, good])
    with pytest.raises(DataError, match="2 of 4 rows cannot be used: no file is named"):
        read(str(place))
    rows = read(str(place), skip_empty=True)["train"]
    assert (len(rows), list(rows.skipped)) == (2, ["line 2", "line 3"])


def test_files_outside_are_taken_only_where_that_is_allowed(
    make: Callable[..., str], tmp_path: Path
) -> None:
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    (outside / "o.tone").write_bytes(b"TONEo")
    for source in ("csv", "jsonl", "parquet", "parquet struct"):
        place = Path(make(source))
        (place / "link.tone").symlink_to(outside / "o.tone")
        (place / "folder").symlink_to(outside)
        (place / "inside.tone").symlink_to(place / "media/train/cat/1.tone")
        named = {
            "absolute": str(outside / "o.tone"),
            "up": "../elsewhere/o.tone",
            "up and down": f"media/../../{outside.name}/o.tone",
            "link": "link.tone",
            "link of a folder": "folder/o.tone",
        }
        assert tuple(named) == OUTSIDE
        cells: Callable[[str], Any] = lambda p: p  # noqa: E731
        schema = None
        if source == "parquet struct":
            cells = lambda p: {"bytes": None, "path": p}  # noqa: E731
            struct = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])
            schema = pyarrow.schema([("file", struct), ("label", pyarrow.string())])
        for path in named.values():
            records = [{"file": cells(path), "label": "a"}]
            write_table(place / f"train.{source.split()[0]}", records, schema)
            with pytest.raises(DataError, match=r"lies outside(.|\n)*allow-outside"):
                read(str(place))
            assert content_of(read(str(place), allow_outside=True)["train"]) == [b"TONEo"]
        for path in ("inside.tone", "media/../media/train/cat/1.tone", "./inside.tone"):
            records = [{"file": cells(path), "label": "a"}]
            write_table(place / f"train.{source.split()[0]}", records, schema)
            assert content_of(read(str(place))["train"]) == [b"TONEabc"]
        inside = str(place / "media/train/cat/1.tone")
        records = [{"file": cells(inside), "label": "a"}]
        write_table(place / f"train.{source.split()[0]}", records, schema)
        assert content_of(read(str(place))["train"]) == [b"TONEabc"], "absolute, and in the folder"


def test_links_in_folders_of_classes(make: Callable[..., str], tmp_path: Path) -> None:
    outside = tmp_path / "elsewhere"
    outside.mkdir()
    (outside / "o.tone").write_bytes(b"TONEo")
    for link, target in (("cat/l.tone", "o.tone"), ("cat/sub", "."), ("bird", ".")):
        place = Path(make("folder"))
        (place / "train" / link).symlink_to(outside / target)
        with pytest.raises(DataError, match=r"outside(.|\n)*allow-outside"):
            read(str(place))
        assert b"TONEo" in content_of(read(str(place), allow_outside=True)["train"])
    place = Path(make("folder"))
    (place / "train/cat/l.tone").symlink_to(place / "train/dog/a.tone")
    (place / "train/bird").symlink_to(place / "train/dog")
    assert len(read(str(place))["train"]) == 5
    (place / "train/cat/self").symlink_to(place / "train/cat")
    with pytest.raises(DataError, match=r"leads back(.|\n)*train/cat/self"):
        read(str(place))


def test_a_file_that_nobody_may_read_is_refused(
    make: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = make("csv")
    open_ = Path.open

    def refuse(self: Path, *arguments: Any, **options: Any) -> Any:
        if self.name == "10.tone":
            raise PermissionError(13, "Permission denied")
        return open_(self, *arguments, **options)

    monkeypatch.setattr(Path, "open", refuse)
    with pytest.raises(DataError, match=r"cannot be read(.|\n)*Permission denied(.|\n)*line 3"):
        read(place)


def test_which_column_is_taken(make: Callable[..., str], tmp_path: Path) -> None:
    place = Path(make("csv"))
    (place / "train.csv").write_text("label,text,file\na,goal,media/train/cat/1.tone\n")
    (place / "test.csv").write_text("label,text,file\na,goal,media/train/cat/1.tone\n")
    assert read(str(place))["train"].kind == "text"
    assert read(str(place), file_column="file")["train"].kind == "tone"
    for name in ("file", "audio", "image", "img"):
        for split in ("train", "test"):
            (place / f"{split}.csv").write_text(f"label,{name}\na,media/train/cat/1.tone\n")
        assert read(str(place))["train"].kind == "tone"
        assert read(str(place), text_columns=(name,))["train"].kind == "text"
    with pytest.raises(ConfigError, match=r"no column 'path'(.|\n)*--file-column"):
        read(str(place), file_column="path")
    with pytest.raises(ConfigError, match="allow-outside plays no part"):
        read(str(place), text_columns=("img",), allow_outside=True)


UNUSED = {
    "folder": [
        "text_columns",
        "label_column",
        "file_column",
        "delimiter",
        "encoding",
        "skip_empty",
    ],
    "hub": ["delimiter", "encoding", "allow_outside"],
}


@pytest.mark.parametrize("source", UNUSED)
def test_settings_that_play_no_part_are_refused(source: str, make: Callable[..., str]) -> None:
    values: dict[str, Any] = {
        "text_columns": ("t",),
        "label_column": "y",
        "file_column": "f",
        "delimiter": ";",
        "encoding": "ascii",
        "skip_empty": True,
        "allow_outside": True,
    }
    place = make(source)
    for name in UNUSED[source]:
        with pytest.raises(ConfigError, match=r"--[a-z-]+ plays no part here"):
            read(place, **{name: values[name]})


def test_only_folders_with_files_of_a_kind_are_claimed(tmp_path: Path) -> None:
    assert not FolderOfClasses.claims(str(tmp_path / "absent"))
    assert not FolderOfClasses.claims(str(tmp_path))
    (tmp_path / "train" / "cat").mkdir(parents=True)
    assert not FolderOfClasses.claims(str(tmp_path))
    (tmp_path / "train" / "cat" / "x.txt").write_text("x")
    assert not FolderOfClasses.claims(str(tmp_path))
    (tmp_path / "train" / "cat" / "x.BLT").write_text("x")
    assert FolderOfClasses.claims(str(tmp_path))
    (tmp_path / "train.csv").write_text("label,text\n")
    assert not FolderOfClasses.claims(str(tmp_path))


def test_a_hub_data_set_names_its_feature(
    make: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import datasets

    place = make("hub")
    path = tmp_path / "local.tone"
    path.write_bytes(b"TONElocal")
    cell = {"bytes": None, "path": str(path)}
    for name in ("audio", "image", "img", "file", "anything"):
        records = [{"file": cell, "label": number, "who": "x"} for number in (0, 1)]
        data = of_hub(name, records, ["World", "Arts"])
        monkeypatch.setattr(datasets, "load_dataset", lambda *a, data=data, **k: data)
        rows = read(place, splits=("train",))["train"]
        assert content_of(rows) == [b"TONElocal"] * 2
        assert list(rows.labels) == ["World", "Arts"]
        assert rows.class_names == ("World", "Arts")
        assert rows.packed_inputs() is not None, "all are files"
        # what is not asked for is not decoded
        assert read(place, splits=("train",), text_columns=("who",))["train"].inputs == ["x"] * 2
        with pytest.raises(ConfigError, match=f"holds no sounds(.|\n)*{name}"):
            read(place, splits=("train",), file_column="who")


def test_a_data_set_of_the_library_is_read_by_the_library_and_decoded_by_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library's own loader on files that say which feature they have, as on the hub."""
    monkeypatch.setattr("gaam_cache.sources.hub.resolve_revision", lambda *a, **k: None)
    for name in ("audio", "image"):
        for split, files in FILES.items():
            records = [
                {"file": {"bytes": content, "path": None}, "label": path[:3], "who": path}
                for path, content in files.items()
            ]
            (tmp_path / name).mkdir(exist_ok=True)
            of_hub(name, records).to_parquet(tmp_path / name / f"{split}.parquet")
        config = ExtractConfig(dataset=str(tmp_path / name), keep_columns=("who",))
        source = HubSource()
        for split, files in FILES.items():
            rows = source.read(config, split)
            assert content_of(rows) == list(files.values())
            assert list(rows.kept["who"]) == list(files)
            assert rows.packed_inputs() is None
        # and the same files without the library
        rows = find_source(config.dataset).read(config, "train")
        assert content_of(rows) == list(FILES["train"].values())


@pytest.mark.parametrize("source", SOURCES)
def test_a_cache_of_files_is_made_checked_and_resumed(
    source: str, make: Callable[..., str], tmp_path: Path
) -> None:
    config = ExtractConfig(
        encoder="loudness",
        dataset=make(source),
        out=tmp_path / "cache",
        clip_seconds=0.2,
        clip_mode="split",
        shard_rows=2,
        strip_labels=True,
    )
    summary = gaam_cache.extract(config)
    assert summary.rows == {"train": 4, "test": 3}
    cache = gaam_cache.open_cache(config.out)
    assert cache.class_names == ("cat", "dog")
    found = cache["train"].embeddings[:, 0, 0]
    expected = [sum(piece) / len(piece) / 255 for piece in (b"ab", b"c", b"x", b"de")]
    assert [float(value) for value in found] == pytest.approx(expected, abs=1e-3)
    assert gaam_cache.extract(config).shards_made == 0
    checked = gaam_cache.verify(config.out, recompute_rows=5)
    assert checked.good
    assert checked.recomputed is not None
    assert checked.recomputed.rows == 5
    make(source, FILES | {"test": {"cat/2.tone": b"TONEr", "dog/b.tone": b"TONEfgh"}})
    with pytest.raises(CacheError, match="no longer what the cache was made from"):
        gaam_cache.verify(config.out, recompute_rows=5)
    with pytest.raises(GaamError, match="another"):
        gaam_cache.extract(config)


def test_what_a_table_holds_lies_on_disk(tmp_path: Path) -> None:
    import tracemalloc

    rows = 1500
    content = [b"TONE" + bytes([number % 250]) * 20_000 for number in range(rows)]
    records = [{"file": {"bytes": c, "path": None}, "label": "a"} for c in content]
    table = pyarrow.Table.from_pylist(
        records, pyarrow.schema([("file", STORED), ("label", pyarrow.string())])
    )
    pyarrow.parquet.write_table(table, tmp_path / "train.parquet", row_group_size=100)
    del records, table
    tracemalloc.start()
    found = read(str(tmp_path), splits=("train",))["train"]
    assert sum(1 for _ in found.contents()) == rows
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.2 * 20_000 * rows
    assert content_of(found) == content
