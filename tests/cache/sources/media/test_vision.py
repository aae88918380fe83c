"""Every kind of picture is decoded right, or refused with the reason."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageFile

from gaam_cache.config import ExtractConfig
from gaam_cache.errors import DataError
from gaam_cache.sources.media._flaws import flaws_of
from gaam_cache.sources.media._picture.decoding import decode
from gaam_cache.sources.media._picture.structure import MOST_PIXELS
from gaam_cache.sources.media.vision import Vision
from tests.cache.sources.media.pictures import (
    HEIGHT,
    KINDS,
    WIDTH,
    Bytes,
    Kind,
    drawn,
    expected,
    saved,
)

CONFIG = ExtractConfig()
ROOT = Path(__file__).parents[4]


def decoded(content: bytes, where: str) -> np.ndarray:
    with flaws_of(where):
        return decode(content)


def pixels(content: bytes) -> np.ndarray:
    """As an encoder gets them: looked at first."""
    blob = Bytes(content)
    assert Vision.claims(content[:64])
    [facts] = Vision.look(blob, CONFIG)
    picture = Vision.item(blob, facts)
    found = picture.pixels()  # type: ignore[attr-defined]
    assert found.shape == (facts["height"], facts["width"], 3)
    assert found.dtype == np.uint8
    return found


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_format_and_mode_is_what_was_saved(kind: Kind) -> None:
    found, must = (
        pixels(saved(kind)),
        expected("RGB" if kind.format == "BMP" and kind.mode == "RGBA" else kind.mode),
    )
    assert found.shape == (HEIGHT, WIDTH, 3)
    apart = np.abs(found.astype(int) - must.astype(int))
    if kind.exact:
        assert apart.max() <= (1 if kind.mode == "CMYK" else 0)
    else:
        assert apart.mean() < (24 if kind.mode == "CMYK" else 16)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_file_that_ends_early_has_the_same_pixels_or_none(kind: Kind) -> None:
    """At every length: what may be missing is at most what says nothing of them."""
    content = saved(kind)
    whole = pixels(content)
    same = 0
    for length in range(len(content)):
        try:
            found = decoded(content[:length], "a.file")
        except DataError:
            continue
        np.testing.assert_array_equal(found, whole, err_msg=f"{length} of {len(content)}")
        same += 1
    assert same <= 64, f"{same} of {len(content)} lengths are not refused"


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_a_changed_byte_is_refused_or_makes_a_picture_of_that_size(kind: Kind) -> None:
    """Only PNG has checksums: there every change is refused, or of no consequence."""
    content = saved(kind)
    whole = pixels(content)
    rng = np.random.default_rng(0)
    verdicts: Counter[str] = Counter()
    for at in range(len(content)):
        changed = bytearray(content)
        changed[at] ^= int(rng.integers(1, 256))
        try:
            found = decoded(bytes(changed), "a.file")
        except DataError:
            verdicts["refused"] += 1
            continue
        same = found.shape == whole.shape and bool((found == whole).all())
        verdicts["same" if same else "other"] += 1
        assert found.ndim == 3
        assert found.shape[2] == 3
    if kind.format == "PNG":
        assert not verdicts["other"], verdicts


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_orientation_of_a_camera_is_applied(orientation: int) -> None:
    picture = drawn("RGB")
    exif = picture.getexif()
    exif[0x0112] = orientation
    file = io.BytesIO()
    picture.save(file, "PNG", exif=exif)
    array = np.asarray(picture)
    # what is stored -> what is seen, from the table of the standard
    seen = {
        1: array, 2: array[:, ::-1], 3: array[::-1, ::-1], 4: array[::-1],
        5: array.transpose(1, 0, 2), 6: np.rot90(array, -1),
        7: np.rot90(array, 2).transpose(1, 0, 2), 8: np.rot90(array),
    }[orientation]  # fmt: skip
    np.testing.assert_array_equal(pixels(file.getvalue()), seen)


def test_every_grey_of_sixteen_bits_is_its_upper_half() -> None:
    values = np.arange(0, 65536, 7, dtype=np.uint16)[None]
    for name in ("PNG", "TIFF", "PPM"):
        found = pixels(saved(Kind(name, "I;16"), Image.fromarray(values)))
        np.testing.assert_array_equal(found[..., 0], values >> 8)
    tags = {256: 2, 257: 1, 258: 16, 259: 1, 262: 1, 273: 110, 277: 1, 279: 4}
    fields = b"".join(struct.pack(">HHIHH", tag, 3, 1, value, 0) for tag, value in tags.items())
    big_endian = b"MM\0*" + struct.pack(">IH", 8, len(tags)) + fields + bytes(4)
    found = pixels(big_endian + struct.pack(">HH", 0x1234, 0xFF01))
    assert found[0, :, 0].tolist() == [0x12, 0xFF]


@pytest.mark.parametrize("size", [(1, 1), (1, 300), (300, 1), (2, 1)])
@pytest.mark.parametrize("name", ["PNG", "JPEG", "GIF", "WEBP", "BMP", "TIFF", "PPM"])
def test_the_smallest_pictures(name: str, size: tuple[int, int]) -> None:
    mode = "P" if name == "GIF" else "RGB"
    found = pixels(saved(Kind(name, mode), drawn(mode, size=size)))
    assert found.shape == (size[1], size[0], 3)


def several(name: str, count: int = 2) -> bytes:
    file = io.BytesIO()
    frames = [drawn("RGB", seed) for seed in range(count)]
    frames[0].save(file, name, save_all=True, append_images=frames[1:])
    return file.getvalue()


@pytest.mark.parametrize("name", ["GIF", "WEBP", "PNG", "TIFF"])
def test_what_moves_or_has_pages_is_refused(name: str) -> None:
    with pytest.raises(DataError, match=r"several pictures(.|\n)*one(.|\n)*2") as caught:
        decoded(several(name), "x.gif")
    assert caught.value.details["where"] == "x.gif"
    assert pixels(several(name, 1)).shape == (HEIGHT, WIDTH, 3)


def test_the_main_picture_of_a_phone_is_taken() -> None:
    content = several("MPO")
    np.testing.assert_array_equal(pixels(content), pixels(saved(Kind("JPEG", "RGB"))))


@pytest.mark.parametrize("mode", ["I", "F", "LAB"])
def test_pixels_that_are_no_shades_are_refused(mode: str) -> None:
    picture = Image.new(mode, (3, 3))
    with pytest.raises(DataError, match="nobody can say what they look like"):
        decoded(saved(Kind("TIFF", mode), picture), "a.tif")


NO_PICTURES = {
    "empty": b"",
    "text": b"hello, world " * 9,
    "BM as text": b"BMW is a maker of cars, and this is a text",
    "wav": b"RIFF\x24\0\0\0WAVEfmt " + bytes(99),
    "postscript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n",
    "svg": b"<svg xmlns='http://www.w3.org/2000/svg'/>",
    "pdf": b"%PDF-1.7\n",
    "mp3": b"\xff\xfb\x90\x64" + bytes(400),
    "head of png": b"\x89PNG\r\n\x1a\n",
    "head of jpeg": b"\xff\xd8\xff",
    "head of gif": b"GIF89a",
    "P6 alone": b"P6\n",
    "PPM of no size": b"P6 0 0 255\n",
    "PPM of a negative size": b"P6 -1 9 255\n",
    "zeros": bytes(1000),
}


@pytest.mark.parametrize("name", NO_PICTURES)
def test_what_is_no_picture_is_refused(name: str) -> None:
    with pytest.raises(DataError) as caught:
        decoded(NO_PICTURES[name], "a.png")
    assert caught.value.details["where"] == "a.png"
    assert caught.value.details["found"]


def png(width: int, height: int, *chunks: tuple[bytes, bytes], rows: bytes = b"") -> bytes:
    def chunk(name: bytes, content: bytes) -> bytes:
        crc = zlib.crc32(name + content)
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", crc)

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [(b"IHDR", head), *chunks, (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def zeros(megabytes: int) -> bytes:
    return zlib.compress(bytes(megabytes << 20), 9)


ZEROS = 300
"""MiB that a bomb unpacks to: more than it is given."""
LINE = bytes(1000)
BOMBS: dict[str, Callable[[], bytes]] = {
    "png": lambda: png(100_000, 100_000, rows=LINE),
    "png of one line": lambda: png(2**31 - 1, 1, rows=LINE),
    "gif": lambda: b"GIF89a\xff\xff\xff\xff\x80\0\0" + bytes(6) + b"," + bytes(99),
    "bmp": lambda: b"BM" + struct.pack("<IIIIiiHH", 54, 0, 54, 40, 10**6, 10**6, 1, 24) + bytes(99),
    "ppm": lambda: b"P6 1000000 1000000 255\n" + bytes(100),
    "webp": lambda: b"RIFF\x1e\0\0\0WEBPVP8X\n\0\0\0\0\0\0\0" + b"\xff" * 6 + b"VP8 " + bytes(9),
    "zTXt": lambda: png(2, 2, (b"zTXt", b"a\0\0" + zeros(ZEROS)), rows=bytes(14)),
    "iCCP": lambda: png(2, 2, (b"iCCP", b"a\0\0" + zeros(ZEROS)), rows=bytes(14)),
    "many zTXt": lambda: png(2, 2, *[(b"zTXt", b"a\0\0" + zeros(1))] * ZEROS, rows=bytes(14)),
    "too many rows": lambda: png(2, 2, rows=bytes(ZEROS << 20)),
}
HARMLESS = {"iCCP", "too many rows"}
"""May be read: what is too much is left out without being unpacked."""


@pytest.mark.parametrize("name", BOMBS)
def test_bombs_are_refused_in_little_memory(name: str, tmp_path: Path) -> None:
    (tmp_path / "bomb").write_bytes(BOMBS[name]())
    program = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from tests.cache.sources.media.test_vision import decoded\n"
        "from gaam_cache.errors import DataError\n"
        "import PIL.Image; PIL.Image.init()\n"
        "now = int(Path('/proc/self/statm').read_text().split()[0]) * 4096\n"
        "resource.setrlimit(resource.RLIMIT_AS, (now + 2**28, now + 2**28))\n"
        "try:\n"
        "    print(decoded(Path(sys.argv[1]).read_bytes(), 'x').shape)\n"
        "except DataError as error:\n"
        "    print('refused', error.details['found'])\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "bomb")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.startswith("refused") or name in HARMLESS, done.stdout
    assert not done.stderr


def test_the_largest_picture_is_just_that() -> None:
    side = int(MOST_PIXELS**0.5)
    with pytest.raises(DataError, match=f"1 to {MOST_PIXELS:,} pixels"):
        decoded(png(side + 1, side + 1, rows=bytes(100)), "x")
    with pytest.raises(DataError, match="cannot be decoded"):  # and not for its size
        decoded(png(side, side, rows=bytes(100)), "x")


def test_nobody_can_make_us_read_half_a_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    content = saved(Kind("JPEG", "RGB"))
    with pytest.raises(DataError, match="truncated"):
        decoded(content[:-40], "x")


def test_versions_are_those_of_what_decodes() -> None:
    found = Vision.versions()
    assert found["pillow"] == Image.__version__
    assert all(isinstance(value, str) and value for value in found.values())
