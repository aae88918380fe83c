"""Sounds and pictures through every source: what is heard and seen, and what is refused."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from PIL import Image

import gaam_cache
from gaam_cache.config import ExtractConfig
from gaam_cache.errors import DataError
from gaam_cache.sources._base import Rows, find_source
from tests.cache.encoders.audio import sounds
from tests.cache.encoders.vision.models import FAMILIES
from tests.cache.sources import pictures
from tests.cache.sources.data_sets import SOURCES, lay_out

Files = dict[str, dict[str, bytes]]
KINDS = ("audio", "vision")
FEATURES = {"audio": "audio", "vision": "image"}


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


@pytest.mark.parametrize("kind", KINDS)
def test_every_source_gives_the_same_items(kind: str, make: Callable[..., str]) -> None:
    files = files_of(kind)
    contents = set()
    for source in SOURCES:
        rows = read(make(source, files, FEATURES[kind]))
        for split, of_split in files.items():
            assert rows[split].kind == kind
            assert [item.blob.read() for item in rows[split].inputs] == list(of_split.values())
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
            read(make(source, {**files, "train": train}, FEATURES[kind]))
        assert first not in str(caught.value)


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize(
    ("kind", "code"),
    [("WAV", "PCM_16"), ("WAV", "PCM_24"), ("WAV", "FLOAT"), ("FLAC", "PCM_24"), ("OGG", "VORBIS"),
     ("OGG", "OPUS"), ("MP3", "MPEG_LAYER_III"), ("AIFF", "PCM_16"), ("AU", "ULAW"),
     ("CAF", "PCM_16")],
)  # fmt: skip
def test_a_sound_is_the_mean_of_its_channels(
    kind: str, code: str, channels: int, tmp_path: Path
) -> None:
    content = written(noise(48000, channels), kind, code, 48000)
    lay_out(tmp_path, {"train": {f"a/x.{kind.lower()}": content}})
    (sound,) = read(tmp_path, splits=("train",))["train"].inputs
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


@pytest.mark.parametrize("kind", pictures.KINDS, ids=lambda kind: kind.name)
def test_a_picture_is_what_is_seen_of_it(kind: pictures.Kind, tmp_path: Path) -> None:
    lay_out(tmp_path, {"train": {f"a/x.{kind.format.lower()}": pictures.saved(kind)}})
    (tmp_path / "train/a").joinpath(f"x.{kind.format.lower()}").rename(tmp_path / "train/a/x.png")
    (picture,) = read(tmp_path, splits=("train",))["train"].inputs
    found_HWC, expected_HWC = picture.pixels(), pictures.expected(kind.mode)
    assert found_HWC.shape == (picture.height, picture.width, 3) == expected_HWC.shape
    most = 0 if kind.exact else 60
    assert np.abs(found_HWC.astype(int) - expected_HWC.astype(int)).max() <= most


@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_are_turned_upright(orientation: int, tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x112] = orientation
    lay_out(tmp_path, {"train": {"a/x.png": b"", "a/y.png": b""}})
    drawn = pictures.drawn("RGB")
    drawn.save(tmp_path / "train/a/x.png", exif=exif)
    turn = {2: "FLIP_LEFT_RIGHT", 3: "ROTATE_180", 4: "FLIP_TOP_BOTTOM", 5: "TRANSPOSE",
            6: "ROTATE_270", 7: "TRANSVERSE", 8: "ROTATE_90"}.get(orientation)  # fmt: skip
    upright = drawn.transpose(Image.Transpose[turn]) if turn else drawn
    upright.save(tmp_path / "train/a/y.png")
    turned, expected = read(tmp_path, splits=("train",))["train"].inputs
    np.testing.assert_array_equal(turned.pixels(), expected.pixels())


def test_what_nobody_can_tell_the_look_of_is_refused(tmp_path: Path) -> None:
    lay_out(tmp_path, {"train": {"a/x.tif": b""}})
    path = tmp_path / "train/a/x.tif"
    frames = [pictures.drawn("RGB", seed) for seed in range(2)]
    for save in (
        lambda: Image.fromarray(np.ones((4, 4), np.float32)).save(path),
        lambda: Image.fromarray(np.ones((4, 4), np.int32)).save(path),
        lambda: frames[0].save(path, save_all=True, append_images=frames[1:]),
    ):
        save()
        with pytest.raises(DataError):
            read(tmp_path, splits=("train",))


def test_files_outside_of_the_data_set_need_leave(tmp_path: Path) -> None:
    lay_out(tmp_path / "elsewhere", files_of("vision"))
    (tmp_path / "data").mkdir()
    there = sorted((tmp_path / "elsewhere").rglob("*.png"))
    for named in (
        str(there[0]),
        "../elsewhere/" + str(there[0].relative_to(tmp_path / "elsewhere")),
    ):
        (tmp_path / "data" / "train.csv").write_text(f"file,label\n{named},a\n")
        with pytest.raises(DataError, match="outside"):
            read(tmp_path / "data", splits=("train",))
        rows = read(tmp_path / "data", splits=("train",), allow_outside=True)["train"]
        assert rows.inputs[0].blob.read() == there[0].read_bytes()


@pytest.mark.parametrize("damage", ["a/readme.md", "loose.png", "empty/"])
def test_what_is_no_row_of_a_folder_of_classes_is_refused(damage: str, tmp_path: Path) -> None:
    lay_out(tmp_path, files_of("vision"))
    (tmp_path / "train" / "Thumbs.db").write_bytes(b"litter")
    (tmp_path / "train" / "a" / ".hidden").write_bytes(b"litter")
    assert len(read(tmp_path)["train"]) == 6
    path = tmp_path / "train" / damage
    path.mkdir() if damage.endswith("/") else path.write_bytes(b"x")
    with pytest.raises(DataError):
        read(tmp_path)


def test_a_file_that_was_changed_since_is_refused(make: Callable[..., str]) -> None:
    place = make("folder", files_of("audio"))
    sound = read(place)["train"].inputs[0]
    sound.blob.path.write_bytes(written(noise(9000, 1, 7), "WAV"))
    with pytest.raises(DataError, match="changed"):
        sound.samples()


@pytest.fixture(scope="module")
def encoders_of(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A tiny encoder of every kind."""
    root = tmp_path_factory.mktemp("encoders")
    name = next(iter(FAMILIES))
    sound = next(iter(sounds.CONFIGS))
    return {
        "audio": sounds.save(sound, root / "sound"),
        "vision": FAMILIES[name].save(root / name),
    }


