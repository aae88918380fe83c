"""Where a report goes: a file that appears whole, or a stream."""

from __future__ import annotations

import io
import os
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from gaam_cache.errors import ConfigError
from gaam_cache.store.files import check_file, check_folder, storage_errors, write_file
from gaam_cache.store.plan import PLAN_FILE, SHARD_FOLDER
from gaam_decoder.reports.formats.terminal import Terminal
from gaam_decoder.reports.table import Format, Table
from gaam_decoder.runs.result import RUN_FILE


def write_report(writer: Format, tables: Sequence[Table], out: Path | None) -> None:
    """Write tables to a file, or to stdout.

    What is not for a screen is UTF-8 whatever the locale, the same in a pipe as in a file.

    Args:
        writer: the format.
        tables: all there are.
        out: a file, replaced by a rename if it is there, or a pipe or device, which is written to;
            None: stdout.

    Raises:
        ConfigError: as ``check_outputs``.
        StorageError: the file system refused; a file that was there is as it was.
    """
    check_outputs(out=out)
    if out is None and isinstance(writer, Terminal):
        writer.write(tables, sys.stdout)  # its width, colour and encoding are those of the screen
        return
    text = io.StringIO()
    writer.write(tables, text)
    if out is not None:
        _write(out, text.getvalue().encode())
        return
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    sys.stdout.write(text.getvalue())


def check_outputs(*, out: Path | None = None, figures: Path | None = None) -> None:
    """Refuse places where a report cannot go, before it is made.

    Args:
        out: of the tables; None: stdout.
        figures: the folder of the pictures; None: none are written.

    Raises:
        ConfigError: no file or folder can be there, or a folder that holds a run or a cache.
    """
    if figures is not None:
        check_folder(figures, option="--figures")
    if out is None:
        return
    if kept := _results_beside(out):
        raise ConfigError(
            f"'{out}' lies among results, which a report must not replace",
            expected="a file somewhere else",
            found=f"{kept} beside it",
            where=str(out.absolute()),
            hint="choose another --out",
        )
    check_file(out, option="--out", special=True)


def _results_beside(out: Path) -> str | None:
    """What shows that the folder of a file is that of a run, of a cache or of its shards."""
    folder = Path(os.path.realpath(out)).parent
    signs = [folder / RUN_FILE, folder / PLAN_FILE]
    signs += [folder.parent / PLAN_FILE] if folder.name == SHARD_FOLDER else []
    return next((sign.name for sign in signs if os.path.lexists(sign)), None)


def _write(out: Path, content: bytes) -> None:
    with storage_errors(out):
        if _is_written_to(out):
            # a pipe that nobody reads from is refused, not waited for
            handle = os.open(out, os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK)
            os.set_blocking(handle, True)
            with os.fdopen(handle, "wb") as file:
                file.write(content)
            return
    # the file that a link means is replaced, and not the link
    write_file(Path(os.path.realpath(out)), content)


def _is_written_to(out: Path) -> bool:
    """Whether a path is a pipe or device, or a stream of this process such as /dev/stdout."""
    try:
        mode = out.stat().st_mode
    except FileNotFoundError:
        return False
    special = not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)
    return special or out.absolute().is_relative_to("/dev")
