"""Sounds and pictures through every source: what is heard and seen, and what is refused."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import soundfile
from PIL import Image

import gaam_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.errors import DataError
from gaam_cache.sources._base import Rows, find_source
from tests.cache.encoders.vision.models import FAMILIES
from tests.cache.sources import pictures

Files = dict[str, dict[str, bytes]]
KINDS = ("audio", "vision")
SOURCES = ("folder", "csv", "jsonl", "parquet", "parquet bytes", "parquet struct", "hub")
STORED = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])


def lay_out(root: Path, files: Files) -> None:
    for split, of_split in files.items():
        for name, content in of_split.items():
            path = root / split / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


def of_hub(records: list[dict[str, Any]], kind: str) -> Any:
    """A table of the datasets library with a feature that it would decode with torchcodec."""
    import datasets

    text = datasets.Value("string")
    feature = datasets.Image() if kind == "vision" else datasets.Audio()
    table = pyarrow.table(
        {
            "audio": pyarrow.array([record["file"] for record in records], STORED),
            "label": [record["label"] for record in records],
        }
    )
    info = datasets.DatasetInfo(features=datasets.Features({"audio": feature, "label": text}))
    return datasets.Dataset(datasets.table.InMemoryTable(table), info=info)


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Makes a data set of files for any source, by its name."""
    import datasets

    fetched = (Path("0" * 40), None)
    monkeypatch.setattr("gaam_cache.sources.hub.fetch", lambda *a, **k: fetched)

    def make(source: str, files: Files, kind: str = "audio") -> str:
        root = tmp_path / source
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir()
        if source == "folder":
            lay_out(root, files)
            return str(root)
        lay_out(root / "media", files)
        tables: dict[str, list[dict[str, Any]]] = {}
        for split, of_split in files.items():
            tables[split] = []
            for name, content in of_split.items():
                cell: Any = f"media/{split}/{name}"
                if source == "parquet bytes":
                    cell = content
                elif source in ("parquet struct", "hub"):
                    cell = {"bytes": content, "path": name}
                tables[split].append({"file": cell, "label": name.split("/")[0]})
        if source == "hub":
            loaded = {split: of_hub(records, kind) for split, records in tables.items()}
            monkeypatch.setattr(datasets, "load_dataset", lambda *a, split, **k: loaded[split])
            return "someone/sounds"
        for split, records in tables.items():
            path = root / f"{split}.{source.split()[0]}"
            if path.suffix == ".parquet":
                pyarrow.parquet.write_table(pyarrow.Table.from_pylist(records), path)
            elif path.suffix == ".jsonl":
                path.write_text("\n".join(map(json.dumps, records)))
            else:
                lines = [f"{record['file']},{record['label']}" for record in records]
                path.write_text("\n".join(["file,label", *lines]))
        return str(root)

    return make


def written(x_TC: np.ndarray, kind: str, code: str | None = None, rate: int = 16000) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, x_TC, rate, format=kind, subtype=code)
    return file.getvalue()


def noise(frames: int, channels: int = 1, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-0.5, 0.5, (frames, channels))


def files_of(kind: str) -> Files:
    """Of every class and split some, in several formats, with suffixes in any case."""
    made: Files = {}
    for split, count in (("train", 6), ("test", 4)):
        made[split] = {}
        for number in range(count):
            seed, folder = number + 10 * (split == "test"), "ab"[2 * number >= count]
            if kind == "audio":
                suffix = (".wav", ".FLAC", ".ogg")[number % 3]
                content = written(noise(8000 + 800 * number, 1, seed), suffix[1:].upper())
            else:
                suffix = (".png", ".BMP", ".gif")[number % 3]
                file = io.BytesIO()
                pictures.drawn("RGB", seed).save(file, suffix[1:].upper())
                content = file.getvalue()
            made[split][f"{folder}/{number}{suffix}"] = content
    return made


def read(dataset: str | Path, **options: Any) -> dict[str, Rows]:
    config = ExtractConfig(dataset=str(dataset), **options)
    source = find_source(config.dataset)
    return {split: source.read(config, split) for split in config.splits}


