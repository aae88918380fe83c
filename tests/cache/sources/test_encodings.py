"""Tables in any encoding, with any delimiter; none is guessed, a wrong byte names its line."""

from __future__ import annotations

import codecs
import csv
import io
import json
import pkgutil
from encodings import aliases
from itertools import product
from pathlib import Path

import pytest

from gaam_cache.config import ExtractConfig
from gaam_cache.config_checks import DELIMITERS, NOT_OF_FILES, codec_of
from gaam_cache.errors import ConfigError, DataError
from gaam_cache.sources._base import Rows, find_source
from gaam_cache.sources.formats import _lines
from gaam_cache.sources.formats._lines import numbered_lines

MARKED = {
    "utf-8": codecs.BOM_UTF8,
    "utf-16-le": codecs.BOM_UTF16_LE,
    "utf-16-be": codecs.BOM_UTF16_BE,
    "utf-32-le": codecs.BOM_UTF32_LE,
    "utf-32-be": codecs.BOM_UTF32_BE,
}


def every_codec() -> list[str]:
    """All that Python has and that are said to be of text, but for those that need Windows."""
    import encodings

    names = {module.name for module in pkgutil.iter_modules(encodings.__path__)}
    names |= set(aliases.aliases.values())
    found = set()
    for name in names - {"aliases", "mbcs", "oem", "cp65001"}:
        try:
            info = codecs.lookup(name)
        except LookupError:
            continue
        if info._is_text_encoding:
            found.add(info.name)
    return sorted(found)


def usable(codec: str) -> bool:
    return codec.replace("_", "-") not in NOT_OF_FILES


def read(dataset: Path, split: str = "train", **options: object) -> Rows:
    config = ExtractConfig(dataset=str(dataset), splits=(split,), **options)  # type: ignore[arg-type]
    return find_source(config.dataset).read(config, split)


def sample_of(codec: str) -> str:
    """Characters that the codec has, of all kinds, each between letters."""
    characters = "é€ß東京опαθ한あ\u0627\u05d0ğłñ¢\U0001f600ﾊ"
    have = []
    for character in characters:
        try:
            if f"a{character}b".encode(codec).decode(codec) == f"a{character}b":
                have.append(character)
        except UnicodeError:
            continue
    return "x" + "x".join(have) + "x"


def write(path: Path, rows: list[tuple[str, str]], codec: str, delimiter: str = ",") -> None:
    if path.suffix == ".csv":
        text = io.StringIO()
        writer = csv.writer(text, delimiter=delimiter)
        writer.writerows([("label", "text"), *rows])
        content = text.getvalue()
    else:
        lines = [json.dumps({"label": a, "text": b}, ensure_ascii=False) for a, b in rows]
        content = "\n".join([*lines, ""])
    path.write_bytes(content.encode(codec))


def test_there_are_many_codecs() -> None:
    assert len([codec for codec in every_codec() if usable(codec)]) > 80


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_every_encoding_of_text_is_read_in_every_format_with_every_delimiter(
    suffix: str, tmp_path: Path
) -> None:
    delimiters = [*DELIMITERS.values(), "^", "é"] if suffix == ".csv" else [","]
    read_back = set()
    for codec, delimiter in product(filter(usable, every_codec()), delimiters):
        odd = sample_of(codec)
        rows = [("a", f"one {odd}"), ("b", f'two, "q"; {odd}\nover\ttwo | lines')]
        path = tmp_path / f"train{suffix}"
        try:
            write(path, rows, codec, delimiter)
        except UnicodeEncodeError:  # it has no such delimiter, or no bar
            continue
        said = None if delimiter == "," else delimiter
        back = read(path, encoding=codec, delimiter=said)
        assert list(zip(back.labels, back.inputs, strict=True)) == rows, (codec, delimiter)
        read_back.add((codec, delimiter))
    assert len(read_back) > 80 * (len(delimiters) - 1)


