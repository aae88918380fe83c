"""A process apart that looks into HDF5 files, so that nothing in them can reach this one.

No pool of ``concurrent.futures``: its processes begin with the caller's own script, answer with
pickles, which a process that a hostile file has taken over could forge, and have to be started
anew, all of them, when one of them dies.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from gaam_cache.format.hdf5_process import pipes_of, start_process
from gaam_cache.verification import strict_hdf5

_PROGRAM = str(Path(strict_hdf5.__file__).absolute())


class HDF5File(NamedTuple):
    """A file and what must be in it."""

    path: str
    """Absolute, of an existing regular file."""
    attributes: dict[str, Any]
    """The attributes that the root group must have, and no others."""
    arrays: strict_hdf5.Arrays
    """Name -> {"offset", "shape", "dtype", "stored"}, where ``stored`` is the type as NumPy writes
    it; these arrays must be there, and nothing else."""


class Inspector:
    """Looks into HDF5 files from a distance. A context manager.

    >>> with Inspector() as inspector:  # doctest: +SKIP
    ...     inspector.inspect([HDF5File(path, attributes, arrays)])
    """

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Inspector:
        """Nothing is started before it is needed."""
        return self

    def __exit__(self, *reason: object) -> None:
        """End the process."""
        if self._process is not None:
            with suppress(OSError):
                self._process.communicate()  # its input ends, and so does it

    def inspect(self, files: Sequence[HDF5File]) -> list[str | None]:
        """For every file why it is no shard, or None where it is one."""
        if self._process is None or self._process.poll() is not None:
            self._process = start_process(_PROGRAM, text=True)
        questions, answers = pipes_of(self._process)
        answer = ""
        with suppress(BrokenPipeError):
            questions.write(json.dumps([file._asdict() for file in files]) + "\n")
            questions.flush()
            answer = answers.readline()
        if not answer:
            return ["the process that looks into HDF5 files died"] * len(files)
        reasons: list[str | None] = json.loads(answer)
        return reasons