@pytest.mark.parametrize("kind", [pytest.param("audio", marks=pytest.mark.slow), "vision"])
def test_caches_of_all_sources_are_one_and_can_be_verified(
    kind: str, make: Callable[..., str], encoders_of: dict[str, Path], tmp_path: Path
) -> None:
    fingerprints, files = set(), files_of(kind)
    for number, source in enumerate(SOURCES):
        config = ExtractConfig(
            encoder=str(encoders_of[kind]),
            dataset=make(source, files, FEATURES[kind]),
            out=tmp_path / f"cache-{number}",
            shard_rows=4,
            storage_dtype="float32",
        )
        summary = gaam_cache.extract(config)
        assert summary.rows == {"train": 6, "test": 4}
        fingerprints.add(summary.fingerprint)
        checked = gaam_cache.verify(config.out, recompute_rows=4)
        assert checked.good, source
        assert gaam_cache.extract(config).shards_made == 0
    assert len(fingerprints) == 1


@pytest.mark.slow
@pytest.mark.parametrize("source", ["folder", "parquet struct"])
def test_workers_make_the_bytes_of_one_process(
    source: str, make: Callable[..., str], encoders_of: dict[str, Path], tmp_path: Path
) -> None:
    config = ExtractConfig(
        encoder=str(encoders_of["vision"]),
        dataset=make(source, files_of("vision"), "image"),
        out=tmp_path / "alone",
        shard_rows=2,
        storage_dtype="float32",
        device="cpu",
    )
    gaam_cache.extract(config)
    several = replace(config, out=tmp_path / "several", devices="2")
    assert gaam_cache.extract(several).shards_made == 5
    names = sorted(path.name for path in (config.out / "shards").iterdir())
    assert names == sorted(path.name for path in (several.out / "shards").iterdir())