def test_what_is_no_encoding_of_files_is_refused() -> None:
    bad = [codec for codec in every_codec() if not usable(codec)]
    assert len(bad) >= 4
    for name in [*bad, "base64", "rot13", "zip", "hex", "no-such", "", "\0", "x" * 300, "utf 9"]:
        with pytest.raises(ConfigError, match="unknown encoding"):
            ExtractConfig(encoding=name)
    for name in ("UTF8", "Latin-1", "windows-1252", "utf_16_le", "sjis"):
        assert ExtractConfig(encoding=name).encoding == name
        assert codec_of(name)


@pytest.mark.parametrize("newline", ["", "\n"])
def test_lines_are_those_of_the_whole_text_wherever_a_buffer_ends(
    newline: str, tmp_path: Path
) -> None:
    """Characters of several bytes, and states of a codec, across any border of a buffer."""
    for codec in filter(usable, every_codec()):
        if codec in ("utf-16", "utf-32", "utf-7"):
            continue
        odd = sample_of(codec)
        lines = [f"{'y' * (number % 7)}{odd}\n" for number in range(1200)]
        path = tmp_path / "lines.txt"
        path.write_bytes("".join(lines).encode(codec))
        if path.read_bytes().decode(codec) != "".join(lines):
            continue
        found = list(numbered_lines(path, newline=newline, encoding=codec))  # type: ignore[arg-type]
        assert found == list(enumerate(lines, start=1)), codec


def test_a_byte_order_mark_that_agrees_is_left_out_and_one_that_does_not_is_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "train.csv"
    asked = [*MARKED, "utf-16", "utf-32", "utf-8-sig", "cp1252", "latin-1", "gb18030", None]
    for (codec, mark), encoding in product(MARKED.items(), asked):
        path.write_bytes(mark + "label,text\na,b c\n".encode(codec))
        plain = (encoding or "utf-8").removesuffix("-sig")
        if plain in (codec, codec.rpartition("-")[0]):
            assert read(path, encoding=encoding).inputs == ["b c"], (codec, encoding)
            continue
        there = codec.upper().removesuffix("-LE").removesuffix("-BE")
        with pytest.raises(DataError, match=f"byte-order mark of {there}(.|\n)*line 1") as caught:
            read(path, encoding=encoding)
        assert f"--set encoding={there.lower()}" in caught.value.details["to do"]
        # and that helps
        assert read(path, encoding=there.lower()).inputs == ["b c"]


def test_an_order_of_bytes_that_nobody_says_is_not_that_of_this_machine(tmp_path: Path) -> None:
    path = tmp_path / "train.csv"
    for family, order in product(("utf-16", "utf-32"), ("le", "be")):
        path.write_bytes("label,text\na,b\n".encode(f"{family}-{order}"))
        with pytest.raises(DataError, match=f"encoding {family}-le, or {family}-be"):
            read(path, encoding=family)
        assert read(path, encoding=f"{family}-{order}").inputs == ["b"]
        path.write_bytes(b"")
        with pytest.raises(DataError, match="header"):
            read(path, encoding=family)


WRONG = {
    "utf-8": b"\xe9",
    "ascii": b"\xe9",
    "cp1252": b"\x81",
    "shift_jis": b"\x81\x20",
    "gb18030": b"\xff",
    "big5": b"\xff",
    "utf-16-le": b"\x00\xdc",
    "utf-16-be": b"\xdc\x00",
    "utf-32-le": b"\x00\x00\x11\x00",
    "utf-32-be": b"\xff\xff\xff\xff",
    "euc_kr": b"\xff",
}


