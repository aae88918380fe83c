"""Sounds and pictures through every source: what is heard and seen, and what is refused."""

from __future__ import annotations

import io
import json
import re
import shutil
import struct
import warnings
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest
import soundfile
from PIL import Image
from PIL.TiffImagePlugin import ImageFileDirectory_v2

from gaam_cache.common.errors import DataError, GaamWarning, NotFoundError
from gaam_cache.config import ExtractConfig
from gaam_cache.sources import Rows, find_source

Files = dict[str, dict[str, bytes]]
KINDS = ("audio", "vision")
SOURCES = ("folder", "csv", "jsonl", "parquet", "parquet bytes", "hub")
STORED = pyarrow.struct([("bytes", pyarrow.binary()), ("path", pyarrow.string())])


def lay_out(root: Path, files: Files) -> None:
    for split, of_split in files.items():
        for name, content in of_split.items():
            path = root / split / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Makes a data set of files for any source, by its name."""
    import datasets

    fetched = (Path("0" * 40), None)
    monkeypatch.setattr("gaam_cache.sources.hub.fetch", lambda *a, **k: fetched)

    def make(source: str, files: Files, kind: str = "audio") -> str:
        root = tmp_path / source
        shutil.rmtree(root, ignore_errors=True)
        lay_out(root if source == "folder" else root / "media", files)
        tables: dict[str, pyarrow.Table] = {}
        for split, of_split in files.items():
            cells: Any = [f"media/{split}/{name}" for name in of_split]
            if source in ("parquet bytes", "hub"):
                held = [
                    {"bytes": content, "path": name}
                    for name, content in of_split.items()
                ]
                cells = pyarrow.array(held, STORED)
            labels = [name.split("/")[0] for name in of_split]
            tables[split] = pyarrow.table({"audio": cells, "label": labels})
        if (
            source == "hub"
        ):  # with a feature that the library would decode with torchcodec
            feature = datasets.Image() if kind == "vision" else datasets.Audio()
            features = datasets.Features(
                {"audio": feature, "label": datasets.Value("string")}
            )
            info = datasets.DatasetInfo(features=features)
            held_in = datasets.table.InMemoryTable
            loaded = {
                s: datasets.Dataset(held_in(one), info=info)
                for s, one in tables.items()
            }
            monkeypatch.setattr(
                datasets, "load_dataset", lambda *a, split, **k: loaded[split]
            )
            return "someone/sounds"
        for split, table in tables.items():
            if source.startswith("parquet"):
                pyarrow.parquet.write_table(table, root / f"{split}.parquet")
            elif source == "jsonl":
                lines = map(json.dumps, table.to_pylist())
                (root / f"{split}.jsonl").write_text("\n".join(lines))
            elif source == "csv":
                pyarrow.csv.write_csv(table, root / f"{split}.csv")
        return str(root)

    return make


def sound(
    frames: int, kind: str = "WAV", *, channels: int = 1, seed: int = 0, **how: Any
) -> bytes:
    file, x_TC = (
        io.BytesIO(),
        np.random.default_rng(seed).uniform(-0.5, 0.5, (frames, channels)),
    )
    soundfile.write(file, x_TC, how.pop("rate", 16000), format=kind, **how)
    return file.getvalue()


def drawn(mode: str = "RGBA", seed: int = 0) -> Image.Image:
    """A picture of 13 x 9 pixels of noise over a slope, so that lossy formats keep its shape."""
    slope = np.linspace(0, 200, 13)[None, :, None] + np.zeros((9, 1, 4))
    noise = np.random.default_rng(seed).integers(0, 40, (9, 13, 4))
    array = (slope + noise).astype(np.uint8)
    if mode == "I;16":
        return Image.fromarray((array[..., 0].astype(np.uint16) << 8) + array[..., 1])
    if mode == "P":
        return Image.fromarray(array[..., :3]).quantize(16)
    if mode == "LA":
        return Image.merge("LA", [Image.fromarray(array[..., i]) for i in (0, 3)])
    if mode in ("1", "L"):
        return Image.fromarray(array[..., 0]).convert(mode)
    return Image.fromarray(np.ascontiguousarray(array[..., : len(mode)]), mode)


def saved(picture: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    file = io.BytesIO()
    picture.save(file, kind, **options)
    return file.getvalue()


def files_of(kind: str) -> Files:
    """Of every class and split some, in several formats, with suffixes in any case."""
    made: Files = {}
    for split, count in (("train", 6), ("test", 4)):
        made[split] = {}
        for number in range(count):
            seed, folder = number + 10 * (split == "test"), "ab"[2 * number >= count]
            suffix = {"audio": ("wav", "FLAC", "ogg"), "vision": ("png", "BMP", "gif")}[
                kind
            ]
            to = suffix[number % 3]
            made[split][f"{folder}/{number}.{to}"] = (
                sound(8000 + 800 * number, to.upper(), seed=seed)
                if kind == "audio"
                else saved(drawn("RGB", seed), to.upper())
            )
    return made


def read(dataset: str | Path, **options: Any) -> dict[str, Rows]:
    config = ExtractConfig(dataset=str(dataset), **options)
    source = find_source(config.dataset)
    return {split: source.read(config, split) for split in config.splits}


def read_one(root: Path, content: bytes) -> Any:
    """The only row of a folder with one file; its name says nothing."""
    lay_out(root, {"train": {"a/x.png": content}})
    [item] = read(root, splits=("train",))["train"].inputs
    return item


@pytest.mark.parametrize("kind", KINDS)
def test_every_source_gives_the_same_items(kind: str, make: Callable[..., str]) -> None:
    files = files_of(kind)
    contents = set()
    for source in SOURCES:
        rows = read(make(source, files, kind))
        for split, of_split in files.items():
            assert rows[split].kind == kind
            assert [item.content() for item in rows[split].inputs] == list(
                of_split.values()
            )
            assert list(rows[split].labels) == [name[0] for name in of_split]
        contents.add(
            tuple(content for part in rows.values() for content in part.contents())
        )
    assert len(contents) == 1, "a fingerprint does not depend on where files were"


@pytest.mark.parametrize("kind", KINDS)
def test_files_that_cannot_be_used_are_refused_by_every_source(
    kind: str, make: Callable[..., str]
) -> None:
    files = files_of(kind)
    first, second = list(files["train"])[:2]  # the second is FLAC, or BMP
    other = next(iter(files_of(KINDS[kind == "audio"])["train"].values()))
    for source in SOURCES:
        for bad in (b"", b"no file of a kind", other, files["train"][second][:60]):
            with pytest.raises(DataError) as caught:
                read(
                    make(
                        source, {**files, "train": files["train"] | {second: bad}}, kind
                    )
                )
            assert first not in str(caught.value)


def test_a_sound_is_the_mean_of_its_channels(tmp_path: Path) -> None:
    formats = {"WAV": "PCM_16", "FLAC": "PCM_24", "OGG": "OPUS", "MP3": "MPEG_LAYER_III",
               "AIFF": "PCM_16", "AU": "ULAW"}  # fmt: skip
    for kind, subtype in formats.items():
        for channels in (1, 2):
            content = sound(48000, kind, channels=channels, subtype=subtype, rate=48000)
            item = read_one(tmp_path / f"{kind}{channels}", content)
            expected, _ = soundfile.read(
                io.BytesIO(content), dtype="float64", always_2d=True
            )
            assert item.rate == 48000
            np.testing.assert_array_equal(
                item.samples(), expected.mean(1).astype(np.float32)
            )


FORMATS = [
    ("WAV", "PCM_16"),
    ("WAV", "FLOAT"),
    ("WAV", "ULAW"),
    ("WAV", "IMA_ADPCM"),
    ("WAVEX", "PCM_24"),
    ("RF64", "PCM_16"),
    ("AIFF", "PCM_16"),
    ("AU", "PCM_16"),
    ("CAF", "PCM_16"),
    ("OGG", "VORBIS"),
    ("OGG", "OPUS"),
    ("MP3", "MPEG_LAYER_III"),
    ("FLAC", "PCM_16"),
]
DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "whole": lambda content: content,
    "more bytes behind it": lambda content: content + bytes(7),
    "cut to a third": lambda content: content[: len(content) // 3],
    "cut by 1,000 bytes": lambda content: content[:-1000],
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize(("kind", "subtype"), FORMATS, ids=lambda value: value)
def test_a_sound_that_was_cut_is_refused(
    kind: str, subtype: str, damage: str, tmp_path: Path
) -> None:
    content = sound(32000, kind, subtype=subtype)
    damaged = DAMAGE[damage](content)
    if damage.startswith("cut"):
        with pytest.raises(DataError, match=r"sound (cannot be read|is cut)"):
            read_one(tmp_path, damaged)
        return
    # ADPCM fills its last block
    assert 32000 <= len(read_one(tmp_path, damaged).samples()) < 33000


@pytest.mark.parametrize(
    ("damaged", "found"),
    [
        (sound(32000, "OGG")[:-2], "last page was cut"),
        (sound(32000, "OGG") + sound(32000, "OGG"), "2 OGG streams"),
        (sound(32000, "MP3")[:-2], "of 32,000 samples"),
    ],
    ids=["the last page", "two streams", "the last frame"],
)
def test_a_compressed_sound_that_lacks_a_part_is_refused(
    damaged: bytes, found: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=found):
        read_one(tmp_path, damaged)


@pytest.mark.parametrize("mode", ["CONSTANT", "VARIABLE"])
@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("rate", [8000, 16000, 22050, 44100, 48000])
def test_mp3_files_that_were_joined_are_refused(
    rate: int, channels: int, mode: str, tmp_path: Path
) -> None:
    first, second = (
        sound(32000, "MP3", channels=channels, seed=seed, rate=rate, bitrate_mode=mode)
        for seed in range(2)
    )
    assert len(read_one(tmp_path / "first", first).samples()) == 32000
    tag = b"ID3\4\0\0\0\0\0\12" + bytes(10)
    for number, content in enumerate([first + second, tag + first + tag + second]):
        with pytest.raises(DataError, match="2 MP3 streams"):
            read_one(tmp_path / str(number), content)


def test_an_ogg_stream_that_lost_a_page_is_refused(tmp_path: Path) -> None:
    content = sound(160_000, "OGG")
    middle = len(content) // 2
    damaged = content[:middle] + bytes(2000) + content[middle + 2000 :]
    with pytest.raises(DataError, match="samples"):
        read_one(tmp_path, damaged)


@pytest.mark.parametrize("size", [0xFFFFFFFF, 0x7FFFFFFF, 0x7FFFF000], ids=hex)
def test_a_wav_file_from_a_pipe_is_whole(size: int, tmp_path: Path) -> None:
    """Its writer did not know the number of bytes."""
    content = bytearray(sound(8000))
    content[40:44] = size.to_bytes(4, "little")
    content[4:8] = min(size + 36, 0xFFFFFFFF).to_bytes(4, "little")
    assert len(read_one(tmp_path, bytes(content)).samples()) == 8000


def test_pieces_of_sounds_are_rows_and_are_never_parted(
    make: Callable[..., str],
) -> None:
    files = files_of("audio")
    place = make("folder", files)
    whole = read(place)["train"]
    rows = read(place, clip_seconds=0.2, clip_mode="split")["train"]
    clips = np.array(rows.kept_columns["clip_of"][:])
    assert list(dict.fromkeys(clips)) == [f"train/{name}" for name in files["train"]]
    for clip, item in zip(dict.fromkeys(clips), whole.inputs, strict=True):
        pieces = [
            rows.inputs[row].samples() for row in np.flatnonzero(clips == clip).tolist()
        ]
        joined = np.concatenate(pieces)
        assert len(pieces) > 2
        assert (
            len(item.samples()) - len(joined) < 1600
        )  # a tail of less than 0.1 s is no row
        np.testing.assert_array_equal(joined, item.samples()[: len(joined)])
    cut = read(place, clip_seconds=0.2)["train"]
    assert [item.frames for item in cut.inputs] == [3200] * 6
    shutil.rmtree(Path(place) / "test")
    halves = read(place, test_fraction=0.4, clip_seconds=0.2, clip_mode="split")
    assert not set(halves["train"].kept_columns["clip_of"]) & set(
        halves["test"].kept_columns["clip_of"]
    )


def seen(picture: Image.Image) -> np.ndarray:
    """By brute force, without Pillow's conversion where there is one."""
    array = np.asarray(picture)
    if picture.mode == "P":
        return np.array(picture.getpalette(), np.uint8).reshape(-1, 3)[array]
    if picture.mode == "CMYK":
        light = 255 - array[..., 3:].astype(int)
        return np.clip(
            light - (array[..., :3] * light * 2 + 255) // 510, 0, 255
        ).astype(np.uint8)
    if picture.mode.startswith("I;16"):
        array = array // 256
    array = array.astype(int) * (255 if picture.mode == "1" else 1)
    array = array[..., None] if array.ndim == 2 else array
    if picture.mode in ("LA", "RGBA"):  # on white
        alpha = array[..., -1:]
        array = (array[..., :-1] * alpha + 255 * (255 - alpha) + 127) // 255
    return np.broadcast_to(array, (*array.shape[:2], 3)).astype(np.uint8)


