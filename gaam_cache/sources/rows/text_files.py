"""Lines of text files: compression, encodings and byte-order marks."""

import codecs
import gzip
import re
import warnings
import zlib
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from gaam_cache.common.cells import BYTE_ORDER_MARK
from gaam_cache.common.errors import DataError, GaamWarning
from gaam_cache.common.messages import excerpt
from gaam_cache.config import ExtractConfig
from gaam_cache.sources.rows.layout import COMPRESSED

MARKS = {  # longest first, because the mark of UTF-32 starts with that of UTF-16
    "utf-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
    "utf-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
    "utf-8-sig": (codecs.BOM_UTF8,),
}
"""Byte-order marks at the start of a file, by the encoding that reads them."""
LONGEST_MARK = 4
WINDOWS_CHARACTERS = re.compile("[\x80-\x9f]")
"""Control characters in Latin-1; in the Western encoding of Windows most of them are
quotes and dashes."""
GZIP = b"\x1f\x8b"  # first bytes of a file compressed by gzip
CHUNK_BYTES = 2**20
READ_ERRORS = (OSError, EOFError, zlib.error)
"""Raised for files that are gone, cut short or damaged."""


def byte_order_mark(path: Path) -> str | None:
    """The encoding of the byte-order mark at the start of a file; None without one."""
    with suppress(*READ_ERRORS), _open_bytes(path) as file:
        head = file.read(LONGEST_MARK)
        for encoding, marks in MARKS.items():
            if head.startswith(marks):
                return encoding
    return None


def reads_mark(encoding: str, mark: str) -> bool:
    """Whether an encoding reads files that begin with a byte-order mark.

    Args:
        encoding: an encoding, such as 'utf-16-le'.
        mark: the encoding of the mark, as ``byte_order_mark`` returns it: 'utf-16'.
    """
    return codecs.lookup(encoding).name.startswith(mark.removesuffix("-sig"))


def warn_if_utf8(path: Path, config: ExtractConfig) -> None:
    """Warn that a file, read in another encoding, may well be UTF-8."""
    encoding = config.encoding
    if encoding is None or codecs.lookup(encoding).name.startswith("utf"):
        return
    # other encodings hardly ever give valid UTF-8 by chance
    if _is_utf8_beyond_ascii(path):
        warnings.warn(
            f"'{path.name}' is read as {encoding}, but it may be UTF-8: all of it is "
            "valid UTF-8",
            GaamWarning,
            stacklevel=3,
        )


def _is_utf8_beyond_ascii(path: Path) -> bool:
    """Whether a file is valid UTF-8 and has at least one character beyond ASCII."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    is_ascii = True
    try:
        with _open_bytes(path) as file:
            while chunk := file.read(CHUNK_BYTES):
                is_ascii &= decoder.decode(chunk).isascii()
        decoder.decode(b"", final=True)
    except (UnicodeDecodeError, *READ_ERRORS):
        return False
    return not is_ascii


def read_lines(
    path: Path, config: ExtractConfig, newline: str = "\n"
) -> Generator[str]:
    """Yield the lines of a text file, each with its line end.

    Args:
        path: the file, which may be compressed by gzip.
        config: the extraction; it may name the encoding.
        newline: the argument of ``open``; "" leaves all line ends as they are.

    Raises:
        DataError: the file cannot be decoded; or a byte-order mark, which is left where
            files were joined, starts a line.
    """
    encoding = _encoding_of(path, config)
    may_be_windows = codecs.lookup(encoding).name == "iso8859-1"
    try:
        with _open_text(path, encoding, newline) as file:
            for number, line in enumerate(file, start=1):
                if may_be_windows and WINDOWS_CHARACTERS.search(line):
                    may_be_windows = False
                    warnings.warn(
                        f"line {number} of '{path.name}' has control characters if it "
                        f"is read as {encoding}; perhaps a program of Windows wrote "
                        "the file: --set encoding=cp1252",
                        GaamWarning,
                        stacklevel=3,
                    )
                if line[0] == BYTE_ORDER_MARK:
                    raise DataError(
                        "a line begins with a byte-order mark",
                        expected="such a mark only at the start of a file",
                        found=excerpt(line),
                        where=f"{path}, line {number}",
                        hint="files were joined: remove the mark (U+FEFF) and the "
                        "second header",
                    )
                yield line
    except (UnicodeError, *READ_ERRORS) as error:
        raise _unreadable_error(path, encoding, error) from error


def _unreadable_error(path: Path, encoding: str, error: Exception) -> DataError:
    """The error for a file that could not be read to its end."""
    hint = "convert it to UTF-8, or name its encoding: --set encoding=cp1252"
    if not isinstance(error, UnicodeError):
        hint = "get the file again"
    elif _first_bytes(path, len(GZIP)) == GZIP:
        hint = f"it is compressed by gzip: call it {path.name}{COMPRESSED}"
    name = "UTF-8" if encoding == "utf-8-sig" else encoding
    return DataError(
        f"the file cannot be read as {name}",
        found=str(error),
        where=str(path),
        hint=hint,
    )


def _encoding_of(path: Path, config: ExtractConfig) -> str:
    """The encoding of a file: the configured one, else UTF-8.

    Raises:
        DataError: the file begins with the byte-order mark of another encoding.
    """
    mark = byte_order_mark(path)
    encoding = config.encoding
    # utf-8-sig reads files with and without its mark
    if mark is None or (mark == "utf-8-sig" and encoding is None):
        return encoding or "utf-8-sig"
    # the configured encoding, such as utf-16-le, has the same mark
    if encoding is not None and reads_mark(encoding, mark):
        return mark
    raise DataError(
        f"the file begins with the byte-order mark of {mark}",
        expected=f"text in {encoding or 'UTF-8'}",
        where=str(path),
        hint=f"--set encoding={mark}",
    )


def _is_compressed(path: Path) -> bool:
    return path.suffix.lower() == COMPRESSED


def _open_bytes(path: Path) -> BinaryIO:
    """Open a file to read its bytes, decompressed."""
    if _is_compressed(path):
        return cast(BinaryIO, gzip.open(path))
    return path.open("rb")


def _open_text(path: Path, encoding: str, newline: str) -> TextIO:
    """Open a file to read its text, decompressed."""
    if _is_compressed(path):
        return cast(TextIO, gzip.open(path, "rt", encoding=encoding, newline=newline))
    return path.open(encoding=encoding, newline=newline)


def _first_bytes(path: Path, count: int) -> bytes:
    with path.open("rb") as file:
        return file.read(count)