@pytest.mark.parametrize("suffix", [".csv", ".jsonl"])
def test_a_wrong_byte_names_its_line_in_every_encoding(suffix: str, tmp_path: Path) -> None:
    for codec, wrong in WRONG.items():
        for line in (1, 2, 3, 500, 2000):
            rows = [
                f"a,b{n}" if suffix == ".csv" else '{"label": "a", "text": "b"}'
                for n in range(2000)
            ]
            rows[0] = "label,text" if suffix == ".csv" else rows[0]
            parts = [f"{row}\n".encode(codec) for row in rows]
            parts[line - 1] = parts[line - 1].replace(
                "b".encode(codec), "b".encode(codec) + wrong, 1
            )
            (tmp_path / f"train{suffix}").write_bytes(b"".join(parts))
            message = f"the file is not .*(.|\n)*byte 0x{wrong[0]:02X} at char(.|\n)*line {line}\n"
            with pytest.raises(DataError, match=message):
                read(tmp_path, encoding=codec)


@pytest.mark.parametrize("codec", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_an_end_within_a_character_is_refused(codec: str, tmp_path: Path) -> None:
    content = "label,text\na,b\nc,d".encode(codec)
    for cut in range(1, len("d".encode(codec))):
        (tmp_path / "train.csv").write_bytes(content[:-cut])
        with pytest.raises(DataError, match="line 3"):
            read(tmp_path, encoding=codec)


def test_a_nul_is_refused_in_every_encoding(tmp_path: Path) -> None:
    for codec in ("utf-8", "cp1252", "utf-16-le", "utf-32-be", "shift_jis"):
        (tmp_path / "train.csv").write_bytes("label,text\na,b\0c\n".encode(codec))
        with pytest.raises(DataError, match=r"NUL(.|\n)*character 4(.|\n)*line 2"):
            read(tmp_path, encoding=codec)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_every_kind_of_line_end_in_wide_encodings(end: str, tmp_path: Path) -> None:
    for codec in ("utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"):
        # ogonek and its kin: characters that have the byte of a line feed in them
        rows = [("a", "\u010a\u0a0a\u0d0d one"), ("b", "two \u0d0a")]
        lines = ["label,text", *(f"{label},{text}" for label, text in rows)]
        (tmp_path / "train.csv").write_bytes(end.join(lines).encode(codec))
        back = read(tmp_path, encoding=codec)
        assert list(zip(back.labels, back.inputs, strict=True)) == rows


def test_a_long_line_in_wide_encodings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_lines, "MAX_LINE_CHARS", 1000)
    (tmp_path / "train.csv").write_bytes(f"label,text\na,{'x' * 1000}\n".encode("utf-16"))
    with pytest.raises(DataError, match=r"too long(.|\n)*line 2"):
        read(tmp_path, encoding="utf-16")


@pytest.mark.parametrize(("word", "mark"), DELIMITERS.items())
def test_a_header_that_nothing_parts_hints_at_the_delimiter(
    word: str, mark: str, tmp_path: Path
) -> None:
    (tmp_path / "train.csv").write_text(f"label{mark}text\na{mark}b\n")
    if word not in ("comma", "space"):
        with pytest.raises(ConfigError, match=f"separated by commas(.|\n)*--set delimiter={word}"):
            read(tmp_path)
        assert read(tmp_path, delimiter=word).inputs == ["b"]
        assert read(tmp_path, delimiter=mark).inputs == ["b"]
        with pytest.raises(ConfigError, match=f"another delimiter, {word}"):
            read(tmp_path, delimiter="^")


def test_faults_of_quotes_are_found_with_every_delimiter(tmp_path: Path) -> None:
    for mark in (*DELIMITERS.values(), "^", "é"):
        (tmp_path / "train.csv").write_text(f'label{mark}text\na{mark}5"x\na{mark}"b"{mark}"c\n')
        with pytest.raises(DataError, match=r"never closed(.|\n)*line 3, where"):
            read(tmp_path, delimiter=mark)
        (tmp_path / "train.csv").write_text(f'label{mark}text\na{mark}"b"c\n')
        with pytest.raises(DataError, match=r"goes on(.|\n)*'c' after(.|\n)*line 2, where"):
            read(tmp_path, delimiter=mark)