EXACT = {
    "PNG": ("1", "L", "LA", "P", "RGB", "RGBA", "I;16"), "GIF": ("P",), "BMP": ("RGB",),
    "TIFF": ("RGBA", "CMYK", "I;16"), "PPM": ("RGB",), "WEBP": ("RGBA",),
}  # fmt: skip


def test_a_picture_is_what_is_seen_of_it(tmp_path: Path) -> None:
    for kind, modes in {**EXACT, "JPEG": ("L", "RGB", "CMYK")}.items():
        for mode in modes:
            how = {"lossless": True, "exact": True} if kind == "WEBP" else {}
            picture = drawn(mode)
            found = read_one(
                tmp_path / kind / mode.strip(";"), saved(picture, kind, **how)
            ).pixels()
            apart = np.abs(found.astype(int) - seen(picture).astype(int)).max()
            assert apart <= (60 if kind == "JPEG" else 0), (kind, mode)
    for orientation, turn in {3: "ROTATE_180", 5: "TRANSPOSE", 6: "ROTATE_270"}.items():
        exif, picture = Image.Exif(), drawn("RGB")
        exif[0x112] = orientation
        item = read_one(tmp_path / turn, saved(picture, exif=exif))
        upright = picture.transpose(Image.Transpose[turn])
        np.testing.assert_array_equal(item.pixels(), np.asarray(upright))


