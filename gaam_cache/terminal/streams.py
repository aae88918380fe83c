"""Standard streams that refuse: the work goes on, and what could not be said is said at the end."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from gaam_cache.errors import StorageError


class _Output(io.RawIOBase):
    """A descriptor that takes everything; the first refusal is remembered."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor
        self.error: OSError | None = None

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        if self._descriptor is None:
            raise _closed()
        return self._descriptor

    def isatty(self) -> bool:
        return self._descriptor is not None and os.isatty(self._descriptor)

    def write(self, data: Any) -> int:
        if self.error is None:
            try:
                return os.write(self.fileno(), data)
            except OSError as error:
                self.error = error
        return len(data)


def _closed() -> OSError:
    return OSError(errno.EBADF, os.strerror(errno.EBADF))


class Stdout:
    """What became of what was printed."""

    def __init__(self, output: _Output | None) -> None:
        self._output = output

    def error(self) -> StorageError | None:
        """Why not everything that was printed has arrived, if so; to be asked at the end."""
        if self._output is None:
            return None
        sys.stdout.flush()
        refused = self._output.error
        if refused is None or refused.errno == errno.EPIPE:
            return None  # who reads no further wants no more: no failure of ours
        return StorageError(
            "stdout did not take everything that was printed",
            found=refused.strerror,
            hint="run the same again with stdout elsewhere; what was computed is kept",
        )


def write_stdout(content: bytes) -> bool:
    """Write bytes to stdout as they are, whatever its encoding.

    Returns:
        False where stdout takes no more, as behind ``| head``: what follows need not be computed.
    """
    sys.stdout.flush()
    if not isinstance(sys.stdout, io.TextIOWrapper):  # whoever put it there wants text
        sys.stdout.write(content.decode())
        return True
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()
    raw = getattr(sys.stdout.buffer, "raw", None)
    return not (isinstance(raw, _Output) and raw.error is not None)


@contextmanager
def careful_streams() -> Iterator[Stdout]:
    """Let printing never fail, here or in a library; what no encoding has is an escape.

    Streams that were closed at the start are no descriptors for the next files to be opened.
    """
    before = sys.stdout, sys.stderr
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(descriptor)
    output = None
    if sys.stdout is sys.__stdout__:  # else whoever put it there knows what it is
        output = _Output(1 if sys.stdout is not None else None)
        sys.stdout = _text(output, sys.stdout)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _text(_Output(2 if sys.stderr is not None else None), sys.stderr)
    try:
        yield Stdout(output)
    finally:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                stream.flush()
        sys.stdout, sys.stderr = before


def _text(output: _Output, like: Any) -> io.TextIOWrapper:
    at_once = output.isatty() or like is sys.__stderr__
    return io.TextIOWrapper(
        io.BufferedWriter(output),
        encoding=getattr(like, "encoding", "utf-8"),
        errors="backslashreplace",
        line_buffering=at_once,
        write_through=at_once,
    )
