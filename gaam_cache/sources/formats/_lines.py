"""The lines of a text file, each with its number; what is no text is refused by line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Literal

from gaam_cache.errors import DataError, StorageError
from gaam_cache.sources.formats._encodings import BAD_BYTE, encoding_of, not_in, nul_in

MAX_LINE_CHARS = 64 * 2**20
"""A longer line is a file of another kind, and would be held in memory whole."""
BYTE_ORDER_MARK = "\ufeff"


def numbered_lines(
    path: Path, *, newline: Literal["", "\n"], encoding: str | None = None
) -> Iterator[tuple[int, str]]:
    r"""Lines with their line ends, numbered from 1; a byte-order mark is left out.

    Args:
        path: the file.
        newline: '\n' ends lines there alone; '' also at '\r' and '\r\n'. Neither ends them at
            U+2028 and its kin, which may stand inside a text.
        encoding: of its characters; None means UTF-8.

    Raises:
        DataError: a line that is not in that encoding, holds a NUL or is too long; names file and
            line.
        StorageError: the file cannot be read.
    """
    number = 0
    try:
        read_as = encoding_of(path, encoding)
        # a decoder that stops at a bad byte has read ahead and knows no line: let bad bytes
        # through as lone surrogates, which valid text never yields, and look for them
        with path.open(encoding=read_as.codec, errors=read_as.errors, newline=newline) as file:
            while line := file.readline(MAX_LINE_CHARS + 1):
                number += 1
                if number == 1:
                    line = line.removeprefix(BYTE_ORDER_MARK)
                if len(line) > MAX_LINE_CHARS:
                    raise DataError(
                        "a line is too long",
                        expected=f"at most {MAX_LINE_CHARS:,} characters",
                        where=f"{path}, line {number}",
                        hint=f"is this a {path.suffix} file, with one row a line?",
                    )
                if not line.isascii() and (bad := BAD_BYTE.search(line)):
                    raise not_in(read_as, path, number, line, bad.start())
                if "\0" in line:
                    raise nul_in(read_as, path, number, line)
                yield number, line
    except OSError as error:
        raise StorageError(
            f"cannot read '{path.name}'", found=error.strerror, where=f"{path}, line {number + 1}"
        ) from error