def test_what_nobody_can_tell_the_look_of_is_refused(tmp_path: Path) -> None:
    pages: dict[str, Any] = {"save_all": True, "append_images": [drawn("RGB", 1)]}
    for picture, options in (
        (Image.fromarray(np.ones((4, 4), np.float32)), {}),
        (Image.fromarray(np.ones((4, 4), np.int32)), {}),
        (drawn("RGB"), pages),
        # Pillow does not invert 16 bits of which 0 is white
        (grey(0, 65535, 1), {"tiffinfo": {262: 0}}),
    ):
        with pytest.raises(DataError):
            read_one(tmp_path / "d", saved(picture, "TIFF", **options))


def tiff(planes: np.ndarray, **tags: int) -> bytes:
    """A TIFF of separate planes without compression, which Pillow does not write."""
    num_planes, height, width = planes.shape
    directory = ImageFileDirectory_v2()
    directory[256] = width
    directory[257] = directory[278] = height
    directory[258] = (8 * planes.itemsize,) * num_planes
    directory[262] = tags.get("photometry", 1 if num_planes == 1 else 2)
    directory[266] = tags.get("fill_order", 1)
    directory[273] = tuple(range(0, planes.nbytes, planes[0].nbytes))
    directory[277] = num_planes
    directory[279] = (planes[0].nbytes,) * num_planes
    directory[284] = tags.get("layout", 2)
    directory[339] = (tags.get("sample_format", 1),) * num_planes
    return b"II*\0" + struct.pack("<I", 8) + directory.tobytes(8) + planes.tobytes()


