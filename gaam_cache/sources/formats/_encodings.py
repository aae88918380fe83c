"""Which characters the bytes of a text file are: UTF-8, or what a person says, never a guess."""

from __future__ import annotations

import codecs
import re
import shlex
from pathlib import Path
from typing import NamedTuple

from gaam_cache.config_checks import codec_of
from gaam_cache.errors import DataError
from gaam_cache.messages import excerpt

MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF32_LE: "utf-32-le",  # before UTF-16, whose mark it begins with
    codecs.BOM_UTF32_BE: "utf-32-be",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}
"""Byte-order marks, and the encodings of which they are."""
BAD_BYTE = re.compile("[\udc00-\udcff]")
"""What stands in a line for a byte that is of no character; no codec yields it otherwise."""
MARKING = "gaam.mark"
"""Name of the error handler that makes these of what is no text in other encodings than UTF-8."""


def _mark(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return chr(0xDC00 + error.object[error.start]), error.end


codecs.register_error(MARKING, _mark)


class Encoding(NamedTuple):
    """How a text file is read."""

    codec: str
    """For ``open``; its byte-order mark, if there is one, is left in."""
    errors: str
    """For ``open``: bytes that are of no character become what ``BAD_BYTE`` finds."""
    name: str
    """For messages."""
    asked: bool
    """Else it is UTF-8 because nobody said what it is."""


def encoding_of(path: Path, asked: str | None) -> Encoding:
    """How to read a file.

    Args:
        path: the file.
        asked: what a person says that it is; None means UTF-8.

    Raises:
        DataError: its byte-order mark says otherwise, or it needs one and has none.
        OSError: it cannot be read.
    """
    codec = "utf-8" if asked is None else codec_of(asked).removesuffix("-sig")
    with path.open("rb") as file:
        start = file.read(4)
    mark = next((name for mark, name in MARKS.items() if start.startswith(mark)), None)
    name = codec.upper() if codec.startswith("utf") else codec
    if mark is not None and mark != codec and mark.rpartition("-")[0] != codec:
        there = mark.upper().removesuffix("-LE").removesuffix("-BE")
        raise DataError(
            f"the file is not {name} but {there}",
            expected=name,
            found=f"the byte-order mark of {there}",
            where=f"{path}, line 1",
            hint=remedy(path, there) if asked is None else f"--set encoding={there.lower()}",
        )
    if codec in ("utf-16", "utf-32") and start:
        if mark is None:
            # its codec would take the order of this machine
            raise DataError(
                f"which order the bytes of the file have is not said, as {name} needs it",
                expected="a byte-order mark at its beginning",
                found=f"the bytes {start.hex(' ')}",
                where=f"{path}, line 1",
                hint=f"say it: --set encoding={codec}-le, or {codec}-be",
            )
        codec = mark
    errors = "surrogateescape" if codec == "utf-8" else MARKING
    return Encoding(codec, errors, name, asked is not None)


def not_in(encoding: Encoding, path: Path, number: int, line: str, position: int) -> DataError:
    """The refusal of a byte that is of no character."""
    byte = ord(line[position]) & 0xFF
    around = line[max(0, position - 20) : position + 20].strip("\r\n")
    found = f"byte 0x{byte:02X} at character {position + 1}"
    if encoding.asked:
        found += f", in {excerpt(BAD_BYTE.sub(chr(0xFFFD), around))}"
        hint = "name the encoding that it has with --set encoding=NAME, or mend the file"
    else:
        guess = around.encode("utf-8", "surrogateescape").decode("cp1252", "replace")
        found += f"; read as Windows-1252, there stands {excerpt(guess)}"
        hint = f"{remedy(path, 'WINDOWS-1252')} (or the encoding that it has)"
    return DataError(
        f"the file is not {encoding.name}",
        expected=encoding.name,
        found=found,
        where=f"{path}, line {number}",
        hint=hint,
    )


def nul_in(encoding: Encoding, path: Path, number: int, line: str) -> DataError:
    """The refusal of a NUL, which is in no text."""
    hint = f"the file is damaged, or not {encoding.name}"
    if not encoding.asked:
        hint = f"the file is damaged, or UTF-16: then {remedy(path, 'UTF-16LE')}"
    return DataError(
        "a NUL byte in a text file" if not encoding.asked else "a NUL character in a text file",
        expected=f"{encoding.name} text",
        found=f"{'byte 0x00' if not encoding.asked else 'U+0000'} at character "
        f"{line.index(chr(0)) + 1}",
        where=f"{path}, line {number}",
        hint=hint,
    )


def remedy(path: Path, encoding: str) -> str:
    """What to do about a file in that encoding, as iconv calls it."""
    source, target = (shlex.quote(name) for name in (path.name, f"{path.stem}-utf8{path.suffix}"))
    convert = f"convert it: iconv -f {encoding} -t UTF-8 {source} > {target}"
    return f"--set encoding={codecs.lookup(encoding).name}, or {convert}"