def read_one(path: Path, content: bytes) -> Any:
    """The only row of a folder with one file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    [item] = read(path.parents[2], splits=("train",))["train"].inputs
    return item


@pytest.mark.parametrize("kind", KINDS)
def test_every_source_gives_the_same_items(kind: str, make: Callable[..., str]) -> None:
    files = files_of(kind)
    contents = set()
    for source in SOURCES:
        rows = read(make(source, files, kind))
        for split, of_split in files.items():
            assert rows[split].kind == kind
            assert [item.content() for item in rows[split].inputs] == list(of_split.values())
            assert list(rows[split].labels) == [name[0] for name in of_split]
        contents.add(tuple(content for part in rows.values() for content in part.contents()))
    assert len(contents) == 1, "a fingerprint does not depend on where files were"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bad", ["empty", "no file of a kind", "the other kind", "cut"])
def test_files_that_cannot_be_used_are_refused_by_every_source(
    bad: str, kind: str, make: Callable[..., str]
) -> None:
    files = files_of(kind)
    first, second = list(files["train"])[:2]  # the second is FLAC, or BMP
    other = next(iter(files_of(KINDS[kind == "audio"])["train"].values()))
    whole = files["train"][second]
    content = {"empty": b"", "the other kind": other, "cut": whole[:60]}.get(bad, bad.encode())
    train = files["train"] | {second: content}
    for source in SOURCES:
        with pytest.raises(DataError) as caught:
            read(make(source, {**files, "train": train}, kind))
        assert first not in str(caught.value)


@pytest.mark.parametrize("channels", [1, 2])
def test_a_sound_is_the_mean_of_its_channels(channels: int, tmp_path: Path) -> None:
    formats = [("WAV", "PCM_16"), ("WAV", "FLOAT"), ("FLAC", "PCM_24"), ("OGG", "OPUS"),
               ("MP3", "MPEG_LAYER_III"), ("AIFF", "PCM_16"), ("AU", "ULAW")]  # fmt: skip
    for number, (kind, code) in enumerate(formats):
        content = written(noise(48000, channels), kind, code, 48000)
        sound = read_one(tmp_path / f"{number}/train/a/x.{kind.lower()}", content)
        expected, _ = soundfile.read(io.BytesIO(content), dtype="float64", always_2d=True)
        assert sound.rate == 48000
        np.testing.assert_array_equal(sound.samples(), expected.mean(1).astype(np.float32))


def test_pieces_of_sounds_are_rows_and_are_never_parted(make: Callable[..., str]) -> None:
    files = files_of("audio")
    place = make("folder", files)
    whole = read(place)["train"]
    rows = read(place, clip_seconds=0.2, clip_mode="split")["train"]
    clips = np.array(rows.kept["clip_of"][:])
    assert list(dict.fromkeys(clips)) == [f"train/{name}" for name in files["train"]]
    for clip, sound in zip(dict.fromkeys(clips), whole.inputs, strict=True):
        pieces = [rows.inputs[row].samples() for row in np.flatnonzero(clips == clip)]
        joined = np.concatenate(pieces)
        assert len(pieces) > 2
        assert len(sound.samples()) - len(joined) < 1600  # a tail of less than 0.1 s is no row
        np.testing.assert_array_equal(joined, sound.samples()[: len(joined)])
    cut = read(place, clip_seconds=0.2)["train"]
    assert [item.frames for item in cut.inputs] == [3200] * 6
    for split in ("train", "test"):
        (Path(place) / split).rename(Path(place) / f"only-{split}")
    halves = read(
        Path(place) / "only-train", test_fraction=0.4, clip_seconds=0.2, clip_mode="split"
    )
    assert not set(halves["train"].kept["clip_of"]) & set(halves["test"].kept["clip_of"])


def test_a_picture_is_what_is_seen_of_it(tmp_path: Path) -> None:
    for kind in pictures.KINDS:
        picture = read_one(tmp_path / kind.name / "train/a/x.png", pictures.saved(kind))
        found_HWC, expected_HWC = picture.pixels(), pictures.expected(kind.mode)
        assert found_HWC.shape == (picture.height, picture.width, 3) == expected_HWC.shape
        most = 0 if kind.exact else 60
        apart = np.abs(found_HWC.astype(int) - expected_HWC.astype(int)).max()
        assert apart <= most, kind.name


def test_pictures_are_turned_upright(tmp_path: Path) -> None:
    turns = {1: None, 2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM",
             5: "TRANSPOSE", 6: "ROTATE_270", 7: "TRANSVERSE", 8: "ROTATE_90"}  # fmt: skip
    drawn = pictures.drawn("RGB")
    for orientation, turn in turns.items():
        exif, file = Image.Exif(), io.BytesIO()
        exif[0x112] = orientation
        drawn.save(file, "PNG", exif=exif)
        picture = read_one(tmp_path / f"{orientation}/train/a/x.png", file.getvalue())
        upright = drawn.transpose(Image.Transpose[turn]) if turn else drawn
        np.testing.assert_array_equal(picture.pixels(), np.asarray(upright))


def test_what_nobody_can_tell_the_look_of_is_refused(tmp_path: Path) -> None:
    frames = [pictures.drawn("RGB", seed) for seed in range(2)]
    for picture, options in (
        (Image.fromarray(np.ones((4, 4), np.float32)), {}),
        (Image.fromarray(np.ones((4, 4), np.int32)), {}),
        (frames[0], {"save_all": True, "append_images": frames[1:]}),
    ):
        file = io.BytesIO()
        picture.save(file, "TIFF", **options)
        with pytest.raises(DataError):
            read_one(tmp_path / "d/train/a/x.tif", file.getvalue())


def test_files_outside_of_the_data_set_need_leave(tmp_path: Path) -> None:
    lay_out(tmp_path / "elsewhere", files_of("vision"))
    (tmp_path / "data").mkdir()
    there = min((tmp_path / "elsewhere").rglob("*.png"))
    relative = there.relative_to(tmp_path / "elsewhere")
    for named in (str(there), f"../elsewhere/{relative}"):
        (tmp_path / "data" / "train.csv").write_text(f"file,label\n{named},a\n")
        with pytest.raises(DataError, match="outside"):
            read(tmp_path / "data", splits=("train",))
        rows = read(tmp_path / "data", splits=("train",), allow_outside=True)["train"]
        assert rows.inputs[0].content() == there.read_bytes()


def test_what_is_no_row_of_a_folder_of_classes_is_refused(tmp_path: Path) -> None:
    for number, damage in enumerate(["a/readme.md", "loose.png", "empty/"]):
        root = tmp_path / str(number)
        lay_out(root, files_of("vision"))
        (root / "train" / "Thumbs.db").write_bytes(b"litter")
        (root / "train" / "a" / ".hidden").write_bytes(b"litter")
        assert len(read(root)["train"]) == 6
        path = root / "train" / damage
        path.mkdir() if damage.endswith("/") else path.write_bytes(b"x")
        with pytest.raises(DataError):
            read(root)


def test_a_file_that_was_changed_or_removed_since_is_refused(make: Callable[..., str]) -> None:
    changed, removed, *_ = read(make("folder", files_of("audio")))["train"].inputs
    changed.path.write_bytes(written(noise(9000, 1, 7), "WAV"))
    removed.path.unlink()
    for sound in (changed, removed):
        with pytest.raises(DataError, match="changed or removed"):
            sound.samples()


def test_caches_of_all_sources_are_one_and_can_be_verified(
    make: Callable[..., str], tmp_path: Path
) -> None:
    encoder = FAMILIES["vit"].save(tmp_path / "encoder")
    fingerprints, files = set(), files_of("vision")
    for number, source in enumerate(SOURCES):
        config = ExtractConfig(
            encoder=str(encoder),
            dataset=make(source, files, "vision"),
            out=tmp_path / f"cache-{number}",
            shard_rows=4,
        )
        summary = gaam_cache.extract(config)
        assert summary.rows == {"train": 6, "test": 4}
        fingerprints.add(summary.fingerprint)
        assert gaam_cache.verify(config.out, recompute_rows=4).good, source
    assert len(fingerprints) == 1
    several = replace(config, out=tmp_path / "several", devices="2", device="cpu")
    assert gaam_cache.extract(several).shards_made == 3