PLANES = np.random.default_rng(0).integers(0, 256, (3, 9, 13)).astype(np.uint8)


@pytest.mark.parametrize("num_planes", [1, 3])
def test_a_picture_in_separate_planes_is_read(num_planes: int, tmp_path: Path) -> None:
    planes = PLANES[:num_planes]
    pixels = read_one(tmp_path, tiff(planes)).pixels()
    expected = np.broadcast_to(planes.transpose(1, 2, 0), pixels.shape)
    np.testing.assert_array_equal(pixels, expected)


MISREAD = {
    "16 bits of RGB in planes": (PLANES.astype("<u2") * 257, {}),
    "16 bits of CMYK in planes": (
        PLANES[[0, 1, 2, 0]].astype("<u2") * 257,
        {"photometry": 5},
    ),
    "a plane of which 0 is white": (PLANES[:1], {"photometry": 0}),
    "planes of YCbCr": (PLANES, {"photometry": 6}),
    "a plane with the lowest bit first": (PLANES[:1], {"fill_order": 2}),
    "8 bits with a sign": (PLANES[:1], {"sample_format": 2, "layout": 1}),
}


@pytest.mark.parametrize("name", MISREAD)
def test_a_tiff_that_pillow_misreads_is_refused(name: str, tmp_path: Path) -> None:
    planes, tags = MISREAD[name]
    with pytest.raises(DataError, match="cannot be decoded") as caught:
        read_one(tmp_path, tiff(planes, **tags))
    assert re.search("planes of|a sign", caught.value.details["found"])


