"""A process apart that looks into HDF5 files, so that nothing in them can reach this one.

No pool of ``concurrent.futures``: its processes begin with the caller's own script, answer with
pickles, which a process that a hostile file has taken over could forge, and have to be started
anew, all of them, when one of them dies.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

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
            self._process = subprocess.Popen(
                # -P: a module that lies in the working directory is not imported
                [sys.executable, "-P", _PROGRAM],
                cwd="/",  # ours may be gone, and no interpreter starts there
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env=_environment(),
                start_new_session=True,  # Ctrl-C is for the parent; then our input ends
            )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        answer = ""
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps([file._asdict() for file in files]) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        if not answer:
            return ["the process that looks into HDF5 files died"] * len(files)
        reasons: list[str | None] = json.loads(answer)
        return reasons


def _environment() -> dict[str, str]:
    """Ours without what makes libhdf5 load drivers, connectors or filters ('::' forbids it)."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HDF5_")}
    return kept | {"HDF5_PLUGIN_PRELOAD": "::", "OPENBLAS_NUM_THREADS": "1"}
