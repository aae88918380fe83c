"""The lines of a text file, each with its number; what is no UTF-8 is refused by line."""

from __future__ import annotations

import codecs
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from gaam_cache.errors import DataError, StorageError
from gaam_cache.messages.checks import excerpt

MAX_LINE_CHARS = 64 * 2**20
"""A longer line is a file of another kind, and would be held in memory whole."""
BYTE_ORDER_MARKS = {
    codecs.BOM_UTF32_LE: "UTF-32",  # before UTF-16, whose mark it begins with
    codecs.BOM_UTF32_BE: "UTF-32",
    codecs.BOM_UTF16_LE: "UTF-16",
    codecs.BOM_UTF16_BE: "UTF-16",
}
ESCAPED_BYTE = re.compile("[\udc80-\udcff]")


def numbered_lines(path: Path, *, newline: Literal["", "\n"]) -> Iterator[tuple[int, str]]:
    r"""Lines with their line ends, numbered from 1; a UTF-8 byte-order mark is left out.

    Args:
        path: the file.
        newline: '\n' ends lines there alone; '' also at '\r' and '\r\n'. Neither ends them at
            U+2028 and its kin, which may stand inside a text.

    Raises:
        DataError: a line that is not UTF-8, holds a NUL or is too long; names file and line.
        StorageError: the file cannot be read.
    """
    number = 0
    try:
        _refuse_other_encodings(path)
        # a decoder that stops at a bad byte has read ahead and knows no line: let bad bytes
        # through as lone surrogates, which valid UTF-8 never yields, and look for them
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline=newline) as file:
            while line := file.readline(MAX_LINE_CHARS + 1):
                number += 1
                if len(line) > MAX_LINE_CHARS:
                    raise DataError(
                        "a line is too long",
                        expected=f"at most {MAX_LINE_CHARS:,} characters",
                        where=f"{path}, line {number}",
                        hint=f"is this a {path.suffix} file, with one row a line?",
                    )
                if not line.isascii() and (bad := ESCAPED_BYTE.search(line)):
                    raise _not_utf8(path, number, line, bad.start())
                if "\0" in line:
                    raise DataError(
                        "a NUL byte in a text file",
                        expected="UTF-8 text",
                        found=f"byte 0x00 at character {line.index(chr(0)) + 1}",
                        where=f"{path}, line {number}",
                        hint="the file is damaged, or UTF-16: then "
                        + _conversion(path, "UTF-16LE"),
                    )
                yield number, line
    except OSError as error:
        raise StorageError(
            f"cannot read '{path.name}'", found=error.strerror, where=f"{path}, line {number + 1}"
        ) from error


def _refuse_other_encodings(path: Path) -> None:
    with path.open("rb") as file:
        start = file.read(4)
    for mark, encoding in BYTE_ORDER_MARKS.items():
        if start.startswith(mark):
            raise DataError(
                f"the file is not UTF-8 but {encoding}",
                expected="UTF-8",
                found=f"the byte-order mark of {encoding}",
                where=f"{path}, line 1",
                hint=_conversion(path, encoding),
            )


def _not_utf8(path: Path, number: int, line: str, position: int) -> DataError:
    byte = ord(line[position]) - 0xDC00
    around = line[max(0, position - 20) : position + 20].strip("\r\n")
    guess = around.encode("utf-8", "surrogateescape").decode("cp1252", "replace")
    return DataError(
        "the file is not UTF-8",
        expected="UTF-8",
        found=f"byte 0x{byte:02X} at character {position + 1}; read as Windows-1252, there stands "
        f"{excerpt(guess)}",
        where=f"{path}, line {number}",
        hint=f"{_conversion(path, 'WINDOWS-1252')} (or the encoding that it has)",
    )


def _conversion(path: Path, encoding: str) -> str:
    source, target = (shlex.quote(name) for name in (path.name, f"{path.stem}-utf8{path.suffix}"))
    return f"convert it: iconv -f {encoding} -t UTF-8 {source} > {target}"