BYTES_OF_PPM = bytes(range(80, 80 + 36))
"""They begin with the letter P, as another picture would."""
PPM = {
    "P1": b"P1 # Pixels\n4 3\n" + b"0 1 1 0\n" * 3,
    "P2": b"P2 4 3 255\n" + b"80 1 2 3\n" * 3,
    "P3": b"P3 4 3 255\n# P3 4 3 255\n" + b"80 1 2 " * 12,
    "P4": b"P4 12 3\n" + BYTES_OF_PPM[:6],
    "P5": b"P5 4 3 255\n" + BYTES_OF_PPM[:12],
    "P5 of 7 bits": b"P5 4 3 127\n" + BYTES_OF_PPM[:12],
    "P6": b"P6 4 3 255\n" + BYTES_OF_PPM,
    "P6 of 7 bits": b"P6 4 3 127\n" + BYTES_OF_PPM,
    "P6 of 16 bits": b"P6 4 3 65535\n" + BYTES_OF_PPM * 2,
}


@pytest.mark.parametrize("name", PPM)
def test_a_file_of_several_pictures_of_ppm_is_refused(
    name: str, tmp_path: Path
) -> None:
    content = PPM[name]
    for number, end in enumerate([b"", b"\n", b"\n# no picture"]):
        pixels = read_one(tmp_path / str(number), content + end).pixels()
        assert len(pixels) == 3
    for number, between in enumerate([b"", b"\n"]):
        with pytest.raises(DataError, match="cannot be decoded") as caught:
            read_one(tmp_path / f"two {number}", content + between + content)
        assert "several pictures" in caught.value.details["found"]


def test_a_piece_of_a_file_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "a.wav").write_bytes(sound(8000))
    cells = [{"path": "a.wav", "offset": 0.1}, {"path": "a.wav", "array": [0.0, 0.1]}]
    for cell in cells:
        record = {"audio": cell, "label": "a"}
        (tmp_path / "train.jsonl").write_text(json.dumps(record))
        with pytest.raises(DataError, match="more than a file"):
            read(str(tmp_path / "train.jsonl"), splits=("train",))


@pytest.mark.parametrize("names", [("cat/1.png", "dog/2.png"), ("1.png", "cat/2.png")])
def test_splits_are_no_classes(names: tuple[str, str], tmp_path: Path) -> None:
    """The test pictures of a competition have no classes."""
    files = {
        "train": dict.fromkeys(names, saved(drawn())),
        "test": {"3.png": saved(drawn(seed=1))},
    }
    lay_out(tmp_path, files)
    with pytest.raises(NotFoundError, match="names of splits"):
        read(str(tmp_path), test_fraction=0.5)


def test_files_outside_of_the_data_set_need_leave(tmp_path: Path) -> None:
    lay_out(tmp_path / "elsewhere", files_of("vision"))
    (tmp_path / "data").mkdir()
    there = min((tmp_path / "elsewhere").rglob("*.png"))
    for named in (
        str(there),
        f"../elsewhere/{there.relative_to(tmp_path / 'elsewhere')}",
    ):
        (tmp_path / "data" / "train.csv").write_text(f"file,label\n{named},a\n")
        with pytest.raises(DataError, match="allow-outside"):
            read(tmp_path / "data", splits=("train",))
        rows = read(tmp_path / "data", splits=("train",), allow_outside=True)["train"]
        assert rows.inputs[0].content() == there.read_bytes()


def test_what_is_no_row_of_a_folder_of_classes_is_refused(tmp_path: Path) -> None:
    for number, damage in enumerate(["a/readme.md", "loose.png"]):
        root = tmp_path / str(number)
        lay_out(root, files_of("vision"))
        (root / "train" / "Thumbs.db").write_bytes(b"litter")
        (root / "train" / "a" / ".hidden").write_bytes(b"litter")
        (root / "train" / "a" / "deeper").mkdir()
        assert len(read(root)["train"]) == 6
        (root / "train" / damage).write_bytes(b"x")
        with pytest.raises(DataError):
            read(root)


def test_a_file_that_was_changed_or_removed_since_is_refused(
    make: Callable[..., str],
) -> None:
    changed, removed, *_ = read(make("folder", files_of("audio")))["train"].inputs
    changed.path.write_bytes(sound(9000, seed=7))
    removed.path.unlink()
    for item in (changed, removed):
        with pytest.raises(DataError, match=item.path.name):
            item.samples()


def grey(low: int, high: int, seed: int) -> Image.Image:
    values = np.random.default_rng(seed).integers(low, high, (9, 13), endpoint=True)
    values.flat[:2] = low, high
    return Image.fromarray(values.astype(np.uint16))


def png(lines: np.ndarray, depth: int, colours: int, transparent: bytes = b"") -> bytes:
    """A PNG of 13 x 9 pixels of kinds that Pillow reads and does not write.

    Args:
        lines: the bytes of every line.
        depth: bits of a value.
        colours: 0 for grey, 2 for RGB.
        transparent: the transparent colour, 16 bits a value; empty for none.
    """
    content = b"".join(b"\0" + line.tobytes() for line in lines)
    head = struct.pack(">IIBBBBB", 13, 9, depth, colours, 0, 0, 0)
    chunks = [(b"IHDR", head), (b"IDAT", zlib.compress(content)), (b"IEND", b"")]
    if transparent:
        chunks.insert(1, (b"tRNS", transparent))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data))
        + name
        + data
        + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )


def colour(high: int, seed: int, transparent: bytes = b"") -> bytes:
    """A PNG of 16 bits a colour."""
    values = np.random.default_rng(seed).integers(0, high, (9, 13, 3), endpoint=True)
    return png(values.astype(">u2"), 16, 2, transparent)


@pytest.mark.parametrize("transparent", [0, 1, 2, 3, 9, 15])
@pytest.mark.parametrize("depth", [1, 2, 4, 8])
def test_a_transparent_grey_is_white_or_refused(
    depth: int, transparent: int, tmp_path: Path
) -> None:
    values = np.random.default_rng(0).integers(0, 2**depth, (9, 13))
    values.flat[0] = transparent % 2**depth
    bits = np.unpackbits(values.astype(np.uint8)[..., None], axis=2)[..., -depth:]
    lines = np.packbits(bits.reshape(9, -1), axis=1)
    content = png(lines, depth, 0, struct.pack(">H", transparent % 2**depth))
    white = 2**depth - 1
    if depth in (2, 4) and 0 < transparent % 2**depth < white:
        with pytest.raises(DataError, match="cannot be decoded") as caught:
            read_one(tmp_path, content)
        assert "transparent grey" in caught.value.details["found"]
        return
    expected = values * 255 // white
    expected[values == transparent % 2**depth] = 255
    pixels = read_one(tmp_path, content).pixels()
    np.testing.assert_array_equal(pixels[..., 0], expected)


@pytest.mark.parametrize("values", [(0, 0, 0), (1000, 40_000, 2000)])
def test_a_transparent_colour_of_16_bits_is_refused(
    values: tuple[int, ...], tmp_path: Path
) -> None:
    content = colour(65535, 0, struct.pack(">HHH", *values))
    with pytest.raises(DataError, match="cannot be decoded") as caught:
        read_one(tmp_path, content)
    assert "transparent colour of 16 bits" in caught.value.details["found"]


def doubts_of(root: Path, pictures: list[bytes], **options: Any) -> list[str]:
    """What is said of a split of these pictures."""
    files = {f"a/{number}.png": content for number, content in enumerate(pictures)}
    lay_out(root, {"train": files})
    return list(read(root, splits=("train",), **options)["train"].doubts())


DARK: dict[str, tuple[list[bytes], dict[str, Any], str | None]] = {
    "12 bits": ([saved(grey(0, 4095, n)) for n in range(3)], {}, "grey-bits=12"),
    "14 bits": ([saved(grey(0, 16383, n)) for n in range(3)], {}, "grey-bits=14"),
    "an offset": ([saved(grey(32000, 33000, n)) for n in range(3)], {}, "8 bits"),
    "12 bits of colours": ([colour(4095, n) for n in range(3)], {}, "8 bits"),
    "the same, called grey": (
        [colour(4095, n) for n in range(3)],
        {"grey_bits": 12},
        "8 bits",
    ),
    "12 bits, as said": (
        [saved(grey(0, 4095, n)) for n in range(3)],
        {"grey_bits": 12},
        None,
    ),
    "dark, as said": (
        [saved(grey(0, 4095, n)) for n in range(3)],
        {"grey_bits": 16},
        None,
    ),
    "one bright picture": (
        [saved(grey(0, 4095, 0)), saved(grey(0, 65535, 1))],
        {},
        None,
    ),
    "colours": ([colour(65535, n) for n in range(3)], {}, None),
    "usual": ([saved(drawn("RGB", n)) for n in range(3)], {}, None),
}
"""Pictures, settings, and the remedy that a refusal names."""


@pytest.mark.parametrize("case", DARK)
def test_pictures_of_few_levels_are_refused_with_what_to_do(
    case: str, tmp_path: Path
) -> None:
    pictures, options, remedy = DARK[case]
    if remedy is None:
        assert doubts_of(tmp_path, pictures, **options) == []
    else:
        with pytest.raises(DataError) as caught:
            doubts_of(tmp_path, pictures, **options)
        assert remedy in caught.value.details["to do"]


def test_grey_bits_keep_the_levels_of_12_bits_and_are_part_of_the_content(
    tmp_path: Path,
) -> None:
    lay_out(tmp_path, {"train": {"a/x.png": saved(grey(0, 4095, 0))}})
    by_bits = {
        bits: read(tmp_path, splits=("train",), grey_bits=bits)["train"].inputs[0]
        for bits in (None, 12, 16)
    }
    values = np.asarray(Image.open(tmp_path / "train/a/x.png"))
    np.testing.assert_array_equal(by_bits[12].pixels()[..., 0], values // 16)
    np.testing.assert_array_equal(by_bits[16].pixels()[..., 0], values // 256)
    assert by_bits[None].identity == by_bits[16].identity != by_bits[12].identity
    with pytest.raises(DataError, match="grey-bits"):
        read(tmp_path, splits=("train",), grey_bits=10)


def test_pictures_and_sounds_that_say_nothing_are_counted(tmp_path: Path) -> None:
    classes = [Image.fromarray(np.arange(117, dtype=np.uint8).reshape(9, 13) % 9)] * 3
    [line] = doubts_of(tmp_path / "classes", [saved(one) for one in classes])
    assert "0 to 8 of 255" in line
    unseen = drawn("RGBA")
    unseen.putalpha(0)
    [line] = doubts_of(tmp_path / "unseen", [saved(unseen), saved(drawn("RGB"))])
    assert line.startswith("1 of 2 pictures")
    silence = io.BytesIO()
    soundfile.write(silence, np.zeros(9000), 8000, format="WAV")
    [line] = doubts_of(tmp_path / "silent", [silence.getvalue(), sound(9000)])
    assert line.startswith("1 of 2 sounds")


def test_channels_that_cancel_each_other_are_refused(tmp_path: Path) -> None:
    x_T = np.random.default_rng(0).uniform(-0.5, 0.5, 9000)
    for number, (share, good) in enumerate(
        ((-1.0, False), (-0.9, False), (-0.5, True), (1, True))
    ):
        file = io.BytesIO()
        soundfile.write(file, np.stack([x_T, share * x_T], 1), 8000, format="WAV")
        if good:
            assert read_one(tmp_path / str(number), file.getvalue()).samples().any()
            continue
        with pytest.raises(DataError, match="cancel each other") as caught:
            read_one(tmp_path / str(number), file.getvalue())
        assert "one channel" in caught.value.details["to do"]


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize("subtype", ["FLOAT", "DOUBLE"])
@pytest.mark.parametrize("kind", ["WAV", "AIFF", "CAF"])
@pytest.mark.parametrize(
    ("size", "message"),
    [
        (1.0, None),
        (15.0, None),
        (2.0**15, "too large for fractions"),
        (1e300, "empty or damaged"),
    ],
    ids=["scaled", "exceeding 1 a little", "16-bit numbers", "beyond float32"],
)
def test_a_sound_of_numbers_without_scaling_is_refused(
    size: float,
    message: str | None,
    kind: str,
    subtype: str,
    channels: int,
    tmp_path: Path,
) -> None:
    x_TC = size * np.random.default_rng(0).uniform(-0.5, 0.5, (8000, channels))
    file = io.BytesIO()
    with np.errstate(over="ignore"):  # 1e300 is infinite in float32
        soundfile.write(file, x_TC, 16000, format=kind, subtype=subtype)
    if message is None:
        assert len(read_one(tmp_path, file.getvalue()).samples()) == 8000
        return
    with pytest.raises(DataError, match=message):
        read_one(tmp_path, file.getvalue())


def test_our_warnings_survive_threads_that_decode_pictures(tmp_path: Path) -> None:
    files = {f"a/{number}.png": saved(drawn("RGB", number)) for number in range(60)}
    lay_out(tmp_path, {"train": files})
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", GaamWarning)
        read(tmp_path, splits=("train",))
        warnings.warn("still heard", GaamWarning, stacklevel=1)
    assert [str(one.message) for one in caught] == ["still heard"]
